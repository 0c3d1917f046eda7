"""Do 95% intervals cover? Segments of 1 to 50%, few units, adjusted effects, relative lift.

    make bench-coverage

Each line is a population with fixed potential outcomes and fixed segments. In every replicate arms
are drawn anew within clusters, outcomes are released anew, and the effect is estimated by the code
that `estimate` calls. Writes `docs/studies/coverage.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import clusterdp as cdp
from bench.covariate_rows import to_rows
from bench.study_page import write_study
from clusterdp.cells.layout import Layout
from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.channels.base import TABLE_TOTAL
from clusterdp.estimation.effects.effect import EffectArrays, EffectTarget, to_effect
from clusterdp.estimation.means import adjustment
from clusterdp.estimation.means import weights as cell_weights
from clusterdp.estimation.means.arms import arm_effects, to_means
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import declared_noise
from clusterdp.estimation.means.responses import ProfileSums, ResponseValues
from clusterdp.estimation.means.sums import WeightedSums
from clusterdp.estimation.reading.profiles import Profiles, ResponseCounts, spread_cells
from clusterdp.mechanisms.draw import release_cells
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.studies.simulation import Population, simulate_estimates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.mechanisms.mechanism import Mechanism

N_REPLICATES = 2000
SHARES = (0.01, 0.05, 0.1, 0.5)
SPACE = OutcomeSpace.integers(0, 4)

MECHANISMS: dict[str, Mechanism] = {
    "optimal, ε=4": cdp.optimal(epsilon=4),
    "optimal, ε=1": cdp.optimal(epsilon=1),
    "optimal with sums, ε=4": cdp.optimal(epsilon=4, sums=cdp.SumShares(clusters=0.3)),
    "optimal with sums, ε=1": cdp.optimal(epsilon=1, sums=cdp.SumShares(clusters=0.5)),
    "optimal with totals, ε=1": cdp.optimal(epsilon=1, sums=cdp.SumShares(totals=0.1)),
    "Cluster-DP, ε=4": cdp.cluster_dp(noise_scale=4, prior_floor=0.05, epsilon=4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How clusters, arms, outcomes and segments go together.

    Attributes:
        name: In words.
        least_share: The smallest share of the last arm in a cluster.
        largest_share: The largest.
        with_level: Whether that share goes with the level of outcomes.
        n_arms: How many arms; those before the last share the rest evenly.
        uneven: Whether clusters have 80 to 500 units instead of 250.
        cut_by_level: Whether clusters with high outcomes have more of the segment.
    """

    name: str
    least_share: float = 0.06
    largest_share: float = 0.94
    with_level: bool = True
    n_arms: int = 2
    uneven: bool = False
    cut_by_level: bool = False


DESIGNS = (
    Design(name="shares 6 to 94%, with the level of outcomes"),
    Design(name="shares 6 to 94%, at random", with_level=False),
    Design(name="shares 20 and 80% everywhere", least_share=0.2, largest_share=0.2),
    Design(name="shares 6 to 94%, segment goes with the level too", cut_by_level=True),
    Design(name="shares 6 to 94%, clusters of 80 to 500 units", uneven=True),
    Design(name="three arms, the last 6 to 60%", largest_share=0.6, n_arms=3),
)


class Units(NamedTuple):
    """Units with all that is fixed about them."""

    clusters: IntArray
    outcomes: IntArray  # [unit, arm]
    inside: IntArray  # 1 for units of the segment
    layout: Layout

    def truth(self) -> FloatArray:
        """The segment's average effects; axes `[treatment]`."""
        chosen = self.outcomes[self.inside == 1]
        return np.asarray((chosen[:, 1:] - chosen[:, :1]).mean(axis=0))

    def population(self) -> Population:
        """The same units by type, with outcomes of the segment as other outcomes: K to 2K − 1."""
        n_outcomes = SPACE.n_categories
        codes = self.outcomes + n_outcomes * self.inside[:, np.newaxis]
        types, kinds = np.unique(codes, axis=0, return_inverse=True)
        counts = np.zeros((len(self.layout.clusters), len(types)), dtype=np.int64)
        np.add.at(counts, (self.clusters, kinds.ravel()), 1)
        return Population(
            type_outcomes=types,
            type_counts=counts,
            layout=self.layout,
            space=OutcomeSpace.integers(0, 2 * n_outcomes - 1),
        )


