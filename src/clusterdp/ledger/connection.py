"""Where a ledger is stored: a SQLite file that only its owner can read, or a PostgreSQL URL."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING, Any

from clusterdp.errors import LedgerError

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_POSTGRES = ("postgresql", "postgres")
# How long a writer waits for the lock, in seconds.
LOCK_TIMEOUT = 120

_LOCKED = "is locked by another command; try again later"
_FULL = "cannot be written: the disk is full"
_DENIED = "cannot be written: permission denied"
_NO_TABLES = "is not a ledger that this version can read; make one with: clusterdp ledger init"
_REFUSED = "refused the user or the password"
_UNREACHABLE = "cannot be reached"
_DAMAGED = "is damaged"
_REASONS = {
    # https://www.sqlite.org/rescode.html: names of results, without their extensions.
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY": _DENIED,
    "SQLITE_PERM": _DENIED,
    "SQLITE_NOTADB": "is not a ledger",
    "SQLITE_CORRUPT": _DAMAGED,
    # Our statements are correct, so an error in one means that a table or a column is missing.
    "SQLITE_ERROR": _NO_TABLES,
    "SQLITE_CANTOPEN": "cannot be opened; check the permissions of its file and its folder",
    "SQLITE_IOERR": "cannot be read or written: the disk reports an error",
    # https://www.postgresql.org/docs/current/errcodes-appendix.html: codes, or their classes.
    "55P03": _LOCKED,
    "40P01": _LOCKED,
    "53100": _FULL,
    "25006": _DENIED,
    "42501": _DENIED,
    "42P01": _NO_TABLES,
    "42703": _NO_TABLES,
    "3D000": "names a database that does not exist; create the database first",
    "28": _REFUSED,
    "08": _UNREACHABLE,
    "57P": _UNREACHABLE,
    "XX": _DAMAGED,
}


def resolve(where: str) -> tuple[str, sa.URL]:
    """The location without its password, for messages; and its URL."""
    try:
        import sqlalchemy as sa
    except ImportError:
        raise LedgerError("ledgers need SQLAlchemy: pip install '.[ledger]'") from None

    if "://" not in where and not where.startswith(tuple(f"{name}:" for name in _POSTGRES)):
        return where, sa.URL.create("sqlite", database=os.path.abspath(where))  # noqa: PTH100 - resolve() would follow links
    try:
        url = sa.make_url(where)
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError("a ledger is a file, or postgresql://user@host/database") from None
    if url.get_backend_name() not in _POSTGRES:
        raise LedgerError("a ledger is a file, or postgresql://user@host/database")
    return url.render_as_string(hide_password=True), url.set(drivername="postgresql+psycopg")


def create_file(path: Path) -> None:
    """Create an empty file that only its owner can read."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise LedgerError(
            f"{path.name} exists already; if it is your ledger, open it: "
            f"clusterdp.Ledger({path.name!r})"
        ) from None
    except OSError as error:
        raise LedgerError(f"cannot create {path.name}: {error.strerror}") from None
    except ValueError:
        raise LedgerError("the ledger has a name that no file can have") from None


def check_file(path: Path) -> None:
    """Raise a LedgerError unless the file exists and only its owner can read it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        raise LedgerError(
            f"there is no ledger {path.name}; make one: clusterdp.Ledger.create({path.name!r}, "
            f"cap_epsilon=8) (clusterdp ledger init {shlex.quote(path.name)} --cap-epsilon 8)"
        ) from None
    if not stat.S_ISREG(mode):
        raise LedgerError(f"{path.name} is not a ledger: it is not a file")
    if stat.S_IMODE(mode) & 0o077:
        raise LedgerError(
            f"others can read the ledger {path.name}, and it may hold keys: chmod 600 {path.name}"
        )


def connect(url: sa.URL) -> sa.Engine:
    """An engine whose transactions run one after another and are on disk when they end."""
    import sqlalchemy as sa

    if url.get_backend_name() != "sqlite":
        return sa.create_engine(
            url,
            poolclass=sa.NullPool,
            hide_parameters=True,  # keys are among them
            # Each statement sees what was written before it. A server may have another default, by
            # which all of a transaction sees what was there before it had waited for the lock.
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": 10},
        )
    engine = sa.create_engine(
        url,
        poolclass=sa.NullPool,
        hide_parameters=True,
        connect_args={"timeout": LOCK_TIMEOUT},
    )

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin below, not when Python decides
        connection.execute("PRAGMA secure_delete = ON")
        # A commit, and the removal of its journal, are on disk before anything is published.
        connection.execute("PRAGMA synchronous = EXTRA")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def explain(error: sa.exc.SQLAlchemyError) -> str:
    """What went wrong, from the database's error code; it holds no data and no password."""
    import sqlalchemy as sa

    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None)
    if code is not None:
        found = max((known for known in _REASONS if code.startswith(known)), key=len, default=None)
        return _REASONS[found] if found else f"cannot be used (error {code})"
    connection = getattr(original, "pgconn", None)
    if connection is not None:
        return _explain_refusal(connection)
    if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
        # Without a code, PostgreSQL's driver lost the server, and SQLite's read damaged text.
        return _UNREACHABLE if hasattr(original, "sqlstate") else _DAMAGED
    return f"cannot be used ({type(error).__name__})"


def _explain_refusal(connection: Any) -> str:
    """Why PostgreSQL refused a connection; libpq gives no code for that."""
    from psycopg import conninfo, pq

    address = conninfo.make_conninfo(
        host=connection.host.decode(), port=connection.port.decode(), connect_timeout=3
    )
    if pq.PGconn.ping(address.encode()) != pq.Ping.OK:
        return _UNREACHABLE
    if connection.needs_password or connection.used_password:
        return _REFUSED
    return "was refused by its server; check that the database exists and that the user may use it"
