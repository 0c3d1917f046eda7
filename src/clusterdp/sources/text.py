"""Text files: CSV and TSV with a header and any delimiter, and files of one JSON object per line.

Polars decompresses them as it reads, in memory of a fixed size: nothing is stored. How they are
called, and what separates their fields, is what all engines know of them.
"""

from __future__ import annotations

import gzip
import re
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from clusterdp._named import column, columns

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.sources.source import ColumnRequest

    # Files on a disk or in a store, and the arguments that Polars needs to read them there.
    FoundFiles = tuple[list[Path] | list[str], dict[str, Any]]


def open_lines(files: list[Path] | list[str], wanted: ColumnRequest) -> pl.LazyFrame:
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


def _types(files: list[Path] | list[str], wanted: ColumnRequest) -> dict[str, pl.DataType]:
    """The types of public columns, from all rows, for any content of other columns."""
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


TEXT = (".csv", ".tsv")
LINES = (".ndjson", ".jsonl")
COMPRESSED = (".gz", ".zst")
# What may separate fields, the usual one first.
_DELIMITERS = (",", ";", "\t", "|")


def find_delimiter(header: str) -> str:
    """The delimiter that occurs most often in a header, outside of quotes; a comma if none does.

    Only the names of columns are looked at: a delimiter that was found from rows would follow from
    outcomes.
    """
    names = re.sub(r'"[^"]*"', "", header)
    return max(_DELIMITERS, key=names.count)


def first_line(files: FoundFiles) -> str:
    """The first line of the first file: of a text file its header, and nothing of its rows."""
    import polars as pl

    paths, reach = files
    suffix = "" if reach else PurePath(paths[0]).suffix.lower()
    if suffix in {*TEXT, *LINES, ".gz"}:
        with gzip.open(paths[0]) if suffix == ".gz" else Path(paths[0]).open("rb") as file:
            return file.readline().decode("utf-8-sig").rstrip("\r\n")
    lines = pl.scan_lines(paths[0], n_rows=1, glob=False, **reach).collect().to_series()
    return lines[0] if len(lines) else ""


# How values of public columns are written.
_DIGITS = r"^-?\d+$"
_NUMBER = r"^[-+]?((\d*\.\d+)([eE][-+]?\d+)?|inf|NaN|\d+[eE][-+]?\d+|\d+\.)$"
_TRUTH = r"^(?i:true|false)$"


def open_text(files: FoundFiles, delimiter: str, wanted: ColumnRequest) -> pl.LazyFrame:
    """A query over the rows of text files, with types of public columns from all of these rows.

    Outcomes are text.
    """
    import polars as pl

    paths, reach = files
    scan = partial(pl.scan_csv, paths, glob=False, separator=delimiter, **reach)
    texts = scan(infer_schema=False)
    names = texts.collect_schema().names()
    found = _written_types(texts, [name for name in names if wanted.is_public(name)])
    if wanted.unit in found and not found[wanted.unit].is_integer():
        found[wanted.unit] = pl.String()
    return scan(schema={**dict.fromkeys(names, pl.String()), **found})


def _written_types(texts: pl.LazyFrame, public: list[str]) -> dict[str, pl.DataType]:
    """The types of public columns: the first one that all of their values are written as.

    From all rows: of an event table, how many come first follows from events. Polars would find
    types from a copy of a store's files, which it leaves on this machine's disk.

    All files are read whole, as text: a row with too many fields would shift values into other
    columns, and a pass over some columns alone does not notice.
    """
    import polars as pl

    kinds = {"whole": pl.Int64(), "number": pl.Float64(), "truth": pl.Boolean()}
    checks = [
        check.all().alias(f"{kind}:{place}")
        for place, name in enumerate(public)
        for kind, check in _written_as(column(name)).items()
    ]
    counts = pl.all().null_count().name.prefix("n_missing:")
    found = texts.select(counts, *checks).collect(engine="streaming").row(0, named=True)
    return {
        name: next(
            (type_ for kind, type_ in kinds.items() if found[f"{kind}:{place}"]), pl.String()
        )
        for place, name in enumerate(public)
    }


def _written_as(text: pl.Expr) -> dict[str, pl.Expr]:
    """Whether each value is missing, or written as a whole number (7, not 007), number or truth.

    Numbers that are whole but for leading zeros are text, and so are columns that hold nothing.
    """
    import polars as pl

    is_whole = text.cast(pl.Int64, strict=False).cast(pl.String) == text
    digits = text.str.contains(_DIGITS)
    some = text.is_not_null().any()
    is_number = text.str.contains(_NUMBER) | digits
    return {
        "whole": is_whole.fill_null(text.is_null()) & some,
        "number": is_number.fill_null(value=True) & (~digits).any(),
        "truth": text.str.contains(_TRUTH).fill_null(value=True) & some,
    }
