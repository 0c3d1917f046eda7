"""Objects below an address of an object store: s3://bucket/folder, gs:// and az:// likewise.

Stores are reached with the settings and credentials that other tools use, too. Those of Amazon's
come from botocore: environment variables, configuration files, roles of machines. Those of other
stores are found by the libraries that read and write there.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clusterdp.errors import ClusterDPError, OutputError, raise_alone
from clusterdp.storage.folder import CLAIM, MOST_OF_MANIFEST, MOST_OF_TEXT, FileSum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import polars as pl
    from botocore.credentials import Credentials
    from obstore.store import ObjectStore as Objects


AMAZON = "s3"
SCHEMES = (AMAZON, "gs", "az")
NOT_INSTALLED = "needs more packages: pip install '.[stores]'"
# Where no setting names a region; servers that are not Amazon's ignore it.
_ANY_REGION = "us-east-1"
_OF_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
# How long credentials are used before they are asked for again.
_FRESH = timedelta(minutes=10)


class AccessError(ClusterDPError):
    """A store cannot be reached with the settings that were found."""


def is_store(place: str) -> bool:
    """Whether a place is in an object store, such as s3://bucket/folder."""
    scheme, mark, _ = place.partition("://")
    return bool(mark) and scheme in SCHEMES


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """The settings and credentials of a store.

    Attributes:
        settings: Settings by the names that the Rust library `object_store` gives them, without
            the prefix `aws_`. Empty where that library finds them by itself.
        unencrypted: Whether the store is reached by plain HTTP.
        credentials: Gives credentials that are valid now; None where none can be given.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    unencrypted: bool = False
    credentials: Credentials | None = field(default=None, repr=False)

    def for_obstore(self) -> dict[str, Any]:
        """Arguments of a store of obstore's."""
        given: dict[str, Any] = dict(self.settings)
        if self.credentials is not None:
            given["credential_provider"] = self._obstore_credentials
        return given

    def for_polars(self) -> dict[str, Any]:
        """Arguments of the functions of Polars that read files."""
        if not self.settings:
            return {}
        options = {f"aws_{name}": value for name, value in self.settings.items()}
        options["aws_allow_http"] = str(self.unencrypted).lower()
        provider = None if self.credentials is None else self._polars_credentials
        return {"storage_options": options, "credential_provider": provider}

    def _obstore_credentials(self) -> dict[str, Any]:
        found = self._found()
        names = ("access_key_id", "secret_access_key", "token")
        return {**dict(zip(names, found, strict=True)), "expires_at": datetime.now(UTC) + _FRESH}

    def _polars_credentials(self) -> tuple[dict[str, str], int]:
        key, secret, token = self._found()
        given = {"aws_access_key_id": key or "", "aws_secret_access_key": secret or ""}
        given |= {} if token is None else {"aws_session_token": token}
        return given, int((datetime.now(UTC) + _FRESH).timestamp())

    def _found(self) -> tuple[str | None, str | None, str | None]:
        assert self.credentials is not None  # noqa: S101 - only asked for then
        found = self.credentials.get_frozen_credentials()
        return found.access_key, found.secret_key, found.token


def _amazon_access() -> Access:
    """The access to stores of Amazon's kind.

    Raises:
        AccessError: If no credentials are found, or the settings contradict each other.
    """
    try:
        import botocore.session
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise AccessError(NOT_INSTALLED) from None
    session = botocore.session.get_session()
    try:
        anonymous = _is_set("AWS_SKIP_SIGNATURE")
        credentials = None if anonymous else session.get_credentials()
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region")
        endpoint = _endpoint(session.get_scoped_config())
    except BotoCoreError as error:  # whose text may quote files
        raise AccessError(
            f"has settings of AWS that cannot be used ({type(error).__name__}); check AWS_PROFILE "
            "and the files in ~/.aws"
        ) from None
    if credentials is None and not anonymous:
        raise AccessError(
            "needs credentials, and none were found: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or run aws configure"
        )
    settings = {"region": region or _ANY_REGION, "skip_signature": str(anonymous).lower()}
    if endpoint is None:
        return Access(settings, credentials=credentials)
    settings["endpoint"] = endpoint
    return Access(settings, _may_be_unencrypted(endpoint), credentials)


