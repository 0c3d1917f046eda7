"""What the study of `bench/metric_coverage.py` found, in words and in tables."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy import stats

from bench.metric_draws import AS_NORMAL

LEVEL = 0.95
# A line counts if the same interval from true outcomes covers within these, or always covers.
LEAST, MOST = 0.935, 0.98
# Lengths are compared with bounds above this: a difference that is mostly known has length 0.
_LEAST_LENGTH = 0.5


class Rates(NamedTuple):
    """How often intervals hold the truth.

    Attributes:
        arm: Of both arms' own numbers.
        difference: Of their difference.
        bias: How far the mean difference is from the truth, in Monte Carlo standard errors.
        unbounded: How often the interval of the difference has no bounds.
        length: The mean length of bounded intervals of the difference.
        at_end: How often the interval of an arm reaches an end of what values can be.
        least: A bound on the length that any valid set would have; NaN where none is known.
    """

    arm: float
    difference: float
    bias: float
    unbounded: float
    length: float
    at_end: float
    least: float = math.nan

    @property
    def covered(self) -> tuple[float, float]:
        """Of the arms, and of the difference."""
        return self.arm, self.difference


class Line(NamedTuple):
    """One line of the study.

    Attributes:
        n_levels: K, the levels of the outcome.
        n_units: n.
        where: Overall, or in the segment.
        name: What is asked.
        true: From true outcomes.
        private: From releases, by their name.
    """

    n_levels: int
    n_units: int
    where: str
    name: str
    true: Rates
    private: dict[str, Rates]

    @property
    def counts(self) -> bool:
        """Whether the same interval from true outcomes covers."""
        return min(self.true.arm, self.true.difference) >= LEAST

    @property
    def found(self) -> tuple[Rates, ...]:
        """From true outcomes, and from every release."""
        return self.true, *self.private.values()

    def row(self) -> str:
        """The line as a row of a table."""
        *shown, last = _COLUMNS[self.name in QUANTILES](self.found)
        first = [f"| {self.n_levels}", f"{self.n_units:,}", self.where, self.name]
        covered = [f"{100 * one.arm:.1f} / {100 * one.difference:.1f}" for one in self.found]
        return " | ".join([*first, *covered, *shown, f"{last} |"])


def _biases(found: tuple[Rates, ...]) -> list[str]:
    """What a line shows beside coverages."""
    unbounded = max(one.unbounded for one in found)
    return [*(f"{one.bias:+.1f}" for one in found), f"{100 * unbounded:.0f}%"]


def _lengths(found: tuple[Rates, ...]) -> list[str]:
    """What a line on a quantile shows beside coverages."""
    at_ends = " / ".join(f"{100 * one.at_end:.0f}" for one in found)
    return [*map(_length, found), at_ends]


def _length(one: Rates) -> str:
    """A length, and the least that is possible."""
    return f"{one.length:.2f}" + ("" if math.isnan(one.least) else f" ({one.least:.2f})")


QUANTILES = ("median", "P90", AS_NORMAL)
_COLUMNS = {False: _biases, True: _lengths}


def summary(lines: list[Line], n_replicates: int) -> list[str]:
    """What the lines say, in words."""
    told = []
    for name in ("share", "ratio"):
        chosen = [line for line in lines if line.name == name and line.counts]
        found = [one for line in chosen for one in line.private.values()]
        covered = [rate for one in found for rate in one.covered]
        inside = sum(LEAST <= rate <= MOST for rate in covered)
        bias = max(abs(one.bias) for one in found)
        told.append(
            f"- {name}: {inside} of {len(covered)} coverages lie between 93.5 and 98%; the least "
            f"is {100 * min(covered):.1f}%, the largest {100 * max(covered):.1f}%. "
            f"{outside_by_chance(len(found), n_replicates):.1f} would lie outside by chance if "
            "every interval covered in 95% of all cases. "
            f"The largest bias is {bias:.1f} Monte Carlo standard errors."
            f"{_unbounded(found)}"
        )
    told += quantile_summary([line for line in lines if line.name in QUANTILES])
    left_out = [line for line in lines if not line.counts]
    told.append(f"- Lines where the interval from true outcomes does not cover: {len(left_out)}.")
    return told


def _unbounded(found: list[Rates]) -> str:
    """Why some metrics cover more often: a denominator not significantly different from zero."""
    above = [one.unbounded for one in found if max(one.covered) > MOST and one.unbounded]
    if not above:
        return ""
    return (
        f" Where coverages above 98% have intervals without bounds, {100 * min(above):.0f} to "
        f"{100 * max(above):.0f}% of intervals have none: the denominator is not significantly "
        "different from zero there, and no interval that always has bounds covers (Gleser and "
        "Hwang, 1987)."
    )


def outside_by_chance(n_pairs: int, n_replicates: int) -> float:
    """How many coverages are expected outside of 93.5 to 98% if intervals cover in 95% of cases.

    Args:
        n_pairs: How many coverages of both arms there are, and as many of a difference.
        n_replicates: How many replicates each has; there are two arms in each.
    """
    inside = [
        stats.binom.cdf(math.floor(MOST * size), size, LEVEL)
        - stats.binom.cdf(math.ceil(LEAST * size) - 1, size, LEVEL)
        for size in (2 * n_replicates, n_replicates)
    ]
    return float(n_pairs * (len(inside) - sum(inside)))


def quantile_summary(lines: list[Line]) -> list[str]:
    """How coverages of quantiles compare with those of the same intervals from true outcomes."""
    # Each coverage beside that from true outcomes, and how often the arms' intervals reach an end.
    pairs = [
        (rate, true, one.at_end)
        for line in lines
        for one in line.private.values()
        for rate, true in zip(one.covered, line.true.covered, strict=True)
    ]
    certain = [pair for pair in pairs if pair[1] > MOST]
    others = [pair for pair in pairs if pair[1] <= MOST]
    told = (
        f"- median and P90: {len(pairs)} coverages, the least {100 * min(pairs)[0]:.1f}%. For "
        f"{len(certain)} of them the same interval from true outcomes covers more than 98%, too: "
        "outcomes are a few values, so that a quantile is mostly known for sure, or known to be "
        "one of two."
    )
    if others:
        inside = sum(LEAST <= rate <= MOST for rate, _, _ in others)
        above = sum(rate > MOST for rate, _, _ in others)
        true, at_end = ([100 * one[place] for one in others] for place in (1, 2))
        told += (
            f" For the other {len(others)} it covers {min(true):.1f} to {max(true):.1f}%. Of ours, "
            f"{inside} lie between 93.5 and 98%, {above} above and "
            f"{len(others) - inside - above} below. There, intervals of arms reach an end of the "
            f"values in {min(at_end):.0f} to {max(at_end):.0f}% of replicates."
        )
    return [told, length_summary(lines)]


def length_summary(lines: list[Line]) -> str:
    """How lengths of differences of quantiles compare with the least that is possible."""

    def times(found: list[Rates]) -> str:
        ratios = sorted(one.length / one.least for one in found if one.least > _LEAST_LENGTH)
        low, middle, high = (ratios[int(place * (len(ratios) - 1))] for place in (0, 0.5, 1))
        return f"{low:.2f} to {high:.2f} times (in the middle {middle:.2f})"

    private = [one for line in lines for one in line.private.values()]
    true = times([line.true for line in lines])
    return (
        "- No set that holds the difference of two quantiles in 95% of cases, whatever outcomes "
        "are like, is shorter on average than a bound. Where the bound is above "
        f"{_LEAST_LENGTH:g}, intervals from true outcomes are {true} as long, ours "
        f"{times(private)}."
    )


def table(lines: list[Line], names: tuple[str, ...]) -> list[str]:
    """Lines on some metrics as a table."""
    chosen = [line for line in lines if line.name in names]
    sources = ["true outcomes", *lines[0].private]
    beside, last = (
        ("length", "at an end, %") if set(names) & set(QUANTILES) else ("bias", "unbounded")
    )
    header = ["K", "n", "where", "metric", *sources, *(f"{beside}, {one}" for one in sources), last]
    aligned = ["---:", "---:", "---", "---", *["---:"] * (2 * len(sources) + 1)]
    rows = [line.row() for line in chosen]
    return [f"| {' | '.join(header)} |", f"|{'|'.join(aligned)}|", *rows]


def tables(lines: list[Line]) -> list[str]:
    """Lines as two tables: of quantiles, and of everything else."""
    means = tuple(dict.fromkeys(line.name for line in lines if line.name not in QUANTILES))
    return [*table(lines, means), "", *table(lines, QUANTILES)]
