"""Each unit's randomness: a pseudorandom function of a secret key and the unit's id.

The function is AES-256 in CBC-MAC. The same key, outcome and id give the same words on every
engine, in every retry, in any order and in any process, so a repeated run reveals nothing more
about a person. Ids are made into blocks of 16 bytes once, for all keys that they are encrypted
with; text is taken from all ids at once.

A `Fingerprint` shows whether two passes read the same table: a checksum of rows that does not
depend on their order.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import numpy as np

from clusterdp._named import unnamed

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray


BLOCK_BYTES = 16
# Sixteen bytes that are moved together, wherever they stand.
BLOCK = np.dtype((np.void, BLOCK_BYTES))


class IdText(NamedTuple):
    """Ids one after another.

    Attributes:
        windows: The 16 bytes from every place on, padded with zeros in the end; axes `[place]`.
        starts: The place where each id begins; axes `[unit]`.
        lengths: How many bytes each has; axes `[unit]`.
    """

    windows: npt.NDArray[np.void]
    starts: IntArray
    lengths: IntArray

    @classmethod
    def from_ids(cls, ids: pl.Series) -> IdText:
        """The text of some ids. Polars is called twice, however many there are."""
        text = ids.str.join("").item().encode()
        padded = text + bytes(BLOCK_BYTES)
        lengths = ids.str.len_bytes().to_numpy().astype(np.int64)
        return cls(
            windows=np.ndarray(len(text) + 1, dtype=BLOCK, buffer=padded, strides=(1,)),
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
        )

    def part(self, units: slice | IntArray) -> IdText:
        """Some of the ids."""
        return IdText(self.windows, self.starts[units], self.lengths[units])

    def bytes_from(self, first: int, most: int) -> WordArray:
        """Up to 16 bytes of each id, zero-padded; two words, axes `[unit, word]`."""
        places = np.minimum(self.starts + first, len(self.windows) - 1)
        taken: WordArray = self.windows[places].view("<u8")
        taken &= _PREFIX_MASKS[np.clip(self.lengths - first, 0, most)].view("<u8")
        return taken.reshape(-1, 2)


# Row k keeps the first k of 16 bytes.
_PREFIX_MASKS = (
    np.where(np.arange(BLOCK_BYTES) < np.arange(BLOCK_BYTES + 1)[:, np.newaxis], 0xFF, 0)
    .astype(np.uint8)
    .view(BLOCK)
    .ravel()
)


_KEY_BYTES = 32
# Ids worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_IDS = 2**14


@dataclass(frozen=True, slots=True)
class ReleaseKey:
    """The secret of one release. It is never printed, published or read from a command line."""

    _secret: bytes = field(repr=False)

    @classmethod
    def from_system(cls) -> ReleaseKey:
        """A fresh key from the operating system: the only kind a real release uses."""
        return cls(os.urandom(_KEY_BYTES))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a release key is secret: it can be neither pickled nor copied")

    def derive(self, info: str) -> bytes:
        """The key of 32 bytes for a purpose; no two purposes have words in common."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        hkdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info.encode())
        return hkdf.derive(self._secret)

    def question_salt(self) -> str:
        """What decides which question a unit is asked; it is published, and reveals no key."""
        return self.derive("clusterdp/questions/1")[:16].hex()

    def for_attempt(self, number: int) -> ReleaseKey:
        """The key of the rows of one attempt, counted from 1; the first has this one."""
        if number <= 1:
            return self
        return ReleaseKey(self.derive(f"clusterdp/attempt/{number}"))

    def tag(self, seen: Fingerprint) -> bytes:
        """A checksum of a table, which reveals nothing without the key."""
        return hmac.digest(self.derive("clusterdp/table/1"), bytes(seen), "sha256")

    def claim(self) -> str:
        """What runs of this release own a place by: it only distinguishes them from others."""
        return self.derive("clusterdp/claim/1").hex()

    def expose(self) -> bytes:
        """The secret itself, for a ledger to keep until the release is published."""
        return self._secret


# The name of the key that private clusters are randomized with.
CLUSTERS_KEY = "clusters"


def response_key(outcomes: tuple[str, ...]) -> str:
    """The name of the key of the channel's draw for outcomes that are released together."""
    # No name holds \x00, so no two lists of names are equal: each question has its own words.
    return "response/" + "\x00".join(outcomes)


def rounding_key(outcome: str, purpose: Literal["rows", "counts"]) -> str:
    """The name of the key that a number is rounded with: one for rows, another one for counts."""
    return f"rounding/{purpose}/{outcome}"


