"""Files with one JSON object per line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._named import column, columns

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from clusterdp.engines.named_source import Wanted


def open_lines(files: list[Path] | list[str], wanted: Wanted) -> pl.LazyFrame:
    """A query over the rows of files.

    Outcomes are there in every file, after all other columns: whether a line names one, and where,
    can follow from outcomes. Where a line does not, its outcome is missing. They are text.
    """
    import polars as pl

    found = {name: k for name, k in _types(files, wanted).items() if name not in wanted.outcomes}
    schema = {name: kind for name, kind in found.items() if wanted.is_public(name)}
    schema |= dict.fromkeys(wanted.outcomes, pl.String())
    # Read it whole once: a pass over some columns alone does not notice a line that is broken.
    rows = pl.scan_ndjson(files, schema=schema)
    rows.select(pl.all().null_count()).collect(engine="streaming")
    unread = [pl.lit(None).alias(name) for name in found if name not in schema]
    return rows.with_columns(unread).select(columns((*found, *wanted.outcomes)))


def _types(files: list[Path] | list[str], wanted: Wanted) -> dict[str, pl.DataType]:
    """The types of public columns, from all rows, whatever other columns hold."""
    import polars as pl

    try:
        found = pl.scan_ndjson(files, infer_schema_length=None).collect_schema()
    except pl.exceptions.SchemaError:
        # Some column mixes objects, lists and values. It may be an outcome, which decides nothing.
        if wanted.public is None:
            raise
        found = pl.Schema(
            {name: kind for name in wanted.public if (kind := _type_of(files, name)) is not None}
        )
    return {name: pl.Int64() if kind == pl.Null else kind for name, kind in found.items()}


def _type_of(files: list[Path] | list[str], name: str) -> pl.DataType | None:
    """The first type that all values of a column have; None if there is no value."""
    import polars as pl

    def read(kind: pl.DataType) -> pl.DataFrame:
        rows = pl.scan_ndjson(files, schema={name: kind})
        return rows.select(column(name).count()).collect(engine="streaming")

    if not read(pl.String()).item():
        return None
    for kind in (pl.Int64(), pl.Float64(), pl.Boolean()):
        try:
            read(kind)
        except pl.exceptions.ComputeError:
            continue
        return kind
    return pl.String()
