"""Every byte of a Parquet file belongs to something: a page of a column, an index, the footer.

Readers go where a footer sends them, and see nothing of what stands between. So what a footer
names must fill the file, and pages must fill what it names. Pages hold one compressed piece each.
Polars repeats behind each column what the footer says of it. Of an index, that it is one is all
that is checked.

Structs of Thrift's compact protocol, in which Parquet describes files, columns and pages.

What a Parquet file holds beside its columns: every text in its footer is accounted for.

A footer is a struct of Thrift's compact protocol. Whoever writes a file can put more into it than
columns: key-value pairs, names of its parts, smallest and largest values. Readers show none of
that, so it is checked here, from the bytes.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import FormatError
from clusterdp.storage.folder import UNIT_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from clusterdp.storage.reading import Files


# Bytes of a number of 64 bits.
_MOST_OF_VARINT = 10


def texts(held: Any) -> Iterator[str]:
    """Every text in a struct, at any depth."""
    if isinstance(held, bytes):
        yield as_text(held)
    elif isinstance(held, dict | list):
        for one in held.values() if isinstance(held, dict) else held:
            yield from texts(one)


def as_text(content: bytes) -> str:
    """Bytes as the text that they must be."""
    return content.decode()


class Compact:
    """A struct of Thrift's compact protocol, as values by the numbers of their fields.

    Attributes:
        place: How many bytes were read.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def whole(self) -> dict[int, Any]:
        """The fields of a struct that the content ends with."""
        found = self.struct()
        if self.place != len(self._content):
            raise ValueError(self.place)
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
        self.place += 1
        return self._content[self.place - 1]

    def _bytes(self, length: int) -> bytes:
        self.place += length
        if self.place > len(self._content):
            raise IndexError
        return self._content[self.place - length : self.place]

    def _varint(self) -> int:
        value = 0
        for place in range(_MOST_OF_VARINT):
            byte = self._byte()
            value |= (byte & 127) << 7 * place
            if not byte & 128:
                return value
        raise ValueError(value)

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


# Fields of a footer, by their numbers in Parquet's definition.
_ROW_GROUPS, _COLUMNS, _COLUMN_META = 4, 1, 3
_CODEC, _CHUNK_BYTES, _DATA, _DICTIONARY = 4, 7, 9, 11
_OFFSET_INDEX, _COLUMN_INDEX = (4, 5), (6, 7)
# Fields of the header of a page.
_PAGE_FIELDS, _UNPACKED, _PACKED, _DATA_PAGE, _SECOND_KIND = range(1, 9), 2, 3, 5, 8
_LEVELS, _IS_PACKED, _STATISTICS = (5, 6), 7, {_DATA_PAGE: 5, _SECOND_KIND: 8}
_MAGIC, _ZSTD = b"PAR1", 6
# More bytes than the header of a page has, and what is said of a column.
_MOST_OF_HEADER, _MOST_OF_COLUMN = 2**12, 2**20
# A frame of Zstandard (RFC 8878): its mark, sizes of its fields, and kinds of its blocks.
_FRAME = (0xFD2FB528).to_bytes(4, "little")
_CONTENT_BYTES, _DICTIONARY_BYTES = (0, 2, 4, 8), (0, 1, 2, 4)
_RUN, _RESERVED = 1, 3


class _Range(NamedTuple):
    """A part of a file that a footer names.

    Attributes:
        start: Where it begins.
        n_bytes: How long it is.
        column: What the footer says of the column whose pages it holds; None if it is an index.
    """

    start: int
    n_bytes: int
    column: dict[int, Any] | None = None


def are_explained(folder: Files, name: str, footer: dict[int, Any], footer_start: int) -> bool:
    """Whether a Parquet file holds what its footer names, and nothing between.

    Args:
        folder: Where it is.
        name: Its name.
        footer: The fields of its footer.
        footer_start: Where that begins.

    Raises:
        ArithmeticError, LookupError, TypeError, ValueError: If bytes are not what they should be.
    """
    place = len(_MAGIC)
    if folder.part(name, 0, place) != _MAGIC:
        return False
    described: dict[int, Any] | None = None
    for one in sorted(_ranges(footer), key=lambda held: held.start):
        place += _repeated(folder, name, place, one.start, described)
        if one.start != place or one.n_bytes <= 0:
            return False
        if one.column is None:
            Compact(folder.part(name, one.start, one.n_bytes)).whole()
        elif not _is_of_pages(folder, name, one):
            return False
        place, described = place + one.n_bytes, one.column
    place += _repeated(folder, name, place, footer_start, described)
    return place == footer_start


def _repeated(
    folder: Files, name: str, start: int, end: int, described: dict[int, Any] | None
) -> int:
    """How many bytes between two places repeat what the footer says of the column before."""
    if described is None or start >= end:
        return 0
    reader = Compact(folder.part(name, start, min(end - start, _MOST_OF_COLUMN)))
    return reader.place if reader.struct() == described else 0


