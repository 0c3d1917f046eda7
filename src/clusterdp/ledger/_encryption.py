"""Encryption of the secrets of unfinished releases, with a passphrase or a key file."""

from __future__ import annotations

import base64
import os
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from clusterdp.errors import LedgerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


Protection = Literal["none", "passphrase", "key file"]

_KEY_BYTES, _NONCE_BYTES, _SALT_BYTES = 32, 12, 16
_KNOWN = b"clusterdp ledger"
# Permissions of everybody but the owner.
_OTHERS = 0o077
# A third of a second and 64 MB for each guess at a passphrase.
_SCRYPT_COST = 2**16


@dataclass(frozen=True, slots=True)
class Encryption:
    """Encrypts and decrypts with one key; without a key it leaves secrets as they are.

    Attributes:
        protection: Where the key comes from.
        salt: Random bytes, so that two ledgers with one passphrase have different keys.
    """

    protection: Protection = "none"
    salt: bytes = b""
    _key: bytes | None = field(default=None, repr=False)

    @classmethod
    def new(
        cls, *, passphrase: str | None = None, key_file: str | Path | None = None
    ) -> Encryption:
        """The encryption of a new ledger; none without a passphrase and a key file."""
        if passphrase is not None and key_file is not None:
            raise LedgerError("give a passphrase or a key file, not both")
        return _open(os.urandom(_SALT_BYTES), passphrase, key_file)

    @classmethod
    def unlocked(
        cls,
        described: dict[str, Any],
        *,
        passphrase: str | None = None,
        key_file: str | Path | None = None,
    ) -> Encryption:
        """The encryption of a ledger, from its description.

        Raises:
            LedgerError: If the passphrase or the key file is missing or wrong, or if one is given
                for a ledger that encrypts nothing: anyone who can replace the ledger could
                otherwise read the next key.
        """
        wanted = described["protection"]
        if wanted == "none":
            if key_file is not None or passphrase is not None:
                kind = "passphrase" if key_file is None else "key file"
                raise unencrypted_error(f"a {kind} was given", kind)
            return cls()
        if key_file is not None and wanted != "key file":
            raise LedgerError("the ledger was not made with a key file; give its passphrase")
        given = {"passphrase": passphrase, "key file": key_file}[wanted]
        if given is None:
            raise LedgerError(f"the ledger's secrets are encrypted; give its {wanted}")
        salt = base64.b64decode(described["salt"])
        encryption = _open(salt, passphrase, key_file if wanted == "key file" else None)
        if encryption.decrypt(base64.b64decode(described["test"]), "test") != _KNOWN:
            raise LedgerError(f"this is not the ledger's {wanted}")
        return encryption

    def describe(self) -> dict[str, Any]:
        """What a ledger stores to unlock it again; none of it is secret."""
        if self._key is None:
            return {"protection": "none"}
        return {
            "protection": self.protection,
            "salt": base64.b64encode(self.salt).decode(),
            "test": base64.b64encode(self.encrypt(_KNOWN, "test")).decode(),
        }

    def encrypt(self, secret: bytes, context: str) -> bytes:
        """Encrypt a secret; it can only be decrypted in the same context."""
        if self._key is None:
            return secret
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + _cipher(self._key).encrypt(nonce, secret, context.encode())

    def decrypt(self, stored: bytes, context: str) -> bytes:
        """Decrypt a secret.

        Raises:
            LedgerError: If the key is wrong, or the stored bytes or their context were changed.
        """
        if self._key is None:
            return stored
        from cryptography.exceptions import InvalidTag

        nonce, encrypted = stored[:_NONCE_BYTES], stored[_NONCE_BYTES:]
        try:
            return _cipher(self._key).decrypt(nonce, encrypted, context.encode())
        except (InvalidTag, ValueError):
            raise LedgerError(
                f"this is not the ledger's {self.protection}, or its secrets were changed"
            ) from None


def is_described(described: Any) -> bool:
    """Whether a ledger's description of its encryption is complete."""
    try:
        if described["protection"] == "none":
            return True
        salt, test = (base64.b64decode(described[name], validate=True) for name in ("salt", "test"))
    except (LookupError, TypeError, ValueError):
        return False
    known = described["protection"] in get_args(Protection)
    return known and len(salt) == _SALT_BYTES and bool(test)


def unencrypted_error(given: str, kind: str) -> LedgerError:
    """The error for a ledger that encrypts nothing although its owner expects it to."""
    return LedgerError(
        f"{given}, but this ledger does not encrypt keys, and may have been replaced; use the "
        f"ledger that was made with the {kind}"
    )


def _open(salt: bytes, passphrase: str | None, key_file: str | Path | None) -> Encryption:
    if key_file is not None:
        return Encryption("key file", salt, _from_file(Path(key_file), salt))
    if passphrase is not None:
        return Encryption("passphrase", salt, _from_passphrase(passphrase, salt))
    return Encryption()


def _from_passphrase(passphrase: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    if not passphrase:
        raise LedgerError("a passphrase must not be empty")
    scrypt = Scrypt(salt=salt, length=_KEY_BYTES, n=_SCRYPT_COST, r=8, p=1)
    return scrypt.derive(passphrase.encode())


def _from_file(path: Path, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read()
    except OSError as error:
        raise LedgerError(f"cannot read the key file {path}: {error.strerror}") from None
    except ValueError:
        raise LedgerError("invalid key file path") from None
    if mode & _OTHERS:
        raise LedgerError(
            f"others can read or write the key file {path} (mode {mode:03o}); restrict it with: "
            f"chmod 600 {shlex.quote(str(path))}"
        )
    if len(content) < _KEY_BYTES:
        raise LedgerError(
            f"the key file {path} has {len(content)} bytes; it needs {_KEY_BYTES} random ones, "
            f"as from: (umask 077; head -c {_KEY_BYTES} /dev/urandom > {shlex.quote(path.name)})"
        )
    hkdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=salt, info=b"clusterdp/ledger/1")
    return hkdf.derive(content)


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
