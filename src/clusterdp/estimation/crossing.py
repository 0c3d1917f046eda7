"""Rows counted by an exposure beside their responses: how outcomes go with exposure.

What is crossed with a response is a public column of 0 and 1, or the response of another block.
Given the true outcomes, the noise of one tells nothing of the other. So the mean of products of
debiased values is that of products of true ones, and only sampling makes means of both covary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._named import columns, unnamed
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.cell_weights import arm_variances
from clusterdp.estimation.moments import CellMoments
from clusterdp.estimation.profiles import Counted
from clusterdp.estimation.profiling import PROFILE
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.published.row_counts import COUNT
from clusterdp.rows.columns import RESPONSE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.cell_weights import CellWeights
    from clusterdp.estimation.composed import PairedArms
    from clusterdp.estimation.metric_effects import PairMeans
    from clusterdp.estimation.profiles import Outputs, Profiles
    from clusterdp.experiment.categories import Categories
    from clusterdp.published.release import Release


class AskedExposure(NamedTuple):
    """What units were exposed to.

    Attributes:
        name: An outcome of the release; or a column that is kept or joined.
        place: The place of the block that has the outcome; None for a column.
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

    def column(self, release: Release) -> str:
        """The column of rows that tells it."""
        return self.name if self.place is None else release.columns.responses[self.place]

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
        exposures: Whether a unit was exposed, 0 or 1; or the response that tells it.
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

        def debiased(outputs: Outputs, responses: IntArray) -> FloatArray:
            return np.asarray(outputs.values[outputs.groups.ravel()[cells], responses])

        both = debiased(outcomes, self.responses) * debiased(exposure, self.exposures)
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
    of_outcome, of_exposure = (means.scores for means in found)
    if of_outcome is not None and of_exposure is not None:
        pairs = zip(of_outcome, of_exposure, strict=True)
        return sum(float(left.scores @ right.scores) for left, right in pairs)
    profiles = outcome.whole.rows.profiles
    products = crossed.products(profiles, outcome.whole.outputs, exposure.whole.outputs)
    first, second = (part.moments.of_arms(one.pair) for part in one.parts)
    return float(arm_covariances(first, second, products[:, one.pair], one.weights).sum())


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
