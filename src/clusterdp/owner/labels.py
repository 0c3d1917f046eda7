"""Private clusters, from options: labels, shares, probabilities of arms; what is left of ε."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from clusterdp.channels.integers import KEEP_TOTAL, SMALLEST_ROW_EPSILON
from clusterdp.channels.label_response import LabelResponse
from clusterdp.errors import ParameterError
from clusterdp.experiment.assignment import parse_by_label, to_number
from clusterdp.experiment.lists import parse_names
from clusterdp.releasing.labelling import DeclaredLabels
from clusterdp.storage.files import MOST_OF_TEXT, read_regular

if TYPE_CHECKING:
    from clusterdp.owner.option_list import OptionList

# Options that say nothing where clusters are public.
_OF_LABELS = ("labels", "labels_from", "label_shares", "assignment")


def declared_labels(options: OptionList) -> DeclaredLabels | None:
    """What options declare of private clusters; None if clusters are public.

    Raises:
        ParameterError: If something is missing, or belongs to private clusters alone.
    """
    if options.private_cluster is None:
        for name in _OF_LABELS:
            if getattr(options, name) is not None:
                raise ParameterError(
                    f"{name} is about clusters that are private: give private_cluster=... "
                    "(--private-cluster), their part of epsilon"
                )
        return None
    options.require("cluster")
    labels = _labels(options)
    shares = (1.0,) * len(labels)
    if options.label_shares is not None:
        given = parse_by_label("label_shares", options.label_shares, labels)
        shares = tuple(to_number("label_shares", given[label]) for label in labels)
    assignment = None
    if options.assignment is not None:
        if options.assigned_by is not None:
            raise ParameterError(
                "assignment is of arms that were assigned unit by unit within clusters: leave out "
                "assigned_by (--assigned-by), or assignment"
            )
        by_label = parse_by_label("assignment", options.assignment, labels)
        assignment = {label: by_label[label] for label in labels}
    return DeclaredLabels(
        response=LabelResponse.for_epsilon(labels, options.private_cluster),
        shares=shares,
        assignment=assignment,
    )


def _labels(options: OptionList) -> tuple[str, ...]:
    """The declared labels, given or from a file."""
    if (options.labels is None) == (options.labels_from is None):
        raise ParameterError(
            "private clusters need their labels, which are never read from the table: give "
            "labels=... (--labels) or labels_from=... (--labels-from), and not both"
        )
    if options.labels_from is None:
        return parse_names(options.labels)
    try:
        lines = read_regular(options.labels_from, MOST_OF_TEXT).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        raise ParameterError(
            f"labels_from (--labels-from) must be a text file with one label in a line; "
            f"{options.labels_from} cannot be read"
        ) from None
    return tuple(line.strip() for line in lines if line.strip())


def left_for_outcomes(epsilon: float, labels: DeclaredLabels) -> float:
    """ε₂ = ε − ε₁, rounded down.

    Raises:
        ParameterError: If labels take all of it.
    """
    left = Fraction(epsilon) - Fraction(labels.response.guarantee().epsilon)
    found = float(left)
    if Fraction(found) > left:
        found = math.nextafter(found, 0.0)
    if found < SMALLEST_ROW_EPSILON:
        taken = labels.response.guarantee().epsilon
        raise ParameterError(
            f"private_cluster must be less than epsilon, which is {epsilon:g}, got {taken:g}: "
            "outcomes need some of it; give less (private_cluster=..., --private-cluster)"
        )
    return found


def within_given(within_share: float, response: LabelResponse) -> float:
    """The share of an outcome's variance within given labels, from that within true clusters.

    A label that is kept with probability q, and else drawn from all alike, tells a unit's cluster
    mean with the slope q where clusters are as large: q² of the variance between clusters is left.
    """
    kept = (response.own - response.other) / KEEP_TOTAL
    return 1 - (1 - within_share) * kept**2
