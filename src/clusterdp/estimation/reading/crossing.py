"""How means covary that different rows tell, or a row and a public column.

A public column of 0 and 1, an exposure, is crossed with responses. It has no noise. So the mean of
products with debiased values is that of products with true ones, and only sampling makes means of
both covary.

Outcomes x and y of different questions are never answered by the same unit. Means x̄ and ȳ of rows
alone are of different people, who were drawn at random, and do not covary: that those asked about
one are not asked about the other takes off exactly what x and y covary by. Calibration moves both
to sums of everyone. If a unit counts s in both means, and s − Xb and s − Xb' in their noise, they
covary by Σ (s² − (s − Xb)(s − Xb'))·Cov(x, y). No row tells Cov(x, y). It is at most the product of
both standard deviations; and both means and their ends bound it, as (x − u)(y − w) is never below 0
if u and w are both low ends, or both high ones, and never above 0 otherwise (McCormick, 1976). So
the covariance of means has bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._named import columns, unnamed
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.means.answers import Answers
from clusterdp.estimation.means.sums import CellMoments
from clusterdp.estimation.means.weights import arm_variances
from clusterdp.estimation.reading.profiles import PROFILE, Counted, spread_cells, times
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.published.rows import COUNT
from clusterdp.spec.columns import RESPONSE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.means.weights import CellWeights
    from clusterdp.estimation.metrics._composed import PairedArms
    from clusterdp.estimation.metrics.mean import PairMeans, Part
    from clusterdp.estimation.reading.profiles import Outputs, Profiles
    from clusterdp.outcomes.categories import Categories
    from clusterdp.published.release import Release


class AskedExposure(NamedTuple):
    """What units were exposed to.

    Attributes:
        name: An outcome of the release; or a column that is kept or joined.
        place: The place of the question that has the outcome; None for a column.
    """

    name: str
    place: int | None

    @classmethod
    def parse(cls, name: Any, spaces: Sequence[Categories]) -> AskedExposure:
        """An exposure by its name.

        Raises:
            ParameterError: If it is an outcome that is not 0 or 1 of everyone.
        """
        if not isinstance(name, str):
            raise ParameterError(f"exposure must be the name of an outcome or column, got {name!r}")
        for place, space in enumerate(spaces):
            if name in space.declared.missing:
                raise ParameterError(
                    f"exposure must be known of every unit, and {name!r} may be missing; take an "
                    "exposure that is not"
                )
            if name in space.declared.names:
                outcome = space.declared.spaces[name]
                if not isinstance(outcome, OutcomeSpace) or outcome.values != (0.0, 1.0):
                    raise ParameterError(
                        f"exposure must have the values 0 and 1, and {name!r} was declared as "
                        f"{outcome}; take an outcome that was declared as 0,1"
                    )
                return cls(name, place)
        return cls(name, None)

    def check(self, release: Release, joined: Collection[str]) -> None:
        """Raise a ParameterError unless there is such an exposure, once.

        Args:
            release: The release.
            joined: The columns of the analyst's table.
        """
        columns = release.columns
        if self.place is not None and self.name in joined:
            raise ParameterError(
                f"exposure {self.name!r} is an outcome of the release and a column of the segments "
                "table; rename or drop the column"
            )
        others = (columns.unit, *columns.cell)
        offered = [name for name in (*columns.public, *joined) if name not in others]
        if self.place is None and self.name not in offered:
            there = ", ".join(map(repr, (*columns.outcomes, *offered)))
            raise ParameterError(
                "exposure must be an outcome of the release, or a column that is kept or joined, "
                f"got {self.name!r}; there are {there}"
            )


def known_exposures(table: pl.DataFrame, column: str) -> pl.Series:
    """Whether units were exposed, 0 or 1, from rows counted by a column of that and others.

    Raises:
        DataError: If it is not known of every unit.
    """
    import polars as pl

    exposures = unnamed(table[column])
    told = f"exposure {column!r} must be 0 or 1 for every released unit"
    if not (exposures.dtype.is_numeric() or exposures.dtype == pl.Boolean):
        raise DataError(f"{told}, and holds {exposures.dtype}; make numbers of it")
    n_missing = int(table[COUNT].filter(exposures.is_null()).sum())
    if n_missing:
        raise DataError(
            f"{told}, and is missing for {n_missing:,}; give 0 to those who were not exposed"
        )
    if not exposures.cast(pl.Float64).is_in([0.0, 1.0]).all():
        raise DataError(f"{told}, and holds other values; give 1 to those who count as exposed")
    return exposures.cast(pl.Int64).alias(column)


class Crossed(NamedTuple):
    """Rows counted by profile, response and exposure; axes `[entry]`.

    Attributes:
        profiles: The profile.
        responses: The response.
        exposures: Whether a unit was exposed, 0 or 1.
        counts: How many rows have all three.
    """

    profiles: IntArray
    responses: IntArray
    exposures: IntArray
    counts: IntArray

    @classmethod
    def of(cls, table: pl.DataFrame, column: str) -> Crossed:
        """From counts of rows by profile, response, exposure and others, in the order of these."""
        import polars as pl

        names = (PROFILE, RESPONSE, column)
        by = columns(names)
        counts = table.group_by(by).agg(pl.col(COUNT).sum()).sort(by)
        return cls(*(counts[name].cast(pl.Int64).to_numpy() for name in (*names, COUNT)))

    @property
    def exposed(self) -> Counted:
        """The same by exposure alone."""
        return Counted(self.profiles, self.exposures, self.counts)

    def products(self, profiles: Profiles, outcomes: Outputs, exposure: Outputs) -> FloatArray:
        """Sums over each cell of products of debiased values; axes `[cluster, arm]`.

        Args:
            profiles: What profiles are of.
            outcomes: What responses tell.
            exposure: What exposures tell.
        """
        cells = profiles.cells[self.profiles]
        told = Counted(self.profiles, self.responses, self.counts)
        both = (
            Answers.of(told, profiles, outcomes).values
            * Answers.of(self.exposed, profiles, exposure).values
        )
        n_clusters, n_arms = profiles.shape
        sums = np.bincount(cells, self.counts * both, n_clusters * n_arms)
        return np.asarray(sums.reshape(n_clusters, n_arms), np.float64)


def crossed_covariance(one: PairedArms, found: list[PairMeans], crossed: Crossed) -> float:
    """The sampling covariance of effects on an outcome and on exposure.

    Args:
        one: The rows of both arms, as the outcome reads them and as exposure does.
        found: Their means.
        crossed: The same rows, crossed.
    """
    outcome, exposure = one.parts
    by_groups = _group_covariances(found)
    if by_groups is not None:
        return float(by_groups.sum())
    profiles = outcome.whole.rows.profiles
    products = crossed.products(profiles, outcome.whole.outputs, exposure.whole.outputs)
    first, second = (part.moments.of_arms(one.pair) for part in one.parts)
    return float(arm_covariances(first, second, products[:, one.pair], one.weights).sum())


def apart_covariances(one: PairedArms, found: list[PairMeans]) -> tuple[FloatArray, FloatArray]:
    """The least and the largest covariance of means of two questions; axes `[arm]`.

    Args:
        one: The rows of both arms, as each question reads them.
        found: Their means.
    """
    by_groups = _group_covariances(found)
    if by_groups is not None:
        return by_groups, by_groups
    part = one.parts[0]
    each = spread_cells(one.weights.of_units(), part.profiles, one.pair)  # s
    first, second = (
        times(means.found.coefficients, of.whole.calibration.solver.transposed)
        for of, means in zip(one.parts, found, strict=True)
    )
    shared = -part.whole.calibration.sizes * first * second  # of s² − (s − Xb)(s − Xb')
    shared[:, part.places] += part.sums.sizes * each * (first + second)[:, part.places]
    shares, squares = np.abs(shared).sum(axis=-1), (part.sums.sizes * each**2).sum(axis=-1)
    above, below = (np.maximum(means.means.sampling, 0.0) for means in found)
    spread = np.sqrt(above * below) / squares
    # How far means are from their low and their high ends.
    (low, high), (other_low, other_high) = (
        _end_distances(of, means) for of, means in zip(one.parts, found, strict=True)
    )
    least = np.minimum.reduce([spread, low * other_low, high * other_high])
    most = np.minimum.reduce([spread, low * other_high, high * other_low])
    factor = np.minimum(shares, squares)
    return -factor * least, factor * most


def _end_distances(part: Part, found: PairMeans) -> tuple[FloatArray, FloatArray]:
    """How far the means of arms are from the least and the largest value; axes `[arm]`."""
    half = part.whole.calibration.unit_noise.ends.span / 2
    means = np.clip(found.means.means, -half, half)
    return half + means, half - means


def _group_covariances(found: list[PairMeans]) -> FloatArray | None:
    """What groups that were assigned as a whole say of how means covary; axes `[arm]`.

    None if units were assigned.
    """
    first, second = (means.scores for means in found)
    if first is None or second is None:
        return None
    pairs = zip(first, second, strict=True)
    return np.array([left.scores @ right.scores for left, right in pairs])


def arm_covariances(
    one: CellMoments, other: CellMoments, products: FloatArray, weights: CellWeights
) -> FloatArray:
    """Sampling covariances of weighted means of two metrics; axes `[..., arm]`.

    A quarter of Var(y + e) − Var(y − e). If the noise of both is independent, it cancels.

    Args:
        one: Moments of the first metric.
        other: Of the second one.
        products: Sums of products of both, as distances from the numbers that means are distances
            from; axes `[..., cluster, arm]`.
        weights: Of the cells.
    """
    around = products - one.sizes * one.means * other.means

    def variances(sign: int) -> FloatArray:
        moments = CellMoments(
            sizes=one.sizes,
            means=one.means + sign * other.means,
            squares=one.squares + other.squares + 2 * sign * around,
            noise=one.noise + other.noise,
        )
        return arm_variances(moments, weights)

    return np.asarray((variances(1) - variances(-1)) / 4)
