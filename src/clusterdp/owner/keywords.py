"""Which options each function takes, and of which types in Python.

Type checkers read them here. Their meanings are in the list of options, from which `takes` writes
what `help` shows. The commands that make a plan and carry it out are here, too, to be copied: they
name none of your files.
"""

from __future__ import annotations

import inspect
import re
import shlex
from functools import wraps
from textwrap import fill
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from clusterdp._text import shortest_decimal
from clusterdp.spec.fields import DECLARED, flag_of
from clusterdp.spec.parse import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from clusterdp.ledger.ledger import Ledger
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.finite import OutcomeSpace
    from clusterdp.outcomes.number import Number
    from clusterdp.spec.fields import Options
    from clusterdp.spec.request import Request

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_WIDTH, _INDENT = 100, 8


class _Keywords(TypedDict, total=False):
    """What every function takes."""

    query: str | None
    delimiter: str | None
    decimal: str | None
    thousands: str | None
    outcomes: Mapping[str, Number | OutcomeSpace | str | Sequence[float]] | Sequence[str] | None
    implies: str | Sequence[str] | None
    missing: str | Sequence[str] | None
    metric: str | Sequence[str] | None
    weight: Mapping[str, float] | Sequence[str] | None
    question: str | Sequence[str | Sequence[str]] | Mapping[str, float] | None
    unit: str | None
    arm: str | None
    cluster: str | Sequence[str] | None
    private_cluster: float | None
    labels: str | Sequence[str] | None
    labels_from: str | PathLike[str] | None
    label_shares: Mapping[str, float] | str | Sequence[str] | None
    assignment: Mapping[str, float | Mapping[str, float]] | str | Sequence[str] | None
    breakdown: str | Sequence[str | Sequence[str]] | None
    assigned_by: str | None
    group_correlation: float | None
    folds: int | None
    aggregate: Mapping[str, str] | str | Sequence[str] | None
    control: Any
    arm_shares: Mapping[Any, float] | str | Sequence[str] | None
    keep: str | Sequence[str] | None
    min_cell_size: int | None
    epsilon: float | None
    delta: float | None
    look: float | None
    counts_share: float | None
    reference: (
        Mapping[str, str | float | Sequence[float]] | str | Sequence[float] | Sequence[str] | None
    )
    within_share: float | None
    purpose: str | None
    allow_unencrypted_spark: bool | None


class _Provenance(TypedDict, total=False):
    """Where a release comes from, in the owner's words."""

    title: str | None
    description: str | None
    collected: str | None
    contact: str | None
    licence: str | None
    approved_by: str | None
    reason: str | None


class PlanKeywords(_Keywords, _Provenance, total=False):
    """What `plan` takes."""

    mechanism: str | None
    mde: float | str | Mapping[str, float] | None
    size: str | None
    engine: str | None
    master: str | None


class ReleaseKeywords(_Keywords, total=False):
    """What `release` takes."""

    mechanism: Mechanism | Sequence[Mechanism] | str | None
    clip: bool | None
    keep_order: bool | None
    noise_scale: float | None
    prior_floor: float | None
    resample_prob: float | None
    totals_share: float | None
    sums_share: float | None
    breakdown_share: float | None
    prior: str | Sequence[float] | None
    verbose: bool | None


class PublishKeywords(ReleaseKeywords, _Provenance, total=False):
    """What `publish` and `preview` take."""

    ledger: str | PathLike[str] | Ledger | None
    population: str | None
    new_population: bool | None
    ledger_key_file: str | PathLike[str] | None
    engine: str | None
    master: str | None


def takes(
    keywords: type,
) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
    """Show every option of a function in its signature and docstring, and refuse all others.

    The docstring has one line for `**options`, which the list of them replaces.
    """
    hints = keywords.__annotations__
    types = {name: hints[name] for name in DECLARED if name in hints}

    def decorate(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        shown = _signature(function, types)

        @wraps(function)
        def call(*args: _Given.args, **given: _Given.kwargs) -> _Result:
            refuse_unknown(given, shown.parameters)
            return function(*args, **given)

        listed = "".join(f"{_entry(name)}\n" for name in types)
        call.__doc__ = re.sub(r" *\*\*options:.*\n", lambda _: listed, function.__doc__ or "")
        call.__signature__ = shown  # type: ignore[attr-defined]  # `inspect` and `help` read it
        return call

    return decorate


def _signature(function: Callable[..., Any], types: Mapping[str, Any]) -> inspect.Signature:
    """The signature of a function, with options by name in place of `**options`."""
    own = inspect.signature(function)
    kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint.__forward_arg__
        )
        for name, hint in types.items()
    ]
    return own.replace(parameters=[*kept, *options])


def _entry(name: str) -> str:
    """The entry of an option in a docstring."""
    indent = " " * _INDENT
    return fill(
        f"{name}: {DECLARED[name].text}",
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_on_hyphens=False,
    )


# What stands for the owner's tables, and for options that only a file can give.
TABLE, QUERY, OPTIONS_FILE = "TABLE", "QUERY", "OPTIONS_FILE"
# The headings of options that say what a plan is for; others say where it is made.
_PLAN_PANELS = (DECLARED["input"].panel, DECLARED["epsilon"].panel)
# Options that a plan notes by itself, or that a command names elsewhere.
_LEFT_OUT = ("input", "unit", "n_units", "n_clusters", "grids", "epsilon", "mde")
_PLANNED = [
    name for name, one in DECLARED.items() if one.panel in _PLAN_PANELS and name not in _LEFT_OUT
]
_LINE, _CONTINUED = 76, "    "


def plan_line(given: Options, epsilon: float) -> str:
    """The command that plans the same at some ε."""
    words = ["clusterdp plan", TABLE]
    options = [name for name in _PLANNED if getattr(given, name) is not None]
    for name in options:
        if name in PlanKeywords.__annotations__:
            words += _flag(name, getattr(given, name))
    if not PlanKeywords.__annotations__.keys() >= set(options):
        words.append(f"--spec {OPTIONS_FILE}")
    return in_lines([*words, f"--epsilon {shortest_decimal(epsilon)}", "--out plan.toml"])


def release_line(given: Request) -> str:
    """The command that carries a plan out."""
    unit = "ID_COLUMN" if given.options.unit is None else shlex.quote(given.options.unit)
    words = ["clusterdp release", TABLE, "--plan plan.toml", f"--unit {unit}"]
    return in_lines([*words, *later_options(given), "--out published"])


def later_options(given: Request) -> list[str]:
    """What cannot be added after a release and was not given, for the owner to fill in."""
    unsaid = [f"--{name} ..." for name in given.provenance.unsaid]
    return [*unsaid, "--ledger ...", "--population ..."]


def _flag(name: str, value: Any) -> list[str]:
    """An option as a command line gives it."""
    flag = f"--{flag_of(name)}"
    kind = DECLARED[name].types[0]
    if name == "query":  # which names files and tables
        return [f"{flag} {QUERY}"]
    if kind is bool:
        return [flag] if value else []
    if kind == list[str]:
        return [f"{flag} {shlex.quote(one)}" for one in value]
    return [f"{flag} {shlex.quote(_as_word(value))}"]


def _as_word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_as_word, value))
    return shortest_decimal(value) if isinstance(value, float) else str(value)


def in_lines(words: Iterable[str]) -> str:
    """Words in lines that fit, which a shell reads as one."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= _LINE:
            lines[-1] += f" {word}"
        else:
            lines.append((_CONTINUED if lines else "") + word)
    return " \\\n".join(lines)
