"""How rows are used with no software of ours: means and standard errors in SQL, pandas and R."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.storage.files import UNIT_PARTS, UNITS

if TYPE_CHECKING:
    from collections.abc import Collection

    from clusterdp.published.manifest import Manifest


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
    """The means of arms with their standard errors, of the first outcome."""

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
        fitted = f"aggregate({_r_name(first)} ~ {_r_name(arm)} + {_r_name(group)}, units, mean)"
        counted_as = "groups"
    return Recipes(
        sql=f"""select {in_sql}, avg({first_sql}) as mean,
       stddev({first_sql}) / sqrt(count(*)) as std_error, count(*) as {counted_as}
from {source}
group by {in_sql}
order by {in_sql};""",
        pandas=f"""import pandas as pd
units = pd.read_parquet("{rows.glob.split("/")[0]}")
mine = units  # .merge(my_segments, on={columns.unit!r})
arms = {table}.groupby({arm!r})[{first!r}]
print(arms.agg(["mean", "sem", "size"]))""",
        in_r=f"""units <- as.data.frame(arrow::{rows.in_r})
fit <- lm({_r_name(first)} ~ factor({_r_name(arm)}), data = {fitted})
coefficients(fit)
sqrt(diag(sandwich::vcovHC(fit, "HC2")))""",
    )


def sql_name(name: str) -> str:
    """A name as SQL reads it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def _r_name(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "\\`") + "`"
