"""What a folder publishes, as the numbers that `losses.py` enumerates, and the result.

The manifest and two tables are enough: `cells.parquet` has priors and weights of units,
`channels.parquet` the integers of randomizers. Rows are not read.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.auditing.losses import QuestionParts, SharedNoise, largest_loss
from clusterdp.auditing.outcomes import Combinations
from clusterdp.document.model import Paragraph, Table
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.errors import FormatError
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import numpy.typing as npt
    import polars as pl

    from clusterdp.document.model import Part
    from clusterdp.storage.reading import Files

_MOST_BYTES = 2**26
# Resampled rows are kept with a probability in 2^-52, and priors are integers over 2^32.
_KEEP_TOTAL, _PRIOR_TOTAL = 2**52, 2**32
# Randomizers have integers over this total.
_TABLE_TOTAL = 2**48
# Steps of the range of a covariate.
_COVARIATE_STEPS = 1024
# Values of a number that are looked at together.
_PIECE, _MOST_VALUES = 2**20, 2**27
_PRINTED = 4


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Audit:
    """What an audit found.

    Attributes:
        stated: The ε of the manifest.
        delta: The δ of the manifest.
        found: The ε that the published integers have, by enumeration.
        question: The outcomes of the question where it is reached, joined by `+`; empty if a unit
            is part of all of them.
        pair: The two outcome combinations where it is reached.
        output: Where the odds of rows change most: the number of the randomizer, and its output.
        parts: The loss of each part there.
        problems: What contradicts the statement. Empty if it holds.
    """

    stated: float
    delta: float
    found: Decimal
    question: str
    pair: tuple[str, str]
    output: tuple[int, int] | None
    parts: dict[str, Decimal]
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the folder loses no more than it states."""
        return not self.problems

    def __str__(self) -> str:
        """The result in a sentence."""
        if self.problems:
            return f"The privacy statement does not hold: {'; '.join(self.problems)}."
        at = f" at δ = {self.delta:g}" if self.delta else ""
        holds = f"ε = {self.stated:.4g} holds{at}"
        return f"{holds}: enumeration finds a privacy loss of at most {self.loss}."

    def __repr__(self) -> str:
        return to_screen(self.sections(), terminal_width())

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        from clusterdp.document.markup import to_html

        return to_html(*self.sections())

    @property
    def loss(self) -> str:
        """The enumerated ε in four digits, rounded up."""
        return _shown(self.found)

    def sections(self) -> list[Part]:
        """The result for people: the answer, each part, and where it is reached."""
        losses = [(name, _shown(loss)) for name, loss in self.parts.items()]
        table = Table("What each part loses there", [("part", "loss"), *losses, ("all", self.loss)])
        where = f"The loss is largest between {self.pair[0]} and {self.pair[1]}"
        if self.question:
            where += f", for a unit that answers {self.question}"
        if self.output is not None:
            number, output = self.output
            where += f". Of its row, output {output} of randomizer {number} changes the odds most"
        not_seen = "Not audited: that noise and responses were drawn as the manifest states."
        return [Paragraph(str(self)), Paragraph(f"{where}."), table, Paragraph(not_seen)]

    def to_dict(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "holds": self.holds,
            "stated_epsilon": self.stated,
            "delta": self.delta,
            "enumerated_epsilon": float(self.found),
            "question": self.question,
            "pair": list(self.pair),
            "randomizer_and_output": None if self.output is None else list(self.output),
            "parts": {name: float(loss) for name, loss in self.parts.items()},
            "problems": list(self.problems),
        }


def audit(folder: str | os.PathLike[str]) -> Audit:
    """Recompute ε of a published folder from its integers.

    Args:
        folder: The folder, on disk or in object storage.

    Raises:
        FormatError: If it is no release, or its numbers cannot be read.
    """
    files = open_folder(folder)
    sealed = files.read("manifest.json", _MOST_BYTES)
    if sealed is None:
        raise FormatError(f"{folder} is not a release: it has no manifest.json")
    try:
        return _audited(json.loads(sealed), files)
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise FormatError(
            f"{folder} cannot be audited: its numbers are not those of the format ({error}). "
            "Fix: run clusterdp verify on it."
        ) from None


