"""What an analyst asks for, as estimators.

    question := metric | ratio | quantile | distribution

A kind of metric has a module of its own here, with its text and its estimator, and a name in
`KINDS`. Functions of outcomes, and values by category, are given as mappings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.errors import ParameterError
from clusterdp.estimation.means.functions import CategoryFunction, question_of
from clusterdp.estimation.metrics.base import MetricEstimator
from clusterdp.estimation.metrics.levels import BoundsEstimator, DistributionEstimator
from clusterdp.estimation.metrics.mean import MeanEstimator, declared_mean
from clusterdp.estimation.metrics.quantiles import QuantileEstimator
from clusterdp.estimation.metrics.ratio import RatioEstimator
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import quoted


class MetricKind(Protocol):
    """A kind of metric, which reads its own texts.

    Attributes:
        EXAMPLES: Some of them.
    """

    EXAMPLES: ClassVar[tuple[str, ...]]

    @classmethod
    def from_text(cls, parser: Parser, spaces: Sequence[Categories]) -> MetricEstimator | None:
        """What a text asks for; None if it has another kind.

        Args:
            parser: Reads the text, and refuses what reads like no kind.
            spaces: The categories of the release, question by question.

        Raises:
            ParameterError: If the release does not have it.
        """


KINDS: tuple[type[MetricKind], ...] = (
    MeanEstimator,
    RatioEstimator,
    QuantileEstimator,
    DistributionEstimator,
)
_EXAMPLES = [example for kind in KINDS for example in kind.EXAMPLES]
_WORD = re.compile(r"[a-z]{3,}\b(?!\()")


def _form(text: str, spaces: Sequence[Categories]) -> str:
    """What to say of a text that no kind reads, with the outcomes of the release as examples."""
    if "," in text and '"' not in text:
        listed = [one.strip() for one in text.split(",")]
        flags = " ".join(f"--metric {shlex.quote(one)}" for one in listed)
        return (
            f"Cannot read metric {{!r}}: it has several. Fix: give each by itself: "
            f"metrics={_literal(listed)} ({_literal(flags)})."
        )
    outcomes = [quoted(one.name) for space in spaces for one in space.declared.outcomes]
    numeric = [
        quoted(one.name)
        for space in spaces
        for one in space.declared.outcomes
        if one.space.low != 0 or one.space.high != 1
    ]
    first = (numeric or outcomes)[0]
    second = next((one for one in outcomes if one != first), None)
    names = {"rounds": first, "spend": first, "visit": second}
    examples = [
        _WORD.sub(lambda found: names.get(found[0]) or found[0], example)
        for example in _EXAMPLES
        if second is not None or "visit" not in example
    ]
    listed_examples = _literal(f"{', '.join(examples[:-1])} or {examples[-1]}")
    return f"Cannot read metric {{!r}}. Fix: write {listed_examples}."


def _literal(text: Any) -> str:
    """A text as it is, in a template with braces."""
    return str(text).replace("{", "{{").replace("}", "}}")


def parse_metrics(given: Any, spaces: Sequence[Categories]) -> list[MetricEstimator]:
    """What to estimate; every declared metric by default.

    Args:
        given: None; or a text such as `rounds>=10` or `p90(rounds)`, a mapping of a name to values
            by category or to an outcome and a function of it, or a list of these.
        spaces: The categories of the release, question by question.

    Raises:
        ParameterError: If something else is given, or no question has such outcomes.
    """
    if given is None:
        return [
            declared_mean(metric, question, space)
            for question, space in enumerate(spaces)
            for metric in space.declared.metrics
        ]
    entries = given if isinstance(given, list | tuple) else [given]
    if not entries:
        raise ParameterError("metrics is empty. Fix: leave it out for all declared metrics.")
    return [estimator for entry in entries for estimator in _parse(entry, spaces)]


def _parse(entry: Any, spaces: Sequence[Categories]) -> list[MetricEstimator]:
    """What one entry asks for."""
    if isinstance(entry, str):
        return [_parse_text(entry, spaces)]
    if isinstance(entry, Mapping):
        return [
            _mean_of_function(str(name), *values, spaces)
            if isinstance(values, tuple) and len(values) == 2 and callable(values[1])
            else _mean_of_values(name, values, spaces)
            for name, values in entry.items()
        ]
    raise ParameterError(
        "metrics must be texts such as 'p90(rounds)', or mappings of a name to values, got "
        f"{type(entry).__name__}."
    )


def _parse_text(text: str, spaces: Sequence[Categories]) -> MetricEstimator:
    """What a text asks for; an error names it."""
    form = _form(text, spaces)
    try:
        for kind in KINDS:
            found = kind.from_text(Parser(text, form), spaces)
            if found is not None:
                return found
    except ParameterError as error:
        if text in str(error):
            raise
        raise ParameterError(f"{text}: {error}") from None
    raise ParameterError(form.format(text))


def _mean_of_function(
    name: str, outcome: Any, function: Callable[..., Any], spaces: Sequence[Categories]
) -> MetricEstimator:
    """The mean of a function of one outcome, given as such."""
    question = question_of([outcome], name, spaces)
    space = spaces[question]
    if outcome in space.declared.missing:
        raise ParameterError(
            f"metric {name!r}: {outcome!r} may be missing. Fix: ask for {outcome!r} itself."
        )

    def of_array(values: FloatArray) -> FloatArray:
        found = np.asarray(function(values), dtype=np.float64)
        if found.shape != values.shape or not np.isfinite(found).all():
            raise ParameterError(
                f"metric {name!r} needs a function of arrays with finite results, such as "
                "numpy.log1p."
            )
        return found

    if outcome in space.declared.numbers:
        bounds = BoundsEstimator.from_function(name, outcome, of_array, question, space)
        return MeanEstimator(question, bounds.functions[0]) if bounds.is_exact else bounds
    values = space.outcome_values()[space.outcome(outcome).axis]
    return MeanEstimator(question, _given_values(name, of_array(values), space))


def _mean_of_values(name: Any, values: Any, spaces: Sequence[Categories]) -> MetricEstimator:
    """The mean of a function given by its value in each category, of the one question with such."""
    by_outcome = list(values.values()) if isinstance(values, Mapping) else []
    if any(map(callable, [values, *by_outcome])):
        raise ParameterError(
            f"metric {name!r} is a function. Fix: give it with its outcome: ('spend', numpy.log1p)."
        )
    found: list[MeanEstimator] = []
    refused: list[ParameterError] = []
    for question, space in enumerate(spaces):
        try:
            found.append(MeanEstimator(question, _given_values(name, values, space)))
        except ParameterError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    if len(found) > 1:
        raise ParameterError(
            f"metric {name!r} has values that fit {len(found)} questions. Fix: use a text that "
            "names outcomes, such as 'rounds>=10'."
        )
    (one,) = found
    if one.function.combination is None:
        _check_between(one.function, spaces[one.question])
    return one


def _given_values(name: Any, values: Any, space: Categories) -> CategoryFunction:
    """A function given by its value in each category."""
    if isinstance(values, Mapping):
        keys = [
            tuple(column) if len(column) > 1 else column[0]
            for column in space.outcome_values().T.tolist()
        ]
        if set(keys) != set(values):
            raise ParameterError(
                f"metric {name!r} must have a value for each of {', '.join(map(str, keys))}, and "
                "no others."
            )
        values = [values[key] for key in keys]  # those of outcomes, or of tuples of outcomes
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    if numbers.shape != (space.n_categories,) or not np.isfinite(numbers).all():
        labels = "; ".join(space.labels())
        raise ParameterError(
            f"metric {name!r} needs a finite number for each of {space.n_categories} outcome "
            f"combinations, in this order: {labels}"
        )
    if not np.ptp(numbers):
        raise ParameterError(f"metric {name!r} has the same value for every outcome combination.")
    return CategoryFunction.from_values(str(name), numbers, space)


def _check_between(function: CategoryFunction, space: Categories) -> None:
    """Raise a ParameterError if values change between grid points that numbers were rounded to."""
    name, values = function.name, function.values.tolist()
    known = dict(zip(map(tuple, space.levels.T.tolist()), values, strict=True))
    for outcome, grid in zip(space.declared.numbers, space.grids, strict=True):
        place = space.outcome(outcome).axis
        for levels, value in known.items():
            level = levels[place]
            if level + 1 >= len(grid.points) or grid.points[level + 1] - grid.points[level] == 1:
                continue
            above = (*levels[:place], level + 1, *levels[place + 1 :])
            if known.get(above, value) != value:
                raise ParameterError(
                    f"metric {name!r} has values only at the grid points of {outcome!r}. Fix: give "
                    "the function itself: "
                    f"metrics={{{name!r}: ({outcome!r}, numpy.log1p)}}"
                )
