"""Which options each function takes, and of which types in Python.

Type checkers read them here. Their meanings are in the list of options, from which `takes` writes
what `help` shows. The commands that plan and publish are here, too, to be copied. Of your files
they name the experiment file only.
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
    constraint: str | Sequence[str] | None
    missing: str | Sequence[str] | None
    metric: str | Sequence[str] | None
    covariate: Mapping[str, Any] | str | Sequence[str] | None
    primary: str | None
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
    randomization_unit: str | None
    group_correlation: float | None
    folds: int | None
    clip: bool | None
    keep_order: bool | None
    aggregate: Mapping[str, str] | str | Sequence[str] | None
    control: Any
    arm_shares: Mapping[Any, float] | str | Sequence[str] | None
    passthrough: str | Sequence[str] | None
    min_cell_size: int | None
    epsilon: float | None
    delta: float | None
    pilot: float | None
    counts_share: float | None
    baseline: (
        Mapping[str, str | float | Sequence[float]] | str | Sequence[float] | Sequence[str] | None
    )
    within_share: float | None
    optimize_for: str | None
    allow_unencrypted_spark: bool | None


class _Provenance(TypedDict, total=False):
    """Where a release comes from, in the owner's words."""

    unit_name: str | None
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
    noise_scale: float | None
    prior_floor: float | None
    resample_prob: float | None
    totals_share: float | None
    sums_share: float | None
    breakdown_share: float | None
    covariate_share: float | None
    prior: str | Sequence[float] | None
    show_row_counts: bool | None


class PublishKeywords(ReleaseKeywords, _Provenance, total=False):
    """What `publish` and `preview` take."""

    ledger: str | PathLike[str] | Ledger | None
    population: str | None
    new_population: bool | None
    continues: str | PathLike[str] | Sequence[str | PathLike[str]] | None
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


# What stands for the owner's tables and queries, and for an experiment file that is not there yet.
TABLE, QUERY, EXPERIMENT = "TABLE", "QUERY", "experiment.toml"
# Options that a plan notes by itself, or that a command names elsewhere.
_LEFT_OUT = ("input", "unit", "n_units", "n_clusters", "grids", "experiment", "epsilon", "mde")
# Options that say where a plan is made, and not what it is for.
_PLACED = ("query", "delimiter", "engine", "master", "allow_unencrypted_spark")
_LINE, _CONTINUED = 76, "    "


def plan_line(given: Options, epsilon: float, experiment: str | None = None) -> str:
    """The command that plans the same at some ε: by an experiment file, or by options."""
    named = [name for name in given.to_dict() if name not in _LEFT_OUT]
    budget = f"--epsilon {shortest_decimal(epsilon)}"
    if experiment is not None or any(DECLARED[name].panel is None for name in named):
        return in_lines([f"clusterdp plan {experiment or EXPERIMENT}", budget])
    unit = "ID_COLUMN" if given.unit is None else shlex.quote(given.unit)
    words = ["clusterdp plan", TABLE, f"--unit {unit}"]
    for name in named:
        if name in PlanKeywords.__annotations__ and name not in _PLACED[1:]:
            words += _flag(name, getattr(given, name))
    return in_lines([*words, budget, f"--out {EXPERIMENT}"])


def release_line(experiment: str | None = None) -> str:
    """The command that publishes what was planned."""
    return f"clusterdp release {experiment or EXPERIMENT}"


def or_draft(source: str) -> str:
    """The shorter way than many options, for messages about those that are missing."""
    draft = f"clusterdp init {shlex.quote(source)}"
    return f". Fix: give them, or draft an experiment file with {draft}"


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
