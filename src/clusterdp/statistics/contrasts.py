"""Noisy differences in means, cluster by cluster: noisy Horvitz–Thompson."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from clusterdp.errors import FormatError, ParameterError
from clusterdp.outcomes.finite import LARGEST_VALUE
from clusterdp.outcomes.space import LARGEST_INTEGER
from clusterdp.privacy.accounting import LossAtom, any_loss, checked_epsilon, noise_scale_for
from clusterdp.statistics.base import ClusterContrasts, DrawnStatistic, NoisyStatistic
from clusterdp.statistics.noise import noise_variance

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import Arrays, CellTotals
    from clusterdp.statistics.noise import NoiseSource

_COLUMN = "noisy_contrast"


class NoisyContrasts(NoisyStatistic, frozen=True, kw_only=True, tag="contrasts"):
    """Per cluster, the difference of arm means against control, with discrete Laplace noise.

    Attributes:
        epsilon: What all contrasts of one cluster cost together.
    """

    beside_rows: ClassVar[bool] = False
    of_cell_sums: ClassVar[bool] = True
    with_gaps: ClassVar[tuple[str, ...]] = (_COLUMN,)
    in_words: ClassVar[str] = (
        "the difference of its mean from control's, with noise (`noisy_contrast`)"
    )

    epsilon: float

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", checked_epsilon(self.epsilon))

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {"epsilon of contrasts": self.epsilon}

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss, largest first: ε at most."""
        return any_loss(self.epsilon)

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError for several metrics, or if contrasts would not fit 64 bits."""
        if len(space.metric_values()) > 1:
            raise ParameterError(
                "noisy contrasts cover one metric; publish several with mechanism optimal"
            )
        self._noises(layout, space)

    def draw(
        self, totals: CellTotals, layout: Layout, space: CategorySpace, add_noise: NoiseSource
    ) -> DrawnContrasts:
        """Noisy contrasts from the sums of cells."""
        sums = totals.sums[..., 0]
        contrasts = np.empty((*sums.shape[:-2], len(layout.clusters), len(layout.treatments)))
        for cluster, noises in enumerate(self._noises(layout, space)):
            sizes, of_cluster = layout.sizes[cluster], sums[..., cluster, :]
            for place, (step, scale) in enumerate(noises):
                arm = layout.treatments[place]
                above = sizes[layout.control] * of_cluster[..., arm]
                below = sizes[arm] * of_cluster[..., layout.control]
                contrasts[..., cluster, place] = step * add_noise(above - below, scale)
        return self.restore({_COLUMN: contrasts}, layout, space)

    def restore(self, arrays: Arrays, layout: Layout, space: CategorySpace) -> DrawnContrasts:
        """Noisy contrasts from the array that `DrawnContrasts.arrays` gave."""
        variances = self.contrast_variance(layout, space)
        return DrawnContrasts(values=arrays[_COLUMN], variances=variances, layout=layout)

    def column_types(self, space: CategorySpace) -> dict[str, pl.DataType]:  # noqa: ARG002 - as the others
        """One column: a contrast is in the row of its treatment cell."""
        import polars as pl

        return {_COLUMN: pl.Float64()}

    def read(self, cells: pl.DataFrame, layout: Layout, space: CategorySpace) -> DrawnContrasts:
        """Noisy contrasts from the published table of cells."""
        column = cells[_COLUMN]
        table = column.to_numpy().reshape(layout.sizes.shape)
        is_treatment = np.arange(len(layout.arms)) != layout.control
        possible = np.abs(table) < LARGEST_VALUE
        if (possible != is_treatment).any() or column.null_count() != (~possible).sum():
            raise FormatError("the cells do not have a contrast for every treatment, and no other")
        return self.restore({_COLUMN: table[:, list(layout.treatments)]}, layout, space)

    def contrast_variance(
        self,
        layout: Layout,
        space: CategorySpace,
        metric: int = 0,  # noqa: ARG002 - there is one
    ) -> FloatArray:
        """prop:NHT with correction C4; axes `[cluster, treatment]`.

        In continuous noise it would be 2(Δ_c/ε)², Δ_c = (y_max − y_min)/min(n₀, n_a); the discrete
        noise that is drawn has a slightly smaller variance. T treatments share ε.
        """
        return np.array(
            [
                [step**2 * noise_variance(scale) for step, scale in of_cluster]
                for of_cluster in self._noises(layout, space)
            ]
        )

    def _noises(self, layout: Layout, space: CategorySpace) -> list[list[tuple[float, float]]]:
        """Step and scale of the noise on each contrast, by cluster and treatment."""
        return [
            [contrast_noise(layout, space, self.epsilon, cluster, arm) for arm in layout.treatments]
            for cluster in range(len(layout.clusters))
        ]


def contrast_noise(
    layout: Layout, space: CategorySpace, epsilon: float, cluster: int, arm: int
) -> tuple[float, float]:
    """How a cluster's difference in means between an arm and control is noised.

    It is `step` times an integer with noise of scale `scale`.

    The difference is the exact fraction (n₀S₁ − n₁S₀)·unit / (n₀n₁) of an integer. Replacing an
    outcome of arm a moves the integer by at most n₀ times the span, one of control by n_a times
    the span; and a control unit is in the contrasts of all T treatments. So the scale is
    T·max(n₀, n_a)·span/ε. For T = 1 the noise on the difference of means has scale
    (y_max − y_min)/(min(n₀, n₁)ε): correction C4.
    """
    lattice = space.metric_lattice()
    unit, multiples = lattice.units[0], sorted(lattice.integers[0].tolist())
    n_control, n_arm = int(layout.sizes[cluster, layout.control]), int(layout.sizes[cluster, arm])
    span = multiples[-1] - multiples[0]
    sensitivity = Fraction(len(layout.treatments) * max(n_control, n_arm) * span)
    scale = noise_scale_for(sensitivity, epsilon)
    if n_control * n_arm * max(map(abs, multiples)) + 64 * scale > LARGEST_INTEGER:
        raise ParameterError(
            "cells and outcome values are too large for exact 64-bit contrasts; "
            "declare outcomes in a coarser unit"
        )
    return float(unit / (n_control * n_arm)), scale


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnContrasts(DrawnStatistic):
    """Noisy differences in means against control.

    Attributes:
        values: Axes `[..., cluster, treatment]`, treatments in the order of `Layout.treatments`.
        variances: Variance of the noise on each; axes `[cluster, treatment]`.
        layout: Their cells.
    """

    values: FloatArray
    variances: FloatArray
    layout: Layout

    def arrays(self) -> Arrays:
        """The noisy contrasts."""
        return {_COLUMN: self.values}

    def to_columns(self) -> list[pl.Series]:
        """One column, with gaps for control."""
        import polars as pl

        table = np.full(self.layout.sizes.shape, np.nan)
        table[:, list(self.layout.treatments)] = self.values
        return [pl.Series(_COLUMN, table.ravel()).fill_nan(None)]

    def contrasts(self, layout: Layout, metric: int = 0) -> ClusterContrasts:  # noqa: ARG002 - one
        """The contrasts themselves (algNHT); how outcomes spread is not estimated."""
        if layout.control != self.layout.control:
            published = self.layout.arms[self.layout.control]
            raise ParameterError(
                f"the release has contrasts against {published!r}; no other control is possible"
            )
        return ClusterContrasts(contrasts=self.values, noise=self.variances)
