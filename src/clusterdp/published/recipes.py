"""How rows are used with no software of ours: means and standard errors in SQL, pandas and R."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.storage.files import UNIT_PARTS, UNITS

if TYPE_CHECKING:
    from collections.abc import Collection

    from clusterdp.published.manifest import Label, Manifest


class RowFiles(NamedTuple):
    """The files of rows: a name for people, one for SQL, and how R reads them."""

    name: str
    glob: str
    in_r: str

    @classmethod
    def of(cls, files: Collection[str]) -> RowFiles:
        """From the names of files, those of other files among them or not."""
        if UNITS in files:
            return cls(UNITS, UNITS, f'read_parquet("{UNITS}")')
        return cls(f"{UNIT_PARTS}/", f"{UNIT_PARTS}/*.parquet", f'open_dataset("{UNIT_PARTS}")')


class Recipes(NamedTuple):
    """The first outcome: the means of arms in SQL, the effects in pandas and R."""

    sql: str
    pandas: str
    in_r: str


def recipes(manifest: Manifest, rows: RowFiles) -> Recipes:
    """How to compare arms; by means of groups, where these were assigned as a whole."""
    columns, first = manifest.columns, manifest.to_columns().debiased[0]
    arm, group = columns.arm, columns.assigned_by
    in_sql, first_sql = sql_name(arm), sql_name(first)
    source, table, fitted, counted_as = f"'{rows.glob}'", "mine", "units", "units"
    if group is not None:
        # One row per group: units of a group were not assigned one by one.
        source = (
            f"(select {in_sql}, {sql_name(group)}, avg({first_sql}) as {first_sql}\n"
            f"      from '{rows.glob}' group by all)"
        )
        table = f"mine.groupby([{arm!r}, {group!r}], as_index=False)[{first!r}].mean()"
        fitted = f"aggregate({_r_name(first)} ~ arm + {_r_name(group)}, units, mean)"
        counted_as = "groups"
    place = [repr(one) for one in manifest.arms].index(repr(manifest.control))
    return Recipes(
        sql=f"""select {in_sql}, avg({first_sql}) as mean,
       stddev({first_sql}) / sqrt(count(*)) as std_error, count(*) as {counted_as}
from {source}
group by {in_sql}
order by {in_sql};""",
        pandas=f"""import pandas as pd
units = pd.read_parquet("{rows.glob.split("/")[0]}")
mine = units  # .merge(my_segments, on={columns.unit!r})
arms = {table}.groupby({arm!r})[{first!r}].agg(["mean", "sem", "size"])
control = arms.iloc[{place}]  # {manifest.control!r}
arms["effect"] = arms["mean"] - control["mean"]
arms["std_error"] = (arms["sem"] ** 2 + control["sem"] ** 2) ** 0.5
print(arms.drop(index=control.name))""",
        in_r=f"""units <- as.data.frame(arrow::{rows.in_r})
units$arm <- relevel(factor(units${_r_name(arm)}), ref = {_r_text(manifest.control)})
fit <- lm({_r_name(first)} ~ arm, data = {fitted})
coefficients(fit)  # beside control's mean, the effects
sqrt(diag(sandwich::vcovHC(fit, "HC2")))""",
    )


def sql_name(name: str) -> str:
    """A name as SQL reads it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def _r_text(label: Label) -> str:
    """A label as R writes the level of a factor."""
    return json.dumps(str(label).upper() if isinstance(label, bool) else str(label))


def _r_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return name if name.isidentifier() else f"`{escaped}`"
