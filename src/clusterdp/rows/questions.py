"""Which question each unit is asked: a public function of its id.

The salt is drawn with the key of the release and published, so that anyone can repeat it. It
depends on the id alone: nothing about a unit's outcomes, arm or cluster decides what it is asked.
"""

from __future__ import annotations

import hashlib
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from clusterdp._named import unnamed
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.rows.keys import UnitIds, unit_words
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray

Salt = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
# The bits of a word beyond those that choose among ASKED_TOTAL places.
_SPARE_BITS = 64 - (ASKED_TOTAL.bit_length() - 1)


class QuestionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How units are asked one of several questions.

    Attributes:
        salt: Random bytes of the release, in hexadecimal digits.
        asked: How many of `ASKED_TOTAL` units each question is asked of; they add up to it.
    """

    salt: Salt
    asked: tuple[int, ...]

    def __post_init__(self) -> None:
        if min(self.asked, default=0) < 1 or sum(self.asked) != ASKED_TOTAL:
            raise ParameterError(
                f"questions are asked of {ASKED_TOTAL} units together, got {sum(self.asked)}"
            )

    def numbers(self, units: UnitIds) -> CodeArray:
        """The place of each unit's question; axes `[unit]`."""
        key = hashlib.sha256(b"clusterdp question" + bytes.fromhex(self.salt)).digest()
        places = unit_words(units, key)[:, 0] >> np.uint64(_SPARE_BITS)
        ends = np.array([*accumulate(self.asked)], dtype=np.uint64)
        return np.searchsorted(ends, places, side="right").astype(np.int32)

    def asks(self, ids: pl.Series, questions: pl.Series, names: Sequence[str]) -> bool:
        """Whether published units have the questions that they are asked.

        Args:
            ids: Published ids, none of them missing.
            questions: The published column of questions.
            names: What the questions are called, in their order.
        """
        import polars as pl

        numbers = self.numbers(UnitIds(plain_column(unnamed(ids))))
        return unnamed(questions).equals(pl.Series(names, dtype=pl.String).gather(numbers))
