"""What an owner is told of private clusters before a release: how it is read, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from clusterdp.experiment.assignment import inflation
from clusterdp.experiment.layout import EVERYONE
from clusterdp.planning.choose import choose
from clusterdp.planning.quick import expect_quickly

if TYPE_CHECKING:
    from clusterdp.experiment.layout import Layout
    from clusterdp.owner.options import Options
    from clusterdp.planning.plan import Comparison

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
    published = f"{options.cluster} is published as a noisy label: {labels.response.in_words}"
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
        planned: The comparison of the first block.
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
    request, scenario = options.requests()[0], options.scenarios(layout)[0]
    return expect_quickly(choose(request, scenario), scenario)[0].overall.std_error