class _Published(NamedTuple):
    """The manifest, and the tables of cells and of randomizers, if there are any."""

    manifest: dict[str, Any]
    cells: pl.DataFrame
    channels: pl.DataFrame | None

    @property
    def has_several(self) -> bool:
        """Whether there are several questions: columns end in their number then."""
        return len(self.manifest["questions"]) > 1

    def of_cells(self, name: str, index: int) -> pl.Series:
        """A column of cells of one question."""
        return self.cells[f"{name}_{index + 1}" if self.has_several else name]


def _audited(manifest: dict[str, Any], files: Files) -> Audit:
    questions = manifest["questions"]
    channels = _table(files, "channels.parquet") if files.size("channels.parquet") else None
    published = _Published(manifest, _table(files, "cells.parquet"), channels)
    spaces = [
        Combinations(one["outcomes"]["declared"], one["outcomes"]["grids"]) for one in questions
    ]
    has_rows = questions[0]["mechanism"]["rows"] is not None
    parts = [
        _parts(index, question, spaces[index], published)
        for index, question in enumerate(questions)
    ]
    worst = largest_loss(parts, has_rows=has_rows)
    found, losses = worst.epsilon, dict(worst.parts)
    if manifest["labels"] is not None:
        losses["private clusters"] = _of_clusters(manifest["labels"])
        found += losses["private clusters"]
    stated = manifest["guarantee"]
    names = [one["name"] for one in questions[worst.question]["outcomes"]["declared"]["outcomes"]]
    words = spaces[worst.question].words
    return Audit(
        stated=stated["epsilon"],
        delta=stated["delta"],
        found=found,
        question="+".join(names) if has_rows and len(questions) > 1 else "",
        pair=(words(worst.pair[0]), words(worst.pair[1])),
        output=worst.output,
        parts=losses,
        problems=tuple(_problems(manifest, found, parts)),
    )


def _problems(manifest: dict[str, Any], found: Decimal, parts: list[QuestionParts]) -> list[str]:
    """What of the statement is not true."""
    stated, problems = manifest["guarantee"], []
    if found > Decimal(stated["epsilon"]) * (1 + Decimal("1e-12")):
        problems.append(
            f"the manifest states ε = {stated['epsilon']:g}, and its integers lose {_shown(found)}"
        )
    if max(one.delta for one in parts) > stated["delta"]:
        problems.append("a randomizer has a larger δ than the manifest states")
    private = manifest["labels"] is not None
    if private != (stated["neighbours"] == "replace-one-cluster-and-outcome"):
        problems.append("what is protected does not match whether clusters are private")
    return problems


def _parts(
    index: int,
    question: dict[str, Any],
    space: Combinations,
    published: _Published,
) -> QuestionParts:
    """The parts of one question, from its entry of the manifest and the tables."""
    mechanism, sums = question["mechanism"], []
    histograms: dict[str, float] = {}
    fixed: dict[str, float] = {}
    if mechanism["pilot"] is not None:
        histograms["pilot histogram"] = 2 / mechanism["pilot"]["epsilon"]
    for one in mechanism["statistics"]:
        kind = one["statistic"]
        if kind == "counts":
            histograms["noisy counts"] = one["noise_scale"]
        elif kind == "contrasts":
            fixed["noisy contrasts"] = one["epsilon"]
        elif kind == "covariates":
            sums += _with_covariates(question["noise"].get(kind, {}), space, index)
        else:
            name = " by ".join(["totals", *filter(None, [", ".join(one.get("by", ()))])])
            name = "sums" if kind == "sums" else name
            weight = 1 if kind == "sums" else max(published.cells["weight"].to_list())
            sums += _noise(name, question["noise"][name], space, weight)
    rows = mechanism["rows"]
    randomizers: list[npt.NDArray[Any]] = []
    designed = 0.0
    if rows is not None and rows["channel"] == "optimal":
        randomizers = _randomizers(index, question, published)
        designed = rows["epsilon"] if "noisy counts" in histograms else 0.0
    elif rows is not None:
        counted = "noisy counts" in histograms
        priors = published.of_cells("prior", index)
        randomizers = _resampled(rows, priors, len(space.every), counted=counted)
    size = len(space.every)
    if any(table.shape[1] != size for table in randomizers):
        raise ValueError("a randomizer is of other combinations")
    return QuestionParts(
        randomizers=randomizers,
        designed_epsilon=designed,
        histograms=histograms,
        fixed=fixed,
        sums=sums,
        delta=0.0 if rows is None else rows["delta"],
        splits_delta=rows is not None and rows["channel"] == "resampling" and rows["delta"] > 0,
        n_combinations=size,
    )


