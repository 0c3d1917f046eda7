"""Texts of metrics as functions of the category of a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError, did_you_mean
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import Metric, Threshold

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def take_call(parser: Parser) -> tuple[str, str] | None:
    """The function and the outcome of a text such as `p90(rounds)`; None for other texts."""
    if parser.kind() != "name" or parser.kind(ahead=1) != "(":
        return None
    name = parser.take("name")
    parser.take("(")
    outcome = parser.take("name")
    parser.take(")")
    parser.end()
    return name, outcome


def question_of(used: Collection[str], text: str, spaces: Sequence[Categories]) -> int:
    """The index of the question that has some outcomes.

    Args:
        used: The outcomes.
        text: What uses them.
        spaces: The categories of the release, question by question.

    Raises:
        ParameterError: If none has them, or several do.
    """
    names = [name for space in spaces for name in space.declared.names]
    for name in sorted(set(used) - set(names)):
        raise ParameterError(
            f"{text!r}: there is no outcome {name!r}.{did_you_mean(name, names)} Available: "
            f"{', '.join(names)}."
        )
    held = [index for index, space in enumerate(spaces) if {*used} & set(space.declared.names)]
    if len(held) > 1:
        together = ",".join(name for name in names if name in used)
        raise ParameterError(
            f"{text!r} combines outcomes of different questions, which no unit answered together. "
            f"Fix: ask the owner to put them in one question (--question {together})."
        )
    return held[0]


def naming_observed(metric: Metric, spaces: Sequence[Categories]) -> Metric:
    """The same metric; what says whether an outcome was observed is known as such."""
    return metric.naming_observed([name for space in spaces for name in space.declared.missing])


def metric_function(metric: Metric, space: Categories) -> CategoryFunction:
    """A metric as a function of the category.

    Raises:
        ParameterError: If categories do not tell it.
    """
    declared, name = space.declared, str(metric)
    if metric in declared.metrics:
        return CategoryFunction.declared(name, space, declared.metrics.index(metric))
    metric.check(declared.spaces)
    for factor in metric.factors:
        if isinstance(factor, Threshold) and not is_exact(factor, space):
            raise ParameterError(
                f"{name!r} needs a declared threshold of {factor.outcome!r}, because values were "
                f'rounded across it. Fix: ask the owner to declare it (--metric "{name}").'
            )
    values = space.values_of(metric)
    if not np.ptp(values):
        raise ParameterError(f"{name!r} has the same value for every outcome combination.")
    return CategoryFunction.from_values(name, values, space)


def is_exact(comparison: Threshold, space: Categories) -> bool:
    """Whether no number is rounded across a threshold."""
    grid = space.outcome(comparison.outcome).grid
    return grid is None or grid.holds_cuts(comparison.cuts(grid.number))
