"""What privacy costs, mechanism by mechanism: excess variance at equal, valid ε and δ = 0.

    make bench-variance

Excess variance is what privacy adds to the variance of the stratified estimate of an effect. It is
exact given the cells' outcomes, averaged over the noise of summaries. Writes `docs/frontier.md` and
`docs/frontier.svg`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from clusterdp._figures import new_figure, save_figure
from clusterdp.experiment.category_space import Ends
from clusterdp.experiment.layout import Layout
from clusterdp.planning import assumptions as reference
from clusterdp.planning import choose as planning
from clusterdp.planning.assumptions import Scenario
from clusterdp.planning.choose import Request
from clusterdp.planning.predictions import (
    expect_with,
    predict,
    purpose_variance,
    unit_noise,
)
from clusterdp.planning.purpose import parse_purpose
from clusterdp.reproduction import populations as paper
from clusterdp.reproduction.youtube import shipped_features
from clusterdp.theory import formulas as theory
from clusterdp.theory.simulation import simulate_releases

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.moments import Use
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.theory.population import Population

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
REGRET_EPSILONS = (0.5, 1.0, 2.0, 4.0)
SEGMENT = 0.1
DOCS = Path(__file__).parent.parent / "docs"


class Table(NamedTuple):
    """Observed counts of one population."""

    name: str
    counts: IntArray
    layout: Layout
    space: CategorySpace

    def excess(self, mechanism: Mechanism, share: float, use: Use, n_draws: int = 20) -> float:
        """Of the treatment that is known least."""
        found = theory.excess_variance(
            self.counts,
            self.layout,
            self.space,
            mechanism,
            rng=np.random.default_rng(0),
            n_draws=n_draws,
            use=use,
            segment_share=share,
        )
        return float(found.value.max())

    def excess_of(self, unit_variances: FloatArray, share: float) -> float:
        """Of rows whose noise variance depends on the outcome alone; axes `[..., outcome]`."""
        per_unit = (self.counts * unit_variances).sum(axis=-1) / self.layout.sizes
        return float(theory.weighted(per_unit / self.layout.sizes / share, self.layout).max())


def observed(name: str, population: Population, rng: np.random.Generator) -> Table:
    """One assignment of a population."""
    return Table(name, population.assign(1, rng)[0], population.layout, population.space)


def markets(rng: np.random.Generator) -> Table:
    """200 markets of 200 to 2,000 users, a binary outcome at 2%, 2.5% when treated."""
    sizes = np.stack([rng.integers(100, 1001, 200)] * 2, axis=1)
    ones = rng.binomial(sizes, [0.02, 0.025])
    return of_counts("200 markets, binary 2%", np.stack([sizes - ones, ones], axis=-1))


def hillstrom(rng: np.random.Generator) -> Table:
    """57 clusters and three arms of 64,000 customers in all, a visit at 11% to 18%."""
    shares = rng.dirichlet(np.full(57, 0.8))
    sizes = np.maximum(rng.multinomial(64_000 // 3, shares, size=3).T, 10)
    ones = rng.binomial(sizes, [0.106, 0.183, 0.151])
    return of_counts("Hillstrom-shaped, visit", np.stack([sizes - ones, ones], axis=-1))


def of_counts(name: str, counts: IntArray) -> Table:
    """A table of a binary outcome."""
    layout = Layout(
        clusters=tuple(range(len(counts))),
        arms=tuple(range(counts.shape[1])),
        control=0,
        sizes=counts.sum(axis=-1),
    )
    return Table(name, counts, layout, cdp.OutcomeSpace.binary())


def tables() -> list[Table]:
    """The four populations, the same in every run."""
    rng = np.random.default_rng(2025)
    mixture = paper.Mixture.draw(rng).control_counts(paper.DEFAULT_BETWEEN)
    return [
        observed("Experiment 1", paper.sub_population(mixture, rng), rng),
        observed("YouTube", paper.youtube_population(shipped_features(), rng), rng),
        markets(rng),
        hillstrom(rng),
    ]


def two_point(table: Table, epsilon: float, share: float) -> float:
    """Duchi, Jordan and Wainwright: ±h·(e^ε+1)/(e^ε−1) about the middle."""
    distance, half = _distances(table)
    reach = half / np.tanh(epsilon / 2)
    return table.excess_of(reach**2 - distance**2, share)


def piecewise(table: Table, epsilon: float, share: float) -> float:
    """Wang et al., ICDE 2019, eq. 8, on outcomes scaled to [−1, 1]."""
    return table.excess_of(_piecewise(table, epsilon), share)


def hybrid(table: Table, epsilon: float, share: float) -> float:
    """Wang et al., ICDE 2019: piecewise with 1 − e^(−ε/2) above ε = 0.61, else two-point."""
    distance, half = _distances(table)
    mixed = 1 - np.exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    points = (half / np.tanh(epsilon / 2)) ** 2 - distance**2
    return table.excess_of(mixed * _piecewise(table, epsilon) + (1 - mixed) * points, share)


def _piecewise(table: Table, epsilon: float) -> FloatArray:
    distance, half = _distances(table)
    base = np.exp(epsilon / 2) - 1
    return np.asarray(distance**2 / base + half**2 * (base + 4) / (3 * base**2))


def _distances(table: Table) -> tuple[FloatArray, float]:
    ends = Ends.of(table.space, 0)
    return table.space.metric_values()[0] - ends.middle, ends.span / 2


def redrawn(build: Callable[..., Mechanism], table: Table, epsilon: float, share: float) -> float:
    """One of the paper's, by its own estimator, at the best of its two parameters."""
    n_outcomes = table.space.n_categories
    return min(
        table.excess(
            build(noise_scale=scale / epsilon, prior_floor=floor / n_outcomes, epsilon=epsilon),
            share,
            "rows",
        )
        for scale in (8, 40, 2000)
        for floor in (0.3, 0.7, 1.0)
    )


