"""What responses count as, and sums of that over profiles and cells.

A response is decoded to a debiased outcome (`ResponseValues`). Where units were asked different
questions, answers have to stand for everyone. Who is asked a question is public, and a hash decides
it. So of the n units of any stratum the m that were asked are a random sample. Let c be their mean
debiased outcome. With

    u = c + 1{asked}·(ỹ − c)·n/m

sums of u over units are without bias those of outcomes, and the noise of u has the variance
v·n/m + (n/m − 1)(y − c)². That is `AskedChannel` with the share that was asked and the mean that
was found, in place of those that were expected.

A stratum is a profile if enough of its units are expected to be asked, else what is left of the
cell, else what is left of the arm. The units that were asked must not choose strata: of cells with
enough of them, as many are left out as there were lucky ones, and the rest would be asked less than
it counts. Where everyone is asked, u is the debiased outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from clusterdp._arrays import BoolArray, FloatArray, IntArray
from clusterdp.channels import Channel
from clusterdp.channels.asked import AskedChannel
from clusterdp.estimation.reading.profiles import Profiles, ResponseCounts, sums_by
from clusterdp.outcomes.space import CategorySpace, ValueRange

# Units that are expected to be asked in a stratum, at least, unless the arm has fewer: they know
# its mean well.
ENOUGH_ASKED = 50


class ResponseValues(NamedTuple):
    """What an output counts as for a unit; axes `[..., group of cells, output]`.

    Attributes:
        values: The debiased outcome, as a distance from the middle of the metric's values.
        noise: An unbiased estimate of the variance of the debiased outcome's noise.
        groups: The group of each cell; axes `[..., cluster, arm]`.
        middle: The middle of the metric's values.
    """

    values: FloatArray
    noise: FloatArray
    groups: IntArray
    middle: float

    @classmethod
    def from_channel(
        cls, channel: Channel | AskedChannel, space: CategorySpace, metric: int = 0
    ) -> ResponseValues:
        """The outputs of a channel, for one metric."""
        return cls.decoded(channel, channel.decode(metric), space.metric_values()[metric])

    @classmethod
    def decoded(
        cls, channel: Channel | AskedChannel, debiased: FloatArray, values: FloatArray
    ) -> ResponseValues:
        """The outputs of a channel, for a function of the category.

        Two values are equally far from their middle. So the squared distance of a debiased outcome
        exceeds a known number by the variance of its noise, on average.

        Args:
            channel: The channel.
            debiased: What its outputs count as; axes `[..., group of cells, output]`.
            values: The function; axes `[category]`.
        """
        ends = ValueRange.from_values(values)
        distances = debiased - ends.middle
        if len(np.unique(values)) <= 2:
            noise = np.where(channel.possible(), distances**2 - (ends.span / 2) ** 2, 0.0)
        else:
            noise = channel.read_numbers(channel.noise_of(values, debiased))
        return cls(distances, noise, channel.groups, ends.middle)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellMoments:
    """Sizes, means and spreads of each cell; axes `[..., cluster, arm]`.

    Attributes:
        sizes: Numbers of units.
        means: Mean (debiased) outcomes, as distances from any one number.
        squares: Sums of squared deviations from those means.
        noise: Sums of the estimated noise variances of units.
        asked: Numbers of units that were asked; None if all were.
        stands_for: Numbers of units that these stand for; None if all were asked.
    """

    sizes: IntArray
    means: FloatArray
    squares: FloatArray
    noise: FloatArray
    asked: IntArray | None = None
    stands_for: FloatArray | None = None

    def of_arms(self, arms: list[int]) -> CellMoments:
        """Some of the arms."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: terms[..., arms] for name, terms in every.items() if terms is not None}
        return CellMoments(**known)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfileSums:
    """Sums over the rows of each profile; axes `[..., profile]`.

    Attributes:
        sizes: Numbers of rows.
        sums: Of debiased outcomes, as distances from the middle of the metric's values.
        squares: Of the squares of these distances.
        noise: Of the estimated variances of their noise.
        asked: Numbers of rows of units that were asked; None if all were.
        stands_for: Numbers of units that these stand for; None if all were asked.
    """

    sizes: IntArray
    sums: FloatArray
    squares: FloatArray
    noise: FloatArray
    asked: IntArray | None = None
    stands_for: FloatArray | None = None

    @classmethod
    def from_rows(
        cls, counted: ResponseCounts, profiles: Profiles, outputs: ResponseValues
    ) -> ProfileSums:
        """Sums over counted rows; see `read_answers`."""
        values, noise, missed, stands_for = read_answers(counted, profiles, outputs)
        everyone, ones = bool((stands_for == 1).all()), np.ones_like(values)
        terms = np.stack([ones, values, values**2 + missed, noise, np.sign(stands_for), stands_for])
        sizes, sums, squares, noise, asked, stands_for = sums_by(
            counted.profiles, counted.counts * terms, len(profiles.cells)
        )
        return cls(
            sizes=sizes.astype(np.int64),
            sums=sums,
            squares=squares,
            noise=noise,
            asked=None if everyone else asked.astype(np.int64),
            stands_for=None if everyone else stands_for,
        )

    @classmethod
    def from_cell_counts(cls, counts: IntArray, outputs: ResponseValues) -> ProfileSums:
        """Sums over rows counted by cell and response, cells being the profiles.

        Args:
            counts: Axes `[..., cluster, arm, response]`.
            outputs: What responses count as.
        """
        values = outputs.values[..., outputs.groups, :]

        def add(terms: FloatArray) -> FloatArray:
            sums = (counts * terms).sum(axis=-1)
            return np.asarray(sums.reshape(*sums.shape[:-2], -1))

        sizes = counts.sum(axis=-1)
        return cls(
            sizes=sizes.reshape(*sizes.shape[:-2], -1),
            sums=add(values),
            squares=add(values**2),
            noise=add(outputs.noise[..., outputs.groups, :]),
        )

    def cell_moments(self, profiles: Profiles) -> CellMoments:
        """Moments of cells; means as distances from the middle."""
        sizes = np.asarray(profiles.sum_cells(self.sizes), dtype=np.int64)
        some = np.maximum(sizes, 1)  # the moments of an empty cell are zeros, and count for nothing
        means = profiles.sum_cells(self.sums) / some
        squares = profiles.sum_cells(self.squares) - sizes * means**2
        return CellMoments(
            sizes=sizes,
            means=means,
            squares=squares,
            noise=profiles.sum_cells(self.noise),
            asked=None if self.asked is None else profiles.sum_cells(self.asked).astype(np.int64),
            stands_for=None if self.stands_for is None else profiles.sum_cells(self.stands_for),
        )


