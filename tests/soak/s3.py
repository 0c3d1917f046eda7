"""An S3 server of our own, on this machine alone: moto, as a process.

As a program (`python -m soak.s3 LOG`) it says on which port it listens, and serves until it is
ended. Buckets whose names begin with CARELESS ignore conditions, as servers of other makers do; to
those that begin with REFUSING it admits nobody, and says more of credentials than it should.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MISSING = "there is no S3 server; pip install 'moto[s3]' flask flask-cors"
SECRET = "a-secret-that-nobody-may-see"  # noqa: S105 - of a server that asks for none
CARELESS, REFUSING = "careless-", "refusing-"
_HOST = "127.0.0.1"
_NEEDED = ("moto", "flask", "flask_cors")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, as another client than ours sees it.

    Attributes:
        endpoint: The server.
        name: Its name.
    """

    endpoint: str
    name: str

    @property
    def uri(self) -> str:
        """Its address."""
        return f"s3://{self.name}"

    def put(self, name: str, content: bytes) -> str:
        """Write an object; returns its address."""
        self.client().put_object(Bucket=self.name, Key=name, Body=content)
        return f"{self.uri}/{name}"

    def names(self, folder: str = "") -> set[str]:
        """The names of all objects below a folder, relative to it."""
        prefix = f"{folder}/" if folder else ""
        found = self.client().list_objects_v2(Bucket=self.name, Prefix=prefix)
        return {one["Key"].removeprefix(prefix) for one in found.get("Contents", [])}

    def read(self, folder: str) -> dict[str, bytes]:
        """All objects below a folder."""
        client = self.client()
        return {
            name: client.get_object(Bucket=self.name, Key=f"{folder}/{name}")["Body"].read()
            for name in self.names(folder)
        }

    def remove(self, name: str) -> None:
        """Remove an object."""
        self.client().delete_object(Bucket=self.name, Key=name)

    def open_to_all(self) -> None:
        """Let everyone read what is there."""
        client = self.client()
        client.put_bucket_acl(Bucket=self.name, ACL="public-read")
        for name in self.names():
            client.put_object_acl(Bucket=self.name, Key=name, ACL="public-read")

    def unfinished_uploads(self) -> int:
        """How many objects were begun in parts, and never completed."""
        found = self.client().list_multipart_uploads(Bucket=self.name)
        return len(found.get("Uploads", []))

    def client(self) -> Any:
        """Amazon's own client."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="owner",
            aws_secret_access_key=SECRET,
        )


class Request(NamedTuple):
    """What the server was asked.

    Attributes:
        method: Such as PUT.
        path: The bucket and the object.
        query: What else it was asked about the object, such as a part of it.
        only_new: Whether it was to be written only if there was none.
    """

    method: str
    path: str
    query: str
    only_new: bool


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes:
        endpoint: Its address.
        log: Where it writes down what it was asked.
    """

    endpoint: str
    log: Path

    def requests(self, bucket: Bucket) -> list[Request]:
        """What it was asked about a bucket so far."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines())
        found = (Request(*line) for line in lines)
        return [one for one in found if one.path.startswith(f"/{bucket.name}/")]

    def environment(self) -> dict[str, str]:
        """The variables by which programs find the server, and nothing of this machine's own."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "owner",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": _HOST,
        }

    def new_bucket(self, kind: str = "bucket-") -> Bucket:
        """A fresh bucket."""
        bucket = Bucket(self.endpoint, f"{kind}{uuid.uuid4()}")
        bucket.client().create_bucket(Bucket=bucket.name)
        return bucket


def missing_store() -> str | None:
    """Why no server can run here; None where one can."""
    return None if all(map(importlib.util.find_spec, _NEEDED)) else MISSING


@contextmanager
def running_store() -> Iterator[Server]:
    """A server for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="cdp-s3-"))
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "soak.s3", str(folder / "log")],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(MISSING)
        yield Server(f"http://{_HOST}:{port}", folder / "log")
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


class _OneAtATime:
    """Answers one request after another, once they have arrived: conditions hold, as on S3."""

    def __init__(self, application: Callable[..., Iterable[bytes]], log: Path) -> None:
        self._application, self._lock, self._log = application, threading.Lock(), log

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        n_bytes = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(n_bytes)
        if len(body) < n_bytes:  # whoever sent it is gone
            start("400 Bad Request", [])
            return [b""]
        environ["wsgi.input"] = io.BytesIO(body)
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        only_new = environ.get("HTTP_IF_NONE_MATCH") == "*"
        if path.startswith(f"/{CARELESS}"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if path.startswith(f"/{REFUSING}") and path.count("/") > 1:
            start("403 Forbidden", [])
            return [f"<Error><Code>AccessDenied</Code><Key>{SECRET}</Key></Error>".encode()]
        with self._lock:
            with self._log.open("a") as log:
                log.write(json.dumps([method, path, environ["QUERY_STRING"], only_new]) + "\n")
            return [b"".join(self._application(environ, start))]


def _main() -> None:
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    log = Path(sys.argv[1])
    log.touch()
    application = _OneAtATime(DomainDispatcherApplication(create_backend_app), log)
    server = make_server(_HOST, 0, application, threaded=True, request_handler=MotoRequestHandler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _main()
