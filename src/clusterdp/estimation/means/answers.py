"""Answers of those who were asked, as numbers that stand for everyone.

Who is asked a question is public, and a hash decides it. So of the n units of any stratum the m
that were asked are a random sample. Let c be their mean debiased outcome. With

    u = c + 1{asked}·(ỹ − c)·n/m

sums of u over units are without bias those of outcomes, and the noise of u has the variance
v·n/m + (n/m − 1)(y − c)². That is `AskedChannel` with the share that was asked and the mean that
was found, in place of those that were expected.

A stratum is a profile if enough of its units are expected to be asked, else what is left of the
cell, else what is left of the arm. Those who were asked must not choose strata: of cells with
enough of them, as many are left out as there were lucky ones, and the rest would be asked less than
it counts. Where everyone is asked, u is the debiased outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.reading.profiles import Counted, Outputs, Profiles


# Units that are expected to be asked in a stratum, at least, unless the arm has fewer: they know
# its mean well.
ENOUGH_ASKED = 50


class Answers(NamedTuple):
    """What each row counts as; axes `[entry]` of counted rows.

    Attributes:
        values: u, as a distance from the middle of the metric's values.
        noise: An estimate of the variance of its noise, in the mean over a stratum.
        missed: What squares of u lack in the mean over a stratum, as c is made of the same rows.
        stands_for: For how many units: n/m of those asked, and 0 of others.
    """

    values: FloatArray
    noise: FloatArray
    missed: FloatArray
    stands_for: FloatArray

    @classmethod
    def of(cls, counted: Counted, profiles: Profiles, outputs: Outputs) -> Answers:
        """Rows as they answer; `outputs` are those of the channel of who is asked."""
        asked = counted.responses < outputs.values.shape[-1]
        groups = outputs.groups.ravel()[profiles.cells[counted.profiles]]
        told = groups, np.where(asked, counted.responses, 0)
        debiased, noise = outputs.values[told], outputs.noise[told]
        if asked.all():
            return cls(debiased, noise, np.zeros_like(noise), np.ones_like(noise))
        strata = _strata(counted, asked, profiles)[counted.profiles]

        def add(terms: FloatArray | IntArray) -> FloatArray:
            return np.asarray(np.bincount(strata, counted.counts * terms), np.float64)

        n_units, n_asked = add(np.ones_like(counted.counts)), add(asked.astype(np.int64))
        some = np.maximum(n_asked, 1)
        centres = add(np.where(asked, debiased, 0.0)) / some
        each = (n_units / some)[strata]
        distances = np.where(asked, debiased - centres[strata], 0.0)
        # Of m squared distances from their own mean, m − 1 are free. Squares of u are going to be
        # divided by n − 1 instead of n.
        spread = (some / np.maximum(n_asked - 1, 1))[strata] * distances**2
        squares = ((n_units - 1) / np.maximum(n_units, 1))[strata] * spread
        return cls(
            values=centres[strata] + each * distances,
            noise=np.where(asked, each * (noise + (each - 1) * spread), 0.0),
            missed=each**2 * (squares - distances**2),
            stands_for=np.where(asked, each, 0.0),
        )


def _strata(counted: Counted, asked: BoolArray, profiles: Profiles) -> IntArray:
    """The stratum of each profile; axes `[profile]`."""
    n_profiles = len(profiles.cells)
    share = (counted.counts @ asked) / counted.counts.sum()
    expected = share * np.bincount(counted.profiles, counted.counts, n_profiles)
    strata, left, offset = np.zeros(n_profiles, np.int64), np.ones(n_profiles, np.bool_), 0
    for keys in (np.arange(n_profiles), profiles.cells, profiles.arms):
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