def _ranges(footer: dict[int, Any]) -> Iterator[_Range]:
    for group in footer.get(_ROW_GROUPS, ()):
        for column in group[_COLUMNS]:
            held = column[_COLUMN_META]
            starts = [held[key] for key in (_DICTIONARY, _DATA) if key in held]
            # Some writers state that there is no dictionary by the place 0.
            start = min(one for one in starts if one > 0)
            yield _Range(start, held[_CHUNK_BYTES], held)
            for start_key, size_key in (_OFFSET_INDEX, _COLUMN_INDEX):
                if start_key in column:
                    yield _Range(column[start_key], column[size_key])


def _is_of_pages(folder: Files, name: str, chunk: _Range) -> bool:
    """Whether pages fill a part of a file."""
    codec = None if chunk.column is None else chunk.column[_CODEC]
    place, end = chunk.start, chunk.start + chunk.n_bytes
    while place < end:
        reader = Compact(folder.part(name, place, min(_MOST_OF_HEADER, end - place)))
        header = reader.struct()
        for key, statistics in _STATISTICS.items():
            header.get(key, {}).pop(statistics, None)  # as in the footer
        if not set(header) <= set(_PAGE_FIELDS) or any(texts(header)) or header[_PACKED] < 0:
            return False
        place += reader.place
        levels, is_packed = _second_kind(header)
        packed = header[_PACKED] - levels
        if place + header[_PACKED] > end or levels < 0 or packed < 0:
            return False
        if not is_packed:
            whole = header[_UNPACKED] == header[_PACKED]
        else:
            whole = codec == _ZSTD and (
                packed == 0 or is_frame(folder.part(name, place + levels, packed))
            )
        if not whole:
            return False
        place += header[_PACKED]
    return place == end


def _unpacked(part: Callable[[int, int], bytes], chunk: _Range) -> int:
    """How many bytes the pages of a column unpack to, as their own headers say."""
    place, end, n_bytes = chunk.start, chunk.start + chunk.n_bytes, 0
    while place < end:
        reader = Compact(part(place, min(_MOST_OF_HEADER, end - place)))
        header = reader.struct()
        if min(header[_UNPACKED], header[_PACKED]) < 0:
            raise ValueError(place)
        n_bytes += header[_UNPACKED]
        place += reader.place + header[_PACKED]
    return n_bytes


def most_unpacked(n_values: int) -> int:
    """How many bytes so many values may unpack to: texts of 4,096 bytes, and a dictionary."""
    return 2**20 + 2**12 * n_values


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
    place = 5 + (not single) + _DICTIONARY_BYTES[flags & 3] + content
    is_last = False
    while not is_last:
        block = int.from_bytes(packed[place : place + 3], "little")
        is_last, kind = bool(block & 1), block >> 1 & 3
        if kind == _RESERVED or place + 3 > len(packed):
            return False
        place += 3 + (1 if kind == _RUN else block >> 3)
    return place + 4 * has_checksum == len(packed)


# More bytes than a footer of a billion rows has.
_MOST_OF_FOOTER = 2**26
_MOST_NAMES = 100_000
_TRAILER = 8
# Parts of a column that holds lists, and of a file, as its writers call them.
_WORDS = {"root", "schema", "spark_schema", "list", "element", "item", "array", ""}
_POLARS = re.compile(r"Polars \(\w+\) version [\w.+-]{1,40} \(build [0-9a-f]{1,40}\)")
_SPARK = re.compile(r"parquet-mr version [\w.+-]{1,40} \(build [0-9a-f]{1,40}\)")
_SPARK_TYPE = re.compile(r"[a-z_]{1,20}(\(\d{1,3}(,\d{1,3})?\))?")
_VERSION = re.compile(r"[\d.]{1,20}")
# Fields of the footer, by their numbers in Parquet's definition.
_FIELDS = range(1, 10)
_ROWS, _PAIRS, _CREATED_BY = 3, 5, 6
_GROUP_ROWS, _VALUES, _CHUNK_STATISTICS = 3, 5, 12
# What goes wrong where bytes are not what they should be.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


LONG_VALUES = "has longer values than such a release has"


def unknown_metadata(folder: Files, name: str, columns: Collection[str]) -> str | None:
    """What a Parquet file holds that its columns do not explain; None if there is nothing.

    Args:
        folder: Where it is.
        name: Its name.
        columns: The names of its columns.
    """
    try:
        start, footer = read_footer(folder, name)
        if not are_explained(folder, name, footer, start):
            return f"{name} has bytes that belong to none of its columns"
        problem = _unknown(footer, columns, in_parts=name.startswith(f"{UNIT_PARTS}/"))
        pages = [(one, one.column[_VALUES]) for one in _ranges(footer) if one.column is not None]
        part = partial(folder.part, name)
        if any(_unpacked(part, one) > most_unpacked(n_values) for one, n_values in pages):
            problem = LONG_VALUES
    except _UNREADABLE:
        problem = "has metadata that cannot be read"
    return None if problem is None else f"{name} {problem}"


