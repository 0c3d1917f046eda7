"""The README of a published folder: what it is, and how to use it with no software of ours."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from clusterdp._tables import aligned
from clusterdp.experiment.layout import units_in_words
from clusterdp.privacy.accounting import shown
from clusterdp.published.manifest import what_is_public
from clusterdp.published.readme_advice import cautions, sql_name, sum_queries
from clusterdp.storage.files import UNIT_PARTS, UNITS

if TYPE_CHECKING:
    from collections.abc import Collection

    from clusterdp.published.manifest import Manifest
    from clusterdp.published.sights import Visible
    from clusterdp.published.terms import BlockTerms

_WIDTH = 80
_BLOCKS = (
    "They are released in blocks, each with a channel, noise and a share of epsilon of its own. "
    "Columns of a block end with its number, as in `response_1`; in `totals.parquet` and "
    "`channels.parquet` a column `block` holds it."
)


def write_readme(manifest: Manifest, row_files: Collection[str], seen: Visible) -> str:
    """The text.

    Args:
        manifest: Of the release.
        row_files: The names of the files of rows.
        seen: What to expect of effects.
    """
    names = ", ".join(manifest.to_columns().outcomes)
    head = f"""# {names}: a private release of a randomized experiment

{_what(manifest)}

**Privacy.** {manifest.guarantee.in_words} {what_is_public(manifest.row_order)}

{_outcomes(manifest)}
"""
    notes = "".join(f"- {note}\n" for note in manifest.notes)
    if manifest.terms.releases_rows:
        body = _rows(manifest, _row_names(row_files))
    else:
        body = _aggregates(manifest)
    return head + (f"\nNotes:\n{notes}" if notes else "") + body + _visible(seen)


def _what(manifest: Manifest) -> str:
    arms = ", ".join(str(arm) for arm in manifest.arms)
    return (
        f"{units_in_words(manifest.n_units, manifest.n_clusters)}, "
        f"with arms {arms} (control: {manifest.control}). Released by "
        f"{manifest.terms.mechanism_names}, with {manifest.software}."
    )


def _outcomes(manifest: Manifest) -> str:
    """The declared outcomes, what is impossible, and what is measured."""
    how = "declared" if manifest.before_look is None else "declared, and then clipped by a look"
    lines = [f"Outcomes, as they were {how}:", ""]
    for block in manifest.blocks:
        lines += _block_outcomes(block)
    if len(manifest.blocks) > 1:
        lines += ["", *textwrap.wrap(_BLOCKS, _WIDTH), ""]
        lines += [
            f"{place}. {', '.join(f'`{name}`' for name in block.names)}: epsilon = "
            f"{shown(block.epsilon)}"
            for place, block in enumerate(manifest.blocks, start=1)
        ]
    return "\n".join(lines)


def _block_outcomes(block: BlockTerms) -> list[str]:
    """What is declared of a block."""
    declared, lines = block.outcomes.declared, []
    for outcome in declared.outcomes:
        is_number = outcome.name in block.outcomes.grids
        clipped = "; numbers beyond the range count as its nearest end" if is_number else ""
        missing = "; it may be missing, and who has it is private" if outcome.may_be_missing else ""
        lines.append(f"- `{outcome.name}`: {outcome.space}{clipped}{missing}")
    lines += [f"- impossible unless `{one}`" for one in declared.implications]
    lines += [f"- also measured: `{one}`" for one in declared.metrics]
    return lines


def _row_names(row_files: Collection[str]) -> tuple[str, str, str]:
    """The files of rows, as they are named in words, in SQL and in R."""
    if UNITS in row_files:
        return f"`{UNITS}`", UNITS, f'read_parquet("{UNITS}")'
    return f"`{UNIT_PARTS}/`", f"{UNIT_PARTS}/*.parquet", f'open_dataset("{UNIT_PARTS}")'


def _rows(manifest: Manifest, names: tuple[str, str, str]) -> str:
    columns = manifest.columns
    arm, unit = columns.arm, columns.unit
    rows, glob, in_r = names
    in_sql = sql_name(arm)
    published = ", ".join(f"`{name}`" for name in manifest.to_columns().published)
    debiased = manifest.to_columns().debiased
    first = debiased[0]
    is_whole = manifest.to_columns().outcomes[0] not in manifest.to_columns().missing
    true = "the true outcome" if is_whole else "the true outcome, 0 where it is missing"
    first_sql = sql_name(first)
    source, table = f"'{glob}'", "mine"
    spread, fitted, counted_as = "and so any ordinary standard error, ", "units", "units"
    if columns.assigned_by is not None:
        # One row per group: units of a group were not assigned one by one.
        group = columns.assigned_by
        source = (
            f"(select {in_sql}, {sql_name(group)}, avg({first_sql}) as {first_sql}\n"
            f"      from '{glob}' group by all)"
        )
        table = f"mine.groupby([{arm!r}, {group!r}], as_index=False)[{first!r}].mean()"
        spread, counted_as = "", "groups"
        fitted = f"aggregate({_r_name(first)} ~ {_r_name(arm)} + {_r_name(group)}, units, mean)"
    return f"""
## Files
- {rows}: one row per unit: {published}.
{_files(manifest)}
- `manifest.json`: all of this for programs, with checksums.