class KeyRing(dict[str, bytes]):
    """The AES keys of a release by their names, each made when it is first asked for.

    Encoders, counters and randomizers hold names, and are given the ring when they are called. So
    what is stored or sent of them holds no key. The ring itself holds the secret of the release,
    and cannot be pickled: workers get the few keys that they need.
    """

    def __init__(self, key: ReleaseKey, row_key: ReleaseKey | None = None) -> None:
        """The keys of a release.

        Args:
            key: Its secret, which counts and labels of all attempts follow from.
            row_key: What this attempt's rows follow from; by default the same.
        """
        super().__init__()
        self._key, self._row_key = key, row_key or key

    def __missing__(self, name: str) -> bytes:
        kind, _, rest = name.partition("/")
        purpose, _, outcome = rest.partition("/")
        if kind == "response":
            made = self._row_key.derive(f"clusterdp/rows/1/{rest}")
        elif kind == "rounding":
            key = self._row_key if purpose == "rows" else self._key
            made = key.derive(f"clusterdp/rounding/{purpose}/1/{outcome}")
        else:
            made = self._key.derive("clusterdp/labels/1")
        self[name] = made
        return made

    def __repr__(self) -> str:
        return "KeyRing()"


def fold_numbers(units: UnitIds, n_folds: int) -> CodeArray:
    """The public fold of each unit, by a hash of its id that everyone can repeat."""
    words = unit_words(units, hashlib.sha256(b"clusterdp fold").digest())[:, 0]
    is_power = n_folds & (n_folds - 1) == 0  # a mask takes a fifth of the time of a remainder
    folds = words & np.uint64(n_folds - 1) if is_power else words % np.uint64(n_folds)
    return folds.astype(np.int32)


def unit_words(units: UnitIds, aes_key: bytes) -> WordArray:
    """128 pseudorandom bits for each unit.

    Args:
        units: Ids.
        aes_key: From a `KeyRing`, or a public one.

    Returns:
        Axes `[unit, word]`, two 64-bit words each.
    """
    words = np.empty((len(units), 2), dtype="<u8")
    for start in range(0, len(units), _CACHED_IDS):
        part = slice(start, start + _CACHED_IDS)
        words[part] = _mac(units.blocks(part), aes_key)
    return words


def _mac(ids: IdBlocks, aes_key: bytes) -> WordArray:
    """CBC-MAC of all ids at once: one round for each of their blocks."""
    words = _encrypt(ids.blocks[0], aes_key)
    if ids.lengths is None or ids.text is None:
        return words
    for number, block in enumerate(ids.blocks[1:], start=1):
        # Of all ids, also of those that ended: leaving them out takes longer.
        longer = _encrypt(words ^ block, aes_key)
        # As blocks: of pairs of words, NumPy would look at each one's place by itself.
        is_longer = ids.lengths > number
        np.copyto(words.view(BLOCK).ravel(), longer.view(BLOCK).ravel(), where=is_longer)
    number = len(ids.blocks)
    places = np.flatnonzero(ids.lengths > number)
    while places.size:
        words[places] = _encrypt(
            words[places] ^ _later_block(ids.text.part(places), number), aes_key
        )
        number += 1
        places = places[ids.lengths[places] > number]
    return words