def read_answers(
    counted: ResponseCounts, profiles: Profiles, outputs: ResponseValues
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """What each row counts as; axes `[entry]` of counted rows.

    Args:
        counted: The rows.
        profiles: How profiles are made.
        outputs: What responses count as, through the channel of units that are asked.

    Returns:
        u, as a distance from the middle of the metric's values. An estimate of the variance of its
        noise, in the mean over a stratum. What squares of u lack in the mean over a stratum, as c
        is made of the same rows. For how many units a row stands: n/m if it was asked, else 0.
    """
    asked = counted.responses < outputs.values.shape[-1]
    cells = profiles.released_cells(outputs.groups.shape[-1])
    groups = outputs.groups.ravel()[cells[counted.profiles]]
    told = groups, np.where(asked, counted.responses, 0)
    debiased, noise = outputs.values[told], outputs.noise[told]
    if asked.all():
        return debiased, noise, np.zeros_like(noise), np.ones_like(noise)
    strata = _strata(counted, asked, profiles)[counted.profiles]
    terms = np.stack([np.ones_like(debiased), asked, np.where(asked, debiased, 0.0)])
    n_units, n_asked, sums = sums_by(strata, counted.counts * terms, int(strata.max()) + 1)
    some = np.maximum(n_asked, 1)
    centres = sums / some
    each = (n_units / some)[strata]
    distances = np.where(asked, debiased - centres[strata], 0.0)
    # Of m squared distances from their own mean, m − 1 are free. Squares of u are going to be
    # divided by n − 1 instead of n.
    spread = (some / np.maximum(n_asked - 1, 1))[strata] * distances**2
    squares = ((n_units - 1) / np.maximum(n_units, 1))[strata] * spread
    return (
        centres[strata] + each * distances,
        np.where(asked, each * (noise + (each - 1) * spread), 0.0),
        each**2 * (squares - distances**2),
        np.where(asked, each, 0.0),
    )


def _strata(counted: ResponseCounts, asked: BoolArray, profiles: Profiles) -> IntArray:
    """The stratum of each profile; axes `[profile]`."""
    n_profiles = len(profiles.cells)
    folders = np.zeros(n_profiles, np.int64) if profiles.folders is None else profiles.folders
    # Folders may ask other shares of their units.
    of_entries, n_folders = folders[counted.profiles], len(profiles.starts)
    n_units = np.bincount(of_entries, counted.counts, n_folders)
    n_asked = np.bincount(of_entries, counted.counts * asked, n_folders)
    share = (n_asked / np.maximum(n_units, 1))[folders]
    expected = share * np.bincount(counted.profiles, counted.counts, n_profiles)
    strata, left, offset = np.zeros(n_profiles, np.int64), np.ones(n_profiles, np.bool_), 0
    of_folders = folders * profiles.shape[1] + profiles.arms
    for keys in (np.arange(n_profiles), profiles.cells, of_folders, profiles.arms):
        enough = np.bincount(keys, expected * left) >= ENOUGH_ASKED
        chosen = left & enough[keys]
        strata[chosen] = offset + keys[chosen]
        left, offset = left & ~chosen, offset + int(keys.max(initial=0)) + 1
    for arm in np.unique(profiles.arms[left]):
        mine = profiles.arms == arm
        sizes = np.bincount(strata[mine & ~left], expected[mine & ~left])
        # Too few are left for a stratum: the smallest one takes them in.
        smallest = np.argmin(np.where(sizes > 0, sizes, np.inf)) if sizes.any() else offset + arm
        strata[mine & left] = smallest
    return np.unique(strata, return_inverse=True)[1]