def _unknown(footer: dict[int, Any], columns: Collection[str], *, in_parts: bool) -> str | None:
    """What a footer holds that columns do not explain; Spark writes rows in parts alone."""
    writer = as_text(footer.get(_CREATED_BY, b""))
    by_spark = in_parts and _SPARK.fullmatch(writer) is not None
    if not by_spark and not _POLARS.fullmatch(writer):
        return "was written by software that is not known"
    for pair in footer.get(_PAIRS, ()):
        if not _is_known(as_text(pair[1]), as_text(pair.get(2, b"")), columns):
            return "has metadata that nothing explains"
    # Spark writes them whatever it is told; checksums alone cover them.
    held = [one.pop(_CHUNK_STATISTICS, None) for one in _column_chunks(footer)]
    if not by_spark and any(one is not None for one in held):
        return "has statistics of its columns, which are not part of a release"
    rest = {key: one for key, one in footer.items() if key not in (_PAIRS, _CREATED_BY)}
    if set(texts(rest)) - _WORDS - set(columns):
        return "has names in its metadata that no column has"
    return None


class TableSize(NamedTuple):
    """How many rows there are, values of all columns together, and bytes that these unpack to.

    The footer states rows and values, and headers of pages the bytes.
    """

    rows: int
    values: int
    unpacked: int


def table_size(name: str, content: bytes) -> TableSize:
    """The size of a table before any of it is unpacked: a small file can hold billions of values.

    Args:
        name: The name of its Parquet file.
        content: The bytes of that file.

    Raises:
        FormatError: If it is no Parquet file.
    """
    try:
        footer = _parse(content[-_footer_length(content) - _TRAILER :])
        groups = footer.get(_ROW_GROUPS, [])
        n_rows = [footer[_ROWS], sum(group[_GROUP_ROWS] for group in groups)]
        n_values = [chunk[_VALUES] for chunk in _column_chunks(footer)]
        if min(*n_rows, *n_values) < 0:
            raise ValueError(name)
        pages = [one for one in _ranges(footer) if one.column is not None]
        unpacked = sum(_unpacked(lambda at, size: content[at : at + size], one) for one in pages)
        return TableSize(max(n_rows), sum(n_values), unpacked)
    except _UNREADABLE:
        raise FormatError(f"{name} is no Parquet file of ours") from None


def writer_of(folder: Files, name: str) -> str:
    """The software that a Parquet file says it was written by, with its version."""
    return as_text(read_footer(folder, name)[1][_CREATED_BY])


def writer_here() -> str:
    """The same of files that are written here."""
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame({"one": [1]}).write_parquet(file)
    content = file.getvalue()
    return as_text(_parse(content[-_footer_length(content) - _TRAILER :])[_CREATED_BY])


def read_footer(folder: Files, name: str) -> tuple[int, dict[int, Any]]:
    """Where the footer of a Parquet file begins, and its fields by their numbers."""
    size = folder.size(name) or 0
    length = _footer_length(folder.part(name, size - _TRAILER, _TRAILER))
    start = size - _TRAILER - length
    return start, _parse(folder.part(name, start, length + _TRAILER))


def _footer_length(end: bytes) -> int:
    length = int.from_bytes(end[-_TRAILER:-4], "little")
    if end[-4:] != _MAGIC or length > _MOST_OF_FOOTER:
        raise ValueError(length)
    return length


def _parse(end: bytes) -> dict[int, Any]:
    """The fields of a footer, from the last bytes of its file."""
    footer = Compact(end[:-_TRAILER]).whole()
    if not set(footer) <= set(_FIELDS):
        raise ValueError(footer)
    return footer


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


def _column_chunks(footer: dict[int, Any]) -> Iterator[dict[int, Any]]:
    for group in footer.get(_ROW_GROUPS, ()):
        for chunk in group[_COLUMNS]:
            yield chunk[_COLUMN_META]


@dataclass(frozen=True, slots=True)
class _Flat:
    """A table of a flatbuffer."""

    content: bytes
    at: int

    def _number(self, at: int, n_bytes: int) -> int:
        if not 0 <= at <= len(self.content) - n_bytes:
            raise IndexError
        return int.from_bytes(self.content[at : at + n_bytes], "little")

    def field(self, place: int) -> int | None:
        """Where a field points to; None if the table does not have it."""
        back = int.from_bytes(self.content[self.at : self.at + 4], "little", signed=True)
        names = self.at - back
        if 4 + 2 * place >= self._number(names, 2):
            return None
        offset = self._number(names + 4 + 2 * place, 2)
        return self.follow(self.at + offset) if offset else None

    def follow(self, at: int) -> int:
        """The place that is referred to from a place."""
        return at + self._number(at, 4)

    def tables(self, place: int) -> Iterator[_Flat]:
        """The tables in a field that is a list of them."""
        start = self.field(place)
        if start is not None:
            for one in range(self._number(start, 4)):
                yield _Flat(self.content, self.follow(start + 4 + 4 * one))

    def text(self, place: int) -> str:
        """A field that is a text; empty if the table does not have it."""
        start = self.field(place)
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