def make_layout(sizes: IntArray) -> Layout:
    """Clusters and arms by number; arm 0 is control."""
    clusters, arms = (tuple(range(length)) for length in sizes.shape)
    return Layout(clusters=clusters, arms=arms, control=0, sizes=sizes)


def draw_units(design: Design, segment_share: float, rng: np.random.Generator) -> Units:
    """40 clusters whose outcomes differ much in level, and a segment of some share of all units."""
    n_clusters = 40
    sizes = rng.integers(80, 501, n_clusters) if design.uneven else np.full(n_clusters, 250)
    level = np.linspace(0.1, 0.8, n_clusters)
    shares = np.linspace(design.least_share, design.largest_share, n_clusters)
    shares = shares if design.with_level else rng.permutation(shares)
    arm_sizes = np.zeros((n_clusters, design.n_arms), dtype=np.int64)
    arm_sizes[:, -1] = np.rint(shares * sizes)
    for arm in range(1, design.n_arms - 1):
        arm_sizes[:, arm] = np.rint((1 - shares) * sizes / (design.n_arms - 1))
    arm_sizes[:, 0] = sizes - arm_sizes.sum(axis=1)
    clusters = np.repeat(np.arange(n_clusters), sizes)
    control = rng.binomial(3, level[clusters])
    gains = [rng.random(len(clusters)) < 0.3 for _ in range(design.n_arms - 1)]
    chances = level[clusters] if design.cut_by_level else np.ones(len(clusters))
    n_inside = round(segment_share * len(clusters))
    chosen = rng.choice(len(clusters), n_inside, replace=False, p=chances / chances.sum())
    return Units(
        clusters=clusters,
        outcomes=np.stack([control, *(control + gain for gain in gains)], axis=1),
        inside=np.bincount(chosen, minlength=len(clusters)),
        layout=make_layout(arm_sizes),
    )


def segment_effects(
    units: Units, mechanism: Mechanism, n_replicates: int, rng: np.random.Generator
) -> list[list[Effect]]:
    """Effects in the segment: a list for each treatment, of one for each replicate."""
    layout = units.layout
    counts = units.population().assign(n_replicates, rng)
    counts = counts.reshape(*counts.shape[:-1], 2, SPACE.n_categories)
    others, inside = counts[..., 0, :], counts[..., 1, :]
    totals = CellTotals.from_counts(inside + others, SPACE)
    statistics, channel = release_cells(totals, layout, SPACE, mechanism, simulated_noise(rng))
    assert channel is not None  # noqa: S101 - all mechanisms here release rows
    released = channel.simulate(inside, rng)
    everyone = released + channel.simulate(others, rng)
    profiles, outputs = (
        Profiles.from_layout(layout),
        ResponseValues.from_channel(channel, SPACE),
    )
    part, whole = (ProfileSums.from_cell_counts(counts, outputs) for counts in (released, everyone))
    readings = [reading for one in statistics for reading in one.sum_readings()]
    calibration = Calibration(readings, profiles, whole, declared_noise(mechanism, SPACE))
    arrays = arm_effects(part, layout, "stratified", profiles, calibration, origin=outputs.middle)
    sizes = part.cell_moments(profiles).sizes.sum(axis=-2)
    return [as_effects(arrays, layout, sizes, arm) for arm in layout.treatments]


