"""Stage 3: the channel of every cell, from a noisy summary or from what is public alone."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.optimal import DesignedChannel, design_channels
from clusterdp.channels.priors import estimate_prior, project_prior, to_weights, with_every_outcome
from clusterdp.channels.representatives import representative_priors
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.channels.statistics import CountSummary
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.parts import DesignedResponse, NoisyCounts

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.channels.statistics import Summary
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.mechanism import Mechanism

Channel = ResamplingChannel | DesignedChannel

# Cells share this many channels at most; with more, less than a hundredth of the variance is left
# to gain.
MOST_CHANNELS = 96


def design_channel(mechanism: Mechanism, layout: Layout, summary: Summary | None) -> Channel:
    """The channel that the mechanism makes of noisy counts, or of none."""
    counts = None
    if isinstance(mechanism.summary, NoisyCounts) and isinstance(summary, CountSummary):
        counts = summary
    if mechanism.designs_rows:
        if counts is None:
            return _public_design(mechanism, layout)
        return _counted_design(mechanism.designed_response(), layout.space, counts)
    return _resampling(mechanism, layout, counts)


def public_noise_variance(mechanism: Mechanism, space: OutcomeSpace) -> float:
    """The noise variance of a unit as far as it is public: of a channel made without a summary.

    It decides how rows are weighed against sums, so nothing noisy may go into it.
    """
    return float(
        public_channel(mechanism, space).noise_variance()[0] @ public_prior(mechanism, space)
    )


def public_channel(mechanism: Mechanism, space: OutcomeSpace) -> Channel:
    """The channel of one cell as far as it is public: made of the public prior, with no summary."""
    prior = public_prior(mechanism, space)
    if mechanism.designs_rows:
        return _design_for(prior, space, mechanism.designed_response())
    return ResamplingChannel(
        keep_weight=mechanism.response(space).keep_weight,
        weights=to_weights(prior[np.newaxis], 0),
        groups=np.zeros((1, 1), dtype=np.int64),
        values=space.as_array(),
    )


def public_prior(mechanism: Mechanism, space: OutcomeSpace) -> FloatArray:
    """What is thought of outcomes from outside the experiment: uniform, or what was declared."""
    if mechanism.public_prior is None:
        return np.full(space.n_outcomes, 1 / space.n_outcomes)
    if len(mechanism.public_prior) != space.n_outcomes:
        raise ParameterError(
            f"prior has {len(mechanism.public_prior)} numbers for an outcome space of "
            f"{space.n_outcomes} values"
        )
    return np.array(mechanism.public_prior)


def _resampling(
    mechanism: Mechanism, layout: Layout, counts: CountSummary | None
) -> ResamplingChannel:
    space = layout.space
    response = mechanism.response(space)
    prior = np.full((1, space.n_outcomes), 1 / space.n_outcomes)
    groups = np.zeros(layout.sizes.shape, dtype=np.int64)
    if counts is not None:
        floor = float(response.prior_floor)
        prior = estimate_prior(counts.noisy_counts, counts.group_sizes, floor)
        groups = counts.groups
    return ResamplingChannel(
        keep_weight=response.keep_weight,
        weights=to_weights(prior, response.floor_weight),
        groups=groups,
        values=space.as_array(),
    )


def _public_design(mechanism: Mechanism, layout: Layout) -> DesignedChannel:
    """One channel for every cell."""
    prior = public_prior(mechanism, layout.space)
    one = _design_for(prior, layout.space, mechanism.designed_response())
    return DesignedChannel(
        tables=one.tables,
        numbers=one.numbers,
        groups=np.zeros(layout.sizes.shape, dtype=np.int64),
        values=one.values,
    )


def _counted_design(
    response: DesignedResponse, space: OutcomeSpace, counts: CountSummary
) -> DesignedChannel:
    """Channels for the priors that noisy counts lead to; each cell takes the best of all."""
    priors = project_prior(counts.noisy_counts, counts.group_sizes)
    chosen_for = representative_priors(priors.reshape(-1, space.n_outcomes), MOST_CHANNELS)
    tables, numbers = design_channels(chosen_for, space.as_array(), response)
    channel = DesignedChannel(
        tables=tables, numbers=numbers, groups=counts.groups, values=space.as_array()
    )
    best = (priors @ channel.noise_variance().T).argmin(axis=-1)  # [..., group]
    return DesignedChannel(
        tables=tables,
        numbers=numbers,
        groups=best[..., counts.groups],
        values=space.as_array(),
    )


def _design_for(
    prior: FloatArray, space: OutcomeSpace, response: DesignedResponse
) -> DesignedChannel:
    return _remembered_design(tuple(with_every_outcome(prior)), space.values, response)


@lru_cache(maxsize=256)
def _remembered_design(
    prior: tuple[float, ...], values: tuple[float, ...], response: DesignedResponse
) -> DesignedChannel:
    """A channel is a pure function of these, and takes a moment to design."""
    tables, numbers = design_channels(np.array([prior]), np.array(values), response)
    return DesignedChannel(
        tables=tables,
        numbers=numbers,
        groups=np.zeros((1, 1), dtype=np.int64),
        values=np.array(values),
    )
