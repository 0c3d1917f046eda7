"""What a Parquet file holds beside its columns: every text in its footer is accounted for.

A footer is a struct of Thrift's compact protocol. Whoever writes a file can put more into it than
columns: key-value pairs, names of its parts, smallest and largest values. Readers show none of
that, so it is checked here, from the bytes.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from clusterdp.storage.reading import Files

# More bytes than a footer of a billion rows has.
_MOST_OF_FOOTER = 2**26
_MOST_NAMES = 100_000
_MAGIC, _TRAILER = b"PAR1", 8
# Parts of a column that holds lists, and of a file, as its writers call them.
_WORDS = {"root", "schema", "spark_schema", "list", "element", "item", "array", ""}
_POLARS = re.compile(r"Polars( \(\w+\) version [\w.+-]{1,40} \(build [0-9a-f]{1,40}\))?")
_SPARK = re.compile(r"parquet-mr version [\w.+-]{1,40} \(build [0-9a-f]{1,40}\)")
_SPARK_TYPE = re.compile(r"[a-z_]{1,20}(\(\d{1,3}(,\d{1,3})?\))?")
_VERSION = re.compile(r"[\d.]{1,20}")
# Fields of the footer, by their numbers in Parquet's definition.
_FIELDS = range(1, 10)
_ROWS, _ROW_GROUPS, _PAIRS, _CREATED_BY = 3, 4, 5, 6
_GROUP_COLUMNS, _GROUP_ROWS, _COLUMN_META, _VALUES, _STATISTICS = 1, 3, 3, 5, 12
# Bytes of a number of 64 bits.
_MOST_OF_VARINT = 10
# What goes wrong where bytes are not what they should be.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def unknown_metadata(folder: Files, name: str, columns: Collection[str]) -> str | None:
    """What a Parquet file holds that its columns do not explain; None if there is nothing.

    Args:
        folder: Where it is.
        name: Its name.
        columns: The names of its columns.
    """
    try:
        footer = _read_footer(folder, name)
        writer = _text(footer.get(_CREATED_BY, b""))
        by_spark = _SPARK.fullmatch(writer) is not None
        if not by_spark and not _POLARS.fullmatch(writer):
            return f"{name} was written by software that is not known"
        for pair in footer.get(_PAIRS, ()):
            if not _is_known(_text(pair[1]), _text(pair.get(2, b"")), columns):
                return f"{name} has metadata that nothing explains"
        # Spark writes them whatever it is told; checksums alone cover them.
        held = [one.pop(_STATISTICS, None) for one in _column_chunks(footer)]
        if not by_spark and any(one is not None for one in held):
            return f"{name} has statistics of its columns, which are not part of a release"
        rest = {key: one for key, one in footer.items() if key not in (_PAIRS, _CREATED_BY)}
        unknown = set(_texts(rest))
    except _UNREADABLE:
        return f"{name} has metadata that cannot be read"
    if unknown - _WORDS - set(columns):
        return f"{name} has names in its metadata that no column has"
    return None


class TableSize(NamedTuple):
    """What a footer states: how many rows there are, and values of all columns together."""

    rows: int
    values: int


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
        return TableSize(max(n_rows), sum(n_values))
    except _UNREADABLE:
        raise FormatError(f"{name} is no Parquet file of ours") from None


def _read_footer(folder: Files, name: str) -> dict[int, Any]:
    return _parse(folder.end(name, _footer_length(folder.end(name, _TRAILER)) + _TRAILER))


def _footer_length(end: bytes) -> int:
    length = int.from_bytes(end[-_TRAILER:-4], "little")
    if end[-4:] != _MAGIC or length > _MOST_OF_FOOTER:
        raise ValueError(length)
    return length


def _parse(end: bytes) -> dict[int, Any]:
    """The fields of a footer, from the last bytes of its file."""
    footer = _Compact(end[:-_TRAILER]).whole()
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
        for chunk in group[_GROUP_COLUMNS]:
            yield chunk[_COLUMN_META]


def _texts(held: Any) -> Iterator[str]:
    """Every text in a struct, at any depth."""
    if isinstance(held, bytes):
        yield _text(held)
    elif isinstance(held, dict | list):
        for one in held.values() if isinstance(held, dict) else held:
            yield from _texts(one)


def _text(content: bytes) -> str:
    return content.decode()


class _Compact:
    """A struct of Thrift's compact protocol, as values by the numbers of their fields."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def whole(self) -> dict[int, Any]:
        """The fields of a struct that the content ends with."""
        found = self.struct()
        if self._at != len(self._content):
            raise ValueError(self._at)
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
        self._at += 1
        return self._content[self._at - 1]

    def _bytes(self, length: int) -> bytes:
        self._at += length
        if self._at > len(self._content):
            raise IndexError
        return self._content[self._at - length : self._at]

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
