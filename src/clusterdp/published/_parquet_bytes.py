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

from clusterdp._text import held_texts
from clusterdp.errors import FormatError
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
# Bytes of a number of 64 bits.
_MOST_OF_VARINT = 10
# What goes wrong where bytes are not what they should be.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

LONG_VALUES = "has longer values than a release can have"


class Compact:
    """A struct of Thrift's compact protocol, as values by the numbers of their fields.

    Attributes:
        offset: How many bytes were read.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self.offset = content, 0

    def whole(self) -> dict[int, Any]:
        """The fields of a struct that the content ends with."""
        found = self.struct()
        if self.offset != len(self._content):
            raise ValueError(self.offset)
        return found

    def struct(self) -> dict[int, Any]:
        """The fields of a struct, each there once."""
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._zigzag()
            if number in found:
                raise ValueError(number)
            found[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                head = self._byte()
                length = self._varint() if head >> 4 == 15 else head >> 4
                return [self._value(head & 15) for _ in range(length)]
            case 12:
                return self.struct()
        raise ValueError(kind)

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, length: int) -> bytes:
        self.offset += length
        if self.offset > len(self._content):
            raise IndexError
        return self._content[self.offset - length : self.offset]

    def _varint(self) -> int:
        value = 0
        for index in range(_MOST_OF_VARINT):
            byte = self._byte()
            value |= (byte & 127) << 7 * index
            if not byte & 128:
                return value
        raise ValueError(value)

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


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
                return f"{self.name} has bytes outside its columns"
            problem = self._unknown_text(columns)
            described = [chunk[_COLUMN_META] for chunk in _chunks(fields)]
            if any(self._unpacked(one) > most_unpacked(one[_VALUES]) for one in described):
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
            described = [chunk[_COLUMN_META] for chunk in _chunks(fields)]
            n_rows = [fields[_ROWS], sum(group[_GROUP_ROWS] for group in groups)]
            n_values = [one[_VALUES] for one in described]
            if min(*n_rows, *n_values) < 0:
                raise ValueError(self.name)
            return max(n_rows), sum(n_values), sum(map(self._unpacked, described))
        except _UNREADABLE:
            raise FormatError(f"{self.name} is not a Parquet file of a release") from None

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
        before: dict[int, Any] = {}
        for start, n_bytes, described in sorted(_ranges(footer), key=lambda one: one[0]):
            offset += self._repeated(offset, start, before)
            if start != offset or n_bytes <= 0:
                return False
            if not described:
                Compact(self._part(start, n_bytes)).whole()
            elif not self._is_of_pages(described):
                return False
            offset, before = offset + n_bytes, described
        return offset + self._repeated(offset, footer_start, before) == footer_start

    def _repeated(self, start: int, end: int, described: dict[int, Any]) -> int:
        """How many bytes between two places repeat what the footer says of the column before."""
        if not described or start >= end:
            return 0
        reader = Compact(self._part(start, min(end - start, _MOST_OF_COLUMN)))
        return reader.offset if reader.struct() == described else 0

    def _pages(self, described: dict[int, Any]) -> Iterator[tuple[int, dict[int, Any]]]:
        """Where each page of a column begins behind its header, and the header."""
        offset, n_bytes = _page_range(described)
        end = offset + n_bytes
        while offset < end:
            reader = Compact(self._part(offset, min(_MOST_OF_HEADER, end - offset)))
            header = reader.struct()
            if min(header[_UNPACKED], header[_PACKED]) < 0:
                raise ValueError(offset)
            yield offset + reader.offset, header
            offset += reader.offset + header[_PACKED]

    def _unpacked(self, described: dict[int, Any]) -> int:
        """How many bytes the pages of a column unpack to, as their own headers say."""
        return sum(header[_UNPACKED] for _, header in self._pages(described))

    def _is_of_pages(self, described: dict[int, Any]) -> bool:
        """Whether pages fill a part of a file."""
        offset, n_bytes = _page_range(described)
        end = offset + n_bytes
        for start, header in self._pages(described):
            for key, statistics in _STATISTICS.items():
                header.get(key, {}).pop(statistics, None)  # as in the footer
            if not set(header) <= set(_PAGE_FIELDS) or any(held_texts(header)):
                return False
            # Pages of the second kind begin with levels, which are not compressed.
            own = header.get(_SECOND_KIND)
            levels = 0 if own is None else sum(own[key] for key in _LEVELS)
            packed, offset = header[_PACKED] - levels, start + header[_PACKED]
            if offset > end or levels < 0 or packed < 0:
                return False
            if own is not None and not own.get(_IS_PACKED, True):
                whole = header[_UNPACKED] == header[_PACKED]
            else:
                whole = described[_CODEC] == _ZSTD and (
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
            return "was written by unknown software"
        for pair in footer.get(_PAIRS, ()):
            if not _is_known(pair[1].decode(), pair.get(2, b"").decode(), columns):
                return "has unexpected metadata"
        # Spark always writes them; only checksums cover them.
        held = [chunk[_COLUMN_META].pop(_CHUNK_STATISTICS, None) for chunk in _chunks(footer)]
        if not by_spark and any(one is not None for one in held):
            return "has statistics of its columns, which are not part of a release"
        rest = {key: one for key, one in footer.items() if key not in (_PAIRS, _CREATED_BY)}
        if set(held_texts(rest)) - _WORDS - set(columns):
            return "has names in its metadata that are not columns"
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


def _chunks(footer: dict[int, Any]) -> Iterator[dict[int, Any]]:
    """The columns of all groups of rows, as a footer describes them."""
    for group in footer.get(_ROW_GROUPS, ()):
        yield from group[_COLUMNS]


def _page_range(described: dict[int, Any]) -> tuple[int, int]:
    """Where the pages of a column begin, and how long they are together."""
    starts = [described[key] for key in (_DICTIONARY, _DATA) if key in described]
    # Some writers state that there is no dictionary by the offset 0.
    return min(one for one in starts if one > 0), described[_CHUNK_BYTES]


def _ranges(footer: dict[int, Any]) -> Iterator[tuple[int, int, dict[int, Any]]]:
    """Start and length of what a footer names, with what it says of a column; of an index, none."""
    for chunk in _chunks(footer):
        yield *_page_range(chunk[_COLUMN_META]), chunk[_COLUMN_META]
        for start_key, size_key in (_OFFSET_INDEX, _COLUMN_INDEX):
            if start_key in chunk:
                yield chunk[start_key], chunk[size_key], {}


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
