"""Private clusters: the label that each row is given, by a response that its id decides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.keys import unit_words

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.channels.label_response import LabelResponse
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.rows.unit_ids import UnitIds


class GivenLabels(NamedTuple):
    """The labels that rows are given, or have.

    Attributes:
        codes: Their places among declared labels, axes `[row]`; arbitrary where a row has none.
        n_outside: Rows whose own label is missing, or not declared.
    """

    codes: IntArray
    n_outside: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyLabels:
    """The response that rows' labels go through.

    Attributes:
        response: Its labels and probabilities.
        aes_key: From `ReleaseKey.for_labels`: a domain of its own, so that what a row is given as
            its label says nothing of how its outcomes are randomized.
    """

    response: LabelResponse
    aes_key: bytes = field(repr=False)

    @classmethod
    def of(cls, response: LabelResponse, key: ReleaseKey) -> NoisyLabels:
        """The response with the key of a release."""
        return cls(response=response, aes_key=key.for_labels())

    def with_key(self, aes_key: bytes) -> NoisyLabels:
        """The same with another key; with an empty one it can be stored."""
        return replace(self, aes_key=aes_key)

    def own(self, labels: pl.Series) -> GivenLabels:
        """The labels that rows have in the table: for safety nets alone, and to be randomized."""
        import polars as pl

        known = pl.Enum(self.response.labels)
        found = unnamed(labels).cast(pl.String).cast(known, strict=False).to_physical()
        codes = found.fill_null(0).to_numpy().astype(np.int64)
        return GivenLabels(codes, found.null_count())

    def __call__(self, labels: pl.Series, units: UnitIds) -> GivenLabels:
        """The labels that rows are given.

        Args:
            labels: Their own, of any type; they are compared as text.
            units: Ids.
        """
        codes, n_outside = self.own(labels)
        if units.ids.null_count():
            return GivenLabels(codes, n_outside)  # the batch is refused
        words = unit_words(units, self.aes_key)[:, 0]
        return GivenLabels(self.response.draw(words, codes), n_outside)
