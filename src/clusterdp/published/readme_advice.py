"""What the README of a folder says of its columns: what they are not for, and queries on sums."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.experiment.decimals import shown
from clusterdp.experiment.expressions import quoted
from clusterdp.experiment.number import Number
from clusterdp.experiment.published_names import BLOCK, block_suffixes
from clusterdp.published.recipes import sql_name

if TYPE_CHECKING:
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.published.manifest import Manifest


class Caution(NamedTuple):
    """What gives wrong answers, why, and the command that gives a right one."""

    what: str
    why: str
    instead: str


def cautions(manifest: Manifest) -> list[Caution]:
    """What gives wrong answers, why, and the command that gives a right one.

    Examples are of the outcome with the most levels among those that cannot be missing, as
    quantiles are of such alone. If there is none, means take the place of quantiles.
    """
    columns = manifest.to_columns()
    every = [one for space in manifest.terms.spaces for one in space.declared.outcomes]
    whole = [one for one in every if not one.may_be_missing]
    example = max(whole or every, key=lambda one: _n_values(one.space))
    name = quoted(example.name)
    column = columns.debiased[columns.outcomes.index(example.name)]
    level = _level_between(example.space)
    of_quantile, of_distribution = (f"p90({name})", f"dist({name})") if whole else (name, name)
    response = columns.responses[0]
    held = "--holdout 1" if manifest.folds > 1 else "--rows-only --by MINE"
    split = "train on fold 0" if manifest.folds > 1 else "train on other units than you estimate on"
    return [
        *_label_cautions(manifest),
        Caution(
            f"a median, quantile or maximum of a private column, such as `{column}`",
            "the noise of privacy decides it, not the outcomes",
            f"clusterdp estimate . --metric {shlex.quote(of_quantile)}"
            + ("  # p50 is the median" if whole else ""),
        ),
        Caution(
            "a histogram, or a count of values",
            "a value is what a response counts as, and not an outcome",
            f"clusterdp estimate . --metric {shlex.quote(of_distribution)}",
        ),
        Caution(
            f"a threshold, such as `{column} >= {level}`",
            "a noisy value beyond it is no outcome beyond it",
            f"clusterdp estimate . --metric {shlex.quote(f'{name}>={level}')}",
        ),
        Caution(
            "a logarithm, a square, a ratio or a product of values, row by row",
            "the mean of a function of noisy values is not that of the outcomes",
            f"clusterdp estimate . --metric METRIC  # such as {name}*other, {name}/other",
        ),
        Caution(
            f"rows that are kept, dropped, sorted or grouped by it or by `{response}`",
            "they were chosen by their noise, so their means are biased",
            "clusterdp estimate . --by COLUMN  # a column that does not depend on outcomes",
        ),
        Caution(
            "segments, covariates or a model chosen and tested on the same rows",
            "the test meets the noise that the choice was made by",
            f"clusterdp estimate . {held}  # {split}",
        ),
    ]


def _label_cautions(manifest: Manifest) -> list[Caution]:
    """What noisy labels of private clusters do not tell; nothing where clusters are public."""
    if manifest.labels is None:
        return []
    cluster = manifest.columns.cluster
    of_groups = Caution(
        f"rows that are grouped by `{cluster}`, or a regression on it",
        "it holds noisy labels, so every group mixes all true clusters",
        f"clusterdp estimate . --by {shlex.quote(str(cluster))}",
    )
    if manifest.assignment is None:
        return [of_groups]
    of_arms = Caution(
        "plain means of arms, without weights",
        "arms had different probabilities in true clusters, so plain means are biased",
        "clusterdp estimate .  # or rows of clusterdp calibrate, with stratified_weight",
    )
    return [of_arms, of_groups]


def _n_values(space: OutcomeSpace | Number) -> float:
    """How many values an outcome can have."""
    return math.inf if isinstance(space, Number) else len(space.values)


def _level_between(space: OutcomeSpace | Number) -> str:
    """A value of an outcome that is not its least: half way of a number, else one in the middle."""
    if isinstance(space, Number):
        return shown((space.low + space.high) / 2)
    return shown(space.values[len(space.values) // 2])


def sum_queries(manifest: Manifest, rows: str) -> str:
    """Means of a block's first metric from noisy sums, in SQL; nothing if there are no sums.

    Args:
        manifest: Of the release. Of several blocks, queries are on the first one with sums.
        rows: The files of rows, as a name in SQL.
    """
    for place, block in enumerate(manifest.blocks):
        declared = block.outcomes.categories().declared
        if manifest.assignment is not None or declared.observed_place(0) is not None:
            continue  # Means need weights of rows, or are ratios.
        queries = [
            query
            for query in (_of_cells(manifest, place), _of_totals(manifest, place, rows))
            if query
        ]
        if queries:
            metrics = ", ".join(f"`{one}`" for one in declared.metrics)
            listed = "\n".join(f"```sql\n{query}\n```" for query in queries)
            return f"""
Noisy sums are in the units of their metrics, one number for each: {metrics}. They have less noise
than a sum over rows, and no spread that would give a standard error. Means of cells count by the
sizes of clusters. In totals, a unit counts as often as the `weight` of its cell says.

{listed}
"""
    return ""


def _of_cells(manifest: Manifest, place: int) -> str | None:
    """The query on the sums of cells of a block; None if it has none."""
    block, ending = manifest.blocks[place], block_suffixes(len(manifest.blocks))[place]
    space, arm = block.outcomes.categories(), sql_name(manifest.columns.arm)
    of_cells = (one for one in block.mechanism.statistics if one.level is None)
    if not any("noisy_sum" in one.column_types(space) for one in of_cells):
        return None
    mean, source = f"sum(noisy_sum{ending}[1]) / sum(size)", "'cells.parquet'"
    if manifest.columns.cluster is not None:
        mean = f"sum(whole * noisy_sum{ending}[1] / size) / sum(whole)"
        within = f"over (partition by {sql_name(manifest.columns.cluster)})"
        source = f"""(
    select *, sum(size) {within} as whole
    from 'cells.parquet'
    qualify count(nullif(size, 0)) {within} = {len(manifest.arms)}  -- has every arm
)"""
    return f"""select {arm}, {mean} as mean
from {source}
group by {arm}
order by {arm};"""


def _of_totals(manifest: Manifest, place: int, rows: str) -> str | None:
    """The query on the totals of everyone of a block; None if it has none."""
    if not any(one.level == () for one in manifest.blocks[place].mechanism.statistics):
        return None
    arm, columns = sql_name(manifest.columns.arm), manifest.to_columns()
    cells = ", ".join(map(sql_name, columns.cell))
    keys = ", ".join([*(["fold"] if manifest.folds > 1 else []), arm])
    several = f" and {BLOCK} = {place + 1}" if columns.n_blocks > 1 else ""
    return f"""with sizes as (
    select {keys}, sum(weight{block_suffixes(columns.n_blocks)[place]}) as size
    from '{rows}' join 'cells.parquet' using ({cells})
    group by {keys}
)
select {arm}, sum(noisy_sum[1]) / sum(size) as mean
from 'totals.parquet' join sizes using ({keys})
where "by" = ''{several}
group by {arm}
order by {arm};"""
