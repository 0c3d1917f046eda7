"""Each unit's randomness: a pseudorandom function of a secret key and the unit's id.

The function is AES-256. The same key, outcome and id give the same words on every engine, in every
retry, in any order and in any process, so a repeated run reveals nothing more about a person.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.rows.fingerprint import Fingerprint

_KEY_BYTES = 32
_BLOCK_BYTES = 16
# The first 8 bytes of the first block: what kind of id follows, and how long it is. No encoding of
# an id is then a prefix of another, which is what makes CBC-MAC a pseudorandom function.
_HEADER_BYTES = 8
# Sixteen bytes that are moved together, wherever they stand.
_BLOCK = np.dtype((np.void, _BLOCK_BYTES))
# Ids worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_INTEGERS, _CACHED_TEXTS = 2**14, 2**13
_INTEGER_KIND = 1 << 56
_STRING_KIND = 2 << 56


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

    def for_response(self, outcomes: tuple[str, ...]) -> bytes:
        """The AES key of the channel's draw for outcomes that are released together."""
        # No name holds \x00, so that no two lists of names are alike: each block has its own words.
        return self._derive(b"clusterdp/rows/1/" + "\x00".join(outcomes).encode())

    def for_rounding(self, outcome: str, purpose: Literal["rows", "counts"]) -> bytes:
        """The AES key that a number is rounded with: one for rows, another one for counts."""
        return self._derive(f"clusterdp/rounding/{purpose}/1/{outcome}".encode())

    def for_labels(self) -> bytes:
        """The AES key of the response that private clusters go through."""
        return self._derive(b"clusterdp/labels/1")

    def tag(self, seen: Fingerprint) -> bytes:
        """A checksum of a table, which reveals nothing without the key."""
        return hmac.digest(self._derive(b"clusterdp/table/1"), bytes(seen), "sha256")

    def claim(self) -> str:
        """What runs of this release own a place by: it tells them from others, and no more."""
        return self._derive(b"clusterdp/claim/1").hex()

    def expose(self) -> bytes:
        """The secret itself, for a ledger to keep until the release is published."""
        return self._secret

    def _derive(self, info: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        hkdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info)
        return hkdf.derive(self._secret)


def fold_numbers(units: pl.Series, n_folds: int) -> CodeArray:
    """The public fold of each unit, by a hash of its id that everyone can repeat."""
    words = unit_words(units, hashlib.sha256(b"clusterdp fold").digest())
    return np.asarray(words[:, 0] % np.uint64(n_folds), dtype=np.int32)


def unit_words(units: pl.Series, aes_key: bytes) -> WordArray:
    """128 pseudorandom bits for each unit.

    Args:
        units: Ids, integers or strings without nulls.
        aes_key: From `ReleaseKey.for_response`, `for_rounding` or `for_labels`.

    Returns:
        Axes `[unit, word]`, two 64-bit words each.
    """
    import polars as pl

    words = np.empty((len(units), 2), dtype="<u8")
    if units.dtype != pl.String:
        numbers = units.to_numpy()
        for part in _parts(len(units), _CACHED_INTEGERS):
            words[part] = _integer_words(numbers[part], aes_key)
        return words
    text = _Text.of(units)
    for part in _parts(len(units), _CACHED_TEXTS):
        words[part] = _string_words(text.part(part), aes_key)
    return words


def _parts(n_units: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, n_units, size))


def _integer_words(ids: IntArray, aes_key: bytes) -> WordArray:
    blocks = np.empty((len(ids), 2), dtype="<u8")
    blocks[:, 0] = _INTEGER_KIND + 8
    blocks[:, 1] = ids.astype(np.uint64) if ids.dtype.kind == "u" else ids.astype("<i8").view("<u8")
    return _encrypt(blocks, aes_key)


def _string_words(text: _Text, aes_key: bytes) -> WordArray:
    """CBC-MAC of header and id, for all ids at once: one round for every 16 bytes."""
    taken = _BLOCK_BYTES - _HEADER_BYTES
    blocks = np.empty((len(text.lengths), 2), dtype="<u8")
    blocks[:, 0] = _STRING_KIND + text.lengths.astype(np.uint64)
    blocks[:, 1] = text.bytes_from(0, taken)[:, 0]
    words = _encrypt(blocks, aes_key)
    while (is_longer := text.lengths > taken).any():
        # Of all ids, also of those that ended: leaving them out takes longer.
        following = text.bytes_from(taken, _BLOCK_BYTES)
        following ^= words
        longer = _encrypt(following, aes_key)
        # As blocks: of pairs of words, NumPy would look at each one's place by itself.
        np.copyto(words.view(_BLOCK).ravel(), longer.view(_BLOCK).ravel(), where=is_longer)
        taken += _BLOCK_BYTES
    return words


class _Text(NamedTuple):
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
    def of(cls, ids: pl.Series) -> _Text:
        """The text of some ids. Polars is called twice, however many there are."""
        text = ids.str.join("").item().encode()
        padded = text + bytes(_BLOCK_BYTES)
        lengths = ids.str.len_bytes().to_numpy().astype(np.int64)
        return cls(
            windows=np.ndarray(len(text) + 1, dtype=_BLOCK, buffer=padded, strides=(1,)),
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
        )

    def part(self, units: slice) -> _Text:
        """Some of the ids."""
        return _Text(self.windows, self.starts[units], self.lengths[units])

    def bytes_from(self, first: int, most: int) -> WordArray:
        """Up to 16 bytes of each id, zero-padded; two words, axes `[unit, word]`."""
        places = np.minimum(self.starts + first, len(self.windows) - 1)
        taken: WordArray = self.windows[places].view("<u8")
        taken &= _PREFIX_MASKS[np.clip(self.lengths - first, 0, most)].view("<u8")
        return taken.reshape(-1, 2)


def _encrypt(blocks: WordArray, aes_key: bytes) -> WordArray:
    """AES-256 of every 16-byte block, each on its own."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    # ECB is the bare permutation. Blocks are distinct ids, and nothing here is ciphertext.
    encryptor = Cipher(algorithms.AES(aes_key), modes.ECB()).encryptor()  # noqa: S305
    words = np.empty(2 * len(blocks) + 2, dtype="<u8")  # with the spare block that it asks for
    encryptor.update_into(np.ascontiguousarray(blocks).data.cast("B"), words.data.cast("B"))
    return words[:-2].reshape(-1, 2)


# Row k keeps the first k of 16 bytes.
_PREFIX_MASKS = (
    np.where(np.arange(_BLOCK_BYTES) < np.arange(_BLOCK_BYTES + 1)[:, np.newaxis], 0xFF, 0)
    .astype(np.uint8)
    .view(_BLOCK)
    .ravel()
)
