"""Where a ledger is: a file of SQLite that its owner alone can read, or PostgreSQL by URL."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from clusterdp.errors import LedgerError

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_POSTGRES = ("postgresql", "postgres")
# How long a writer waits for others, in seconds.
PATIENCE = 120


def resolve(where: str) -> tuple[str, sa.URL]:
    """How to show a place without its password, and its URL."""
    try:
        import sqlalchemy as sa
    except ImportError:
        raise LedgerError("ledgers need SQLAlchemy: pip install 'clusterdp[ledger]'") from None

    if "://" not in where and not where.startswith(tuple(f"{name}:" for name in _POSTGRES)):
        return where, sa.URL.create("sqlite", database=os.path.abspath(where))  # noqa: PTH100
    try:
        url = sa.make_url(where)
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError("a ledger is a file, or postgresql://user@host/database") from None
    if url.get_backend_name() not in _POSTGRES:
        raise LedgerError("a ledger is a file, or postgresql://user@host/database")
    return url.render_as_string(hide_password=True), url.set(drivername="postgresql+psycopg")


def create_file(path: Path) -> None:
    """Make an empty file that its owner alone can read."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise LedgerError(f"{path.name} exists already") from None
    except OSError as error:
        raise LedgerError(f"cannot make {path.name}: {error.strerror}") from None
    except ValueError:
        raise LedgerError("a file's name cannot hold that") from None


def check_file(path: Path) -> None:
    """Raise a LedgerError unless a ledger's file is there, and its owner's alone."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        raise LedgerError(
            f"there is no ledger {path.name}; make one with: clusterdp ledger init {path.name} "
            "--cap-epsilon 8"
        ) from None
    if not stat.S_ISREG(mode):
        raise LedgerError(f"{path.name} is not a file, and so no ledger")
    if stat.S_IMODE(mode) & 0o077:
        raise LedgerError(
            f"others can read the ledger {path.name}, and it may hold keys: chmod 600 {path.name}"
        )


def connect(url: sa.URL) -> sa.Engine:
    """A way to the database, whose transactions are one after another and on its disk."""
    import sqlalchemy as sa

    if url.get_backend_name() != "sqlite":
        return sa.create_engine(
            url,
            poolclass=sa.NullPool,
            hide_parameters=True,  # keys are among them
            connect_args={"connect_timeout": 10},
        )
    engine = sa.create_engine(
        url,
        poolclass=sa.NullPool,
        hide_parameters=True,
        connect_args={"timeout": PATIENCE},
    )

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin as said below, not as Python likes
        connection.execute("PRAGMA secure_delete = ON")
        # A commit is on the disk, with the removal of its journal, before anything is published.
        connection.execute("PRAGMA synchronous = EXTRA")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def reason(error: sa.exc.SQLAlchemyError) -> str:
    """What went wrong, in words that hold no data and no password."""
    import sqlalchemy as sa

    told = str(getattr(error, "orig", None) or "").lower()
    reasons = {
        "is locked": "is locked by another command",
        "lock timeout": "is locked by another command",
        "full": "cannot be written: the disk is full",
        "no space left": "cannot be written: the disk is full",
        "readonly": "cannot be written: permission denied",
        "permission denied": "cannot be written: permission denied",
        "not a database": "is not a ledger",
        "malformed": "is damaged",
        "no such table": "is not a ledger: make one with clusterdp ledger init",
        'relation "': "is not a ledger: make one with clusterdp ledger init",
        'database "': "is in no database of that name: create one first",
        'role "': "refused the user or the password",
        "authentication failed": "refused the user or the password",
    }
    for sign, reason in reasons.items():
        if sign in told:
            return reason
    if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
        return "cannot be reached"
    return f"cannot be used ({type(error).__name__})"