def uniform_prior_dp(table: Table, epsilon: float, share: float) -> float:
    """k-ary randomized response."""
    return table.excess(cdp.uniform_prior_dp(epsilon=epsilon), share, "rows")


def horvitz_thompson(table: Table, epsilon: float, share: float) -> float:
    """Aggregates alone: no segments."""
    if share < 1:
        return np.nan
    return table.excess(cdp.noisy_horvitz_thompson(epsilon=epsilon), 1.0, "rows")


def histogram(table: Table, epsilon: float, share: float) -> float:
    """Aggregates alone: no segments."""
    if share < 1:
        return np.nan
    return table.excess(cdp.noisy_histogram(epsilon=epsilon), 1.0, "rows")


def optimal_rows(table: Table, epsilon: float, share: float) -> float:
    """The channel of least variance for a uniform prior."""
    return table.excess(cdp.optimal(epsilon=epsilon), share, "rows")


def optimal_counts(table: Table, epsilon: float, share: float) -> float:
    """With a prior for each cell from noisy counts, which estimates use as well."""
    return min(
        table.excess(
            cdp.optimal(epsilon=epsilon, noise_scale=2 / (counts * epsilon)),
            share,
            "everything",
            n_draws=2,
        )
        for counts in (0.05, 0.2)
    )


def calibrated(table: Table, epsilon: float, share: float) -> float:
    """Half of ε for noisy cell sums."""
    return table.excess(
        cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(clusters=0.5)), share, "everything"
    )


def planned(table: Table, epsilon: float, share: float) -> float:
    """Chosen from cell sizes and the outcome space, with no reference."""
    blind = Scenario(table.layout, table.space, reference.uniform_reference(table.space))
    purpose = "overall" if share == 1 else f"segments:{share}"
    mechanism = planning.choose(Request(epsilon=epsilon, purpose=purpose), blind)
    probs = table.counts / table.layout.sizes[..., np.newaxis]
    known = blind._replace(reference=reference.cell_reference(probs))
    return predict(mechanism, known, share).privacy_std_error ** 2


