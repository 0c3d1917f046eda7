"""Text files with a header: CSV and TSV, compressed or not, with any delimiter.

Polars decompresses them as it reads, in memory of a fixed size: nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp.engines.local.sources.values import to_number
from clusterdp.engines.text_files import find_delimiter

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.engines.local.sources.objects import Located
    from clusterdp.engines.named_source import Wanted


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
        """A query over their rows, with the types of public columns from all of these rows."""
        import polars as pl

        names = self._scan(infer_schema=False).collect_schema().names()
        public = [name for name in names if wanted.is_public(name)]
        whole = self._written_as_whole(public)
        # From all rows: of an event table, how many come first follows from events.
        n_files = len(self.files.paths)
        found = self._scan(infer_schema_length=None, infer_schema_files=n_files).collect_schema()
        texts = [name for name in public if found[name].is_integer() and name not in whole]
        texts += [name for name in public if name == wanted.unit and not found[name].is_integer()]
        texts += [name for name in wanted.outcomes if name in found]
        schema = {**found, **dict.fromkeys(texts, pl.String())}
        rows = self._scan(schema_overrides=schema, infer_schema=False)
        return rows.with_columns(
            to_number(pl.col(name)) for name in wanted.numeric if name in names
        )

    def _written_as_whole(self, public: list[str]) -> set[str]:
        """The public columns whose values are all written as whole numbers are: 7, and not 007.

        All files are read whole, as text: a row with too many fields would shift values into other
        columns, and a pass over some columns alone does not notice.
        """
        import polars as pl

        def is_whole(name: str) -> pl.Expr:
            text = pl.col(name)
            return (text.cast(pl.Int64, strict=False).cast(pl.String) == text).fill_null(
                text.is_null()
            )

        checks = [is_whole(name).all().alias(f"is_whole:{name}") for name in public]
        counts = pl.all().null_count().name.prefix("n_missing:")
        query = self._scan(infer_schema=False).select(counts, *checks)
        found = query.collect(engine="streaming").row(0, named=True)
        return {name for name in public if found[f"is_whole:{name}"]}

    def _scan(self, **options: Any) -> pl.LazyFrame:
        import polars as pl

        return pl.scan_csv(
            self.files.paths, glob=False, separator=self.delimiter, **self.files.reach, **options
        )