def _noise(
    statistic: str, facts: dict[str, list[Any]], space: Combinations, weight: int
) -> list[SharedNoise]:
    """The vectors of noise on sums and squares of a question's metrics."""
    found: dict[tuple[str, int], SharedNoise] = {}
    for metric, values in enumerate(space.values):
        integers = [value / Fraction(repr(facts["unit"][metric])) for value in values]
        if any(one.denominator != 1 for one in integers):
            raise ValueError("a metric is not a multiple of its unit")
        whole = [int(one) for one in integers]
        ends = (min(whole), max(whole))
        added = {"sums": whole}
        squares_unit = facts["squares_unit"][metric]
        if squares_unit is not None:
            # Distances lose so many bits before they are squared.
            shift = round(math.log2(4 * squares_unit / facts["unit"][metric] ** 2) / 2)
            added["squares"] = [_square(one, ends, shift) for one in whole]
        own = []
        for part, numbers in added.items():
            prefix = "squares_" if part == "squares" else ""
            scale, width, vector = (
                facts[f"{prefix}noise_{name}"][metric] for name in ("scale", "width", "vector")
            )
            kind = (part, int(vector))
            moves = _moves(numbers, weight, int(width))
            before = found.get(kind)
            if before is not None:
                if before.scale != scale:
                    raise ValueError("one vector of noise has two scales")
                moves = np.maximum(moves, before.moves)
            found[kind] = SharedNoise(statistic=statistic, kind=kind, scale=scale, moves=moves)
            own.append((kind, weight / (scale * width)))
        if squares_unit is not None and space.is_number[metric]:
            (_, of_sums), (kind, of_squares) = own
            between = _between(whole, ends, shift, of_sums, of_squares)
            found[kind] = replace(found[kind], between=found[kind].between + between)
    return list(found.values())


def _with_covariates(
    facts: dict[str, list[Any]], space: Combinations, index: int
) -> list[SharedNoise]:
    """The noise on products of a question's metrics with covariates of the owner.

    A covariate is in steps of 1/1024 of its range. Of a unit, (x − x̄)(y − ȳ) is added up, which a
    move of y by d moves by 1024·d at most; each cell is rounded to a whole number.
    """
    found = []
    for number, (metric, unit, scale) in enumerate(
        zip(*(facts.get(name, []) for name in ("metric", "unit", "noise_scale")), strict=True)
    ):
        values = np.array([float(one / Fraction(repr(unit))) for one in space.values[int(metric)]])
        apart = np.abs(values[:, np.newaxis] - values)
        moves = np.where(apart > 0, np.rint(_COVARIATE_STEPS * apart) + 1, 0).astype(np.int64)
        kind = (f"products {index}", number)
        found.append(SharedNoise(statistic="covariates", kind=kind, scale=scale, moves=moves))
    return found


def _square(number: Any, ends: tuple[int, int], shift: int) -> Any:
    """The square of twice the distance from the middle of two ends, less some bits."""
    return (2 * number - ends[0] - ends[1] >> shift) ** 2


def _between(
    grid: list[int], ends: tuple[int, int], shift: int, of_sums: float, of_squares: float
) -> float:
    """How much more sums and squares lose for any two values of a number than for grid points.

    |x − x'| and |s(x) − s(x')| with either sign: the largest difference is that of the largest and
    the smallest of one function, so every value is looked at once.
    """
    most = {}
    for name, pieces in (("grid", [np.array(grid)]), ("every", _pieces(*ends))):
        highest, lowest = np.full(2, -np.inf), np.full(2, np.inf)
        for numbers in pieces:
            squares = of_squares * _square(numbers, ends, shift)
            both = np.stack([of_sums * numbers + squares, of_sums * numbers - squares])
            highest = np.maximum(highest, both.max(axis=1))
            lowest = np.minimum(lowest, both.min(axis=1))
        most[name] = float((highest - lowest).max())
    return max(most["every"] - most["grid"], 0.0)


