"""What a guarantee is for: how two tables differ that must be hard to tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Neighbours = Literal["replace-one-outcome", "replace-one-cluster-and-outcome"]
# One unit's outcomes differ, all of them.
OUTCOME: Neighbours = "replace-one-outcome"
# One unit's cluster and outcomes differ, together.
CLUSTER_AND_OUTCOME: Neighbours = "replace-one-cluster-and-outcome"


class Words(NamedTuple):
    """A relation in words.

    Attributes:
        replaced: What of a unit is replaced.
        told_apart: What of a person cannot be told apart, in the plural.
        protected: What of every unit is protected.
        suspected: What somebody may suspect of one unit.
    """

    replaced: str
    told_apart: str
    protected: str
    suspected: str


IN_WORDS: dict[Neighbours, Words] = {
    OUTCOME: Words("outcome", "outcomes", "outcomes", "a certain outcome"),
    CLUSTER_AND_OUTCOME: Words(
        "cluster and outcome together",
        "pairs of cluster and outcome",
        "cluster and outcomes",
        "a certain cluster or outcome",
    ),
}


def common_neighbours(relations: Iterable[Neighbours]) -> Neighbours:
    """What several guarantees hold for together.

    A table in which a unit's outcome alone differs is a neighbour in either sense. One in which its
    cluster differs, too, is none where clusters are public.
    """
    return CLUSTER_AND_OUTCOME if set(relations) == {CLUSTER_AND_OUTCOME} else OUTCOME
