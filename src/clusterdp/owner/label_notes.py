"""What an owner is told of private clusters before a release: how it is read, and what it costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from clusterdp.experiment.layout import EVERYONE
from clusterdp.planning.choose import choose
from clusterdp.planning.quick import expect_quickly

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.layout import Layout
    from clusterdp.owner.options import Options
    from clusterdp.planning.plan import Comparison

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
    factor = _inflation(labels.response.inverse() @ (1 / np.array(probs)), layout.sizes)
    price = (
        "weights that invert the response make overall effects unbiased for the declared "
        f"probabilities of arms: standard errors of rows are about {factor:.3g} times those shown"
    )
    return [published, price]


def _inflation(weights: FloatArray, sizes: IntArray) -> float:
    """How much larger a standard error is with these weights of units; both axes `[label, arm]`."""
    squares = (sizes * weights**2).sum(axis=0) / (sizes * weights).sum(axis=0) ** 2
    return math.sqrt(float(squares.sum() / (1 / sizes.sum(axis=0)).sum()))


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
    together = layout.sizes.sum(axis=0, keepdims=True)
    others = {
        "with public clusters": labels.unanswered(layout),
        "without clusters": replace(layout, clusters=(EVERYONE,), sizes=together),
    }
    errors = {name: _overall_error(public, other) for name, other in others.items()}
    ours = planned.choice.overall[0].std_error
    found = ", ".join(f"{error:.4g} {name}" for name, error in errors.items())
    text = (
        f"the standard error of the overall effect is {ours:.4g} with private clusters; at the "
        f"same epsilon it would be {found}"
    )
    if ours >= errors["without clusters"]:
        text += (
            ". Leave clusters out (--cluster) unless effects in true clusters are what is asked for"
        )
    return [text]


def _overall_error(options: Options, layout: Layout) -> float:
    """The standard error to expect of the first metric's overall effect."""
    request, scenario = options.requests()[0], options.scenarios(layout)[0]
    return expect_quickly(choose(request, scenario), scenario)[0].overall.std_error
