"""Declared probabilities of arms, where they differ between clusters that are private."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.experiment.layout import find_arm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.layout import Layout

# Probabilities of the arms of each label, in the order of labels and of arms.
AssignmentProbs = tuple[tuple[float, ...], ...]
_SYNTAX = "north=0.2,south=0.5; of several arms north=email:0.3/letter:0.2, control having the rest"


def parse_by_label(parameter: str, texts: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """What is given for every label, as text, from `north=0.2,south=0.5`.

    Raises:
        ParameterError: If a label is unknown, or one of them is left out or given twice.
    """
    found: dict[str, str] = {}
    for entry in (part.strip() for text in texts for part in text.split(",")):
        label, _, value = entry.rpartition("=")
        if label not in labels or label in found:
            raise ParameterError(
                f"{parameter} reads {_SYNTAX}; {entry!r} names no declared label, or one twice"
            )
        found[label] = value
    missing = [label for label in labels if label not in found]
    if missing:
        option = parameter.replace("_", "-")
        raise ParameterError(
            f"{parameter} must name every label; add {missing[0]}=... ({parameter}=..., --{option})"
        )
    return found


def to_number(parameter: str, text: str) -> float:
    """A probability or a share, or a ParameterError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ParameterError(f"{parameter} must have numbers above 0, got {text!r}")
    return number


def assignment_probs(given: Mapping[str, str], layout: Layout) -> AssignmentProbs:
    """The probabilities of arms by label.

    Args:
        given: Of every label, in order: the probability of the treatment (`0.2`), or of each of
            several treatments (`email:0.3/letter:0.2`). Control has the rest.
        layout: The arms.

    Raises:
        ParameterError: If they are no probabilities, or an arm is missing or unknown.
    """
    return tuple(_arm_probs(label, text, layout) for label, text in given.items())


def _arm_probs(label: str, text: str, layout: Layout) -> tuple[float, ...]:
    parts = [part.rpartition(":") for part in text.split("/")]
    if len(layout.treatments) == 1 and not parts[0][1]:
        named = {layout.treatments[0]: to_number("assignment", text)}
    else:
        named = {
            find_arm(layout.arms, arm.strip()): to_number("assignment", prob)
            for arm, _, prob in parts
        }
    if sorted(named) != sorted(layout.treatments) or math.fsum(named.values()) >= 1:
        raise ParameterError(
            f"assignment must give each treatment a probability, with a sum below 1: {_SYNTAX}; "
            f"got {text!r} for {label!r}"
        )
    named[layout.control] = 1 - math.fsum(named.values())
    return tuple(named[arm] for arm in range(len(layout.arms)))


def are_assignment_probs(probs: AssignmentProbs, n_labels: int, n_arms: int) -> bool:
    """Whether numbers are probabilities of arms, label by label."""
    return len(probs) == n_labels and all(
        len(one) == n_arms and min(one) > 0 and math.isclose(math.fsum(one), 1) for one in probs
    )


def expected_sizes(
    arm_sizes: Sequence[int], response: FloatArray, shares: FloatArray, probs: FloatArray | None
) -> FloatArray:
    """What sizes of cells to expect after a response; whole numbers, axes `[label, arm]`.

    Args:
        arm_sizes: How many units each arm has, which is public.
        response: K; axes `[group, label]`.
        shares: The declared share of each group.
        probs: Declared probabilities of arms, axes `[group, arm]`; None if they are alike.
    """
    groups = shares[:, np.newaxis] * (np.ones((1, len(arm_sizes))) if probs is None else probs)
    cells = response.T @ (groups / groups.sum(axis=0)) * np.asarray(arm_sizes)
    # Rounded so that those of an arm add up to its size.
    ends = np.rint(np.cumsum(cells, axis=0))
    return np.diff(ends, axis=0, prepend=0)


def inflation(weights: FloatArray, sizes: IntArray) -> float:
    """How much larger a standard error is with weights of units than without.

    Args:
        weights: What a unit counts; axes `[label, arm]`.
        sizes: Units of cells; axes the same.
    """
    squares = (sizes * weights**2).sum(axis=0) / (sizes * weights).sum(axis=0) ** 2
    return math.sqrt(float(squares.sum() / (1 / sizes.sum(axis=0)).sum()))
