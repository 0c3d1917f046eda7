"""The README of a published folder: what it is, and how to use it with no software of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp._words import counted
from clusterdp.published.manifest import what_is_public
from clusterdp.storage.files import UNIT_PARTS, UNITS

if TYPE_CHECKING:
    from collections.abc import Collection


def write_readme(manifest: dict[str, Any], row_files: Collection[str]) -> str:
    """The text, from a manifest and the names of the files of rows."""
    columns, outcome = manifest["columns"], manifest["outcome"]["name"]
    head = f"""# {outcome}: a private release of a randomized experiment

{_what(manifest)}

**Privacy.** {manifest["guarantee"]["in_words"]} {what_is_public(manifest["row_order"])}

Outcomes are one of {_values(manifest)}.
"""
    notes = "".join(f"- {note}\n" for note in manifest["notes"])
    body = (
        _rows(columns, manifest["mechanism"], _row_names(row_files))
        if manifest["mechanism"]["rows"]
        else _aggregates(manifest)
    )
    return head + (f"\nNotes:\n{notes}" if notes else "") + body


def _what(manifest: dict[str, Any]) -> str:
    arms = ", ".join(str(arm) for arm in manifest["arms"])
    return (
        f"{counted(manifest['n_units'], 'unit')} in {counted(manifest['n_clusters'], 'cluster')}, "
        f"with arms {arms} "
        f"(control: {manifest['control']}). Released by {manifest['mechanism']['name']}, with "
        f"{manifest['software']}."
    )


def _values(manifest: dict[str, Any]) -> str:
    outcome = manifest["outcome"]
    shown = [f"{value:g}" for value in outcome["values"][:12]]
    more = len(outcome["values"]) - len(shown)
    text = ", ".join(shown) + (f" and {more} more" if more else "")
    if outcome["edges"]:
        text += f" (each stands for a bin; edges: {', '.join(f'{e:g}' for e in outcome['edges'])})"
    return text


def _row_names(row_files: Collection[str]) -> tuple[str, str, str]:
    """The rows in words, and as a database and a reader of files know them."""
    if UNITS in row_files:
        return f"`{UNITS}`", UNITS, f'read_parquet("{UNITS}")'
    return f"`{UNIT_PARTS}/`", f"{UNIT_PARTS}/*.parquet", f'open_dataset("{UNIT_PARTS}")'


def _rows(columns: dict[str, Any], mechanism: dict[str, Any], names: tuple[str, str, str]) -> str:
    arm, cluster, unit = columns["arm"], columns["cluster"], columns["unit"]
    rows, glob, in_r = names
    in_sql = '"' + arm.replace('"', '""') + '"'
    kept = "".join(f", `{name}`" for name in columns["kept"])
    return f"""
## Files
- {rows}: one row per unit: `{unit}`, `{arm}`, `{cluster}`{kept}, `released_outcome` and
  `debiased_outcome`.
{_files(mechanism)}
- `manifest.json`: all of this for programs, with checksums.

## Use it
**A mean of `debiased_outcome` is an unbiased mean of the true outcome**, over all units or over any
group of them that was not chosen by looking at outcomes. Use it like any outcome; its spread, and
so any ordinary standard error, includes the noise of privacy. A single value says next to nothing:
it can lie far outside the range of outcomes.

SQL (DuckDB):
```sql
select {in_sql}, avg(debiased_outcome) as mean,
       stddev(debiased_outcome) / sqrt(count(*)) as std_error, count(*) as units
from '{glob}'
group by {in_sql}
order by {in_sql};
```

pandas:
```python
import pandas as pd
units = pd.read_parquet("{glob.split("/")[0]}")
mine = units  # .merge(my_segments, on={unit!r})
arms = mine.groupby({arm!r}).debiased_outcome
print(arms.agg(["mean", "sem", "size"]))
```

R:
```r
units <- as.data.frame(arrow::{in_r})
fit <- lm(debiased_outcome ~ factor({_r_name(arm)}), data = units)
coefficients(fit)
sqrt(diag(sandwich::vcovHC(fit, "HC2")))
```

With clusterdp, compared within clusters, with intervals and segments{_better(mechanism)}:
```
clusterdp estimate .
```
"""


def _files(mechanism: dict[str, Any]) -> str:
    """What the columns are that depend on the mechanism."""
    told = []
    if mechanism["summary"] is not None:
        told.append("noisy counts of each outcome (`noisy_counts`)")
    if mechanism["sums"] is not None:
        told.append("the noisy sum of its outcomes (`noisy_sum`)")
    if "epsilon" in mechanism["rows"]:
        told.append("and the channel its rows went through")
        return (
            "  `released_outcome` is a number and not one of the outcomes: it is the debiased\n"
            "  outcome itself.\n"
            f"- `cells.parquet`: one row per cluster and arm: its size, {', '.join(told)}.\n"
            "- `channels.parquet`: of each channel and output, P(output given each outcome) × 2^48."
        )
    told.append("the prior that outcomes were redrawn from, and what each counts as (`decode`)")
    return (
        "  `released_outcome` is the outcome after randomization.\n"
        f"- `cells.parquet`: one row per cluster and arm: its size, {', '.join(told)}."
    )


def _better(mechanism: dict[str, Any]) -> str:
    if mechanism["sums"] is None and mechanism["summary"] is None:
        return ""
    return ",\nand more precisely than from rows alone, by what `cells.parquet` tells"


def _aggregates(manifest: dict[str, Any]) -> str:
    statistic = manifest["mechanism"]["summary"]["statistic"]
    what = (
        "`noisy_counts`: how many units have each outcome, with noise"
        if statistic == "counts"
        else "`noisy_contrast`: the difference of the cell's mean from control's, with noise"
    )
    return f"""
## Files
- `cells.parquet`: one row per cluster and arm: its size, and {what}.
- `manifest.json`: all of this for programs, with checksums.

This release holds aggregates alone. `clusterdp estimate .` gives effects with intervals.
"""


def _r_name(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "\\`") + "`"