def limit(table: Table, epsilon: float, share: float) -> float:
    """Rows alone, each cell's channel designed for its own true distribution, at no cost."""
    cells = table.counts.reshape(-1, table.counts.shape[-1])
    probs = cells / cells.sum(axis=1, keepdims=True)
    if table.space.n_categories == 2:
        probs = probs[:1]  # Warner's response, whatever the prior
    noise = [
        cdp.optimal(epsilon=epsilon, prior=one)
        .settled_rows(table.space)
        .public_channel(table.space)
        .noise_variance()[0]
        for one in probs
    ]
    everywhere = np.broadcast_to(noise, cells.shape).reshape(table.counts.shape)
    return table.excess_of(everywhere, share)


MECHANISMS: dict[str, Callable[[Table, float, float], float]] = {
    "Cluster-DP": partial(redrawn, cdp.cluster_dp),
    "Cluster-Free-DP": partial(redrawn, cdp.cluster_free_dp),
    "Uniform-Prior-DP": uniform_prior_dp,
    "Noisy Horvitz–Thompson": horvitz_thompson,
    "Noisy Histogram": histogram,
    "two-point (Duchi et al.)": two_point,
    "piecewise (Wang et al.)": piecewise,
    "hybrid (Wang et al.)": hybrid,
    "ours, uniform prior": optimal_rows,
    "ours, cluster prior": optimal_counts,
    "ours, half to sums": calibrated,
    "ours, as planned": planned,
    "limit of rows": limit,
}
PAPERS = ("Cluster-DP", "Cluster-Free-DP", "Uniform-Prior-DP")


def measure() -> dict[tuple[str, float, str, float], float]:
    """Excess variances by population, share, mechanism and ε."""
    found = {}
    for table in tables():
        for share in (1.0, SEGMENT):
            for name, compute in MECHANISMS.items():
                for epsilon in EPSILONS:
                    found[table.name, share, name, epsilon] = compute(table, epsilon, share)
            print(f"{table.name}, {'overall' if share == 1 else 'segment'}: done", flush=True)
    return found


def claims(found: dict[tuple[str, float, str, float], float]) -> list[str]:
    """The sentences that the table supports, with their numbers."""
    first = "Experiment 1"
    ratios = {
        share: min(found[first, share, name, 1.0] for name in ("Uniform-Prior-DP", "Cluster-DP"))
        / found[first, share, "ours, as planned", 1.0]
        for share in (1.0, SEGMENT)
    }
    worst = max(
        found[table, share, "ours, as planned", epsilon]
        / min(found[table, share, name, epsilon] for name in PAPERS)
        for table, share, _, epsilon in found
    )
    return [
        (
            f"Experiment 1 at ε = 1, planned for the overall effect: {ratios[1.0]:,.0f} times less "
            "excess variance than the better of Uniform-Prior-DP and Cluster-DP; planned for a "
            f"10% segment: {ratios[SEGMENT]:.1f} times less."
        ),
        (
            "Against the best of the paper's three user-level mechanisms, over all populations, "
            f"budgets and both purposes, the plan has at most {worst:.3f} times the excess "
            "variance."
        ),
        near_the_limit(),
        come_true(),
    ]


def near_the_limit() -> str:
    """Rows of channels that noisy counts led to, against those of the true distribution."""
    table = tables()[0]
    ratios = []
    for epsilon in EPSILONS:
        noisy = cdp.optimal(epsilon=epsilon / 0.9, noise_scale=20 / (epsilon / 0.9))
        ratios.append(table.excess(noisy, 1.0, "rows", n_draws=10) / limit(table, epsilon, 1.0))
    return (
        "Rows alone, with priors from noisy counts that cost a tenth of ε, have at most "
        f"{max(ratios):.3f} times the variance of the limit at the same ε of the channel, in "
        "Experiment 1, whose smallest cells have 250 units."
    )


