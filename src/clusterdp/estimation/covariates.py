"""Covariates as columns of a regression: numbers, categories, and what is missing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp._words import counted
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.notes import Note, Weight
from clusterdp.estimation.profiling import PROFILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.published.release import Release

# A category more than this needs a slope in every arm, which few tables can pay for.
MOST_CATEGORIES = 50
# How many classes of values a covariate is checked in.
_CLASSES = 20
# How many rows tell where to divide.
_ROWS_OF_CLASSES = 100_000
# Of columns of the regression; no column of a user has such a name.
_REGRESSOR = "__clusterdp_regressor_"


class Covariates(NamedTuple):
    """Rows with the columns of a regression.

    Attributes:
        rows: Rows; with a column `PROFILE` once profiles are known.
        regressors: The columns that have a slope.
        n_missing: How many units lack each covariate.
    """

    rows: pl.DataFrame
    regressors: tuple[str, ...]
    n_missing: dict[str, int]

    def classes(self, name: str) -> pl.Series:
        """The values of a covariate as a few classes in their order; null where it is missing.

        Some rows, far apart, tell where to divide: how large classes are need not be exact.
        """
        import polars as pl

        known = _known(self.rows[name])
        if _is_category(known.dtype):
            known = known.cast(pl.Categorical).to_physical()
        some = known.drop_nulls()
        some = some.gather_every(max(1, len(some) // _ROWS_OF_CLASSES)).sort()
        bounds = some.gather_every(max(1, len(some) // _CLASSES)).unique(maintain_order=True)
        classes = bounds.search_sorted(known, side="right")
        return (classes.cast(pl.Int64) + 1).set(known.is_null(), None)

    def missing_profiles(self) -> dict[str, IntArray]:
        """The profiles of the units that lack each covariate."""
        return {
            name: self.rows.filter(_known(self.rows[name]).is_null())[PROFILE].to_numpy()
            for name in self.n_missing
        }

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
        if not (_is_number(schema[name]) or _is_category(schema[name])):
            raise ParameterError(
                f"cannot adjust for {name!r}: it holds {schema[name]}; make numbers or text of it"
            )


def read_covariates(rows: pl.DataFrame, covariates: tuple[str, ...]) -> Covariates:
    """All rows, with the columns of a regression.

    A number is one column. A category is an indicator of each value but the most frequent. Where
    values are missing, a number is its mean, and one more column says that it is missing.

    Raises:
        DataError: If nothing is known of a covariate.
        ParameterError: If a covariate has too many categories.
    """
    found: list[pl.Series] = []
    for name in covariates:
        if _known(rows[name]).null_count() == len(rows):
            raise DataError(f"cannot adjust for {name!r}: no released unit has it; leave it out")
        made = _of_number(rows[name]) if _is_number(rows.schema[name]) else _of_category(rows[name])
        found += made
    named = [column.alias(f"{_REGRESSOR}{place}") for place, column in enumerate(found)]
    return Covariates(
        rows=rows.with_columns(named),
        regressors=tuple(column.name for column in named),
        n_missing={name: _known(rows[name]).null_count() for name in covariates},
    )


def _is_number(kind: pl.DataType) -> bool:
    import polars as pl

    return kind.is_numeric() or kind == pl.Boolean


def _is_category(kind: pl.DataType) -> bool:
    import polars as pl

    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def _known(column: pl.Series) -> pl.Series:
    """The same with null for numbers that are not finite."""
    import polars as pl

    if not _is_number(column.dtype):
        return column
    numbers = column.cast(pl.Float64)
    return numbers.set(~numbers.is_finite(), None)


def _of_number(column: pl.Series) -> Iterator[pl.Series]:
    """A number in standard deviations from its mean, and whether it is missing."""
    numbers = _known(column)
    known = numbers.drop_nulls()
    spread = float(known.std() or 0.0)  # type: ignore[arg-type]  # a number
    centred = numbers - known.mean()
    yield (centred / (spread or 1.0)).fill_null(0.0)
    if numbers.null_count():
        yield _indicator(numbers.is_null())


def _of_category(column: pl.Series) -> Iterator[pl.Series]:
    """Indicators of all values but the most frequent; what is missing is a value, too."""
    import polars as pl

    texts = column.cast(pl.String)
    counts = texts.value_counts(sort=True, name="count").sort(
        ["count", column.name], descending=[True, False]
    )
    if len(counts) > MOST_CATEGORIES:
        raise ParameterError(
            f"cannot adjust for {column.name!r}: it has {len(counts):,} values, and at most "
            f"{MOST_CATEGORIES} have slopes; group them, or cut by them (by, --by)"
        )
    for value in counts[column.name][1:]:
        yield _indicator(texts.eq_missing(pl.Series([value], dtype=pl.String)))


def _indicator(flags: pl.Series) -> pl.Series:
    import polars as pl

    return flags.cast(pl.Float64)