def as_effects(arrays: EffectArrays, layout: Layout, arm_sizes: IntArray, arm: int) -> list[Effect]:
    """The effect of one arm in each replicate; axes of `arm_sizes`: `[replicate, arm]`."""
    of = EffectTarget("outcome", layout.arms[arm], layout.arms[layout.control])
    position, pair = layout.treatments.index(arm), [layout.control, arm]
    parts = {field.name: getattr(arrays, field.name) for field in fields(arrays)}
    effects = []
    for place, sizes in enumerate(arm_sizes):
        one: dict[str, Any] = {
            name: None if part is None else part[place] for name, part in parts.items()
        }
        effects.append(to_effect(EffectArrays(**one), of, sizes[pair], position=position))
    return effects


def adjusted_effects(
    units: Units, mechanism: Mechanism, n_replicates: int, rng: np.random.Generator
) -> list[Effect]:
    """Lin-adjusted effects in the segment; the covariate is a noisy outcome of control."""
    layout = units.layout
    covariate = units.outcomes[:, 0] + rng.normal(size=len(units.clusters))
    pair, profiles = [0, 1], Profiles.from_layout(layout)
    chosen = np.flatnonzero(units.inside)
    of = EffectTarget("outcome", layout.arms[1], layout.arms[0])
    effects = []
    for _ in range(n_replicates):
        cells = units.clusters * len(layout.arms) + draw_arms(units, rng)
        released, outputs, calibration = release_rows(units, cells, mechanism, rng)
        rows = to_rows(
            cells[chosen], released[chosen], covariate[np.newaxis, chosen], outputs, profiles.shape
        )
        weights = cell_weights.weigh_cells(rows.sizes, layout, pair)
        sums = rows.covariate_sums(1)
        counted = ResponseCounts(cells[chosen], released[chosen], np.ones_like(chosen))
        part = ProfileSums.from_rows(counted, profiles, outputs)
        each = spread_cells(weights.of_units(), profiles, pair)
        plain = calibration.apply(WeightedSums.from_rows(part, each))
        means, moments, explained = adjustment.adjusted_means(
            rows, sums, weights, pair, layout.sizes.size, plain
        )
        found = to_means(calibration.apply(means), moments, weights, 1, explained)
        arrays = found.effects(layout, outputs.middle)
        effects.append(to_effect(arrays, of, rows.sizes.sum(axis=0)))
    return effects


def release_rows(
    units: Units, cells: IntArray, mechanism: Mechanism, rng: np.random.Generator
) -> tuple[IntArray, ResponseValues, Calibration]:
    """The response of every unit, what responses tell, and the calibration by sums.

    Args:
        units: The units.
        cells: The cell of each.
        mechanism: What is released: sums, and rows by one optimal channel.
        rng: Where randomness comes from.
    """
    layout, n_cells = units.layout, units.layout.sizes.size
    outcomes = units.outcomes[np.arange(len(cells)), cells % len(layout.arms)]
    keys = cells * SPACE.n_categories + outcomes
    counts = np.bincount(keys, minlength=n_cells * SPACE.n_categories)
    counts = counts.reshape(*layout.sizes.shape, SPACE.n_categories)
    totals = CellTotals.from_counts(counts, SPACE)
    statistics, channel = release_cells(totals, layout, SPACE, mechanism, simulated_noise(rng))
    assert isinstance(channel, OptimalChannel)  # noqa: S101 - `optimal` without counts
    limits = np.cumsum(channel.tables[0] / TABLE_TOTAL, axis=1)
    released = (rng.random(len(cells))[:, np.newaxis] > limits[outcomes]).sum(axis=1)
    outputs, profiles = ResponseValues.from_channel(channel, SPACE), Profiles.from_layout(layout)
    counted = ResponseCounts(cells, released, np.ones_like(cells))
    whole = ProfileSums.from_rows(counted, profiles, outputs)
    readings = [reading for one in statistics for reading in one.sum_readings()]
    calibration = Calibration(readings, profiles, whole, declared_noise(mechanism, SPACE))
    return released, outputs, calibration


def draw_arms(units: Units, rng: np.random.Generator) -> IntArray:
    """A fresh assignment: the arms of each cluster in random order."""
    order = np.lexsort((rng.random(len(units.clusters)), units.clusters))
    arms = np.concatenate(
        [np.repeat(np.arange(len(row)), row) for row in units.layout.sizes], dtype=np.int64
    )
    shuffled = np.empty_like(arms)
    shuffled[order] = arms
    return shuffled