def come_true() -> str:
    """Simulated over predicted excess variance of plans that know the true distribution."""
    ratios = []
    rng = np.random.default_rng()
    for table in tables():
        probs = table.counts / table.layout.sizes[..., np.newaxis]
        known = Scenario(table.layout, table.space, reference.cell_reference(probs))
        for epsilon in (0.5, 2.0):
            mechanism = planning.choose(Request(epsilon=epsilon), known)
            predicted = predict(mechanism, known).privacy_std_error ** 2
            drawn = simulate_releases(
                table.counts, table.layout, table.space, mechanism, n_replicates=4000, rng=rng
            )
            ratios.append(float(drawn.effects.var(axis=0).max()) / predicted)
    return (
        "With the true distribution as reference, simulated over predicted excess variance is "
        f"between {min(ratios):.3f} and {max(ratios):.3f}."
    )


class Regrets(NamedTuple):
    """The largest regret of a default plan, and the least that any split of a fine search has."""

    planned: float
    least: float


def measure_regrets() -> dict[tuple[str, float], Regrets]:
    """Regrets of default plans without a reference, by population and ε."""
    found = {}
    for table in tables():
        layout = replace(table.layout, folds=2)
        blind = Scenario(layout, table.space, reference.uniform_reference(table.space))
        for epsilon in REGRET_EPSILONS:
            found[table.name, epsilon] = regrets_of(blind, epsilon)
            print(f"{table.name}, regret at ε = {epsilon:g}: {found[table.name, epsilon]}")
    return found


def regrets_of(scenario: Scenario, epsilon: float) -> Regrets:
    """Regrets against the best of a fine search for each purpose, every channel designed."""
    chosen = planning.choose(Request(epsilon=epsilon), scenario)
    purposes = parse_purpose(None, scenario.layout)

    def variances(mechanism: Mechanism, noise: FloatArray) -> list[float]:
        precisions = expect_with(mechanism, scenario, noise)
        return [purpose_variance(precisions, one, scenario) for one in purposes]

    searched = [variances(chosen, unit_noise(chosen, scenario))]
    for together in (0.0, *np.geomspace(0.002, 0.5, 40), *np.linspace(0.52, 0.97, 12)):
        # Rows depend on what is left for them alone, so their noise is computed once.
        noise = unit_noise(at_split(epsilon, together, 0.0), scenario)
        parts = np.linspace(0, 1, 13)
        searched += [variances(at_split(epsilon, together, part), noise) for part in parts]
    regrets = np.sqrt(np.array(searched) / np.min(searched, axis=0)).max(axis=1)
    return Regrets(float(regrets[0]), float(regrets[1:].min()))


def at_split(epsilon: float, together: float, clusters: float) -> Mechanism:
    """The optimal channel, with this share of ε for sums and this part of it for cell sums."""
    return cdp.optimal(
        epsilon=epsilon,
        sums=cdp.SumShares(totals=together * (1 - clusters), clusters=together * clusters),
    )


def regret_lines(found: dict[tuple[str, float], Regrets]) -> list[str]:
    """The table of regrets."""
    names = dict.fromkeys(name for name, _ in found)
    lines = [
        "",
        "## One plan for all purposes",
        "",
        "The default plan serves the overall effect and segments of 10% at once. Its *regret* is",
        "the predicted standard error over that of the best plan for a purpose alone. Here is the",
        "larger of the two, and in brackets the least that a fine search over splits of ε finds.",
        "",
        "| ε | " + " | ".join(f"{epsilon:g}" for epsilon in REGRET_EPSILONS) + " |",
        "|---|" + "---:|" * len(REGRET_EPSILONS),
    ]
    for name in names:
        cells = [found[name, epsilon] for epsilon in REGRET_EPSILONS]
        shown = " | ".join(f"{one.planned:.4f} ({one.least:.4f})" for one in cells)
        lines.append(f"| {name} | {shown} |")
    return lines


