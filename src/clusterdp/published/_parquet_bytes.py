"""Every byte of a Parquet file belongs to something: a page of a column, an index, the footer.

Readers go where a footer sends them, and see nothing of what stands between. So what a footer
names must fill the file, and pages must fill what it names. Pages hold one compressed piece each.
Polars repeats behind each column what the footer says of it. Of an index, that it is one is all
that is checked.

A footer is a struct of Thrift's compact protocol. A writer of a file can put more into it than
columns: key-value pairs, names of its parts, smallest and largest values. Readers show none of
that, so every text in it is accounted for here, from the bytes.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
from copy import deepcopy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import FormatError
from clusterdp.published._thrift import Compact, texts
from clusterdp.storage.folder import UNIT_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from clusterdp.storage.reading import Files


# Fields of the footer, by their numbers in Parquet's definition.
_FIELDS = range(1, 10)
_ROWS, _ROW_GROUPS, _PAIRS, _CREATED_BY = 3, 4, 5, 6
# Fields of a group of rows, of a column in it, and of what is said of the column.
_COLUMNS, _GROUP_ROWS = 1, 3
_COLUMN_META, _OFFSET_INDEX, _COLUMN_INDEX = 3, (4, 5), (6, 7)
_CODEC, _VALUES, _CHUNK_BYTES, _DATA, _DICTIONARY, _CHUNK_STATISTICS = 4, 5, 7, 9, 11, 12
# Fields of the header of a page.
_PAGE_FIELDS, _UNPACKED, _PACKED, _DATA_PAGE, _SECOND_KIND = range(1, 9), 2, 3, 5, 8
_LEVELS, _IS_PACKED, _STATISTICS = (5, 6), 7, {_DATA_PAGE: 5, _SECOND_KIND: 8}
_MAGIC, _ZSTD, _TRAILER = b"PAR1", 6, 8
# More bytes than the header of a page has, what is said of a column, and the footer of a billion
# rows; and more names than a schema has.
_MOST_OF_HEADER, _MOST_OF_COLUMN, _MOST_OF_FOOTER = 2**12, 2**20, 2**26
_MOST_NAMES = 100_000
# A frame of Zstandard (RFC 8878): its mark, sizes of its fields, and kinds of its blocks.
_FRAME = (0xFD2FB528).to_bytes(4, "little")
_CONTENT_BYTES, _DICTIONARY_BYTES = (0, 2, 4, 8), (0, 1, 2, 4)
_RUN, _RESERVED = 1, 3
# Parts of a column that holds lists, and of a file, as its writers call them.
_WORDS = {"root", "schema", "spark_schema", "list", "element", "item", "array", ""}
_POLARS = re.compile(r"Polars \(\w+\) version [\w.+-]{1,40} \(build [0-9a-f]{1,40}\)")
_SPARK = re.compile(r"parquet-mr version [\w.+-]{1,40} \(build [0-9a-f]{1,40}\)")
_SPARK_TYPE = re.compile(r"[a-z_]{1,20}(\(\d{1,3}(,\d{1,3})?\))?")
_VERSION = re.compile(r"[\d.]{1,20}")
# What goes wrong where bytes are not what they should be.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

LONG_VALUES = "has longer values than such a release has"


class _Range(NamedTuple):
    """A part of a file that a footer names.

    Attributes:
        start: Where it begins.
        n_bytes: How long it is.
        column: What the footer says of the column whose pages it holds; empty if it is an index.
    """

    start: int
    n_bytes: int
    column: dict[int, Any]


class ParquetBytes:
    """A Parquet file as bytes.

    Attributes:
        name: What it is called.
    """

    def __init__(self, name: str, size: int, part: Callable[[int, int], bytes]) -> None:
        """A file of so many bytes; `part` gives so many of them from an offset on."""
        self.name, self._size, self._part = name, size, part

    @classmethod
    def in_folder(cls, folder: Files, name: str) -> ParquetBytes:
        """A file of a folder, of which no more is read than is needed."""
        return cls(name, folder.size(name) or 0, partial(folder.part, name))

    @classmethod
    def in_memory(cls, name: str, content: bytes) -> ParquetBytes:
        """A file that was read."""
        return cls(name, len(content), lambda start, size: content[start : start + size])

    @cached_property
    def footer(self) -> tuple[int, dict[int, Any]]:
        """Where the footer begins, and its fields by their numbers.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: If it has no footer.
        """
        end = self._part(max(self._size - _TRAILER, 0), _TRAILER)
        length = int.from_bytes(end[:-4], "little")
        start = self._size - _TRAILER - length
        if end[-4:] != _MAGIC or length > _MOST_OF_FOOTER or start < 0:
            raise ValueError(length)
        fields = Compact(self._part(start, length)).whole()
        if not set(fields) <= set(_FIELDS):
            raise ValueError(fields)
        return start, fields

    @property
    def writer(self) -> str:
        """The software that it says it was written by, with its version."""
        return str(self.footer[1].get(_CREATED_BY, b"").decode())

    def unexplained(self, columns: Collection[str]) -> str | None:
        """What the file holds that columns of these names do not explain; None if nothing."""
        try:
            start, fields = self.footer
            if not self.is_filled(fields, start):
                return f"{self.name} has bytes that belong to none of its columns"
            problem = self._unknown_text(columns)
            pages = [one for one in _ranges(fields) if one.column]
            if any(self._unpacked(one) > most_unpacked(one.column[_VALUES]) for one in pages):
                problem = LONG_VALUES
        except _UNREADABLE:
            problem = "has metadata that cannot be read"
        return None if problem is None else f"{self.name} {problem}"

    def table_size(self) -> tuple[int, int, int]:
        """Rows, values of all columns together, and bytes that these unpack to.

        This is known before any of it is unpacked: a small file can hold billions of values. The
        footer states rows and values, and headers of pages the bytes.

        Raises:
            FormatError: If it is no Parquet file.
        """
        try:
            _, fields = self.footer
            groups = fields.get(_ROW_GROUPS, [])
            pages = [one for one in _ranges(fields) if one.column]
            n_rows = [fields[_ROWS], sum(group[_GROUP_ROWS] for group in groups)]
            n_values = [one.column[_VALUES] for one in pages]
            if min(*n_rows, *n_values) < 0:
                raise ValueError(self.name)
            return max(n_rows), sum(n_values), sum(map(self._unpacked, pages))
        except _UNREADABLE:
            raise FormatError(f"{self.name} is no Parquet file of ours") from None

    def is_filled(self, footer: dict[int, Any], footer_start: int) -> bool:
        """Whether the file holds what a footer names, and nothing between.

        Args:
            footer: The fields of the footer.
            footer_start: Where that begins.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: If bytes are not what they should
                be.
        """
        offset = len(_MAGIC)
        if self._part(0, offset) != _MAGIC:
            return False
        described: dict[int, Any] = {}
        for one in sorted(_ranges(footer), key=lambda held: held.start):
            offset += self._repeated(offset, one.start, described)
            if one.start != offset or one.n_bytes <= 0:
                return False
            if not one.column:
                Compact(self._part(one.start, one.n_bytes)).whole()
            elif not self._is_of_pages(one):
                return False
            offset, described = offset + one.n_bytes, one.column
        return offset + self._repeated(offset, footer_start, described) == footer_start

    def _repeated(self, start: int, end: int, described: dict[int, Any]) -> int:
        """How many bytes between two places repeat what the footer says of the column before."""
        if not described or start >= end:
            return 0
        reader = Compact(self._part(start, min(end - start, _MOST_OF_COLUMN)))
        return reader.offset if reader.struct() == described else 0

    def _pages(self, chunk: _Range) -> Iterator[tuple[int, dict[int, Any]]]:
        """Where each page of a column begins behind its header, and the header."""
        offset, end = chunk.start, chunk.start + chunk.n_bytes
        while offset < end:
            reader = Compact(self._part(offset, min(_MOST_OF_HEADER, end - offset)))
            header = reader.struct()
            if min(header[_UNPACKED], header[_PACKED]) < 0:
                raise ValueError(offset)
            yield offset + reader.offset, header
            offset += reader.offset + header[_PACKED]

    def _unpacked(self, chunk: _Range) -> int:
        """How many bytes the pages of a column unpack to, as their own headers say."""
        return sum(header[_UNPACKED] for _, header in self._pages(chunk))

    def _is_of_pages(self, chunk: _Range) -> bool:
        """Whether pages fill a part of a file."""
        codec = chunk.column[_CODEC]
        offset, end = chunk.start, chunk.start + chunk.n_bytes
        for start, header in self._pages(chunk):
            for key, statistics in _STATISTICS.items():
                header.get(key, {}).pop(statistics, None)  # as in the footer
            if not set(header) <= set(_PAGE_FIELDS) or any(texts(header)):
                return False
            levels, is_packed = _second_kind(header)
            packed, offset = header[_PACKED] - levels, start + header[_PACKED]
            if offset > end or levels < 0 or packed < 0:
                return False
            if not is_packed:
                whole = header[_UNPACKED] == header[_PACKED]
            else:
                whole = codec == _ZSTD and (
                    packed == 0 or is_frame(self._part(start + levels, packed))
                )
            if not whole:
                return False
        return offset == end

    def _unknown_text(self, columns: Collection[str]) -> str | None:
        """What the footer holds that columns do not explain; Spark writes rows in parts alone."""
        footer, writer = deepcopy(self.footer[1]), self.writer
        by_spark = self.name.startswith(f"{UNIT_PARTS}/") and _SPARK.fullmatch(writer) is not None
        if not by_spark and not _POLARS.fullmatch(writer):
            return "was written by software that is not known"
        for pair in footer.get(_PAIRS, ()):
            if not _is_known(pair[1].decode(), pair.get(2, b"").decode(), columns):
                return "has metadata that nothing explains"
        # Spark writes them whatever it is told; checksums alone cover them.
        held = [one.column.pop(_CHUNK_STATISTICS, None) for one in _ranges(footer) if one.column]
        if not by_spark and any(one is not None for one in held):
            return "has statistics of its columns, which are not part of a release"
        rest = {key: one for key, one in footer.items() if key not in (_PAIRS, _CREATED_BY)}
        if set(texts(rest)) - _WORDS - set(columns):
            return "has names in its metadata that no column has"
        return None


def writer_here() -> str:
    """The software that writes Parquet files here, with its version."""
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame({"one": [1]}).write_parquet(file)
    return ParquetBytes.in_memory("here", file.getvalue()).writer


def most_unpacked(n_values: int) -> int:
    """How many bytes so many values may unpack to: texts of 4,096 bytes, and a dictionary."""
    return 2**20 + 2**12 * n_values


def _ranges(footer: dict[int, Any]) -> Iterator[_Range]:
    for group in footer.get(_ROW_GROUPS, ()):
        for column in group[_COLUMNS]:
            held = column[_COLUMN_META]
            starts = [held[key] for key in (_DICTIONARY, _DATA) if key in held]
            # Some writers state that there is no dictionary by the offset 0.
            start = min(one for one in starts if one > 0)
            yield _Range(start, held[_CHUNK_BYTES], held)
            for start_key, size_key in (_OFFSET_INDEX, _COLUMN_INDEX):
                if start_key in column:
                    yield _Range(column[start_key], column[size_key], {})


def _second_kind(header: dict[int, Any]) -> tuple[int, bool]:
    """How many bytes before the values are not compressed, and whether the values are."""
    own = header.get(_SECOND_KIND)
    if own is None:
        return 0, True
    return sum(own[key] for key in _LEVELS), own.get(_IS_PACKED, True)


def is_frame(packed: bytes) -> bool:
    """Whether bytes are one frame of Zstandard: behind it, readers see nothing."""
    if packed[:4] != _FRAME:
        return False
    flags = packed[4]
    single, has_checksum = flags >> 5 & 1, flags >> 2 & 1
    content = 1 if single and not flags >> 6 else _CONTENT_BYTES[flags >> 6]
    offset = 5 + (not single) + _DICTIONARY_BYTES[flags & 3] + content
    is_last = False
    while not is_last:
        block = int.from_bytes(packed[offset : offset + 3], "little")
        is_last, kind = bool(block & 1), block >> 1 & 3
        if kind == _RESERVED or offset + 3 > len(packed):
            return False
        offset += 3 + (1 if kind == _RUN else block >> 3)
    return offset + 4 * has_checksum == len(packed)


def _is_known(key: str, value: str, columns: Collection[str]) -> bool:
    """Whether a pair is one that Polars or Spark writes, and holds names of columns alone."""
    match key:
        case "ARROW:schema":
            names = list(itertools.islice(_arrow_names(base64.b64decode(value)), _MOST_NAMES))
            return len(names) < _MOST_NAMES and set(names) <= _WORDS | set(columns)
        case "org.apache.spark.version":
            return _VERSION.fullmatch(value) is not None
        case "org.apache.spark.sql.parquet.row.metadata":
            found = json.loads(value)
            return set(found) == {"type", "fields"} and all(
                set(one) == {"name", "type", "nullable", "metadata"}
                and one["name"] in columns
                and one["metadata"] == {}
                and isinstance(one["nullable"], bool)
                and _SPARK_TYPE.fullmatch(one["type"])
                for one in found["fields"]
            )
    return False


class _Flat(NamedTuple):
    """A table of a flatbuffer."""

    content: bytes
    at: int

    def _number(self, at: int, n_bytes: int) -> int:
        if not 0 <= at <= len(self.content) - n_bytes:
            raise IndexError
        return int.from_bytes(self.content[at : at + n_bytes], "little")

    def field(self, index: int) -> int | None:
        """Where a field points to; None if the table does not have it."""
        back = int.from_bytes(self.content[self.at : self.at + 4], "little", signed=True)
        names = self.at - back
        if 4 + 2 * index >= self._number(names, 2):
            return None
        offset = self._number(names + 4 + 2 * index, 2)
        return self.follow(self.at + offset) if offset else None

    def follow(self, at: int) -> int:
        """Where a reference leads to."""
        return at + self._number(at, 4)

    def tables(self, index: int) -> Iterator[_Flat]:
        """The tables in a field that is a list of them."""
        start = self.field(index)
        if start is not None:
            for one in range(self._number(start, 4)):
                yield _Flat(self.content, self.follow(start + 4 + 4 * one))

    def text(self, index: int) -> str:
        """A field that is a text; empty if the table does not have it."""
        start = self.field(index)
        if start is None:
            return ""
        return self.content[start + 4 : start + 4 + self._number(start, 4)].decode()


def _arrow_names(message: bytes) -> Iterator[str]:
    """The names of all fields of an Arrow schema.

    Raises:
        ValueError: If the schema or a field has metadata.
    """
    content = message[8:]  # a mark and a length
    root = _Flat(content, int.from_bytes(content[:4], "little"))
    header = root.field(2)
    if header is None or root.field(4) is not None:
        raise ValueError(message)
    schema = _Flat(content, header)
    if schema.field(2) is not None:
        raise ValueError(message)
    yield from _field_names(schema.tables(1))


def _field_names(fields: Iterator[_Flat]) -> Iterator[str]:
    for one in fields:
        if one.field(6) is not None:
            raise ValueError(one)
        yield one.text(0)
        yield from _field_names(one.tables(5))