def few_units(
    arm_sizes: list[list[int]], mechanism: Mechanism, n_replicates: int, rng: np.random.Generator
) -> tuple[list[Effect], float, float]:
    """Overall effects in a small experiment, the true effect and the true lift."""
    layout = make_layout(np.array(arm_sizes))
    sizes = layout.sizes.sum(axis=1)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    control = rng.binomial(3, 0.3 + 0.3 * clusters / max(len(sizes) - 1, 1))
    treated = control + (rng.random(len(clusters)) < 0.3)
    inside = np.zeros(len(clusters), dtype=np.int64)
    units = Units(clusters, np.stack([control, treated], axis=1), inside, layout)
    counts = units.population().assign(n_replicates, rng)[..., : SPACE.n_categories]
    arrays = simulate_estimates(counts, layout, SPACE, mechanism, rng, "stratified", "everything")
    sizes = np.tile(layout.sizes.sum(axis=0), (n_replicates, 1))
    effects = as_effects(arrays, layout, sizes, 1)
    truth = float((treated - control).mean())
    return effects, truth, truth / float(control.mean())


class Line(NamedTuple):
    """One line of the result."""

    what: tuple[str, ...]
    coverage: float
    bias: float  # in Monte Carlo standard errors
    length: float  # mean length over that of an interval that knows the standard deviation

    def cells(self) -> tuple[str, ...]:
        """As text."""
        return (*self.what, f"{self.coverage:.1%}", f"{self.bias:+.1f}", f"{self.length:.2f}")


def summarize(what: tuple[str, ...], effects: list[Effect], truth: float) -> Line:
    """Coverage, bias and length of the replicates of one effect."""
    errors = np.array([effect.effect for effect in effects]) - truth
    bounds = np.array([effect.ci() for effect in effects]) - truth
    covered = (bounds[:, 0] <= 0) & (bounds[:, 1] >= 0)
    deviation = float(errors.std(ddof=1))
    return Line(
        what=what,
        coverage=float(covered.mean()),
        bias=float(errors.mean()) / deviation * np.sqrt(len(errors)),
        length=float((bounds[:, 1] - bounds[:, 0]).mean()) / (2 * 1.959964 * deviation),
    )


def segment_lines(rng: np.random.Generator) -> Iterator[Line]:
    """Every design, mechanism and size of segment."""
    for design in DESIGNS:
        for name, mechanism in MECHANISMS.items():
            for share in SHARES:
                units = draw_units(design, share, rng)
                found = segment_effects(units, mechanism, N_REPLICATES, rng)
                for effects, truth in zip(found, units.truth(), strict=True):
                    which = f" (arm {effects[0].of.arm})" if len(found) > 1 else ""
                    yield summarize((design.name + which, name, f"{share:.0%}"), effects, truth)


def adjusted_lines(rng: np.random.Generator) -> Iterator[Line]:
    """Adjusted effects, where shares differ and where they do not."""
    for name in ("optimal, ε=4", "optimal with totals, ε=1"):
        for design in (DESIGNS[0], DESIGNS[2]):
            for share in SHARES:
                units = draw_units(design, share, rng)
                effects = adjusted_effects(units, MECHANISMS[name], N_REPLICATES, rng)
                what = (design.name, name, f"{share:.0%}")
                yield summarize(what, effects, float(units.truth()[0]))


