"""The check of sample ratios: do the arms have the shares that were planned?

Sample ratios within segments: a segment made after treatment has other shares of the arms.

Arms were assigned at random within clusters. So of the m_c units that a segment has in cluster c,
arm a has a number that is hypergeometric: m_c drawn from n_c units, n_ac of them in the arm.
The numbers of clusters are independent, and the distribution of their sum is computed exactly.

What cells mean for an estimate: remarks on their sizes.

Whether covariates follow treatment: arms were assigned at random, so before it they differ by
chance alone.

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
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp._text import counted, effect_text, p_text
from clusterdp.cells.layout import Layout
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import FEW_UNITS, Effect, Estimator
from clusterdp.estimation.effects.intervals import two_sided
from clusterdp.estimation.effects.notes import ALARM_LEVEL, Note, Weight
from clusterdp.estimation.means.weights import log_choose
from clusterdp.estimation.reading.covariates import MISSING, RowsBySegment
from clusterdp.estimation.reading.request import EstimateRequest

# Half of `ALARM_LEVEL` is for the arms of the whole table; the other half is for the arms of its
# clusters.
# What it means if arms have different shares in different clusters.
PUBLIC_CLUSTERS_DIFFER = (
    "That is expected if planned shares differ between clusters. Otherwise assignment or logging "
    "failed."
)
# So many clusters or segments are named; more are counted.
_SHOWN = 3
# How shares are declared, by an owner before a release and by an analyst after it.
OWNER_DECLARES = "If it was, declare it: arm_shares=... (--arm-shares {})."
ANALYST_DECLARES = (
    "The owner declared no shares. Check them against the planned ones: shares (--shares {})."
)
PRIVATE_CLUSTERS_DIFFER = (
    "These are noisy clusters, which mix true ones, so effects are biased. Ask the owner to "
    "declare the probabilities of arms (assignment, under [private_clusters]) and publish again."
)


def sample_ratio_notes(
    layout: Layout,
    expected: dict[Any, float] | None = None,
    if_clusters_differ: str = PUBLIC_CLUSTERS_DIFFER,
) -> list[Note]:
    """Arms whose shares of units are not as planned, overall and cluster by cluster.

    Args:
        layout: The cells.
        expected: The planned share of each arm, by label; by default as the owner declared them.
            Where nobody did, unequal shares are a question and no alarm, and clusters are compared
            with the shares of all clusters together.
        if_clusters_differ: What is said of clusters whose shares are not as planned.
    """
    shares = _expected_shares(layout, expected)
    notes = arm_notes(layout, shares, ANALYST_DECLARES)
    if len(layout.clusters) == 1:
        return notes
    arm_sizes, cluster_sizes = layout.sizes.sum(axis=0), layout.sizes.sum(axis=1, keepdims=True)
    if shares is not None:
        cell_p_values = binomial_p_values(layout.sizes, cluster_sizes, shares)
    else:
        cell_p_values = hypergeometric_p_values(layout.sizes, cluster_sizes, arm_sizes)
    off = np.flatnonzero(for_all_arms(cell_p_values) < ALARM_LEVEL / 2 / len(layout.clusters))
    if len(off):
        named = ", ".join(str(layout.clusters[index]) for index in off[:_SHOWN])
        more = f" and {len(off) - _SHOWN} more" if len(off) > _SHOWN else ""
        text = (
            f"SRM within {len(off)} of {len(layout.clusters)} clusters: {named}{more}. "
            f"{if_clusters_differ}"
        )
        harmless = shares is None and if_clusters_differ == PUBLIC_CLUSTERS_DIFFER
        notes.append(Note(text, Weight.SCOPE if harmless else Weight.WARNING))
    return notes


def question_notes(
    asked: IntArray, sizes: IntArray, shares: FloatArray, names: Sequence[str], arms: Sequence[Any]
) -> list[Note]:
    """Questions that were not asked of as many units as published, overall and arm by arm.

    A hash of the id decides, so that arms are asked equally. Half of the level is for all arms
    together, the other half for each (Bonferroni).

    Args:
        asked: How many units were asked each question; axes `[question, arm]`.
        sizes: How many units there are; axes `[arm]`.
        shares: The published shares of questions; axes `[question]`.
        names: What questions are called.
        arms: The labels of arms.
    """
    overall = binomial_p_values(asked.sum(axis=1), sizes.sum(), shares)
    by_arm = binomial_p_values(asked, sizes, shares[:, np.newaxis])
    off = [
        (name, "all arms", asked[place].sum() / sizes.sum(), shares[place], overall[place])
        for place, name in enumerate(names)
        if overall[place] < ALARM_LEVEL / 2 / len(names)
    ]
    off += [
        (
            names[place],
            f"arm {arms[arm]}",
            asked[place, arm] / sizes[arm],
            shares[place],
            by_arm[place, arm],
        )
        for place, arm in np.argwhere(by_arm < ALARM_LEVEL / 2 / by_arm.size)
    ]
    return [
        Note(
            f"{found:.2%} of units in {where} answered {name}, expected {share:.2%} "
            f"({p_text(p_value)}). Rows are missing or come from another release.",
            Weight.WARNING,
        )
        for name, where, found, share, p_value in off
    ]


def arm_notes(layout: Layout, shares: FloatArray | None, declare: str) -> list[Note]:
    """A warning if arms do not have their planned shares; a question if none were declared.

    Args:
        layout: The cells.
        shares: The planned shares; None if they are not known.
        declare: How to declare them.
    """
    n_arms, sizes = len(layout.arms), layout.sizes.sum(axis=0)
    meant = np.full(n_arms, 1 / n_arms) if shares is None else shares
    p_value = float(for_all_arms(binomial_p_values(sizes, layout.n_units, meant)))
    if p_value >= ALARM_LEVEL / 2:
        return []
    pairs = list(zip(layout.arms, sizes / layout.n_units, strict=True))
    found = ", ".join(f"{arm} {share:.2%}" for arm, share in pairs)
    if shares is None:
        example = ",".join(f"{arm}=..." for arm in layout.arms)
        text = f"Arms have {found} of the units. If that was not planned, assignment failed. "
        return [Note(text + declare.format(example), Weight.SCOPE)]
    planned = ", ".join(f"{share:.2%}" for share in shares)
    return [
        Note(
            f"SRM: arms have {found}, expected {planned} ({p_text(p_value)}). Check assignment and "
            "logging before you read effects.",
            Weight.WARNING,
        )
    ]


def binomial_p_values(found: IntArray, n_units: IntArray | int, shares: FloatArray) -> FloatArray:
    """Two-sided p-values of counts out of some units, each with a known probability."""
    from scipy.special import bdtr, bdtrc

    tails = np.minimum(bdtr(found, n_units, shares), bdtrc(found - 1, n_units, shares))
    return np.asarray(np.minimum(2 * tails, 1.0))


def hypergeometric_p_values(
    found: IntArray, cluster_sizes: IntArray, arm_sizes: IntArray
) -> FloatArray:
    """Two-sided p-values of cells, given the sizes of all clusters and arms.

    If every unit had the same chances, the cells of a cluster are a draw from all units without
    replacement. A tail is P(x) + P(x+1) + …, in which each term is at most r = P(x+1)/P(x) times
    the one before. It is bounded by P(x)/(1 − r): valid for counts of any size, and a few percent
    above the tail where that is small.

    Args:
        found: Axes `[cluster, arm]`.
        cluster_sizes: Axes `[cluster, 1]`.
        arm_sizes: Axes `[arm]`.
    """
    n_units = arm_sizes.sum()
    absent, elsewhere = cluster_sizes - found, arm_sizes - found
    neither = n_units - cluster_sizes - elsewhere
    logs = log_choose(arm_sizes, found) + log_choose(n_units - arm_sizes, absent)
    probs = np.exp(logs - log_choose(n_units, cluster_sizes))
    rises = absent * elsewhere / ((found + 1.0) * (neither + 1.0))
    falls = found * neither / ((absent + 1.0) * (elsewhere + 1.0))
    left = 1 - np.minimum(rises, falls)
    return np.where(left > 0, np.minimum(2 * probs / np.where(left > 0, left, 1.0), 1.0), 1.0)


def for_all_arms(p_values: FloatArray) -> FloatArray:
    """One p-value for all arms, the last axis (Bonferroni). Two arms have the same."""
    n_arms = p_values.shape[-1]
    n_tests = 1 if n_arms == 2 else n_arms
    return np.asarray(np.minimum(n_tests * p_values.min(axis=-1), 1.0))


def _expected_shares(layout: Layout, expected: dict[Any, float] | None) -> FloatArray | None:
    """Shares that add up to one; arms are found by the text of their labels."""
    if expected is None:
        return None if layout.arm_shares is None else np.array(layout.arm_shares)
    arms = [str(arm) for arm in layout.arms]
    if isinstance(expected, dict):
        given = {str(arm): share for arm, share in expected.items()}
        are_shares = all(
            isinstance(share, Real) and not isinstance(share, bool) and 0 < float(share) < math.inf
            for share in given.values()
        )
        if sorted(given) == sorted(arms) and are_shares:
            shares = np.array([given[arm] for arm in arms], dtype=np.float64)
            return np.asarray(shares / shares.sum())
    raise ParameterError(
        f"shares must have a number above 0 for every arm ({', '.join(arms)}), got {expected!r}."
    )


# Sums closer to their expectation than this many standard deviations raise no alarm, and their
# distribution is not computed.
_NEAR = 3.0
# How far the distribution in a cluster is computed: standard deviations, and units. What is beyond
# has a probability of less than 1e-15.
_REACH, _MORE = 10.0, 40
# Fast convolution is exact up to this; smaller probabilities are taken to be as large.
_LEAST_PROB = 1e-12


def segment_ratio_notes(segments: Sequence[tuple[str, IntArray]], whole: IntArray) -> list[Note]:
    """Segments whose arms do not have the shares that assignment within clusters gives them.

    Args:
        segments: Names of segments, each with the units of its cells; axes `[cluster, arm]`.
        whole: The cells of everyone; axes the same.
    """
    p_values = {name: segment_p_value(sizes, whole) for name, sizes in segments}
    off = sorted(
        (p_value, name)
        for name, p_value in p_values.items()
        if p_value < ALARM_LEVEL / len(segments)
    )
    if not off:
        return []
    named = "; ".join(f"{name} ({p_text(p_value)})" for p_value, name in off[:_SHOWN])
    more = f"; and {len(off) - _SHOWN} more" if len(off) > _SHOWN else ""
    return [
        Note(
            f"SRM in {counted(len(off), 'segment')}: {named}{more}. These segments depend on "
            "treatment, so their effects are not causal. Segment by columns measured before "
            "treatment.",
            Weight.WARNING,
        )
    ]


def segment_p_value(sizes: IntArray, whole: IntArray) -> float:
    """A two-sided p-value that a segment does not depend on arms; one for all arms (Bonferroni).

    Args:
        sizes: Units of the segment; axes `[cluster, arm]`.
        whole: Units of everyone; axes the same.
    """
    n_arms = whole.shape[1]
    return float(for_all_arms(np.array([_arm_p_value(sizes, whole, arm) for arm in range(n_arms)])))


def _arm_p_value(sizes: IntArray, whole: IntArray, arm: int) -> float:
    """Twice the smaller tail of how many units of the segment an arm has."""
    n_drawn, n_all, n_arm = sizes.sum(axis=1), whole.sum(axis=1), whole[:, arm]
    mixed = (n_drawn > 0) & (n_drawn < n_all) & (n_arm > 0) & (n_arm < n_all)
    if not mixed.any():
        return 1.0
    found = int(sizes[mixed, arm].sum())
    n_drawn, n_all, n_arm = n_drawn[mixed], n_all[mixed], n_arm[mixed]
    means = n_drawn * n_arm / n_all
    variances = means * (1 - n_arm / n_all) * (n_all - n_drawn) / (n_all - 1)
    if abs(found - means.sum()) <= _NEAR * np.sqrt(variances.sum()):
        return 1.0
    low, probs = _sum_of_draws(n_drawn, n_all, n_arm, means, np.sqrt(variances))
    place = found - low
    below = probs[: max(place + 1, 0)].sum()
    above = probs[max(place, 0) :].sum()
    return float(min(2 * max(min(below, above), _LEAST_PROB), 1.0))


def _sum_of_draws(
    n_drawn: IntArray, n_all: IntArray, n_arm: IntArray, means: FloatArray, spreads: FloatArray
) -> tuple[int, FloatArray]:
    """The distribution of a sum of hypergeometric numbers: the least of it, and probabilities."""
    reach = np.ceil(_REACH * spreads).astype(np.int64) + _MORE
    middles = means.astype(np.int64)
    lows = np.maximum(middles - reach, np.maximum(0, n_drawn + n_arm - n_all))
    highs = np.minimum(middles + reach, np.minimum(n_drawn, n_arm))
    lengths = highs - lows + 1
    starts = np.cumsum(lengths) - lengths
    drawn, every, arm = (np.repeat(each, lengths) for each in (n_drawn, n_all, n_arm))
    number = np.arange(lengths.sum()) - np.repeat(starts - lows, lengths)
    logs = log_choose(arm, number) + log_choose(every - arm, drawn - number)
    laws = np.split(np.exp(logs - log_choose(every, drawn)), starts[1:])
    while len(laws) > 1:
        odd = laws[len(laws) // 2 * 2 :]
        pairs = zip(laws[::2], laws[1::2], strict=False)
        laws = [_convolve(one, other) for one, other in pairs] + odd
    return int(lows.sum()), laws[0]


def _convolve(one: FloatArray, other: FloatArray) -> FloatArray:
    """The distribution of a sum of two numbers."""
    length = len(one) + len(other) - 1
    n_points = 1 << (length - 1).bit_length()
    product = np.fft.rfft(one, n_points) * np.fft.rfft(other, n_points)
    return np.maximum(np.fft.irfft(product, n_points)[:length], 0.0)


def arm_share_notes(layout: Layout, randomization_unit: str | None) -> list[str]:
    """What an owner should know of the shares of arms before a release."""
    if randomization_unit is not None:
        return []
    shares = None if layout.arm_shares is None else np.array(layout.arm_shares)
    return [note.text for note in arm_notes(layout, shares, OWNER_DECLARES)]


def estimate_share_notes(
    request: EstimateRequest, shares: dict[Any, float] | None, randomization_unit: str | None
) -> list[Note]:
    """What the check of sample ratios finds, by declared probabilities of arms if there are any."""
    if randomization_unit is not None:
        return [
            Note(
                f"Sample ratio not checked: {randomization_unit} is the randomization unit, and "
                "its groups decide how many units arms have."
            )
        ]
    if request.inversion.probs is not None:
        return request.inversion.ratio_notes(request.layout)
    is_private = request.inversion.column is not None
    differ = PRIVATE_CLUSTERS_DIFFER if is_private else PUBLIC_CLUSTERS_DIFFER
    return sample_ratio_notes(request.layout, shares, differ)


def scope_notes(request: EstimateRequest) -> Iterable[Note]:
    """Remarks on cells that arms are compared within; none where units count by their labels.

    What effects rest on where clusters are private is said in the notes of the release.
    """
    is_weighted = request.inversion.probs is not None
    return () if is_weighted else layout_notes(request.layout, request.estimator)


def layout_notes(layout: Layout, estimator: Estimator) -> Iterator[Note]:
    """Remarks on estimates from cells of these sizes."""
    compared = layout.compared().sizes
    n_single = int((compared == 1).sum())
    if n_single and estimator == "stratified":
        yield Note(
            f"{counted(n_single, 'cell')} with one unit: the variance comes from the rest of the "
            "arm, which is conservative."
        )
    n_left_out = layout.n_units - int(compared.sum())
    if n_left_out and estimator == "stratified":
        n_clusters = len(layout.clusters) - len(compared)
        yield Note(
            f"{n_clusters:,} of {len(layout.clusters):,} clusters have no unit in some arm. Their "
            f"{n_left_out:,} units are left out.",
            Weight.SCOPE,
        )
    if layout.sizes.sum(axis=0).min() < FEW_UNITS:
        yield Note(f"An arm has fewer than {FEW_UNITS} units: CIs use Student's t.")
    shares = layout.sizes / layout.sizes.sum(axis=1, keepdims=True)
    if estimator == "unstratified" and np.ptp(shares, axis=0).max() > 1 / np.sqrt(layout.n_units):
        yield Note(
            "Arms have different shares in different clusters. If assignment was by cluster, the "
            "unstratified estimate is biased by differences between clusters.",
            Weight.WARNING,
        )


def balance_notes(rows: RowsBySegment) -> list[Note]:
    """Covariates that differ between arms by more than chance, a warning each."""
    tests = [(what, balance_p_value(scores, sizes)) for what, scores, sizes in _tests(rows)]
    found: dict[str, float] = {}
    for what, p_value in tests:
        if p_value * len(tests) < ALARM_LEVEL:
            found[what] = min(p_value, found.get(what, 1.0))
    return [
        Note(
            f"{what} differs between arms ({p_text(p_value)}), so it depends on treatment. "
            "Adjusted effects are biased; unadjusted ones are reported. Leave it out of adjust "
            "(--adjust).",
            Weight.WARNING,
        )
        for what, p_value in found.items()
    ]


def difference_notes(effects: Sequence[Effect], shares: Sequence[str]) -> list[Note]:
    """Adjusted effects that differ from plain ones by more than chance, a warning each.

    `shares` are the metrics that are shares of units.

    Both errors are positively correlated, so the square of the difference's is at most the sum of
    their squares.
    """
    plain = {one.of: one for one in effects if not one.of.adjusted}
    pairs = [(plain[one.of.plain], one) for one in effects if one.of.adjusted]
    return [
        Note(
            f"the effect of {one.of.arm} on {one.of.metric} is "
            f"{_shown(one, shares)} unadjusted and {_shown(other, shares)} adjusted, which is more "
            "than chance: a covariate depends on treatment. Unadjusted effects are reported.",
            Weight.WARNING,
            one.of.label if one.of.segment else None,
        )
        for one, other in pairs
        if one.std_error > 0
        and two_sided(one.effect - other.effect, math.hypot(one.std_error, other.std_error))
        * len(pairs)
        < ALARM_LEVEL
    ]


def _shown(one: Effect, shares: Sequence[str]) -> str:
    return effect_text(one.effect, one.std_error, is_share=one.of.metric in shares)


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


def _tests(rows: RowsBySegment) -> Iterator[tuple[str, FloatArray, IntArray]]:
    """What is tested of covariates: names, scores of classes, and their units in cells.

    The axes of scores are `[class]`, those of units `[class, cluster, arm]`.
    """
    for one in rows.class_counts(rows.profiles.cells):
        shape = (int(one.values.max(initial=0)) + 1, *rows.profiles.shape)
        sizes = np.zeros(shape, np.int64)
        np.add.at(sizes.reshape(shape[0], -1), (one.values, one.groups), one.counts)
        is_missing = np.arange(len(sizes)) == MISSING
        if sizes[MISSING].any():
            yield f"who lacks {one.name}", is_missing.astype(np.float64), sizes
        known = sizes[~is_missing & sizes.any(axis=(1, 2))]
        if one.name in rows.numbers:
            totals = known.sum(axis=(1, 2))
            yield one.name, (np.cumsum(totals) - totals / 2) / totals.sum(), known
        else:
            # Of two categories, one says what the other does.
            for has in np.eye(len(known))[: len(known) if len(known) > 2 else 1]:
                yield one.name, has, known
