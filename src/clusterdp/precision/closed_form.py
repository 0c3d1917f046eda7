"""The noise of an arm's mean that is calibrated to noisy sums of several levels, in closed form.

An estimate τ̂ = s'ỹ − b'(X'ỹ − Z) has privacy variance Σ (s − Xb)²v + b'Wb: s are the weights of
units, v the noise of a unit's row, X the weights of units in the published sums Z, and W the noise
of these. b = (X'X + W/v̄)⁻¹X's minimizes it for noise v̄. Here units are expected counts: groups of
breakdowns, folds and segments are taken to be independent of clusters and of each other.

A unit of cell c and groups g has Xb = b_c + x_c(β₀ + Σ_l β_lg), with b_c for its cell's sum, β₀ for
the total and β_lg for its group's. Folds are equal, so their F sums of equal b count as one whose
noise has F times the variance. Given β, b_c = κ_c(s_c − x_c·μ'β), where κ_c = n_c/(n_c + w_c/v̄) and
μ is the share of units in each sum. What is left for β is Kβ = r, where K is a diagonal matrix Δ
plus UQU': U has a column for the total and one for each breakdown, the shares f of its groups. So
what is solved is as small as the number of breakdowns, for any number of groups and clusters. A sum
that is not published has noise of infinite variance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.statistics._sum_noise import sum_variances
from clusterdp.statistics.sums import NoisyMetricSums, NoisySums, NoisyTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace


class ArmLayout(NamedTuple):
    """What is public of the units of one arm; or of all arms, with an axis of arms in front.

    Attributes:
        sizes: n_c, the units of each cell; axes `[cluster]`.
        weights: x_c, the weight of a unit in totals; axes `[..., cluster]`, `...` for alternatives.
        targets: s_c, the weight of a unit in the mean that is estimated; axes `[cluster]`.
        copies: How many clusters each one stands for; axes `[cluster]`.
        shares: f, the share of each group's units, by breakdown; axes `[group]`.
        folds: F, the number of folds that totals are split into.
    """

    sizes: FloatArray
    weights: FloatArray
    targets: FloatArray
    copies: FloatArray
    shares: tuple[FloatArray, ...]
    folds: int

    @classmethod
    def stacked(cls, arms: Sequence[ArmLayout], n_axes: int) -> ArmLayout:
        """All arms, whose noise has this many axes of alternatives after that of arms."""

        def aligned(of_arms: Iterable[FloatArray]) -> FloatArray:
            stack = np.stack(list(of_arms))
            between = (1,) * (n_axes + 2 - stack.ndim)
            return stack.reshape(stack.shape[:1] + between + stack.shape[1:])

        return cls(
            sizes=aligned(one.sizes for one in arms),
            weights=aligned(one.weights for one in arms),
            targets=aligned(one.targets for one in arms),
            copies=arms[0].copies,
            shares=tuple(map(aligned, zip(*(one.shares for one in arms), strict=True))),
            folds=arms[0].folds,
        )

    @property
    def by_rows(self) -> float:
        """Σ s², which times v is the variance of the mean by rows alone."""
        return float((self.copies * self.sizes * self.targets**2).sum())


class LevelNoise(NamedTuple):
    """Variances of the noise on sums, infinite without sums; `...` are alternatives.

    Attributes:
        cells: On the sum of each cell; axes `[..., cluster or 1]`.
        totals: On each total of the arm and a fold; axes `[...]`.
        breakdowns: On each sum of a group and a fold, by breakdown; axes `[..., breakdown]`.
    """

    cells: FloatArray
    totals: FloatArray
    breakdowns: FloatArray


def calibrated_variances(
    cells: ArmLayout, noise: LevelNoise, unit_noise: FloatArray, assumed: FloatArray
) -> FloatArray:
    """Privacy variances of an arm's mean and of the means of all groups; axes `[..., target]`.

    The first target is the arm's mean, then come the groups of each breakdown in their order. The
    variance of a group without units is infinite.

    Args:
        cells: What is public of the arm.
        noise: The noise on sums.
        unit_noise: v, the noise of a unit's row; axes `[...]`.
        assumed: v̄, what b is computed with; axes `[...]`.
    """
    system = _System(cells, noise, np.asarray(assumed))
    by_unit, by_assumed = (np.asarray(one)[..., np.newaxis] for one in (unit_noise, assumed))
    found = []
    for place in (None, *range(len(cells.shares))):
        residual, charged = system.solve(place)
        found.append(by_unit * residual + by_assumed * charged)
    return np.concatenate(found, axis=-1)


class _System:
    """Kβ = r by the diagonal Δ and the small matrix Q; see the module.

    Attributes:
        plain: Σ n(x², xs, s²) over the cells; axes `[..., 3]`.
        first: The same times κ; axes `[..., 3]`.
        second: The same times κ²; axes `[..., 3]`.
        shares: f, by breakdown; axes `[group]`.
        inverses: 1/Δ of groups, by breakdown; axes `[..., group]`.
        inner: U'Δ⁻¹U, which is diagonal; axes `[..., 1 + breakdown]`.
        cubes: Σ f³/Δ², the same with f³/Δ² in place of f²/Δ, and 0 for the total.
        overlap: How columns of U overlap: everywhere but for two groups of one breakdown.
        small: Q(I + U'Δ⁻¹U·Q)⁻¹; axes `[..., 1 + breakdown, 1 + breakdown]`.
    """

    def __init__(self, cells: ArmLayout, noise: LevelNoise, assumed: FloatArray) -> None:
        kappa = cells.sizes / (cells.sizes + noise.cells / assumed[..., np.newaxis])
        weights, targets = cells.weights, cells.targets
        squared = np.broadcast_to(targets**2, weights.shape)
        products = np.stack([weights**2, weights * targets, squared], axis=-1)
        products = products * (cells.copies * cells.sizes)[..., np.newaxis]
        self.plain, self.shares = products.sum(axis=-2), cells.shares
        self.first, self.second = (
            (one[..., np.newaxis, :] @ products)[..., 0, :] for one in (kappa, kappa**2)
        )
        each = cells.folds / assumed
        of_groups = np.moveaxis(noise.breakdowns, -1, 0)
        self.inverses = [
            1 / (self.plain[..., [0]] * shares + (each * one)[..., np.newaxis])
            for shares, one in zip(cells.shares, of_groups, strict=True)
        ]
        pairs = list(zip(self.inverses, cells.shares, strict=True))
        total = 1 / (each * noise.totals)
        inner = [total, *((one * share**2).sum(axis=-1) for one, share in pairs)]
        cubes = [0 * total, *((one**2 * share**3).sum(axis=-1) for one, share in pairs)]
        self.inner, self.cubes = (
            np.stack(np.broadcast_arrays(*one), axis=-1) for one in (inner, cubes)
        )
        n_columns = len(inner)
        self.overlap = np.ones((n_columns, n_columns))
        self.overlap[range(1, n_columns), range(1, n_columns)] = 0.0
        whole, first = (one[..., 0, np.newaxis, np.newaxis] for one in (self.plain, self.first))
        small = whole * self.overlap - first
        self.small = small @ np.linalg.inv(np.eye(n_columns) + self.inner[..., np.newaxis] * small)

    def solve(self, place: int | None) -> tuple[FloatArray, FloatArray]:
        """Σ (s − Xb)², and b'Wb over v̄, for everyone's mean or that of each group of a breakdown.

        β is c·f/Δ with a number c for each column of U, plus `own` for the group itself. The
        weights of units are s·h with E h = 1, and z are the sums that a unit is in. Axes
        `[..., target]`.
        """
        weight, cross, square_targets = (self.plain[..., [index]] for index in range(3))
        column = 0 if place is None else place + 1
        share = np.ones(1) if place is None else self.shares[place]
        inverse = np.zeros(1) if place is None else self.inverses[place]
        own = cross * inverse
        less = np.eye(len(self.overlap))[column] * (0.0 if place is None else cross)
        less = less[..., np.newaxis, :]
        # r over f, but for the group itself.
        right = (self.plain[..., 1] - self.first[..., 1])[..., np.newaxis, np.newaxis] - less
        inner = self.inner[..., np.newaxis, :]
        at_group = np.eye(len(self.overlap))[column] * (share * own)[..., np.newaxis]
        factors = right - (right * inner + at_group) @ np.swapaxes(self.small, -1, -2)
        shared = factors * inner + at_group  # U'β
        mean, factor = shared.sum(axis=-1), factors[..., column]  # μ'β, c
        squares = (factors**2 * self.cubes[..., np.newaxis, :]).sum(axis=-1)
        squares = squares + share * own * (2 * factor * share * inverse + own)
        met = mean  # E[h·z]'β
        if place is not None:
            met = mean + factor * share * inverse + own - shared[..., column]
        with np.errstate(divide="ignore"):
            spread = np.broadcast_to(1 / share, mean.shape)  # E h²
        square = squares + ((shared @ self.overlap) * shared).sum(axis=-1)  # E (z'β)²
        charged = (
            (factors**2 * inner).sum(axis=-1)
            + own * (2 * factor * share + cross)
            - weight * squares
        )
        by_rows = square_targets * spread - 2 * cross * met + weight * square
        residual = by_rows - _by_cells(2 * self.first - self.second, mean)
        # κ²w = v̄·n·κ(1 − κ), which is zero where the sums of cells are not published.
        return residual, _by_cells(self.first - self.second, mean) + charged


def _by_cells(sums: FloatArray, mean: FloatArray) -> FloatArray:
    """Σ n(s − x·μ'β)², from some sums of n(x², xs, s²); axes `[..., target]`."""
    both, cross, squares = (sums[..., index, np.newaxis] for index in range(3))
    return np.asarray(squares - 2 * cross * mean + both * mean**2)


# Stands for a variance of zero, so that its inverse exists.
_TINY = 1e-100


def arm_cells(
    layout: Layout,
    weights: IntArray | FloatArray,
    chosen: IntArray | None = None,
    copies: FloatArray | None = None,
) -> list[ArmLayout]:
    """The cells of each arm; of every cluster, or of some that stand for all.

    Args:
        layout: What is public.
        weights: What a unit of each cell counts in totals; axes `[..., cluster, arm]`.
        chosen: The clusters to take.
        copies: How many clusters each of these stands for.
    """
    sizes = layout.sizes
    targets = sizes.sum(axis=1, keepdims=True) / (layout.n_units * sizes)
    taken = np.arange(len(sizes)) if chosen is None else chosen
    return [
        ArmLayout(
            sizes=sizes[taken, arm].astype(np.float64),
            weights=weights[..., taken, arm].astype(np.float64),
            targets=targets[taken, arm],
            copies=np.ones(len(taken)) if copies is None else copies,
            shares=tuple(one.sizes[:, arm] / one.sizes[:, arm].sum() for one in layout.breakdowns),
            folds=layout.folds,
        )
        for arm in range(len(layout.arms))
    ]


def level_noise(
    space: CategorySpace,
    totals: FloatArray,
    clusters: FloatArray,
    breakdowns: FloatArray,
    counted: FloatArray,
) -> list[LevelNoise]:
    """The noise on the sums of each metric, the same for all arms and cells.

    Args:
        space: The categories.
        totals: ε of totals of arms, 0 without totals; axes `[...]`.
        clusters: ε of sums of every cell; axes `[...]`.
        breakdowns: ε of totals of groups; axes `[..., breakdown]`.
        counted: The precision of counts about a cell's sum, as `counted_precision` has it.
    """
    weight = NoisyTotals.largest_weight
    of_totals, of_groups = (sum_variances(space, one, weight) for one in (totals, breakdowns))
    of_cells = sum_variances(space, clusters, NoisySums.largest_weight)
    with np.errstate(divide="ignore"):
        both = 1 / (1 / of_cells + counted)
    return [
        LevelNoise(both[..., [metric]], of_totals[..., metric], of_groups[..., metric])
        for metric in range(len(counted))
    ]


def published_noise(mechanism: Mechanism, layout: Layout, space: CategorySpace) -> list[LevelNoise]:
    """The noise on the sums that a mechanism publishes of each metric."""
    spent = {
        one.level: one.epsilon for one in mechanism.statistics if isinstance(one, NoisyMetricSums)
    }
    totals, clusters = (np.array(spent.get(level, 0.0)) for level in ((), None))
    breakdowns = np.array([spent.get(one.columns, 0.0) for one in layout.breakdowns])
    return level_noise(space, totals, clusters, breakdowns, counted_precision(mechanism, space))


def counted_precision(mechanism: Mechanism, space: CategorySpace) -> FloatArray:
    """1/variance of a cell's sum by all but noisy sums, 0 if nothing shows it; axes `[metric]`."""
    found = np.zeros(len(space.metric_values()))
    for one in mechanism.statistics:
        # Counts of units that are asked are not sums of all units.
        of_some = one.of_categories and mechanism.asked < ASKED_TOTAL
        if not of_some and not isinstance(one, NoisyMetricSums):
            variances = [one.cell_sum_variance(space, metric) for metric in range(len(found))]
            found += [0.0 if each is None else 1 / max(each, _TINY) for each in variances]
    return found
