"""A signature of a manifest, which has the checksums of all other files: who vouches for a folder.

Checksums detect damage. Anyone can seal a folder again, and nobody but the holder of a key can sign
it. The signature is Ed25519 over the bytes of `manifest.json`, so other tools can check it, too:
`openssl pkeyutl -verify -rawin`. It stands in `signature.json` next to the manifest, and is added
after publishing. No folder needs one.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from clusterdp.errors import FormatError, OutputError, ParameterError
from clusterdp.storage.folder import MANIFEST, MOST_OF_MANIFEST, SIGNATURE, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    from clusterdp.storage.reading import Files

_MOST_BYTES = 2**16
_SHOWN = 16


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who signed a manifest.

    Attributes:
        public_key: The public key, 32 bytes in hexadecimal digits.
        signature: The signature of the manifest's bytes, 64 bytes in hexadecimal digits.
    """

    public_key: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    signature: Annotated[str, Meta(pattern=r"\A[0-9a-f]{128}\Z")]

    @property
    def fingerprint(self) -> str:
        """What people compare: the start of the SHA-256 of the public key."""
        return key_fingerprint(bytes.fromhex(self.public_key))

    def problem(self, manifest: bytes) -> str | None:
        """What is wrong if it is not a signature of these bytes by its key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public_key))
        try:
            key.verify(bytes.fromhex(self.signature), manifest)
        except InvalidSignature:
            return f"{SIGNATURE} is not a signature of this {MANIFEST}"
        return None


def key_fingerprint(public_key: bytes) -> str:
    """The start of the SHA-256 of a public key."""
    return sha256(public_key).hexdigest()[:_SHOWN]


def read_signature(files: Files) -> Signature | None:
    """The signature of a folder; None without one.

    Raises:
        FormatError: If the file is no signature.
    """
    content = files.read(SIGNATURE, _MOST_BYTES)
    if content is None:
        return None
    try:
        found = msgspec.json.decode(content, type=Signature)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if found is None or _written(found) != content:
        raise FormatError(f"{files}/{SIGNATURE} is not a signature; ask the owner for the folder")
    return found


def sign(files: Files, key: Ed25519PrivateKey) -> Signature:
    """Sign the manifest of a folder.

    Raises:
        OutputError: If the folder is signed already.
    """
    manifest = files.read(MANIFEST, MOST_OF_MANIFEST)
    if manifest is None:
        raise FormatError(f"{files} has no {MANIFEST}; give the published folder")
    if files.size(SIGNATURE) is not None:
        raise OutputError(
            f"{files} is signed already. Nothing was written. Fix: to sign it with another key, "
            f"remove {SIGNATURE} first"
        )
    made = Signature(
        public_key=key.public_key().public_bytes_raw().hex(), signature=key.sign(manifest).hex()
    )
    files.append(SIGNATURE, _written(made).decode())
    return made


def _written(signature: Signature) -> bytes:
    return msgspec.json.format(msgspec.json.encode(signature), indent=2) + b"\n"


def write_new_key(path: Path) -> str:
    """Make a key pair: a private key that its owner alone can read, and NAME.pub to give away.

    Returns:
        The fingerprint of the public key.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, public = Ed25519PrivateKey.generate(), path.with_name(f"{path.name}.pub")
    private_text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public_text = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for place, text, mode in ((path, private_text, 0o600), (public, public_text, 0o644)):
        try:
            # Never over another key.
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            raise OutputError(f"{place} exists; give another name") from None
        except OSError as error:
            raise OutputError(f"cannot write {place}: {error.strerror}") from None
        with os.fdopen(handle, "wb") as file:
            file.write(text)
    return key_fingerprint(key.public_key().public_bytes_raw())


def read_private_key(path: Path, ask: Callable[[], str]) -> Ed25519PrivateKey:
    """A private key from its file (PEM); `ask` gives the passphrase of one that is encrypted."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read_key(path)
    password = ask().encode() if b"ENCRYPTED" in content else None
    try:
        key = load_pem_private_key(content, password)
    except (ValueError, TypeError):
        raise ParameterError(
            f"{path} is no private key in PEM, or its passphrase is another. Fix: make one with "
            "clusterdp sign --new-key NAME"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ParameterError(f"{path} is a key of another kind; give an Ed25519 key")
    return key


def read_public_key(path: Path) -> bytes:
    """The 32 bytes of a public key from its file (PEM, or hexadecimal digits)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _read_key(path)
    if re.fullmatch(rb"\s*[0-9a-f]{64}\s*", content):
        return bytes.fromhex(content.decode())
    try:
        key: Ed25519PublicKey | object = load_pem_public_key(content)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ParameterError(f"{path} is no public Ed25519 key in PEM; give the owner's NAME.pub")
    return key.public_bytes_raw()


def _read_key(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES)
    except FileNotFoundError:
        raise ParameterError(f"there is no file {path}; check its name") from None
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror}") from None
