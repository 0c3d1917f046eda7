"""Each unit's randomness: a pseudorandom function of a secret key and the unit's id.

The function is AES-256. The same key, outcome and id give the same words on every engine, in every
retry, in any order and in any process, so a repeated run reveals nothing more about a person.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np

from clusterdp.rows.id_text import BLOCK

if TYPE_CHECKING:
    from clusterdp._arrays import CodeArray, WordArray
    from clusterdp.rows.fingerprint import Fingerprint
    from clusterdp.rows.unit_ids import IdBlocks, UnitIds

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

    def for_attempt(self, number: int) -> ReleaseKey:
        """The key of the rows of one attempt, counted from 1; the first has this one."""
        if number <= 1:
            return self
        return ReleaseKey(self._derive(f"clusterdp/attempt/{number}".encode()))

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
        aes_key: From `ReleaseKey.for_response`, `for_rounding` or `for_labels`.

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
    if ids.lengths is None:
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
        words[places] = _encrypt(words[places] ^ ids.later(number, places), aes_key)
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
