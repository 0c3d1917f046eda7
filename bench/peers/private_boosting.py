"""Niu et al. (2022): conditional effects from private boosting machines, by InterpretML's DP-EBM.

The trusted collector trains a model of outcomes on features and publishes it. Features are
protected as well. Of the meta-learners this is the one with a model for each arm: arms are
disjoint, so that each model may spend all of ε (parallel composition), and the share of treated
units is known. The paper found that stages after the first cost accuracy.

Left open by the paper, and chosen in its favour: δ = 1e-5, the library's own, and its other
settings; ranges of features are public; effects are averaged over the true features, at no cost.
The paper has no intervals, and so has this study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.peers.given import Answer

if TYPE_CHECKING:
    from interpret.privacy import DPExplainableBoostingRegressor

    from bench.peers.trial import Sample
    from clusterdp._arrays import BoolArray, FloatArray

DELTA = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelsGiven:
    """Two private models, and the features of the units; axes `[unit, feature]`."""

    treated: DPExplainableBoostingRegressor
    control: DPExplainableBoostingRegressor
    features: FloatArray

    def overall(self) -> Answer:
        """The mean predicted effect."""
        return Answer(float(self.uplift(self.features).mean()))

    def segment(self, inside: BoolArray) -> Answer:
        """The mean predicted effect in a segment."""
        return Answer(float(self.uplift(self.features[inside]).mean()))

    def uplift(self, features: FloatArray) -> FloatArray:
        """The difference of predictions."""
        return np.asarray(self.treated.predict(features) - self.control.predict(features))


def release(
    sample: Sample,
    epsilon: float,
    rng: np.random.Generator,  # noqa: ARG001 - the library has a generator of its own
) -> ModelsGiven:
    """Train a model in each arm, with all of ε."""
    treated, control = (_train(sample, arm, epsilon) for arm in (1, 0))
    return ModelsGiven(treated=treated, control=control, features=sample.features)


def _train(sample: Sample, arm: int, epsilon: float) -> DPExplainableBoostingRegressor:
    from interpret.privacy import DPExplainableBoostingRegressor

    model = DPExplainableBoostingRegressor(
        feature_types=["continuous"] * sample.features.shape[1],
        privacy_bounds=sample.bounds,
        privacy_target_min=0.0,
        privacy_target_max=1.0,
        epsilon=epsilon,
        delta=DELTA,
        n_jobs=1,
    )
    inside = sample.arms == arm
    model.fit(sample.features[inside], sample.outcomes[inside].astype(np.float64))
    return model
