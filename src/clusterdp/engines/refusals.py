"""Why every engine refuses a table, and what it says of clipped outcomes: one wording for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._text import counted
from clusterdp.engines.cells import refuse_missing, unplain
from clusterdp.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp.engines.base import TableOptions
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.published_names import Aggregates
    from clusterdp.rows.column_types import FoundShape
    from clusterdp.rows.tally import QuestionTally, Tally


def refuse_text(shapes: Mapping[str, FoundShape], table: TableOptions) -> None:
    """Raise a DataError if a column of outcomes has text that is no number.

    The message names a kind of text, of a fixed list, and shows no value.

    Args:
        shapes: What is wrong with each column that has such text.
        table: What is declared about the table.
    """
    for name, shape in shapes.items():
        raise DataError(
            f"column {name!r} (outcome) is text and has {shape.named}"
            f"{_in_rows(shape.n_rows, table)}; {shape.remedy}"
        )


def refuse_unsound(tally: Tally, table: TableOptions) -> None:
    """Raise a DataError unless every row can be used.

    The message shows no value. How many rows broke a rule depends on true outcomes, and several
    refusals would add up to a histogram: only an owner who asked for it sees the number.
    """
    refuse_missing(table.columns.unit, "unit", tally.n_without_id)
    if tally.n_unplain_ids:
        raise unplain(table.columns.unit, "unit")
    if tally.n_unlabelled:
        several = ", or several labels of one unit" if table.aggregates else ""
        raise DataError(
            f"column {table.columns.cluster!r} (private cluster) has missing values, or labels "
            f"that were not declared{several}{_in_rows(tally.n_unlabelled, table)}; declare every "
            "label (labels=..., --labels), such as 'other' for all that are rare"
        )
    for question, space in zip(tally.questions, table.spaces, strict=True):
        _refuse_outcomes(question, space, table)


def _refuse_outcomes(tally: QuestionTally, space: Categories, table: TableOptions) -> None:
    """Raise a DataError unless every row has outcomes of a question that can be used."""
    named = _outcomes_in_words(space)
    if tally.n_missing:
        raise DataError(
            f"{named} missing values{_in_rows(tally.n_missing, table)}; declare which outcomes "
            "may be missing (missing=[...], --missing NAME)"
        )
    if tally.n_outside:
        # Labels are never clipped.
        clips = not table.clip and not space.declared.labels
        remedy = "declare a space that holds them" + (
            ", or clip (clip=True, --clip)" if clips else ""
        )
        raise DataError(
            f"{named} values outside the outcome space of "
            f"{counted(space.n_categories, 'category', 'categories')}"
            f"{_in_rows(tally.n_outside, table)}; {remedy}"
        )
    if tally.n_broken:
        listed = ", ".join(repr(str(one)) for one in space.declared.implications)
        raise DataError(
            f"{named} combinations that the implications rule out ({listed})"
            f"{_in_rows(tally.n_broken, table)}; declare fewer implications, or correct the rows"
        )


def _outcomes_in_words(space: Categories) -> str:
    names = ", ".join(map(repr, space.declared.names))
    return (
        f"column {names} (outcome) has"
        if len(space.declared.names) == 1
        else (f"columns {names} (outcomes) have")
    )


def clipping_notices(tally: Tally, table: TableOptions) -> tuple[str, ...]:
    """The warnings to the owner that outcomes were clipped, for each outcome with some."""
    return tuple(
        f"some values of {name!r}{_in_rows(n_rows, table)} were clipped to the ends of its space"
        for question, space in zip(tally.questions, table.spaces, strict=True)
        for name, n_rows in zip(space.declared.names, question.n_clipped, strict=True)
        if n_rows
    )


def _in_rows(n_rows: int, table: TableOptions) -> str:
    return f" in {counted(n_rows, 'row')}" if table.verbose else ""


def refuse_repeated(n_repeated: int, unit: str, aggregates: Aggregates) -> None:
    """Raise a DataError if a unit has more than one row."""
    if not n_repeated:
        return
    rows = counted(n_repeated, "row")
    if aggregates:
        raise DataError(
            f"column {unit!r} (unit) has ids whose public columns differ from row to row, in "
            f"{rows}; each unit must have one arm, and one value of every other public column"
        )
    raise DataError(
        f"column {unit!r} (unit) repeats an id in {rows}; privacy is promised per unit: make one "
        "row of each unit's (aggregate='sum', --aggregate sum)"
    )
