"""Covariates as columns of a regression: numbers, categories, and what is missing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._words import counted
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.coded_rows import parts_of
from clusterdp.estimation.notes import Note, Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp._arrays import BoolArray, CodeArray, FloatArray
    from clusterdp.estimation.coded_rows import CodedRows, RowColumns
    from clusterdp.published.column_codes import ColumnCodes
    from clusterdp.published.release import Release

# A category more than this needs a slope in every arm, which few tables can pay for.
MOST_CATEGORIES = 50
# How many classes of numbers a covariate is checked in.
_CLASSES = 20
# How many rows tell where to divide.
_ROWS_OF_CLASSES = 100_000
# The class of rows that lack a covariate.
MISSING = 0


class Covariates(NamedTuple):
    """What is known of rows before treatment; axes of arrays `[row]`.

    Attributes:
        regressors: The columns that have a slope: numbers, and indicators as truth values.
        classes: The values of each covariate as a few classes, from 1 on; `MISSING` where it is.
        n_missing: How many units lack each covariate.
        numbers: Which are numbers; the others are categories.
    """

    regressors: tuple[FloatArray | BoolArray, ...]
    classes: dict[str, CodeArray]
    n_missing: dict[str, int]
    numbers: frozenset[str]

    def chosen(self, rows: BoolArray) -> Covariates:
        """Some of the rows."""
        return self._replace(
            regressors=tuple(one[rows] for one in self.regressors),
            classes={name: one[rows] for name, one in self.classes.items()},
        )

    def notes(self) -> list[Note]:
        """What is missing."""
        return [
            Note(
                f"{counted(n_units, 'unit')} without {name}: they stay, with its mean and an "
                "indicator of their own",
                Weight.SCOPE,
            )
            for name, n_units in self.n_missing.items()
            if n_units
        ]


def check_covariates(schema: pl.Schema, release: Release, covariates: tuple[str, ...]) -> None:
    """Raise a ParameterError unless covariates are columns of the rows that can be adjusted for."""
    if len(set(covariates)) < len(covariates):
        raise ParameterError(f"a covariate is named twice in {', '.join(covariates)}")
    columns = release.columns
    reserved = (columns.unit, *columns.cell, *columns.responses, *columns.debiased)
    for name in covariates:
        if name in reserved:
            raise ParameterError(f"cannot adjust for {name!r}: it is not a covariate")
        if name not in schema:
            raise ParameterError(f"cannot adjust for {name!r}: there is no such column")
        if not (is_number(schema[name]) or _is_category(schema[name])):
            raise ParameterError(
                f"cannot adjust for {name!r}: it holds {schema[name]}; make numbers or text of it"
            )


def read_covariates(
    rows: CodedRows, columns: RowColumns, covariates: tuple[str, ...]
) -> Covariates:
    """The columns of a regression.

    A number is one column. A category is an indicator of each value but the most frequent. Where
    values are missing, a number is its mean, and one more column says that it is missing.

    Args:
        rows: All rows, in their order: sums of floats depend on it.
        columns: What their codes stand for; what is no number is a category.
        covariates: The columns to adjust for.

    Raises:
        DataError: If nothing is known of a covariate.
        ParameterError: If a covariate has too many categories.
    """
    regressors: list[FloatArray | BoolArray] = []
    classes = {}
    for name in covariates:
        is_category = name not in columns.numbers
        classes[name] = rows.codes[name] if is_category else _classes(rows.numbers[name])
        if not classes[name].any():
            raise DataError(f"cannot adjust for {name!r}: no released unit has it; leave it out")
        if is_category:
            regressors += _of_category(name, classes[name], columns.codes[name])
        else:
            regressors += _of_number(rows.numbers[name])
    return Covariates(
        regressors=tuple(regressors),
        classes=classes,
        n_missing={name: int((one == MISSING).sum()) for name, one in classes.items()},
        numbers=frozenset(covariates) & frozenset(columns.numbers),
    )


def is_number(kind: pl.DataType) -> bool:
    """Whether a column of a type is adjusted for as a number."""
    import polars as pl

    return kind.is_numeric() or kind == pl.Boolean


def _is_category(kind: pl.DataType) -> bool:
    import polars as pl

    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def _classes(numbers: FloatArray) -> CodeArray:
    """Numbers as a few classes in their order; `MISSING` where they are not finite.

    Some rows, far apart, tell where to divide: how large classes are need not be exact.
    """
    known = np.isfinite(numbers)
    some = numbers if known.all() else numbers[known]
    some = np.sort(some[:: max(1, len(some) // _ROWS_OF_CLASSES)])
    bounds = np.unique(some[:: max(1, len(some) // _CLASSES)])
    classes = np.full(len(numbers), MISSING, np.min_scalar_type(len(bounds) + 1))
    for rows in parts_of(len(numbers)):
        above = np.searchsorted(bounds, numbers[rows], side="right")
        classes[rows] = np.where(known[rows], above + 1, MISSING)
    return classes


def _of_number(numbers: FloatArray) -> Iterator[FloatArray | BoolArray]:
    """A number in standard deviations from its mean, and whether it is missing."""
    known = np.isfinite(numbers)
    is_complete = bool(known.all())
    some = numbers if is_complete else numbers[known]
    centred = numbers - some.mean()
    spread = float(some.std(ddof=1)) if len(some) > 1 else 0.0
    centred /= spread or 1.0
    if not is_complete:
        centred[~known] = 0.0
    yield centred
    if not is_complete:
        yield ~known


def _of_category(name: str, codes: CodeArray, column: ColumnCodes) -> Iterator[BoolArray]:
    """Indicators of all values but the most frequent; what is missing is a value, too."""
    import polars as pl

    counts = np.bincount(codes, minlength=len(column.values))
    if np.count_nonzero(counts) > MOST_CATEGORIES:
        raise ParameterError(
            f"cannot adjust for {name!r}: it has {np.count_nonzero(counts):,} values, and at most "
            f"{MOST_CATEGORIES} have slopes; group them, or cut by them (by, --by)"
        )
    texts = column.values.cast(pl.String)
    codes_met = np.flatnonzero(counts).tolist()
    by_rank = sorted(codes_met, key=lambda code: (-counts[code], texts[code] or ""))
    for code in by_rank[1:]:
        yield codes == code
