"""Whether covariates follow treatment: arms were assigned at random, so they are alike before it.

Of the n_c units of a cluster, n_ac drawn at random are arm a's. So the sum T of scores in the arm
has the mean Σ n_ac·x̄_c and the variance σ² = Σ n_ac(1 − n_ac/n_c)·S²_c over clusters. A number's
score is its rank, which a few large values do not decide; that of a category, or of a missing
value, says whether a unit has it. With z = |T − E T|/σ and b the range of scores, p-values have
Bernstein's form

    2·exp(−z²/(2 + 2zb/(3σ))),

which holds in small arms and for rare categories, where normal ones do not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.metrics.sample_ratio import for_all_arms
from clusterdp.estimation.reading.covariates import MISSING, RowsBySegment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# The probability of a false positive about any covariate of an estimate; and about any difference
# between a plain and an adjusted effect.
_LEVEL = 1e-3


def balance_notes(rows: RowsBySegment) -> list[Note]:
    """Covariates that differ between arms by more than chance, a warning each."""
    tests = [
        (what, balance_p_value(scores, sizes))
        for name, counts in _class_sizes(rows)
        for what, scores, sizes in _tested(name, counts, is_number=name in rows.given.numbers)
    ]
    found: dict[str, float] = {}
    for what, p_value in tests:
        if p_value * len(tests) < _LEVEL:
            found[what] = min(p_value, found.get(what, 1.0))
    return [
        Note(
            f"{what} differs between arms (p = {p_value:.2g}), so it depends on treatment. "
            "Adjusted effects are biased; unadjusted ones are reported. Leave it out of adjust "
            "(--adjust).",
            Weight.WARNING,
        )
        for what, p_value in found.items()
    ]


def difference_notes(effects: Sequence[Effect]) -> list[Note]:
    """Adjusted effects that differ from plain ones by more than chance, a warning each.

    Both errors are positively correlated, so the square of the difference's is at most the sum of
    their squares.
    """
    plain = {one.of: one for one in effects if not one.of.adjusted}
    pairs = [(plain[one.of._replace(adjusted=False)], one) for one in effects if one.of.adjusted]
    return [
        Note(
            f"effects of {one.of.arm} on {one.of.metric} are {one.effect:.4g} unadjusted and "
            f"{other.effect:.4g} adjusted, which is more than chance: a covariate depends on "
            "treatment. Unadjusted effects are reported.",
            Weight.WARNING,
            one.of.label if one.of.segment else None,
        )
        for one, other in pairs
        if _p_value(one, other) * len(pairs) < _LEVEL
    ]


def report_plain(effects: Sequence[Effect]) -> list[Effect]:
    """The same effects; where one is plain and one adjusted, the plain one is marked."""
    return [replace(one, to_report=not one.of.adjusted) for one in effects]


def balance_p_value(scores: FloatArray, sizes: IntArray) -> float:
    """A p-value that scores do not depend on arms; one for all arms (Bonferroni).

    Args:
        scores: Of each class; axes `[class]`.
        sizes: Units; axes `[class, cluster, arm]`.
    """
    of_arms, of_clusters = sizes.sum(axis=0), sizes.sum(axis=(0, 2))
    whole = np.maximum(of_clusters, 1)
    means = np.tensordot(scores, sizes.sum(axis=2), 1) / whole
    squares = np.tensordot(scores**2, sizes.sum(axis=2), 1) - whole * means**2
    spread = np.maximum(squares, 0.0) / np.maximum(of_clusters - 1, 1)
    off = np.tensordot(scores, sizes.sum(axis=1), 1) - means @ of_arms
    variances = spread @ (of_arms * (1 - of_arms / whole[:, np.newaxis]))
    deviations = np.sqrt(np.maximum(variances, 0.0))
    if not (deviations > 0).all():
        return 1.0
    distance = np.abs(off) / deviations
    reach = np.ptp(scores) / deviations
    return float(for_all_arms(2 * np.exp(-(distance**2) / (2 + 2 * distance * reach / 3))))


def _p_value(plain: Effect, adjusted: Effect) -> float:
    """Of a zero difference; one where there is no standard error."""
    spread = math.hypot(plain.std_error, adjusted.std_error)
    if not spread > 0:
        return 1.0
    return math.erfc(abs(plain.effect - adjusted.effect) / spread / math.sqrt(2))


def _class_sizes(rows: RowsBySegment) -> Iterator[tuple[str, IntArray]]:
    """The units of each covariate's classes in cells; axes `[class, cluster, arm]`."""
    for one in rows.class_counts(rows.profiles.cells):
        shape = (int(one.values.max(initial=0)) + 1, *rows.profiles.shape)
        sizes = np.zeros(shape, np.int64)
        np.add.at(sizes.reshape(shape[0], -1), (one.values, one.groups), one.counts)
        yield one.name, sizes


def _tested(
    name: str, sizes: IntArray, *, is_number: bool
) -> Iterator[tuple[str, FloatArray, IntArray]]:
    """What is tested of a covariate: its name, scores of classes, and their units."""
    is_missing = np.arange(len(sizes)) == MISSING
    if sizes[MISSING].any():
        yield f"who lacks {name}", is_missing.astype(np.float64), sizes
    known = sizes[~is_missing & sizes.any(axis=(1, 2))]
    if is_number:
        totals = known.sum(axis=(1, 2))
        yield name, (np.cumsum(totals) - totals / 2) / totals.sum(), known
    else:
        # Of two categories, one says what the other does.
        for has in np.eye(len(known))[: len(known) if len(known) > 2 else 1]:
            yield name, has, known
