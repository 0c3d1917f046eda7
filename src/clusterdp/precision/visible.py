"""What can be seen in a release: standard errors and detectable effects, target by target."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.precision.prediction import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Breakdown, Layout
    from clusterdp.precision.prediction import Precision, Prediction


# Segments that are shown, by their share of the units.
SEGMENTS = (0.5, 0.25, 0.1, 0.05, 0.01)
# Of a breakdown with more groups than this, the largest are shown.
_MOST_GROUPS = 12
_LONGEST_NAME = 34


class Sight(NamedTuple):
    """An effect that could be looked at.

    Attributes:
        name: What it is of, for people.
        share: Its share of the units, where that is what it is known by.
        predictions: What to expect of it, metric by metric.
    """

    name: str
    share: float | None
    predictions: tuple[Prediction, ...]


def sights(precisions: Sequence[Precision], layout: Layout) -> list[Sight]:
    """Everyone, the groups of each breakdown, and segments of several shares.

    Everyone alone where no rows are published. Groups without units in some arm are left out.

    Args:
        precisions: What to expect, metric by metric.
        layout: What is public.
    """
    found = [Sight("everyone", 1.0, tuple(one.overall for one in precisions))]
    if precisions[0].by_rows is None:
        return found
    first = 1
    for breakdown in layout.breakdowns:
        for group in _shown(breakdown):
            predictions = tuple(one.of_target(first + group) for one in precisions)
            found.append(Sight(group_name(breakdown, group), None, predictions))
        first += len(breakdown.sizes)
    for share in SEGMENTS:
        of_share = [one.segment(share) for one in precisions]
        predictions = tuple(one for one in of_share if one is not None)
        found.append(Sight(f"a segment of {share:.0%}", share, predictions))
    return found


def sight_rows(seen: Sequence[Sight], metric: int) -> list[tuple[str, ...]]:
    """The table of one metric: a header, then a row for each sight.

    Detectable effects are beside those that could be detected without privacy.
    """
    rows = [
        (
            one.name,
            f"{one.predictions[metric].std_error:.4g}",
            detectable_in_words(one.predictions[metric]),
            _without_privacy(one.predictions[metric]),
        )
        for one in seen
    ]
    return [("", "std error", "detectable", "without privacy"), *rows]


def detectable_in_words(found: Prediction) -> str:
    """The smallest effect that can be detected, if any effect can be as large."""
    return f"{found.detectable_effect:.4g}" if found.is_visible else UNSEEN


def _without_privacy(found: Prediction) -> str:
    """The same from true outcomes."""
    effect = found.detectable_without_privacy
    return f"{effect:.4g}" if found.is_visible_without_privacy else UNSEEN


def unseen_notes(metrics: Sequence[str], overall: Sequence[Prediction]) -> list[str]:
    """A note on each metric of which not even the overall effect can be detected."""
    return [
        f"too small: no effect on {name} can be seen, not even over everyone; the largest possible "
        f"is {one.largest_effect:.4g}, and it takes {one.detectable_effect:.4g}"
        + (
            f" (without privacy {one.detectable_without_privacy:.4g}): give a larger epsilon, or "
            "find more units"
            if one.is_visible_without_privacy
            else ", also without privacy: find more units"
        )
        for name, one in zip(metrics, overall, strict=True)
        if not one.is_visible
    ]


def group_name(breakdown: Breakdown, group: int) -> str:
    """A group of a breakdown, for people: `region=north, tier=2`."""
    pairs = zip(breakdown.columns, breakdown.groups[group], strict=True)
    return short_name(", ".join(f"{column}={label}" for column, label in pairs))


def short_name(name: str) -> str:
    """The name of a group, cut off where it is long."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _shown(breakdown: Breakdown) -> list[int]:
    """The groups with units in every arm, in their order; the largest if there are many."""
    sizes = breakdown.sizes
    present = np.flatnonzero((sizes > 0).all(axis=1))
    largest = np.argsort(-sizes[present].sum(axis=1), kind="stable")[:_MOST_GROUPS]
    return sorted(present[largest].tolist())
