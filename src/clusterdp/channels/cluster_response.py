"""Private clusters: each unit's label through k-ary response, in integers.

A unit of label c is given c with probability `own`/2^52 and each other label with probability
`other`/2^52. All that follows from the given labels, such as sizes of cells, then costs
ε₁ = ln(own/other) as far as labels go.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from clusterdp._text import is_plain
from clusterdp.cells.assignment import POOLED_LABEL
from clusterdp.channels.base import KEEP_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.privacy import accounting as acc
from clusterdp.privacy.accounting import CLUSTER_AND_OUTCOME
from clusterdp.privacy.statement import percent_rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray, WordArray


# With more labels than this, hardly any unit would be given its own.
MOST_LABELS = 1000
# Beyond, labels are as good as public, and probabilities too small to be exact.
LARGEST_LABEL_EPSILON = 12.0
# A word has 64 bits, of which the upper 52 decide.
_SPARE_BITS = np.uint64(12)


class ClusterResponse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The response that labels go through.

    Attributes:
        labels: The declared labels, in the order of their codes.
        own: The probability that a unit is given its own label, times 2^52.
        other: The same of each other label.
    """

    labels: tuple[str, ...]
    own: int
    other: int

    def __post_init__(self) -> None:
        _check_labels(self.labels)
        n_others = len(self.labels) - 1
        if not (0 < self.other < self.own and self.own + n_others * self.other == KEEP_TOTAL):
            raise ParameterError(
                "the response of labels must have whole numbers own > other > 0 that add up to "
                f"2^52 over all labels, got own={self.own} and other={self.other}"
            )

    @classmethod
    def for_epsilon(cls, labels: Sequence[str], epsilon: float) -> ClusterResponse:
        """The response that keeps most labels at a cost of at most ε₁.

        Raises:
            ParameterError: If ε₁ is out of its range, or labels are too few, too many or repeated.
        """
        _check_labels(tuple(labels))
        if not 0 < epsilon <= LARGEST_LABEL_EPSILON:
            raise ParameterError(
                f"private_cluster must be a number above 0, and {LARGEST_LABEL_EPSILON:g} at most, "
                f"got {epsilon:g}"
            )
        ratio = acc.largest_ratio(epsilon, KEEP_TOTAL)
        n_others = len(labels) - 1
        other = -(-KEEP_TOTAL // (ratio + n_others))  # rounded up, so that own/other is not above
        return cls(labels=tuple(labels), own=KEEP_TOTAL - n_others * other, other=other)

    @property
    def n_labels(self) -> int:
        """k, how many labels there are."""
        return len(self.labels)

    def loss(self) -> acc.ReleaseLoss:
        """What a label loses at worst."""
        own, other = Fraction(self.own, KEEP_TOTAL), Fraction(self.other, KEEP_TOTAL)
        return acc.ReleaseLoss(atoms=acc.response_loss(own, other))

    def guarantee(self) -> acc.Guarantee:
        """ε₁ = ln(own/other), rounded up: what labels cost alone."""
        epsilon = acc.total_epsilon(self.loss().atoms)
        return acc.Guarantee(epsilon=epsilon, neighbours=CLUSTER_AND_OUTCOME)

    def draw(self, words: WordArray, codes: IntArray) -> IntArray:
        """The label that each unit is given, by a word of its own; axes `[unit]`."""
        numbers = (words >> _SPARE_BITS).astype(np.int64)
        others = (numbers - self.own) // self.other
        given = others + (others >= codes)
        return np.where(numbers < self.own, codes, given)

    def probs(self, clusters: Sequence[str] | None = None) -> FloatArray:
        """K: the probability that a unit of a group is given a label; axes `[group, label]`.

        Args:
            clusters: The labels as they were published, small ones pooled; by default all of them.
                Pooled labels are one group, whose units have the same probabilities.
        """
        names = self.labels if clusters is None else tuple(map(str, clusters))
        n_pooled = self.n_labels - len(names) + 1  # labels that the pooled one stands for
        counts = np.array([1.0 if name in self.labels else n_pooled for name in names])
        together = np.broadcast_to(counts * self.other, (len(names), len(names)))
        mixed = together + np.eye(len(names)) * (self.own - self.other)
        return np.asarray(mixed / KEEP_TOTAL)

    def inverse(self, clusters: Sequence[str] | None = None) -> FloatArray:
        """K⁻¹: what a unit of each given label counts as in each group; axes `[label, group]`.

        K is q·I + 1·oᵀ with q = (own − other)/2^52, and its rows add up to one: so K⁻¹ is
        (I − 1·oᵀ)/q.
        """
        kept = (self.own - self.other) / KEEP_TOTAL
        probs = self.probs(clusters)
        same = np.eye(len(probs))
        return np.asarray((same - (probs - kept * same)) / kept)

    @property
    def in_words(self) -> str:
        """How often a label is the true one, for people."""
        share = percent_rounded_up(float(Decimal(self.own) / KEEP_TOTAL))
        others = "the other one" if self.n_labels == 2 else f"any of the other {self.n_labels - 1}"
        return f"a unit's own with probability {share}, else {others}"


def _check_labels(labels: tuple[str, ...]) -> None:
    """Raise a ParameterError unless labels can name clusters."""
    if not 2 <= len(labels) <= MOST_LABELS:
        raise ParameterError(
            f"labels must be 2 to {MOST_LABELS:,} clusters, got {len(labels)}; name every cluster "
            "that a unit can be in (labels, under [private_clusters])"
        )
    if len(set(labels)) < len(labels):
        raise ParameterError("labels name a cluster twice; name each once")
    if POOLED_LABEL in labels:
        raise ParameterError(
            f"{POOLED_LABEL!r} is what small clusters are called together; rename it"
        )
    if not all(label and all(map(is_plain, label)) for label in labels):
        raise ParameterError("labels must be texts without control characters; rename them")