def _encrypt(blocks: WordArray, aes_key: bytes) -> WordArray:
    """AES-256 of every 16-byte block, each on its own."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    # ECB is the bare permutation. Blocks are distinct ids, and nothing here is ciphertext.
    encryptor = Cipher(algorithms.AES(aes_key), modes.ECB()).encryptor()  # noqa: S305
    words = np.empty(2 * len(blocks) + 2, dtype="<u8")  # with the spare block that it asks for
    encryptor.update_into(np.ascontiguousarray(blocks).data.cast("B"), words.data.cast("B"))
    return words[:-2].reshape(-1, 2)


# The first 8 bytes of the first block: what kind of id follows, and how long it is. No encoding of
# an id is then a prefix of another, which is what makes CBC-MAC a pseudorandom function.
_HEADER_BYTES = 8
_INTEGER_KIND = 1 << 56
_STRING_KIND = 2 << 56
_FIRST_BYTES = BLOCK_BYTES - _HEADER_BYTES
# Blocks that are made for all ids at once. Few ids have more than 56 bytes.
_MOST_BLOCKS = 4
# Texts worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_TEXTS = 2**13


class IdBlocks(NamedTuple):
    """Ids, each as a row of blocks.

    Attributes:
        blocks: Header and beginning of each id, then what follows, padded with zeros; each has axes
            `[unit, word]`, two words to a block. Some first ones: an id may be as long as a book.
        lengths: How many blocks each id has; axes `[unit]`. None where all have one.
        text: The text of the ids, where they are text.
    """

    blocks: tuple[WordArray, ...]
    lengths: IntArray | None = None
    text: IdText | None = None

    @classmethod
    def from_integers(cls, ids: IntArray) -> IdBlocks:
        """One block each, for any type of integer."""
        blocks = np.empty((len(ids), 2), dtype="<u8")
        blocks[:, 0] = _INTEGER_KIND + 8
        is_signed = ids.dtype.kind == "i"
        blocks[:, 1] = ids.astype("<i8").view("<u8") if is_signed else ids.astype(np.uint64)
        return cls((blocks,))

    @classmethod
    def from_texts(cls, ids: pl.Series) -> IdBlocks:
        """As many blocks as ids take, or the first ones."""
        text = IdText.from_ids(ids)
        lengths = 1 + np.maximum(0, text.lengths - _FIRST_BYTES + BLOCK_BYTES - 1) // BLOCK_BYTES
        n_blocks = min(int(lengths.max(initial=1)), _MOST_BLOCKS)
        blocks = np.empty((n_blocks, len(ids), 2), dtype="<u8")
        for start in range(0, len(ids), _CACHED_TEXTS):
            part = text.part(units := slice(start, start + _CACHED_TEXTS))
            blocks[0, units, 0] = _STRING_KIND + part.lengths.astype(np.uint64)
            blocks[0, units, 1] = part.bytes_from(0, _FIRST_BYTES)[:, 0]
            for number in range(1, n_blocks):
                blocks[number, units] = _later_block(part, number)
        return cls(tuple(blocks), lengths, text)

    def part(self, units: slice | IntArray) -> IdBlocks:
        """Those of some of the ids."""
        if self.lengths is None or self.text is None:
            return IdBlocks(tuple(block[units] for block in self.blocks))
        blocks = tuple(block[units] for block in self.blocks)
        return IdBlocks(blocks, self.lengths[units], self.text.part(units))


def _later_block(text: IdText, number: int) -> WordArray:
    """A block after the first of ids that are text; axes `[unit, word]`."""
    return text.bytes_from(_FIRST_BYTES + (number - 1) * BLOCK_BYTES, BLOCK_BYTES)


class UnitIds:
    """The ids of some units, integers or text, none of them missing where blocks are asked for.

    Attributes:
        ids: The ids.
    """

    def __init__(self, ids: pl.Series, made: IdBlocks | None = None) -> None:
        self.ids, self._made = ids, made

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, units: slice | IntArray) -> UnitIds:
        """Some of the units. Their text has been made ready with that of the others."""
        return UnitIds(self.ids[units], None if self._texts is None else self.blocks(units))

    def blocks(self, units: slice | IntArray) -> IdBlocks:
        """The blocks of some of the units."""
        if self._texts is not None:
            return self._texts.part(units)
        # Faster made than stored and read.
        return IdBlocks.from_integers(self._numbers[units])

    @cached_property
    def _texts(self) -> IdBlocks | None:
        import polars as pl

        if self.ids.dtype != pl.String:
            return None
        return IdBlocks.from_texts(self.ids) if self._made is None else self._made

    @cached_property
    def _numbers(self) -> IntArray:
        return self.ids.to_numpy()


# 2^64 over the golden ratio, odd: spreads small numbers over all bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def id_hashes(ids: pl.Series) -> WordArray:
    """A 64-bit hash of each id, the same in every process; axes `[row]`."""
    return unnamed(ids).hash().to_numpy()


def row_words(
    hashes: WordArray, cells: IntArray, outcomes: CodeArray, *more: CodeArray
) -> WordArray:
    """One word for each row, of its id's hash, cell and outcomes.

    The id's hash is multiplied by an odd number that stands for cell and outcome. Another outcome
    moves the word by an amount that depends on the id: were it the same for all, sums would not
    notice two people's outcomes exchanged.
    """
    words = cells.astype(np.uint64) << np.uint64(16)
    words |= outcomes.astype(np.uint64)
    words *= _SPREAD
    for codes in more:
        words ^= codes.astype(np.uint64)
        words *= _SPREAD
    words |= np.uint64(1)
    words *= hashes
    return words


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The sum of the checksum words of some rows.

    It distinguishes tables that differ by accident, as when a file is replaced between two passes.
    It does not protect against an attacker who chooses ids to get the same sum.

    Attributes:
        n_rows: How many rows.
        low: The lower halves of their words, added up.
        high: The upper halves.
    """

    n_rows: int = 0
    low: int = 0
    high: int = 0

    @classmethod
    def from_words(cls, words: WordArray) -> Fingerprint:
        """The fingerprint of some rows."""
        halves = words.astype("<u8", copy=False).view("<u4")
        low, high = (halves[part::2].sum(dtype=np.uint64) for part in (0, 1))
        return cls(len(words), int(low), int(high))

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.n_rows + other.n_rows, self.low + other.low, self.high + other.high)

    def __bytes__(self) -> bytes:
        return f"{self.n_rows},{self.low},{self.high}".encode()
