"""Which options each function takes, and of which types in Python.

Type checkers read them here. Their meanings are in the list of options, from which `takes` writes
what `help` shows.
"""

from __future__ import annotations

import inspect
import re
from functools import wraps
from textwrap import fill
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from clusterdp.spec.fields import DECLARED
from clusterdp.spec.parse import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from clusterdp.ledger.ledger import Ledger
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.finite import OutcomeSpace
    from clusterdp.outcomes.number import Number

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
