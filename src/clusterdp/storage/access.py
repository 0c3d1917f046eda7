"""How object stores are reached: the settings and credentials that other tools use, too.

Those of Amazon's come from botocore: environment variables, configuration files, roles of machines.
Those of other stores are found by the libraries that read and write there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clusterdp.errors import ClusterDPError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.credentials import Credentials

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
        credentials: Gives credentials that are valid now; None if there are none to give.
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


def find_access(scheme: str) -> Access:
    """The access to stores of a kind.

    Raises:
        AccessError: If no credentials are found, or the settings contradict each other.
    """
    return _amazon_access() if scheme == AMAZON else Access()


def _amazon_access() -> Access:
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
