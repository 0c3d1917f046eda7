"""A reference from a table of a past experiment: how often each category occurred there."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.engines.local.sources.files import ENDINGS
from clusterdp.engines.local.sources.opening import open_unstored
from clusterdp.engines.named_source import NamedSource, Wanted
from clusterdp.errors import DataError
from clusterdp.experiment.chosen_grids import place_grids
from clusterdp.experiment.encoded_columns import missing_rows
from clusterdp.experiment.encoded_rows import OutcomeEncoder
from clusterdp.experiment.grid import Density
from clusterdp.rows.column_types import outcome_array
from clusterdp.rows.labelled import with_numbers
from clusterdp.rows.written_numbers import texts_as_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.rows.written_numbers import Notation

    Columns = Mapping[str, npt.NDArray[Any]]

# What the name of a table ends with, so that it is no share and no moment.
TABLES = ENDINGS


def read_past(
    name: str, declared: DeclaredOutcomes, notation: Notation
) -> dict[str, npt.NDArray[Any]]:
    """The outcome columns of a past experiment, whose text has numbers in this notation.

    Raises:
        DataError: If there is no such table, or it lacks an outcome.
    """
    labels = declared.labels
    wanted = Wanted(public=(), outcomes=declared.names, labelled=labels, decimal=notation.decimal)
    table = open_unstored(NamedSource(name=name), wanted)
    held = table.collect_schema().names()
    missing = [outcome for outcome in declared.names if outcome not in held]
    if missing:
        raise DataError(
            f"reference {name} has no column {missing[0]!r}; it needs a column for every outcome"
        )
    numeric = [outcome for outcome in declared.names if outcome not in labels]
    rows = texts_as_numbers(with_numbers(table, labels), numeric, notation)
    read = rows.select(declared.names).collect(engine="streaming")
    return {column.name: outcome_array(column) for column in read}


def past_categories(declared: DeclaredOutcomes, columns: Columns, n_points: int) -> Categories:
    """Categories whose grids are placed where the numbers of a past experiment were."""
    densities: dict[str, Density | None] = {}
    for name, number in declared.numbers.items():
        absent = missing_rows(columns[name])
        observed = columns[name] if absent is None else columns[name][~absent]
        steps, counts = np.unique(number.quantise(observed)[0], return_counts=True)
        densities[name] = (
            Density(steps=steps.astype(np.int64), probs=counts / counts.sum())
            if len(observed)
            else None
        )
    return place_grids(declared, densities, n_points)


def past_shares(name: str, categories: Categories, columns: Columns) -> FloatArray:
    """The share of each category among the rows of a past experiment; axes `[category]`.

    A number counts for the grid points beside it with the probabilities of its rounding.

    Raises:
        DataError: If a row is outside the declared outcomes.
    """
    encoder = OutcomeEncoder.of(categories)
    rows = encoder.encode(columns)
    if rows.n_missing or rows.n_outside or rows.n_broken or not len(rows.positions):
        raise DataError(_unusable(name))
    moves = []
    for column, steps, lower in zip(encoder.numbers, rows.steps, rows.lower, strict=True):
        up = (steps - np.array(column.grid.points)[lower]) / column.grid.widths[lower]
        # Nothing moves from the last point, so its neighbour above is never looked up.
        moves.append([(np.zeros_like(steps), 1 - up), (column.stride * (up > 0), up)])
    shares = np.zeros(categories.n_categories)
    for chosen in itertools.product(*moves):
        positions = rows.positions + sum((move for move, _ in chosen), start=0)
        masses = np.prod([np.ones(len(positions)), *(mass for _, mass in chosen)], axis=0)
        np.add.at(shares, categories.table[positions], masses)
    return np.asarray(shares / shares.sum())


def _unusable(name: str) -> str:
    return (
        f"reference {name} has no rows, or rows with outcomes that are missing, no numbers or "
        "outside the declared ones; leave those rows out"
    )
