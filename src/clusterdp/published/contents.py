"""What is in the files and columns of a folder, in words; names stand in backticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.experiment.decimals import shown
from clusterdp.experiment.number import Number
from clusterdp.rows.columns import FOLD
from clusterdp.storage.files import CELLS, CHANNELS, INDEX, LOOK, README, TOTALS

if TYPE_CHECKING:
    from clusterdp.experiment.declared import Outcome
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.recipes import RowFiles
    from clusterdp.published.terms import BlockTerms

# Of more values than this, the first and the last are named.
_MOST_VALUES = 8


class PublishedColumn(NamedTuple):
    """A column of rows: its name, whether it is exact or private, and what it is."""

    name: str
    kind: str
    text: str


def file_texts(manifest: Manifest, rows: RowFiles) -> dict[str, str]:
    """What is in each file, by its name; that of the rows first."""
    pairs = list(zip(manifest.terms.mechanisms, manifest.terms.spaces, strict=True))
    statistics = [one for mechanism, _ in pairs for one in mechanism.statistics]
    words = [one.in_words for one in statistics if one.level is None]
    found = {}
    if manifest.terms.releases_rows:
        of_rows = [mechanism.settled_rows(space) for mechanism, space in pairs]
        words += [one.cells_in_words for one in of_rows]
        published = ", ".join(f"`{name}`" for name in manifest.to_columns().published)
        remarks = " ".join(dict.fromkeys(one.released_in_words for one in of_rows))
        found[rows.name] = f"one row per unit: {published}. {remarks}"
    per = "arm" if manifest.columns.cluster is None else "cluster and arm"
    found[CELLS] = f"one row per {per}: its size, {', '.join(dict.fromkeys(words))}."
    levels = list(dict.fromkeys(one.level for one in statistics if one.level is not None))
    if levels:
        of = ", ".join("of everyone" if not by else f"by {', '.join(by)}" for by in levels)
        found[TOTALS] = (
            f"noisy totals {of}; of each group, fold and arm the sum of every metric "
            "(`noisy_sum`), where a unit counts as often as the `weight` of its cell says."
        )
    if manifest.terms.look is not None:
        found[LOOK] = (
            "how many units have outcomes in each bin, with noise; each bin by the values at its "
            "lower ends. Ranges of numbers and the channel follow from it."
        )
    if any(mechanism.designs_rows for mechanism, _ in pairs):
        found[CHANNELS] = (
            "of each channel and response, what it counts as in each metric (`decode`) and "
            "P(response given each category) × 2^48 (`weights`)."
        )
    found[README] = "how to use it with no software of ours, and what can be seen in it."
    found[INDEX] = "the same for a browser, with charts and where the release comes from."
    return found


def published_columns(manifest: Manifest) -> list[PublishedColumn]:
    """The columns of rows, in their order."""
    columns, named = manifest.to_columns(), manifest.columns
    exact = dict.fromkeys(columns.kept, "a public column")
    exact |= {name: "a public column to cut by" for by in columns.breakdowns for name in by}
    exact |= {named.unit: "the id of a unit", named.arm: "the arm that the unit was assigned to"}
    if named.cluster is not None:
        exact[named.cluster] = "the cluster of the unit, within which arms are compared"
        if manifest.labels is not None:
            del exact[named.cluster]
    if named.assigned_by is not None:
        exact[named.assigned_by] = "the group that was assigned to an arm as a whole"
    exact[FOLD] = f"one of {columns.folds} folds, by a hash of the id"
    private = dict.fromkeys(
        columns.responses, "which noisy answer the unit gave, as a number; it is not an outcome"
    )
    if manifest.labels is not None and named.cluster is not None:
        private[named.cluster] = f"a noisy label of the unit's cluster: {manifest.labels.in_words}"
    means = [f"`{name}`" for name in columns.outcomes]
    for place, name in enumerate(columns.outcomes):
        if name in columns.missing:
            means[place] += ", counted as 0 where it is missing"
    means += [f"whether `{name}` was observed" for name in columns.missing]
    for name, mean in zip(columns.debiased, means, strict=True):
        private[name] = f"a noisy number; its mean over many units estimates that of {mean}"
    return [
        PublishedColumn(name, "private", private[name])
        if name in private
        else PublishedColumn(name, "exact", exact[name])
        for name in columns.published
    ]


def outcomes_in_words(block: BlockTerms) -> list[str]:
    """What was measured of each unit in a block: outcomes, combinations, further metrics."""
    declared = block.outcomes.declared
    return [
        *map(_in_words, block.outcomes.categories().declared.outcomes),
        *(
            f"By definition `{one}`: where the left side holds, so does the right."
            for one in declared.implications
        ),
        *(f"Also measured: `{one}`." for one in declared.metrics),
    ]


def _in_words(outcome: Outcome) -> str:
    space = outcome.space
    if isinstance(space, Number):
        text = (
            f"a number from {shown(space.low)} to {shown(space.high)}. Numbers beyond count as "
            "the nearest end, so effects are on the clipped number"
        )
    elif space.edges is not None:
        text = (
            f"bins with edges {_listed(space.edges)}. A value counts as its bin's: "
            f"{_listed(space.values)}"
        )
    elif space.names is not None:
        text = space.in_words
    else:
        text = f"one of {_listed(space.values)}"
    missing = (
        " It may be missing, and who has it is private, too." if outcome.may_be_missing else ""
    )
    return f"`{outcome.name}`: {text}.{missing}"


def _listed(values: tuple[float, ...]) -> str:
    texts = list(map(shown, values))
    if len(texts) > _MOST_VALUES:
        texts = [*texts[: _MOST_VALUES - 2], "…", texts[-1]]
    return ", ".join(texts)
