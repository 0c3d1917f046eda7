"""Structs of Thrift's compact protocol, in which Parquet describes files, columns and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


# Bytes of a number of 64 bits.
_MOST_OF_VARINT = 10


def texts(held: Any) -> Iterator[str]:
    """Every text in a struct, at any depth."""
    if isinstance(held, bytes):
        yield held.decode()
    elif isinstance(held, dict | list):
        for one in held.values() if isinstance(held, dict) else held:
            yield from texts(one)


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
        self.offset += 1
        return self._content[self.offset - 1]

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
