"""Text files with a header: CSV and TSV, compressed or not, with any delimiter.

Polars decompresses them as it reads, in memory of a fixed size: nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._named import column
from clusterdp.engines.text_files import find_delimiter

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.engines.local.sources.objects import Located
    from clusterdp.engines.named_source import Wanted

# How values of public columns are written.
_DIGITS = r"^-?\d+$"
_NUMBER = r"^[-+]?((\d*\.\d+)([eE][-+]?\d+)?|inf|NaN|\d+[eE][-+]?\d+|\d+\.)$"
_TRUTH = r"^(?i:true|false)$"


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Text files of the same columns.

    Attributes:
        files: The files.
        delimiter: What separates fields.
    """

    files: Located
    delimiter: str

    @classmethod
    def of(cls, files: Located, delimiter: str | None) -> TextFiles:
        """Some files; if no delimiter is given, the header of the first one tells it."""
        import polars as pl

        if delimiter is None:
            lines = (
                pl.scan_lines(files.paths[0], n_rows=1, glob=False, **files.reach)
                .collect()
                .to_series()
            )
            delimiter = find_delimiter(lines[0] if len(lines) else "")
        return cls(files, delimiter)

    def open(self, wanted: Wanted) -> pl.LazyFrame:
        """A query over their rows, with the types of public columns from all of these rows.

        Outcomes are text.
        """
        import polars as pl

        names = self._scan(infer_schema=False).collect_schema().names()
        public = [name for name in names if wanted.is_public(name)]
        found = self._types(public)
        if wanted.unit in found and not found[wanted.unit].is_integer():
            found[wanted.unit] = pl.String()
        return self._scan(schema={**dict.fromkeys(names, pl.String()), **found})

    def _types(self, public: list[str]) -> dict[str, pl.DataType]:
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
        query = self._scan(infer_schema=False).select(counts, *checks)
        found = query.collect(engine="streaming").row(0, named=True)
        return {
            name: next(
                (type_ for kind, type_ in kinds.items() if found[f"{kind}:{place}"]), pl.String()
            )
            for place, name in enumerate(public)
        }

    def _scan(self, **options: Any) -> pl.LazyFrame:
        import polars as pl

        return pl.scan_csv(
            self.files.paths, glob=False, separator=self.delimiter, **self.files.reach, **options
        )


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