def _endpoint(configured: Mapping[str, Any]) -> str | None:
    """The address of a server that is not Amazon's; None for Amazon's own."""
    if _is_set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"):
        return None
    of_s3, of_all = (os.environ.get(f"AWS_ENDPOINT_URL{end}") for end in ("_S3", ""))
    return of_s3 or of_all or configured.get("endpoint_url")


def _may_be_unencrypted(endpoint: str) -> bool:
    """Whether a server is reached by plain HTTP: on this machine, or where that is wanted."""
    address = urlsplit(endpoint)
    if address.scheme == "https":
        return False
    if address.hostname in _OF_THIS_MACHINE or _is_set("AWS_ALLOW_HTTP"):
        return True
    raise AccessError(
        "would be reached without encryption; give an https:// address in AWS_ENDPOINT_URL"
    )


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "yes"}


# An object larger than one part is uploaded in parts, and appears when all of them are there.
_PART_BYTES = 2**24
# No store takes more parts than this of one object.
_MOST_PARTS = 9000
_PARTS_AT_ONCE = 4
_CLIENT = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(minutes=3)}
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(minutes=3)}
# Parts of a path that name nothing in a store.
_NO_NAMES = {"", ".", ".."}
# What stores answer to credentials that they do not accept.
_REFUSED = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "403 Forbidden",
    "401 Unauthorized",
)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectStore:
    """Objects below an address, each of them a file of a published folder (`reading.py: Files`).

    Attributes:
        uri: The address, such as `s3://bucket/folder`.
        access: How the store is reached.
        errors: The kind of error to raise if something goes wrong.
    """

    uri: str
    access: Access
    errors: type[ClusterDPError]
    _objects: Objects = field(repr=False)

    def __str__(self) -> str:
        return self.uri

    @classmethod
    def open(cls, uri: str, errors: type[ClusterDPError]) -> ObjectStore:
        """The objects below an address; the store is not asked yet.

        Raises:
            ClusterDPError: Of the given kind, if there are no credentials, packages are missing, or
                it is no address.
        """
        scheme, _, rest = uri.partition("://")
        bucket, _, folder = rest.strip("/").partition("/")
        if "@" in bucket:  # it is not repeated: it may hold a password
            raise errors("an address in object storage has a bucket and a folder, and no user")
        if not bucket:
            raise errors(f"{uri} names no bucket; write {scheme}://bucket/folder")
        if folder and not _NO_NAMES.isdisjoint(folder.split("/")):
            raise errors(
                f"{uri} has an empty name in it, or . or ..; write {scheme}://bucket/folder"
            )
        try:
            access = _amazon_access() if scheme == AMAZON else Access()
            objects = _objects_of(scheme, bucket, folder, access)
        except AccessError as error:
            raise errors(f"{uri} {error}") from None
        address = f"{scheme}://{bucket}/{folder}".rstrip("/")
        return cls(address, access, errors, objects)

    @property
    def name(self) -> str:
        """What the folder is called, without where it is."""
        return self.uri.rpartition("/")[2]

    def exists(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.sizes())

    def names(self) -> list[str]:
        """The names of all objects, without the claim of a run that was killed at its end."""
        return [name for name in self.sizes() if name != CLAIM]

    def is_link(self, name: str) -> bool:  # noqa: ARG002 - stores have none
        """No: stores have no links."""
        return False

    def is_taken(self, name: str) -> bool:
        """Whether there is an object of that name."""
        return self.size(name) is not None

    def sizes(self) -> dict[str, int]:
        """The sizes of all objects, by their names below the address."""
        import obstore

        with self._plain_errors():
            found = (one for chunk in obstore.list(self._objects) for one in chunk)
            return {one["path"]: one["size"] for one in found if one["path"]}

    def size(self, name: str) -> int | None:
        """The size of an object; None if no object has that name."""
        import obstore

        with self._plain_errors():
            try:
                return obstore.head(self._objects, name)["size"]
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None

    def read(self, name: str, most: int = MOST_OF_MANIFEST) -> bytes | None:
        """An object of at most so many bytes as it is; None if no object has that name."""
        import obstore

        with self._plain_errors():
            try:
                found = obstore.get(self._objects, name)
                if found.meta["size"] > most:
                    raise self.errors(f"cannot read {self}/{name}: larger than {most:,} bytes")
                return bytes(found.bytes())
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None

    def part(self, name: str, start: int, n_bytes: int) -> bytes:
        """So many bytes of an object from a place on, or as many as there are."""
        import obstore

        if min(start, n_bytes) < 0:
            raise ValueError(start)

        with self._plain_errors():
            return bytes(obstore.get_range(self._objects, name, start=start, length=n_bytes))

    def sum(self, name: str) -> FileSum:
        """The size and checksum of an object, which is read in pieces."""
        import obstore

        digest, n_bytes = hashlib.sha256(), 0
        with self._plain_errors():
            for piece in obstore.get(self._objects, name):
                digest.update(piece)
                n_bytes += len(piece)
        return FileSum(n_bytes, digest.hexdigest())

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of that name; returns whether it was written."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._plain_errors():
            try:
                obstore.put(self._objects, name, content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def append(self, name: str, text: str) -> None:
        """Write an object again with more at its end: nothing can be added to one."""
        import obstore

        before = self.read(name, MOST_OF_TEXT)
        content = (before or b"") + text.encode()
        if before is None and not self.create(name, content):
            raise OutputError(f"another run wrote {self}/{name} at the same time; try again")
        if before is not None:
            with self._plain_errors():
                obstore.put(self._objects, name, content)

    def upload(self, name: str, path: Path) -> None:
        """Write a file as an object, in place of any other. It appears complete or not at all."""
        import obstore

        part = max(_PART_BYTES, path.stat().st_size // _MOST_PARTS)
        with self._plain_errors():
            obstore.put(self._objects, name, path, chunk_size=part, max_concurrency=_PARTS_AT_ONCE)

    def remove(self, name: str) -> None:
        """Remove an object."""
        import obstore

        with self._plain_errors():
            obstore.delete(self._objects, name)

    def scan_parquet(self, names: list[str]) -> pl.LazyFrame:
        """A query over Parquet objects, read as it needs them."""
        import polars as pl

        addresses = [f"{self.uri}/{name}" for name in names]
        return pl.scan_parquet(addresses, glob=False, **self.access.for_polars())

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Errors of the store in a line that repeats nothing of its answer but its kind."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, ClusterDPError):
                raise
            raise_alone(self.errors(f"{self.uri} {_reason(error, self.uri)}"))

    def _check_bucket(self, error: FileNotFoundError) -> None:
        """Go on with the error of a bucket that is not there."""
        if "NoSuchBucket" in str(error):
            raise error


def _objects_of(scheme: str, bucket: str, folder: str, access: Access) -> Objects:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError:
        raise AccessError(NOT_INSTALLED) from None
    given: dict[str, Any] = {
        "prefix": folder or None,
        "client_options": {**_CLIENT, "allow_http": access.unencrypted},
        "retry_config": _RETRIES,
        **access.for_obstore(),
    }
    kinds: dict[str, Any] = {AMAZON: S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        objects: Objects = kinds[scheme](bucket, **given)
    except (BaseError, ValueError):  # whose text may quote settings
        raise AccessError(
            "cannot be reached with the settings of this machine; check its environment variables"
        ) from None
    return objects


def _reason(error: BaseException, uri: str) -> str:
    """What went wrong, and what to do about it."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    text = str(error)
    if "NoSuchBucket" in text:
        bucket = uri.split("/", 3)[2]
        return f"cannot be used: there is no bucket {bucket!r}; make it, or check its name"
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or any(
        answer in text for answer in _REFUSED
    ):
        return (
            "cannot be accessed with these credentials; they need to list and read there, and to "
            "publish also to write and remove"
        )
    if isinstance(error, FileNotFoundError):
        return "lost an object while it was read; try again"
    return f"cannot be reached ({type(error).__name__}); try again"
