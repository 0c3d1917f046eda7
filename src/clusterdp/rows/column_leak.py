"""A safety net: does a column that is published as it is give the outcome away? It only warns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray

# A column reveals the outcome when, knowing its value, one would make less than this share of the
# wrong guesses that one makes without it.
_LEFT_TO_GUESS = 0.1
# A value that fewer rows share may go with one outcome by chance.
ROWS_PER_VALUE = 20
# Numbers with more different values than there are bins are put into bins.
_MOST_BINS = 2**14
_ROWS_PER_BIN = 32


def n_bins(n_rows: int) -> int:
    """How many bins the numbers of a column are put into."""
    return max(1, min(_MOST_BINS, n_rows // _ROWS_PER_BIN))


def reveals_outcome(*, n_rows: int, n_shared: int, n_right: int, n_right_blindly: int) -> bool:
    """Whether some rows' values give their outcomes away.

    Args:
        n_rows: All rows.
        n_shared: Rows whose value at least `ROWS_PER_VALUE` rows share.
        n_right: Of these, how many outcomes are guessed right by who knows the value: over values,
            the sum of the largest count of an outcome.
        n_right_blindly: Of all rows, how many are guessed right by who does not: the rows of the
            most common outcome.
    """
    if n_shared == 0 or n_shared < n_rows / 2 or n_right_blindly == n_rows:
        return False
    wrong, wrong_blindly = 1 - n_right / n_shared, 1 - n_right_blindly / n_rows
    return wrong < _LEFT_TO_GUESS * wrong_blindly


def column_reveals_outcome(shared: IntArray, rare: IntArray, n_right: int) -> bool:
    """Whether a column gives outcomes away: over all rows, or where its values are shared.

    Rare values are taken together as one value. Left out, they would hide where rare outcomes went:
    they may be all of them, as in a copy of the outcome, or hold them by chance.

    Args:
        shared: How many rows have each outcome, of those whose value at least `ROWS_PER_VALUE`
            rows share; axes `[outcome]`.
        rare: The same of the other rows.
        n_right: Over shared values, the sum of the largest count of an outcome.
    """
    both = shared + rare
    n_rows, n_shared = int(both.sum()), int(shared.sum())
    over_all = reveals_outcome(
        n_rows=n_rows,
        n_shared=n_rows,
        n_right=n_right + int(rare.max()),
        n_right_blindly=int(both.max()),
    )
    where_shared = n_shared >= n_rows / 2 and reveals_outcome(
        n_rows=n_shared, n_shared=n_shared, n_right=n_right, n_right_blindly=int(shared.max())
    )
    return over_all or where_shared


def leak_notice(name: str, outcome: str) -> str:
    """What the owner is told of such a column."""
    return (
        f"column {name!r} is kept and gives {outcome!r} away almost surely: publishing it "
        "publishes the outcome. Do not share the folder"
    )