## Use it
**A mean of `{first}` is an unbiased mean of {true}**, over all units or over
any group of them that was not chosen by looking at outcomes. Use it like any outcome; its spread,
{spread}includes the noise of privacy. It is right for means and for
nothing else (see below), and values can lie far outside the range of
outcomes.{_missing(manifest)}{_assigned(manifest)}

SQL (DuckDB):
```sql
select {in_sql}, avg({first_sql}) as mean,
       stddev({first_sql}) / sqrt(count(*)) as std_error, count(*) as {counted_as}
from {source}
group by {in_sql}
order by {in_sql};
```

pandas:
```python
import pandas as pd
units = pd.read_parquet("{glob.split("/")[0]}")
mine = units  # .merge(my_segments, on={unit!r})
arms = {table}.groupby({arm!r})[{first!r}]
print(arms.agg(["mean", "sem", "size"]))
```

R:
```r
units <- as.data.frame(arrow::{in_r})
fit <- lm({_r_name(first)} ~ factor({_r_name(arm)}), data = {fitted})
coefficients(fit)
sqrt(diag(sandwich::vcovHC(fit, "HC2")))
```

{sum_queries(manifest, glob)}
With clusterdp, compared within clusters, with intervals and segments{_better(manifest)}:
```
clusterdp estimate .
clusterdp calibrate . --out ../rows.parquet  # rows whose means in any tool are these
```
{cautions(manifest)}"""


def _missing(manifest: Manifest) -> str:
    """How outcomes are used that may be missing."""
    columns = manifest.to_columns()
    if not columns.missing:
        return ""
    name = columns.missing[0]
    above = columns.debiased[columns.outcomes.index(name)]
    below = columns.debiased[len(columns.outcomes)]
    return (
        f"\n\n**`{name}` may be missing.** Its mean among those who have it is a ratio of means:\n"
        f"of `{above}`, which is 0 where it is missing, over\n"
        f"`{below}`, whether it was observed: `avg(a) / avg(b)`, never `avg(a / b)`.\n"
        "Arms may differ in who is observed: `clusterdp estimate .` tests that, and gives bounds."
    )


def _assigned(manifest: Manifest) -> str:
    """A warning where arms were assigned to groups."""
    group = manifest.columns.assigned_by
    if group is None:
        return ""
    return (
        f"\n\n**Arms were assigned by `{group}`, not unit by unit.** Standard errors must be of\n"
        "how its groups differ: the recipes below compare means of groups."
    )


def _files(manifest: Manifest) -> str:
    """What the columns are that depend on the mechanism."""
    pairs = list(zip(manifest.terms.mechanisms, manifest.terms.spaces, strict=True))
    rows = [mechanism.settled_rows(space) for mechanism, space in pairs]
    statistics = [one for mechanism, _ in pairs for one in mechanism.statistics]
    of_cells = [one.in_words for one in statistics if one.level is None]
    cells = ", ".join(dict.fromkeys([*of_cells, *(one.cells_in_words for one in rows)]))
    per = "arm" if manifest.columns.cluster is None else "cluster and arm"
    parts = [
        *(f"  {text}" for text in dict.fromkeys(one.released_in_words for one in rows)),
        f"- `cells.parquet`: one row per {per}: its size, {cells}.",
    ]
    levels = list(dict.fromkeys(one.level for one in statistics if one.level is not None))
    if levels:
        of = ", ".join("of everyone" if not by else f"by {', '.join(by)}" for by in levels)
        parts.append(
            f"- `totals.parquet`: noisy totals {of}; of each group, fold and arm the sum of every\n"
            "  metric (`noisy_sum`), where a unit counts as often as the `weight` of its cell says."
        )
    if manifest.terms.look is not None:
        parts.append(
            "- `look.parquet`: how many units have outcomes in each bin, with noise; each bin by\n"
            "  the values at its lower ends. Ranges of numbers and the channel follow from it."
        )
    if any(mechanism.designs_rows for mechanism, _ in pairs):
        parts.append(
            "- `channels.parquet`: of each channel and response, what it counts as in each metric\n"
            "  (`decode`) and P(response given each category) × 2^48 (`weights`)."
        )
    return "\n".join(parts)


def _better(manifest: Manifest) -> str:
    if not any(mechanism.statistics for mechanism in manifest.terms.mechanisms):
        return ""
    return ",\nand more precisely than from rows alone, by the noisy statistics beside them"


def _aggregates(manifest: Manifest) -> str:
    statistics = (one for each in manifest.terms.mechanisms for one in each.statistics)
    what = ", ".join(dict.fromkeys(one.in_words for one in statistics))
    return f"""
## Files
- `cells.parquet`: one row per cluster and arm: its size, {what}.
- `manifest.json`: all of this for programs, with checksums.

This release holds aggregates alone. `clusterdp estimate .` gives effects with intervals.
"""


def _visible(seen: Visible) -> str:
    """What to expect of effects, metric by metric."""
    about = (
        f"Standard errors to expect of effects, {seen.assumed}. Detectable is the smallest effect "
        "that a two-sided 5% test finds with 80% probability. Of several arms, it is the least "
        "certain one."
    )
    parts = ["", "## What can be seen", *textwrap.wrap(about, _WIDTH)]
    for metric, rows in seen.tables().items():
        parts += ["", f"`{metric}`:", "```", *aligned(rows), "```"]
    return "\n".join(parts) + "\n"


def _r_name(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "\\`") + "`"