def as_markdown(found: dict[tuple[str, float, str, float], float], said: list[str]) -> str:
    """The page."""
    lines = [
        "# What privacy costs, mechanism by mechanism",
        "",
        "Excess variance of the estimated effect at equal, valid ε and δ = 0: what privacy adds to",
        "the variance that sampling has anyway. Written by `make bench-variance`.",
        "",
        "![Excess variance against ε](frontier.svg)",
        "",
        *(f"- {sentence}" for sentence in said),
        "",
        "Each of the paper's mechanisms is at its best parameters, with the paper's estimator. The",
        "two-point, piecewise and hybrid mechanisms are those of Duchi et al. and of Wang et al.",
        "(ICDE 2019). *As planned* is chosen from cell sizes alone, without a reference. The",
        "*limit of rows* is the optimal channel for each cell's true distribution, at no cost.",
    ]
    for table in dict.fromkeys(key[0] for key in found):
        for share in (1.0, SEGMENT):
            purpose = "overall effect" if share == 1 else f"effect in a segment of {share:.0%}"
            lines += ["", f"## {table}: {purpose}", ""]
            lines += ["| ε | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |"]
            lines += ["|---|" + "---:|" * len(EPSILONS)]
            for name in MECHANISMS:
                numbers = [found[table, share, name, epsilon] for epsilon in EPSILONS]
                if not np.isnan(numbers[0]):
                    cells = " | ".join(f"{number:.3g}" for number in numbers)
                    lines.append(f"| {name} | {cells} |")
    return "\n".join(lines) + "\n"


STYLES = {
    "Cluster-DP": ("#0072B2", "o", "-"),
    "Uniform-Prior-DP": ("#009E73", "^", "-"),
    "two-point (Duchi et al.)": ("#E69F00", "P", "-"),
    "piecewise (Wang et al.)": ("#CC79A7", "D", "-"),
    "Noisy Horvitz–Thompson": ("#999999", "x", "--"),
    "ours, uniform prior": ("#D55E00", "s", "--"),
    "ours, as planned": ("black", "*", "-"),
    "limit of rows": ("#555555", "", ":"),
}


def draw(found: dict[tuple[str, float, str, float], float]) -> None:
    """The figure."""
    figure = new_figure(DOCS / "frontier.svg", (10, 4.6))
    panels = figure.subplots(1, 2, sharey=True)
    for panel, share in zip(panels, (1.0, SEGMENT), strict=True):
        for name, (colour, marker, line) in STYLES.items():
            numbers = [found["Experiment 1", share, name, epsilon] for epsilon in EPSILONS]
            panel.plot(
                EPSILONS,
                numbers,
                color=colour,
                marker=marker,
                linestyle=line,
                markersize=9 if marker == "*" else 5,
                linewidth=2.2 if marker == "*" else 1.3,
                label=name,
            )
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlabel("ε of the whole release")
        panel.set_title(
            "overall effect" if share == 1 else f"effect in a segment of {share:.0%}", loc="left"
        )
        panel.grid(color="#eeeeee")
        panel.set_axisbelow(True)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0].set_ylabel("excess variance: what privacy adds")
    panels[1].legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1, 1))
    figure.suptitle("The paper's Experiment 1, at equal and valid privacy", x=0.01, ha="left")
    save_figure(figure, DOCS / "frontier.svg")


def main() -> None:
    """Measure, say, write and show."""
    found = measure()
    said = claims(found)
    text = as_markdown(found, said) + "\n".join([*regret_lines(measure_regrets()), ""])
    (DOCS / "frontier.md").write_text(text, encoding="utf-8")
    draw(found)
    print(text)


if __name__ == "__main__":
    main()
