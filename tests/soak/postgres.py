"""A PostgreSQL server of our own, on a socket in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = "PostgreSQL's server is not on this machine; on Debian: apt-get install postgresql"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be stopped and started.

    Attributes:
        programs: Where initdb and pg_ctl are.
        folder: Where its data and its socket are.
        user: Who runs it: PostgreSQL refuses to be run by root.
    """

    programs: Path
    folder: Path
    user: str

    def url(self, database: str = "postgres") -> str:
        """How to reach a database."""
        return f"postgresql://{self.user}@/{database}?host={self.folder}"

    def new_database(self, name: str) -> str:
        """A fresh database's URL."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return self.url(name)

    def for_reader(self, url: str) -> str:
        """A database's URL, for a user who can read all tables and do nothing else."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            if not connection.execute("select from pg_roles where rolname = 'reader'").rowcount:
                connection.execute("create role reader login")
                connection.execute("grant pg_read_all_data to reader")
        return url.replace(f"//{self.user}@", "//reader@", 1)

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' -c fsync=off"
        self._run("pg_ctl", "-D", self._data, "-w", "-o", options, "-l", self._log, "start")

    def stop(self) -> None:
        """Stop at once, as a crash would."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")

    def initialize(self) -> None:
        """Make its data folder."""
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", self.user, "--no-sync")

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def _log(self) -> str:
        return str(self.folder / "log")

    def _run(self, program: str, *arguments: str) -> None:
        as_user = self.user if os.geteuid() == 0 else None
        subprocess.run(  # noqa: S603 - programs of PostgreSQL, arguments of our own
            [str(self.programs / program), *arguments],
            check=True,
            user=as_user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def missing_server() -> str | None:
    """Why no server can run here; None where one can."""
    return MISSING if find_programs() is None else None


def find_programs() -> Path | None:
    """Where PostgreSQL's server programs are; None where there are none."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextmanager
def running_server() -> Iterator[Server]:
    """A server for as long as the block lasts."""
    programs = find_programs()
    if programs is None:
        raise FileNotFoundError(MISSING)
    # A short path: sockets have no room for long ones.
    folder = Path(tempfile.mkdtemp(prefix="cdp-pg-"))
    user = pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        user = next(name for name in ("postgres", "nobody") if _exists(name))
        shutil.chown(folder, user)
    server = Server(programs=programs, folder=folder, user=user)
    try:
        server.initialize()
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
