"""What an answer is about: a follow-up to a release, by checksums; and its groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from clusterdp.errors import ParameterError, did_you_mean
from clusterdp.outcomes.categories import categories_on, together
from clusterdp.outcomes.declaration import measuring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.outcomes.categories import Categories

# The group of units that have no label. It has no unit in common with others, and costs nothing.
NOT_ASKED = "(not asked)"


class Answers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which follow-up a folder answers. It has names of groups, not who is in them.

    Attributes:
        release: The release that the follow-up is about, by the checksum of its manifest.
        followup: The follow-up, by its checksum.
        labels: A keyed checksum of the labels of each dimension; the follow-up has the key.
        metrics: The metrics that were asked for; None if all were.
        found_in_fold: The fold in which the segments were found, which has no labels; None if they
            were not found in released rows.
        n_labeled: How many units have a label of each dimension, those of pooled groups too.
        n_pooled: How many groups of each dimension were too small, and are in "(not asked)".
    """

    release: str
    followup: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...] | None
    found_in_fold: int | None
    n_labeled: tuple[int, ...]
    n_pooled: tuple[int, ...]


def metric_names(spaces: Sequence[Categories]) -> list[str]:
    """What can be asked for: the declared metrics of all questions."""
    return [str(metric) for space in spaces for metric in space.declared.metrics]


def answered_spaces(
    spaces: Sequence[Categories], metrics: Sequence[str] | None
) -> tuple[tuple[int, Categories], ...]:
    """The categories whose totals are asked for, each with the place of its question.

    Raises:
        ParameterError: If there is no such metric.
    """
    if metrics is None:
        return tuple(enumerate(together(spaces)))
    known = metric_names(spaces)
    unknown = [name for name in metrics if name not in known]
    if unknown:
        raise ParameterError(
            f"There is no metric {unknown[0]!r} to ask for.{did_you_mean(unknown[0], known)} The "
            f"release has {', '.join(known)}."
        )
    found = []
    for place, space in enumerate(spaces):
        declared = measuring(space.declared, metrics)
        if declared is not None:
            grids = space.record().grids
            held = {name: grids[name] for name in declared.numbers}
            found.append((place, categories_on(declared, held)))
    places, own = zip(*found, strict=True)
    return tuple(zip(places, together(own), strict=True))
