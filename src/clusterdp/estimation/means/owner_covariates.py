"""Overall effects adjusted by a covariate that stays with the owner.

Published are, arm by arm and with noise, the imbalance of x (how far its stratified mean is from
that of all units), its variance v within clusters and its covariance c with outcomes. With
d = imbalance of the treatment − that of control, the adjusted effect is τ̂ − θd. Arms are assigned
at random, so E d = 0: it is unbiased for any fixed θ. With q_a = Σ s² of an arm's weights,

    Var d = Σ q_a·v_a + noise,   Cov(τ̂, d) = Σ q_a·c_a,   θ = Cov(τ̂, d)/Var d

makes the variance least, and it is then Var τ̂ − Cov²/Var d. That θ is estimated moves the estimate
by what is of order 1/n, as in any regression (Freedman, 2008). The noise on covariances is known,
of variance W = Σ q_a²·w_a in Cov. It adds W/Var d to the variance, and the square of the noisy Cov
exceeds Cov² by W: what is stated has twice W/Var d.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import EffectArrays
from clusterdp.estimation.means.arms import MOST_ERROR, ArmMeans, welch_degrees
from clusterdp.statistics.base import CovariateMoments

# What a covariate leaves at least of the variance of sampling, for any noise in what it explains.
_LEAST_LEFT = 0.02


def adjusted_by_owner(  # noqa: PLR0913, PLR0917 - an effect with its parts, and a covariate
    arrays: EffectArrays,
    means: ArmMeans,
    square_weights: FloatArray,
    moments: CovariateMoments,
    arms: list[int],
    layout: Layout,
) -> EffectArrays:
    """The effect of a treatment, adjusted.

    Args:
        arrays: The plain effect; axes `[treatment]`, of one.
        means: The means of control and of the treatment.
        square_weights: q, Σ s² of the weights of both; axes `[arm]`.
        moments: Of the covariate; axes `[arm of the release]`.
        arms: Which arms these are, control first.
        layout: The cells of both arms.
    """
    imbalance, spread, products, of_imbalance, of_products = (one[arms] for one in moments[1:])
    explained, most = square_weights * products, square_weights * np.maximum(spread, 0.0)
    variance = most.sum() + of_imbalance.sum()
    slope = explained.sum() / variance if variance > 0 else 0.0
    noise = float((square_weights**2 * of_products).sum()) / max(variance, np.finfo(float).tiny)
    # Of each mean: Var(y − θx), and what noise of privacy adds to that and to its estimate.
    left = means.sampling - 2 * slope * explained + slope**2 * most
    sampling = float((left.sum() + noise).clip(_LEAST_LEFT * max(means.sampling.sum(), 0.0)))
    privacy = float(arrays.privacy_variances[0] + slope**2 * of_imbalance.sum() + noise)
    errors = float(means.errors.sum() + 4 * slope**2 * noise * variance)
    total = sampling + privacy
    of_arms = np.maximum(left, _LEAST_LEFT * np.maximum(means.sampling, 0.0)) + means.privacy
    by_units = welch_degrees(of_arms, means.degrees, layout)
    degrees = 1 / (1 / by_units + errors / max(2 * total**2, np.finfo(float).tiny))
    moved = slope * imbalance
    assert arrays.control_means is not None  # noqa: S101 - effects of rows have them
    assert arrays.treated_means is not None  # noqa: S101
    return replace(
        arrays,
        effects=arrays.effects - (moved[1] - moved[0]),
        variances=np.array([np.inf if errors > MOST_ERROR * total**2 else total]),
        privacy_variances=np.array([privacy]),
        control_means=arrays.control_means - moved[0],
        control_variances=of_arms[..., 0],
        treated_means=arrays.treated_means - moved[1],
        treated_variances=of_arms[..., 1:],
        degrees=np.maximum(degrees, 1.0),
    )
