"""Experiments with exposure for `bench/exposure_coverage.py`, drawn and released as counts.

Units are compliers, who are exposed in the arm alone, and others, who are exposed always or never.
Each kind has outcomes of its own, so that who is exposed says something of outcomes. Effects are
those that `estimate` would find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.metric_draws import Drawn, Experiment, by_replicate, means_of_arms
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.means.responses import ProfileSums
from clusterdp.estimation.means.sums import public_ridge
from clusterdp.estimation.means.weights import weigh
from clusterdp.estimation.metrics._composed import (
    arm_covariances,
    common_factor,
    joint_noise,
    product_bounds,
)
from clusterdp.estimation.metrics.exposure import PUBLIC_NOISE, ExposedEffect, public_outputs
from clusterdp.estimation.reading.profiles import Profiles
from clusterdp.mechanisms.draw import release_cells
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.means.arms import ArmMeans
    from clusterdp.estimation.means.responses import CellMoments, ResponseValues
    from clusterdp.estimation.metrics._composed import ArmEstimates
    from clusterdp.mechanisms.mechanism import Mechanism

_VALUES = np.arange(4.0)
JOINT = Categories(declared=declare({"clicked": "0,1", "spend": "0..3"}))
SPEND = Categories(declared=declare({"spend": "0..3"}))


class Units(NamedTuple):
    """Kinds of units: their shares, and how likely the outcomes 0 to 3 are of each.

    Attributes:
        compliers: The share that is exposed in the arm alone.
        always: The share that is exposed in either arm.
        unexposed: Outcomes of compliers in control.
        exposed: Outcomes of compliers in the arm.
        of_always: Outcomes of those who are always exposed.
        of_never: Outcomes of those who never are.
    """

    compliers: float
    always: float
    unexposed: tuple[float, ...] = (0.45, 0.3, 0.15, 0.1)
    exposed: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)
    of_always: tuple[float, ...] = (0.2, 0.3, 0.3, 0.2)
    of_never: tuple[float, ...] = (0.6, 0.2, 0.15, 0.05)

    @classmethod
    def of(cls, exposed: float, *, two_sided: bool) -> Units:
        """With a share of the arm exposed; of these a quarter in control too, if two-sided."""
        always = exposed / 4 if two_sided else 0.0
        return cls(exposed - always, always)

    @property
    def truth(self) -> float:
        """The effect on compliers."""
        return float((np.array(self.exposed) - np.array(self.unexposed)) @ _VALUES)

    def experiment(self) -> Experiment:
        """Exposure and outcomes in both arms; the outcome changes fastest among categories."""
        never = (1 - self.compliers - self.always) * np.array(self.of_never)
        always = self.always * np.array(self.of_always)
        control = [never + self.compliers * np.array(self.unexposed), always]
        treated = [never, always + self.compliers * np.array(self.exposed)]
        return Experiment(JOINT, np.stack([np.concatenate(arm) for arm in (control, treated)]))


# Exposure hardly differs between arms, and says nearly everything of outcomes, which it does not
# change.
CONFOUNDED = Units(
    compliers=0.01,
    always=0.5,
    unexposed=(1.0, 0.0, 0.0, 0.0),
    exposed=(1.0, 0.0, 0.0, 0.0),
    of_always=(0.0, 0.0, 0.0, 1.0),
    of_never=(1.0, 0.0, 0.0, 0.0),
)


class Released(NamedTuple):
    """A metric of released counts.

    Attributes:
        means: Of both arms.
        moments: Of cells, from rows.
        values: What responses count as; axes `[..., cluster, arm, response]`.
        middle: What means and values are distances from.
    """

    means: ArmMeans
    moments: CellMoments
    values: FloatArray
    middle: float


def told_by_response(
    drawn: Drawn, mechanism: Mechanism, rng: np.random.Generator
) -> list[ExposedEffect]:
    """Exposure and outcome are in one question."""
    exposure, spend = (CategoryFunction.declared(str(place), JOINT, place) for place in (0, 1))
    pairs, factor = shared_estimates(drawn, (spend, exposure), spend, JOINT, mechanism, rng)
    return [ExposedEffect.from_shared(treated.minus(control), factor) for control, treated in pairs]


def shared_estimates(  # noqa: PLR0913, PLR0917 - the parts of a simulated release
    drawn: Drawn,
    functions: tuple[CategoryFunction, CategoryFunction],
    ridge_of: CategoryFunction,
    space: Categories,
    mechanism: Mechanism,
    rng: np.random.Generator,
) -> tuple[list[tuple[ArmEstimates, ArmEstimates]], float]:
    """Means of both arms as `shared_rows` has them, by replicate; and k.

    Args:
        drawn: The experiments.
        functions: x and y.
        ridge_of: The function by whose noise all are calibrated.
        space: The categories.
        mechanism: How they are released.
        rng: The source of randomness.
    """
    question = _Block(drawn.everyone, drawn, space, mechanism, rng)
    inside = question.channel.simulate(drawn.inside, rng)
    everyone = inside + question.channel.simulate(drawn.everyone - drawn.inside, rng)
    factor = common_factor(*(one.unit_noise(mechanism, space) for one in functions))
    readings, noise = ridge_of.readings(question.statistics), ridge_of.unit_noise(mechanism, space)
    ridge = public_ridge(readings, noise.variance)
    above, below = functions
    first, second = (one.outputs(question.channel, question.prior) for one in functions)
    metrics = [(above, first), (below, second)]
    for product in product_bounds(above, below, question.channel, question.prior):
        for times in (factor, -factor):
            side = above.minus(-times, below)
            outputs = side.outputs(question.channel, question.prior)
            joint = joint_noise(first, second, product, times)
            metrics.append((side, outputs._replace(noise=joint)))
    found = [question.read(inside, everyone, *one, ridge) for one in metrics]
    return _arms(found, drawn), factor


def told_by_column(
    drawn: Drawn, mechanism: Mechanism, rng: np.random.Generator
) -> list[ExposedEffect]:
    """Exposure is a public column."""
    inside, everyone = (_by_outcome(counts) for counts in (drawn.inside, drawn.everyone))
    spend = _Block(everyone.sum(axis=-1), drawn, SPEND, mechanism, rng)
    inside, others = (spend.released(counts, rng) for counts in (inside, everyone - inside))
    first = spend.read_first(inside.sum(axis=-1), (inside + others).sum(axis=-1))
    second = _known(inside.sum(axis=-2), _VALUES[:2], drawn)
    return _crossed(first, second, inside, drawn)


def told_without_privacy(drawn: Drawn) -> list[ExposedEffect]:
    """Exposure and outcomes are both public columns."""
    counts = _by_outcome(drawn.inside)
    spend = _known(counts.sum(axis=-1), _VALUES, drawn)
    return _crossed(spend, _known(counts.sum(axis=-2), _VALUES[:2], drawn), counts, drawn)


def _crossed(
    first: Released, second: Released, counts: IntArray, drawn: Drawn
) -> list[ExposedEffect]:
    """Effects from a metric and a public column, and counts of both crossed."""
    both = first.values[..., :, np.newaxis] * second.values[..., np.newaxis, :]
    products = (counts * both).sum(axis=(-1, -2))
    weights = weigh(first.moments.sizes, drawn.layout, [0, 1])
    covariances = arm_covariances(first.moments, second.moments, products, weights).sum(axis=-1)
    pairs = zip(_arms([first, second], drawn), covariances, strict=True)
    return [
        ExposedEffect.covarying(treated.minus(control), (float(one), float(one)))
        for (control, treated), one in pairs
    ]


def _arms(found: list[Released], drawn: Drawn) -> list[tuple[ArmEstimates, ArmEstimates]]:
    origins = np.array([one.middle for one in found])
    return by_replicate([one.means for one in found], origins, drawn)


class _Block:
    """A release of one outcome."""

    def __init__(
        self,
        counts: IntArray,
        drawn: Drawn,
        space: Categories,
        mechanism: Mechanism,
        rng: np.random.Generator,
    ) -> None:
        totals = CellTotals.from_counts(counts, space)
        statistics, channel = release_cells(
            totals, drawn.layout, space, mechanism, simulated_noise(rng)
        )
        assert channel is not None  # noqa: S101 - all mechanisms here release rows
        self.layout, self.channel, self.statistics = drawn.layout, channel, statistics
        self.space, self.mechanism = space, mechanism
        n_channels = channel.possible().shape[-2]
        self.prior = np.full((n_channels, space.n_categories), 1 / space.n_categories)

    def released(self, counts: IntArray, rng: np.random.Generator) -> IntArray:
        """Responses instead of outcomes; axes `[..., outcome, other]`."""
        several = [self.channel.simulate(one, rng) for one in np.moveaxis(counts, -1, 0)]
        return np.stack(several, axis=-1)

    def read_first(self, inside: IntArray, everyone: IntArray) -> Released:
        """Means of the first outcome of those inside."""
        function = CategoryFunction.declared("outcome", self.space, 0)
        return self.read(inside, everyone, function, function.outputs(self.channel, self.prior))

    def read(
        self,
        inside: IntArray,
        everyone: IntArray,
        function: CategoryFunction,
        outputs: ResponseValues,
        ridge: FloatArray | None = None,
    ) -> Released:
        """Means of a function of those inside, calibrated."""
        profiles = Profiles.from_layout(self.layout)
        part, whole = (ProfileSums.from_cell_counts(one, outputs) for one in (inside, everyone))
        noise = function.unit_noise(self.mechanism, self.space)
        calibration = Calibration(function.readings(self.statistics), profiles, whole, noise, ridge)
        known = np.array_equal(inside, everyone)
        return Released(
            means_of_arms(part, self.layout, profiles, calibration, everyone=known),
            part.cell_moments(profiles),
            outputs.values[..., outputs.groups, :],
            outputs.middle,
        )


def _known(counts: IntArray, values: FloatArray, drawn: Drawn) -> Released:
    """Means of a public column; axes of counts `[..., cluster, arm, value]`."""
    profiles, middle = Profiles.from_layout(drawn.layout), PUBLIC_NOISE.origin
    outputs = public_outputs(drawn.layout.sizes.shape)._replace(
        values=values[np.newaxis] - middle, noise=np.zeros((1, len(values)))
    )
    part = ProfileSums.from_cell_counts(counts, outputs)
    calibration = Calibration((), profiles, part, PUBLIC_NOISE)
    return Released(
        means_of_arms(part, drawn.layout, profiles, calibration, everyone=False),
        part.cell_moments(profiles),
        outputs.values[outputs.groups],
        middle,
    )


def _by_outcome(counts: IntArray) -> IntArray:
    """Counts of categories by outcome and exposure; axes `[..., outcome, exposed]`."""
    return np.asarray(counts.reshape(*counts.shape[:-1], 2, -1).swapaxes(-1, -2))
