"""Private clusters, from options: labels, shares, probabilities of arms; what is left of ε.

What an owner is told of private clusters before a release: how it is read, and what it costs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from clusterdp._lists import parse_names
from clusterdp.cells.assignment import inflation, parse_by_label, parse_positive
from clusterdp.cells.layout import EVERYONE
from clusterdp.channels.base import KEEP_TOTAL, SMALLEST_ROW_EPSILON
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.errors import ParameterError
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.planning.forecast import expect_quickly
from clusterdp.releasing.labelling import DeclaredLabels
from clusterdp.storage.folder import MOST_OF_TEXT, read_regular

if TYPE_CHECKING:
    from clusterdp.cells.layout import Layout
    from clusterdp.owner.fields import OptionList
    from clusterdp.owner.options import Options
    from clusterdp.planning.compare import Comparison


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
        shares = tuple(parse_positive("label_shares", given[label]) for label in labels)
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
        response=ClusterResponse.for_epsilon(labels, options.private_cluster),
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


def within_given(within_share: float, response: ClusterResponse) -> float:
    """The share of an outcome's variance within given labels, from that within true clusters.

    A label that is kept with probability q, and else drawn from all alike, tells a unit's cluster
    mean with the slope q where clusters are as large: q² of the variance between clusters is left.
    """
    kept = (response.own - response.other) / KEEP_TOTAL
    return 1 - (1 - within_share) * kept**2


_OURS = (
    "the standard error of the overall effect is about {:.4g} with private clusters; at the same "
    "epsilon it would be"
)
_LEAVE_OUT = "Leave clusters out unless effects in true clusters are what is asked for"
_ALIKE = (
    "arms are taken to have the same probabilities in all private clusters; if they have not, "
    "effects are biased: declare them (assignment=..., --assignment)"
)


def label_notes(options: Options, layout: Layout) -> list[str]:
    """How private clusters are going to be published, and what is assumed of arms in them."""
    labels = options.private_labels
    if labels is None:
        return []
    published = (
        f"{options.cluster} is published as a noisy label, {options.columns.noisy_name}: "
        f"{labels.response.in_words}"
    )
    probs = labels.probs(layout)
    if probs is None:
        return [published, _ALIKE]
    factor = inflation(labels.response.inverse() @ (1 / np.array(probs)), layout.sizes)
    price = (
        "weights that invert the response make overall effects unbiased for the declared "
        f"probabilities of arms: standard errors are about {factor:.3g} times those of rows alone"
    )
    return [published, price]


def cost_notes(options: Options, layout: Layout, planned: Comparison) -> list[str]:
    """What private clusters cost: against public ones, and against leaving clusters out.

    Args:
        options: What was asked for.
        layout: The cells to be expected with given labels.
        planned: The comparison of the first question.
    """
    labels = options.private_labels
    if labels is None:
        return []
    public = msgspec.structs.replace(
        options,
        private_cluster=None,
        labels=None,
        label_shares=None,
        assignment=None,
        epsilon=planned.epsilon + labels.response.guarantee().epsilon,
    )
    by_public = _overall_error(public, labels.unanswered(layout))
    if labels.assignment is not None:
        ours = _weighted_error(options, layout, planned)
        return [f"{_OURS.format(ours)} {by_public:.4g} with public clusters"]
    together = layout.sizes.sum(axis=0, keepdims=True)
    alone = replace(layout, clusters=(EVERYONE,), sizes=together)
    ours, without = planned.choice.overall[0].std_error, _overall_error(public, alone)
    text = f"{_OURS.format(ours)} {by_public:.4g} with public clusters, {without:.4g} without any"
    if ours >= without:
        text += f". {_LEAVE_OUT}"
    return [text]


def _weighted_error(options: Options, layout: Layout, planned: Comparison) -> float:
    """The standard error to expect with weights that invert the response, from rows alone."""
    labels = options.private_labels
    probs = None if labels is None else labels.probs(layout)
    assert labels is not None  # noqa: S101 - only called then
    factor = inflation(labels.response.inverse() @ (1 / np.array(probs)), layout.sizes)
    rows = msgspec.structs.replace(
        options,
        epsilon=planned.epsilon + labels.response.guarantee().epsilon,
        mechanism=planned.chosen,
        totals_share=0.0,
        sums_share=0.0,
        breakdown_share=0.0,
    )
    return factor * _overall_error(rows, layout)


def _overall_error(options: Options, layout: Layout) -> float:
    """The standard error to expect of the first metric's overall effect."""
    scenarios = options.scenarios(layout)
    made = plan_mechanisms(options.requests(), scenarios).mechanisms[0]
    return expect_quickly(made, scenarios[0])[0].overall.std_error
