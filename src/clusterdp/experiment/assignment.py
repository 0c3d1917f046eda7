"""Declared shares of arms; and their probabilities where they differ between private clusters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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


def parse_by_label(
    parameter: str, texts: Sequence[str], labels: Sequence[str], syntax: str = _SYNTAX
) -> dict[str, str]:
    """What is given for every label, as text, from `north=0.2,south=0.5`.

    Raises:
        ParameterError: If a label is unknown, or one of them is left out or given twice.
    """
    found: dict[str, str] = {}
    # A label may have a comma, if it is given alone.
    alone = [[text] if text.rpartition("=")[0] in labels else text.split(",") for text in texts]
    for entry in (part.strip() for parts in alone for part in parts):
        label, _, value = entry.rpartition("=")
        if label not in labels or label in found:
            raise ParameterError(
                f"{parameter} reads {syntax}; {entry!r} names none of {', '.join(labels)}, or one "
                "of them twice"
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


def parse_arm_shares(texts: Sequence[str], arms: Sequence[Any]) -> tuple[float, ...]:
    """The planned share of each arm, from `control=0.5,email=0.5`; their ratios count.

    Raises:
        ParameterError: If an arm is unknown, left out or given twice, or a share is not above 0.
    """
    labels = [str(arm) for arm in arms]
    syntax = ",".join(f"{label}=SHARE" for label in labels)
    given = parse_by_label("arm_shares", texts, labels, syntax)
    shares = [to_number("arm_shares", given[label]) for label in labels]
    return tuple(share / math.fsum(shares) for share in shares)


def are_arm_shares(shares: tuple[float, ...], n_arms: int) -> bool:
    """Whether numbers are shares of arms."""
    return len(shares) == n_arms and min(shares) > 0 and math.isclose(math.fsum(shares), 1)


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
    return len(probs) == n_labels and all(are_arm_shares(one, n_arms) for one in probs)


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
