"""Ohnishi and Awan (2023): each person's Horvitz–Thompson term with Laplace noise.

A person with outcome y in [0, 1] and arm z sends y·z/p − y·(1−z)/(1−p), plus noise. The mean is
the estimate; its error has the least order that local privacy allows, 1/(n·ε²). Without noise it
is the Horvitz–Thompson estimate of one cluster. A collector who is trusted would add noise to the
mean once, of 1/n of this variance: that is one cluster of `clusterdp.noisy_horvitz_thompson`.

The paper protects arm and outcome together. Here arms are public for all methods, so that the
version that protects outcomes alone, with less noise, is run beside it. The share of treated units
is taken as p, which makes the mean the difference in means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.peers.given import Answer, fit_linear, predict_linear

if TYPE_CHECKING:
    from bench.peers.trial import Sample
    from clusterdp._arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TermsGiven:
    """Noisy terms, whose mean is an effect; axes `[unit]`, and `[unit, feature]` of features."""

    terms: FloatArray
    features: FloatArray

    def overall(self) -> Answer:
        """Their mean, with a plug-in interval."""
        return _mean(self.terms)

    def segment(self, inside: BoolArray) -> Answer:
        """The mean of some of them."""
        return _mean(self.terms[inside])

    def uplift(self, features: FloatArray) -> FloatArray:
        """A linear model of the terms."""
        return predict_linear(fit_linear(self.features, self.terms), features)


def arm_and_outcome(sample: Sample, epsilon: float, rng: np.random.Generator) -> TermsGiven:
    """As in the paper."""
    return _release(sample, spans_of_anyone(sample.arms), epsilon, rng)


def outcome_alone(sample: Sample, epsilon: float, rng: np.random.Generator) -> TermsGiven:
    """With public arms."""
    return _release(sample, spans_in_arm(sample.arms), epsilon, rng)


def spans_of_anyone(arms: IntArray) -> FloatArray:
    """How much a term can differ: it is anywhere between −1/(1−p) and 1/p; axes `[unit]`."""
    share = arms.mean()
    return np.full(len(arms), 1 / share + 1 / (1 - share))


def spans_in_arm(arms: IntArray) -> FloatArray:
    """The same in one's arm: between 0 and 1/p if treated, −1/(1−p) and 0 if not."""
    return np.asarray(1 / _arm_shares(arms))


def terms_of(outcomes: IntArray, arms: IntArray) -> FloatArray:
    """What people would send without noise; axes `[unit]`."""
    return np.asarray((2 * arms - 1) * outcomes / _arm_shares(arms))


def _release(
    sample: Sample, spans: FloatArray, epsilon: float, rng: np.random.Generator
) -> TermsGiven:
    noise = rng.laplace(size=sample.n_units) * spans / epsilon
    terms = terms_of(sample.outcomes, sample.arms) + noise
    return TermsGiven(terms=terms, features=sample.features)


def _arm_shares(arms: IntArray) -> FloatArray:
    """The share of each unit's own arm."""
    treated = arms.mean()
    return np.asarray(np.where(arms == 1, treated, 1 - treated))


def _mean(terms: FloatArray) -> Answer:
    return Answer.of(float(terms.mean()), float(terms.var(ddof=1) / len(terms)))
