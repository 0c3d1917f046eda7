"""The lines of `release_coverage`: what replicates show of effects, and what is wanted of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from bench.release_draws import Replicates
    from clusterdp._arrays import FloatArray

# What is wanted: of coverage, of the mean standard error, of its 5th and 95th percentile, and of
# predictions.
COVERAGE, MEAN_ERROR, SPREAD, PREDICTED = (0.935, 0.98), (0.95, 1.10), 0.15, (0.9, 1.15)
# How much wider percentiles may be than without privacy.
_WIDER = 1.15
# Replicates that must have been clipped alike.
_ALIKE = 30
# The Monte Carlo standard error of half the distance between the 5th and the 95th percentile of
# normal numbers, of that distance and over 1/√n.
_OF_SPREAD = 0.88


class Line(NamedTuple):
    """What replicates of one release show of one kind of effects.

    Attributes:
        what: The design, what it is planned for, ε, and the effects.
        n_replicates: How many replicates there were.
        n_intervals: How many intervals there were.
        coverage: The share of 95% intervals that hold the truth.
        without: The same without privacy.
        ratio: The mean standard error over the standard deviation of estimates.
        low: The 5th percentile of the same.
        high: The 95th percentile.
        plain_low: The 5th percentile without privacy.
        plain_high: The 95th percentile.
        length: The mean length of intervals over those of known standard deviations.
        deviation: The standard deviation of estimates.
        plain_deviation: The same without privacy.
        privacy: What privacy adds, in squares, as reported.
        predicted: The planned standard error over the standard deviation of estimates.
        none: The share of effects without an interval.
    """

    what: tuple[str, ...]
    n_replicates: int
    n_intervals: int
    coverage: float
    without: float
    ratio: float
    low: float
    high: float
    plain_low: float
    plain_high: float
    length: float
    deviation: float
    plain_deviation: float
    privacy: float
    predicted: float
    none: float

    def misses(self) -> list[str]:
        """What is not as wanted, by more than two Monte Carlo standard errors."""
        of_share = 2 * math.sqrt(0.05 * 0.95 / max(self.n_intervals, 1))
        of_error = math.sqrt(2 / self.n_replicates)
        ends = self.low, self.high, self.plain_low, self.plain_high
        found = {
            "coverage": not _within(self.coverage, COVERAGE, of_share),
            "mean": not _within(self.ratio, MEAN_ERROR, of_error * self.ratio),
            "spread": _is_wide(self.n_replicates, self.ratio, ends),
            "predicted": self.predicted < PREDICTED[0] * (1 - of_error)
            or self.predicted > PREDICTED[1] * (1 + of_error),
        }
        return [name for name, missed in found.items() if missed]

    def cells(self) -> tuple[str, ...]:
        """As text."""
        return (
            *self.what,
            f"{self.n_replicates:,}",
            f"{self.coverage:.1%}",
            f"{self.without:.1%}",
            f"{self.ratio:.2f}",
            f"{self.low:.2f} to {self.high:.2f}",
            f"{self.plain_low:.2f} to {self.plain_high:.2f}",
            f"{self.length:.2f}",
            f"{self.deviation:.3g}",
            f"{self.plain_deviation:.3g}",
            f"{self.privacy:.3g}",
            "" if math.isnan(self.predicted) else f"{self.predicted:.2f}",
            f"{self.none:.1%}",
            ", ".join(self.misses()),
        )


def _is_wide(n_replicates: int, ratio: float, ends: Sequence[float]) -> bool:
    """Whether percentiles of SE/SD are too wide, by more than two Monte Carlo standard errors.

    `ends` are the 5th and the 95th, and the same without privacy.
    """
    low, high, plain_low, plain_high = ends
    half, plain = (high - low) / 2, _WIDER * (plain_high - plain_low) / 2
    widest, error = (SPREAD, 0.0) if plain < SPREAD else (plain, plain)
    tolerance = 2 * _OF_SPREAD / math.sqrt(n_replicates) * math.hypot(half, error * ratio)
    return half > widest * ratio + tolerance


def judged(row: Row) -> list[str]:
    """A row that was published before, with its spread judged as that of others."""
    cells = list(row)
    numbers = dict(zip(HEADER, cells, strict=True))
    ends = [float(end) for place in (8, 9) for end in cells[place].split(" to ")]
    is_wide = _is_wide(int(numbers["replicates"]), float(numbers["SE/SD"]), ends)
    missed = [one for one in numbers["not as wanted"].split(", ") if one not in {"", "spread"}]
    place = HEADER.index("not as wanted")
    cells[place] = ", ".join([*missed, *["spread"] * is_wide])
    return cells


def _within(number: float, ends: tuple[float, float], tolerance: float) -> bool:
    return ends[0] - tolerance <= number <= ends[1] + tolerance


HEADER = (
    "design",
    "planned for",
    "ε",
    "effect",
    "replicates",
    "coverage",
    "without privacy",
    "SE/SD",
    "5 to 95%",
    "without privacy",
    "length",
    "SD",
    "without privacy",
    "of privacy",
    "predicted",
    "no interval",
    "not as wanted",
    "program",
)


TESTS_HEADER = (
    "design",
    "planned for",
    "ε",
    "tests",
    "rejected",
    "± (Monte Carlo)",
    "program",
)
HALVES_HEADER = (
    "design",
    "planned for",
    "ε",
    "effect",
    "replicates",
    "SE/SD of the smaller half",
    "of the larger half",
    "coverage of the smaller half",
    "of the larger half",
    "program",
)
# The cells of a row.
Row = Sequence[str]


class _Measured(NamedTuple):
    """What some intervals show: coverage, SE over SD, length over that of a known SD, and SD."""

    coverage: float
    ratios: FloatArray
    length: float
    deviations: FloatArray

    @classmethod
    def of(cls, numbers: FloatArray, clips: FloatArray) -> _Measured:
        """What some numbers show, axes `[replicate, effect, number]`.

        The standard deviation of estimates depends on where outcomes are clipped: standard errors
        are compared with that of replicates which are clipped alike, if there are enough.
        """
        covered = (numbers[..., 2] <= 0) & (numbers[..., 3] >= 0)
        ends, alike, sizes = np.unique(clips, return_inverse=True, return_counts=True)
        if sizes.max() < _ALIKE:
            ends, alike, sizes = clips[:1], np.zeros(len(clips), np.int64), np.array([len(clips)])
        every = np.array(
            [np.nanstd(numbers[alike == one, :, 0], axis=0, ddof=1) for one in range(len(ends))]
        )[alike]
        enough = (sizes >= min(_ALIKE, len(clips)))[alike, np.newaxis]
        known = np.isfinite(numbers[..., 1])
        lengths = (numbers[..., 3] - numbers[..., 2]) / (2 * stats.norm.ppf(0.975) * every)
        return cls(
            float(covered[known].mean()) if known.any() else math.nan,
            (numbers[..., 1] / every)[known & enough],
            float(lengths[known & enough].mean()),
            np.nanstd(numbers[..., 0], axis=0, ddof=1),
        )


def _line(
    what: tuple[str, ...],
    private: FloatArray,
    plain: FloatArray,
    predicted: float,
    clips: FloatArray,
) -> Line:
    """A line; axes of `private` and `plain` are `[replicate, effect, number]`."""
    found, without = _Measured.of(private, clips), _Measured.of(plain, clips)
    low, high = np.quantile(found.ratios, [0.05, 0.95]) if found.ratios.size else [math.nan] * 2
    plain_low, plain_high = np.quantile(without.ratios, [0.05, 0.95])
    return Line(
        what=what,
        n_replicates=len(private),
        n_intervals=found.ratios.size,
        coverage=found.coverage,
        without=without.coverage,
        ratio=float(found.ratios.mean()) if found.ratios.size else math.nan,
        low=float(low),
        high=float(high),
        plain_low=float(plain_low),
        plain_high=float(plain_high),
        length=found.length,
        deviation=float(np.sqrt((found.deviations**2).mean())),
        plain_deviation=float(np.sqrt((without.deviations**2).mean())),
        privacy=float(np.sqrt(np.nanmean(private[..., 4]))),
        # A plan is for the effect that is known least; of groups, for all alike.
        predicted=predicted
        / float(
            np.sqrt((found.deviations**2).mean())
            if "groups" in what[-1]
            else found.deviations.max()
        ),
        none=float(1 - np.isfinite(private[..., 1]).mean()),
    )


def lines(found: Replicates) -> list[Line]:
    """A line for each kind of effects."""
    of_kinds = zip(found.kinds, found.private, found.plain, found.predicted, strict=False)
    return [
        _line((*found.what, kind), private, plain, predicted, found.clips)
        for kind, private, plain, predicted in of_kinds
    ]


def test_cells(found: Replicates) -> tuple[str, ...]:
    """How often a test of homogeneity rejects at 5% where effects are the same, as text."""
    n_tests = len(found.tests)
    error = math.sqrt(0.05 * 0.95 / n_tests)
    return (*found.what, f"{n_tests}", f"{np.mean(found.tests):.1%}", f"{error:.1%}")


def halves_cells(found: Replicates) -> list[tuple[str, ...]]:
    """Of lines whose standard errors vary more than is wanted: what each half of them shows.

    The half of replicates with the smaller ones is compared with the half with the larger ones.
    Where errors of estimates vary as stated, SE/SD and coverage are alike in both.
    """
    cells = []
    for line, numbers in zip(lines(found), found.private, strict=False):
        if "spread" not in line.misses():
            continue
        effects, errors = numbers[..., 0], numbers[..., 1]
        covered = (numbers[..., 2] <= 0) & (numbers[..., 3] >= 0)
        is_small = errors < np.nanmedian(errors, axis=0)
        halves = [
            np.where(chosen & np.isfinite(errors), 1.0, np.nan) for chosen in (is_small, ~is_small)
        ]
        # Every effect is zero, so that squares of estimates are those of their errors.
        ratios = [
            np.mean(
                np.nanmean(half * errors, axis=0) / np.sqrt(np.nanmean(half * effects**2, axis=0))
            )
            for half in halves
        ]
        shares = [np.nanmean(half * covered) for half in halves]
        shown = (*(f"{one:.2f}" for one in ratios), *(f"{one:.1%}" for one in shares))
        cells.append((*line.what, f"{line.n_replicates:,}", *shown))
    return cells
