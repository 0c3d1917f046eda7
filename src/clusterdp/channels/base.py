"""The integers that probabilities are made of, and what a check of a published channel finds."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """A check: what it is about, and what is wrong, or None."""

    name: str
    problem: str | None

    @classmethod
    def from_condition(cls, name: str, problem: str, *, holds: bool) -> Check:
        """A check that holds, or what is wrong if it does not."""
        return cls(name, None if holds else problem)


# A row is kept with probability `keep_weight / KEEP_TOTAL`; 52 bits are exact in a float.
KEEP_TOTAL = 2**52
# Priors are integers over this total.
PRIOR_TOTAL = 2**32
# An optimal channel's probabilities are integers over this total.
TABLE_TOTAL = 2**48
# Ratios of an optimal channel are fractions of this denominator.
RATIO_DENOMINATOR = 2**40
# Below, an optimal channel could not distinguish outcomes; above, a row hides nothing and
# probabilities get too small to be exact, so more is not spent.
SMALLEST_ROW_EPSILON, LARGEST_ROW_EPSILON = 0.01, 12.0
# A question is asked of so many units, on average, out of this total.
ASKED_TOTAL = 2**16