def _pieces(low: int, high: int) -> Iterator[npt.NDArray[np.int64]]:
    """All integers between two ends, in pieces."""
    if high - low > _MOST_VALUES:
        raise ValueError("a number has too many values")
    for start in range(low, high + 1, _PIECE):
        yield np.arange(start, min(start + _PIECE, high + 1))


def _moves(numbers: list[int], weight: int, width: int) -> npt.NDArray[np.int64]:
    """⌈weight·|difference|/width⌉ for every two combinations."""
    return np.array(
        [[-(-weight * abs(one - other) // width) for other in numbers] for one in numbers]
    )


def _randomizers(
    index: int, question: dict[str, Any], published: _Published
) -> list[npt.NDArray[Any]]:
    """Each randomizer of a question in integers; axes `[output, combination]`."""
    channels = published.channels
    if channels is None:
        raise ValueError("the table of randomizers is missing")
    if published.has_several:
        names = [one["name"] for one in question["outcomes"]["declared"]["outcomes"]]
        channels = channels.filter(channels["question"] == "+".join(names))
    found = []
    for (_,), table in channels.group_by(["channel"], maintain_order=True):
        integers = np.array(table["weights"].to_list(), dtype=object)
        if (integers < 0).any() or (integers.sum(axis=0) != _TABLE_TOTAL).any():
            raise ValueError("the probabilities of a randomizer do not add up to one")
        found.append(integers)
    if set(published.of_cells("channel", index).drop_nulls()) - set(range(len(found))):
        raise ValueError("a cell has a randomizer that is not published")
    return found


def _resampled(
    rows: dict[str, Any], priors: pl.Series, size: int, *, counted: bool
) -> list[npt.NDArray[Any]]:
    """Outcomes that are kept, or redrawn from a prior; axes `[output, combination]`.

    Where noisy counts chose priors, other draws of them would have chosen others: none has an
    outcome below the floor.
    """
    redrawn = round(rows["resample_prob"] * _KEEP_TOTAL)
    floor = _PRIOR_TOTAL // size
    if rows["prior_floor"] is not None:
        floor = round(rows["prior_floor"] * _PRIOR_TOTAL)
    integers = {tuple(round(one * _PRIOR_TOTAL) for one in prior) for prior in priors.to_list()}
    if any(sum(prior) != _PRIOR_TOTAL for prior in integers):
        raise ValueError("a prior does not add up to one")
    if counted:
        if min(map(min, integers)) < floor:
            raise ValueError("a prior is below the stated floor")
        # In these, every two outcomes are at the floor together.
        integers = {_at_floor(floor, size, pair) for pair in range(size)}
    kept = (_KEEP_TOTAL - redrawn) * _PRIOR_TOTAL
    return [
        np.array(
            [
                [redrawn * one + kept * (row == column) for column in range(size)]
                for row, one in enumerate(prior)
            ],
            dtype=object,
        )
        for prior in sorted(integers)
    ]


def _at_floor(floor: int, size: int, rest: int) -> tuple[int, ...]:
    """A prior with all outcomes at the floor but for one."""
    return tuple(
        floor if place != rest else _PRIOR_TOTAL - (size - 1) * floor for place in range(size)
    )


def _of_clusters(labels: dict[str, Any]) -> Decimal:
    """What the response of private clusters loses: ln(own/other)."""
    others = len(labels["labels"]) - 1
    if labels["own"] + others * labels["other"] != _KEEP_TOTAL or labels["other"] <= 0:
        raise ValueError("the response of clusters does not add up to one")
    return (Decimal(labels["own"]) / Decimal(labels["other"])).ln(Context(prec=40))


def _shown(epsilon: Decimal) -> str:
    """An ε in four digits, rounded up."""
    if not epsilon.is_finite():
        return "infinity"
    rounded = Context(prec=_PRINTED, rounding=ROUND_CEILING).create_decimal(epsilon)
    return f"{float(rounded):g}"


def _table(files: Files, name: str) -> pl.DataFrame:
    """A table of the folder."""
    import polars as pl

    try:
        return files.scan_parquet([name]).collect()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{name} cannot be read") from error