def few_lines(rng: np.random.Generator) -> Iterator[tuple[Line, tuple[str, ...]]]:
    """Small experiments: effects, and how often lift misses on each side."""
    tables = {
        "one cluster, 10 and 10 units": [[10, 10]],
        "one cluster, 8 and 40 units": [[40, 8]],
        "four clusters, 5 and 5 units each": [[5, 5]] * 4,
        "five clusters, 3 and 20 units each": [[20, 3]] * 5,
        "one cluster, 500 and 500 units": [[500, 500]],
    }
    for what, arm_sizes in tables.items():
        for name in ("optimal, ε=4", "optimal with sums, ε=4"):
            found = few_units(arm_sizes, MECHANISMS[name], N_REPLICATES, rng)
            effects, truth, ratio = found
            lifts = [effect.lift() for effect in effects]
            low = sum(lift is not None and lift[1] > ratio for lift in lifts) / len(lifts)
            high = sum(lift is not None and lift[2] < ratio for lift in lifts) / len(lifts)
            none = sum(lift is None for lift in lifts) / len(lifts)
            line = summarize((what, name), effects, truth)
            yield line, (*line.what, f"{low:.1%}", f"{high:.1%}", f"{none:.1%}")


def as_rows(header: tuple[str, ...], body: list[tuple[str, ...]]) -> list[str]:
    """A table in Markdown."""
    n_words = sum(name in WORDS for name in header)
    rule = "|" + "---|" * n_words + "---:|" * (len(header) - n_words)
    return ["", *(f"| {' | '.join(row)} |" for row in [header]), rule] + [
        f"| {' | '.join(row)} |" for row in body
    ]


WORDS = ("design", "mechanism", "experiment")
MEASURED = ("coverage", "bias", "length")


def as_markdown(
    segments: list[Line], adjusted: list[Line], few: list[tuple[Line, tuple[str, ...]]]
) -> str:
    """The page."""
    rates = [line.coverage for line in segments]
    within = sum(0.93 <= rate <= 0.98 for rate in rates)
    largest = max(abs(line.bias) for line in segments)
    lines = [
        "# Do intervals cover?",
        "",
        "Written by `make bench-coverage`; not edited by hand. Nominal level 95%,",
        f"{N_REPLICATES:,} replicates a line, so a coverage has a standard error of 0.5 points.",
        "*Bias* is in Monte Carlo standard errors. *Length* is the mean length of intervals over",
        "that of an interval that knows the standard deviation of the estimate.",
        "",
        "In each replicate the arms are drawn anew within clusters, with fixed sizes, and outcomes",
        "are released anew. Outcomes are 0 to 4; clusters differ in their mean from 0.3 to 2.4.",
        "",
        f"- {within} of {len(rates)} lines about segments cover between 93 and 98%; the least is",
        f"  {min(rates):.1%}, the largest {max(rates):.1%}.",
        f"- The largest bias is {largest:.1f} Monte Carlo standard errors; of as many unbiased",
        f"  estimates one in twenty times the largest exceeds {bonferroni(len(rates)):.1f}.",
        "",
        "## Segments",
        "40 clusters; of 250 units, unless said otherwise.",
        *as_rows(
            ("design", "mechanism", "segment", *MEASURED), [line.cells() for line in segments]
        ),
        "",
        "## Segments, adjusted for a covariate",
        *as_rows(
            ("design", "mechanism", "segment", *MEASURED), [line.cells() for line in adjusted]
        ),
        "",
        "## Few units",
        *as_rows(("experiment", "mechanism", *MEASURED), [line.cells() for line, _ in few]),
        "",
        "## Relative lift",
        "How often the interval lies above the true lift, below it, and is not reported.",
        *as_rows(("experiment", "mechanism", "above", "below", "none"), [lift for _, lift in few]),
    ]
    return "\n".join(lines) + "\n"


def bonferroni(n_lines: int) -> float:
    """What the largest of so many standard normal numbers exceeds in absolute value in 5%."""
    from scipy.special import ndtri

    return float(ndtri(1 - 0.025 / n_lines))


def main() -> None:
    """Measure, write and show."""
    rng = np.random.default_rng()
    segments = []
    for line in segment_lines(rng):
        print(*line.cells(), sep="  ", flush=True)
        segments.append(line)
    text = as_markdown(segments, list(adjusted_lines(rng)), list(few_lines(rng)))
    write_study("coverage", text)
    print(text)


if __name__ == "__main__":
    main()
