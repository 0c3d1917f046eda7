"""The ledger's storage: a chain of entries, and the secrets of releases that are not finished.

SQLite in a file of its own, or PostgreSQL by URL. Whoever writes holds a lock over the whole ledger
until its transaction ends, so entries follow one another and budgets are never read half-way.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa

_POSTGRES = ("postgresql", "postgres")
# How long a writer waits for others, in seconds.
_PATIENCE = 120
# The lock of all ledgers in a PostgreSQL database; any number will do.
_LOCK = 0x636C7573
# What stands for the hash before the first.
FIRST_PREVIOUS = "0" * 64


class Entry(NamedTuple):
    """One line of the ledger. Entries are added, and never changed.

    Attributes:
        number: Its place in the chain, from 0.
        at: When, in UTC.
        who: The user that ran the command.
        event: "opened", "reserved", "drawn", "committed" or "cancelled".
        release: The release it is about; empty for the first.
        content: What there is to say.
        previous: The hash of the entry before.
        hash: The hash of all of the above.
    """

    number: int
    at: str
    who: str
    event: str
    release: str
    content: dict[str, Any]
    previous: str
    hash: str

    def expected_hash(self) -> str:
        """The hash that the entry should have."""
        # A database may hold bytes where text belongs; that makes another hash, too.
        said = json.dumps(self[:-1], sort_keys=True, separators=(",", ":"), default=repr)
        return hashlib.sha256(said.encode()).hexdigest()


class Secrets(NamedTuple):
    """What is kept of an unfinished release, as it is stored.

    Attributes:
        key: The key of its rows.
        drawn: What its first pass drew; None before.
        sealed: The checksum of the manifest it is about to publish; None before. Not a secret.
    """

    key: bytes
    drawn: bytes | None
    sealed: str | None


class Books:
    """A ledger's tables, in a database."""

    def __init__(self, where: str) -> None:
        """Open the tables.

        Raises:
            LedgerError: If there are none, or others can read them.
        """
        self._shown, url = _resolve(where)
        self._is_file = url.get_backend_name() == "sqlite"
        if self._is_file:
            _check_file(Path(str(url.database)))
        self._tables = _tables()
        with self._errors():
            self._engine = _connect(url)

    @classmethod
    def create(cls, where: str, content: dict[str, Any]) -> None:
        """Make the tables, with a first entry.

        Raises:
            LedgerError: If there are some already, or they cannot be made.
        """
        _, url = _resolve(where)
        path = Path(str(url.database)) if url.get_backend_name() == "sqlite" else None
        if path is not None:
            _create_file(path)
        try:
            books = cls(where)
            with books.writing() as transaction:
                transaction.create()
                transaction.append(event="opened", release="", content=content)
        except BaseException:
            if path is not None:
                path.unlink()
            raise

    def __str__(self) -> str:
        return self._shown

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import sqlalchemy as sa

        try:
            yield
        except ModuleNotFoundError as error:
            if error.name != "psycopg":
                raise
            raise LedgerError(
                "PostgreSQL ledgers need psycopg: pip install 'clusterdp[postgres]'"
            ) from None
        except UnicodeDecodeError:  # SQLite quotes what it found in place of text
            raise LedgerError(f"the ledger {self._shown} is damaged") from None
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self._shown} {_reason(error)}") from None

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that nobody else writes during: all of it happens, or none."""
        import sqlalchemy as sa

        with self._errors(), self._engine.begin() as connection:
            if not self._is_file:
                # Whatever the server is set to: a commit is on its disk, and waits for its turn.
                connection.execute(sa.text("SET LOCAL synchronous_commit = on"))
                connection.execute(sa.text(f"SET LOCAL lock_timeout = '{_PATIENCE}s'"))
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield Transaction(connection, self._tables)

    def entries(self) -> list[Entry]:
        """All entries, in their order."""
        with self._errors(), self._engine.connect() as connection:
            return Transaction(connection, self._tables).entries()

    def secrets(self, release: str) -> Secrets | None:
        """What is kept of a release; None once it is finished."""
        with self._errors(), self._engine.connect() as connection:
            return Transaction(connection, self._tables).secrets(release)

    def unfinished(self) -> list[str]:
        """The releases whose secrets are kept."""
        import sqlalchemy as sa

        table = self._tables["secrets"]
        with self._errors(), self._engine.connect() as connection:
            return list(connection.execute(sa.select(table.c.release)).scalars())


class Transaction:
    """Reading and writing within one transaction."""

    def __init__(self, connection: sa.Connection, tables: dict[str, sa.Table]) -> None:
        self._connection, self._tables = connection, tables

    def create(self) -> None:
        """Make the tables."""
        import sqlalchemy as sa

        entries = self._tables["entries"]
        if sa.inspect(self._connection).has_table(entries.name):
            raise LedgerError("there is a ledger already")
        entries.metadata.create_all(self._connection)

    def entries(self) -> list[Entry]:
        """All entries, in their order."""
        import sqlalchemy as sa

        table = self._tables["entries"]
        rows = self._connection.execute(sa.select(table).order_by(table.c.number))
        return [Entry(**{**row, "content": _read(row["content"])}) for row in rows.mappings()]

    def append(self, *, event: str, release: str, content: dict[str, Any]) -> Entry:
        """Add an entry to the chain."""
        from datetime import UTC, datetime

        import sqlalchemy as sa

        table = self._tables["entries"]
        last = self._connection.execute(
            sa.select(table.c.number, table.c.hash).order_by(table.c.number.desc()).limit(1)
        ).first()
        entry = Entry(
            number=0 if last is None else last.number + 1,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            who=_user(),
            event=event,
            release=release,
            content=content,
            previous=FIRST_PREVIOUS if last is None else last.hash,
            hash="",
        )
        entry = entry._replace(hash=entry.expected_hash())
        stored = {**entry._asdict(), "content": json.dumps(content, sort_keys=True)}
        self._connection.execute(sa.insert(table).values(**stored))
        return entry

    def secrets(self, release: str) -> Secrets | None:
        """What is kept of a release."""
        import sqlalchemy as sa

        table = self._tables["secrets"]
        found = self._connection.execute(sa.select(table).where(table.c.release == release)).first()
        return None if found is None else Secrets(found.key, found.drawn, found.sealed)

    def add_key(self, release: str, key: bytes) -> None:
        """Keep the key of a release."""
        import sqlalchemy as sa

        table = self._tables["secrets"]
        self._connection.execute(sa.insert(table).values(release=release, key=key))

    def set_drawn(self, release: str, drawn: bytes) -> bool:
        """Keep what was drawn; False if something is kept already, or the release is finished."""
        import sqlalchemy as sa

        table = self._tables["secrets"]
        mine = (table.c.release == release) & table.c.drawn.is_(None)
        changed = self._connection.execute(sa.update(table).where(mine).values(drawn=drawn))
        return changed.rowcount == 1

    def set_sealed(self, release: str, sealed: str) -> None:
        """Keep the checksum of a manifest."""
        import sqlalchemy as sa

        table = self._tables["secrets"]
        mine = table.c.release == release
        self._connection.execute(sa.update(table).where(mine).values(sealed=sealed))

    def wipe(self, release: str) -> None:
        """Forget the secrets of a release."""
        import sqlalchemy as sa

        table = self._tables["secrets"]
        # Overwritten before it is removed: what a database keeps of old rows is then of no use.
        mine = table.c.release == release
        self._connection.execute(sa.update(table).where(mine).values(key=b"", drawn=None))
        self._connection.execute(sa.delete(table).where(mine))


def _tables() -> dict[str, sa.Table]:
    import sqlalchemy as sa

    metadata = sa.MetaData()
    entries = sa.Table(
        "clusterdp_entries",
        metadata,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("at", "who", "event", "release", "content", "previous", "hash")
        ),
    )
    secrets = sa.Table(
        "clusterdp_secrets",
        metadata,
        sa.Column("release", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("drawn", sa.LargeBinary),
        sa.Column("sealed", sa.Text),
    )
    return {"entries": entries, "secrets": secrets}


def _resolve(where: str) -> tuple[str, sa.URL]:
    """How to show a place without its password, and its URL."""
    try:
        import sqlalchemy as sa
    except ImportError:
        raise LedgerError("ledgers need SQLAlchemy: pip install 'clusterdp[ledger]'") from None

    if "://" not in where:
        return where, sa.URL.create("sqlite", database=os.path.abspath(where))  # noqa: PTH100
    try:
        url = sa.make_url(where)
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError("a ledger is a file, or postgresql://user@host/database") from None
    if url.get_backend_name() not in _POSTGRES:
        raise LedgerError("a ledger is a file, or postgresql://user@host/database")
    return url.render_as_string(hide_password=True), url.set(drivername="postgresql+psycopg")


def _create_file(path: Path) -> None:
    """A ledger's file is its owner's alone."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise LedgerError(f"{path.name} exists already") from None
    except OSError as error:
        raise LedgerError(f"cannot make {path.name}: {error.strerror}") from None
    except ValueError:
        raise LedgerError("a file's name cannot hold that") from None


def _check_file(path: Path) -> None:
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


def _connect(url: sa.URL) -> sa.Engine:
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
        connect_args={"timeout": _PATIENCE},
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


def _user() -> str:
    """Who runs the command, as the system says."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _read(text: Any) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (RecursionError, TypeError, ValueError):
        content = None
    return content if isinstance(content, dict) else {}


def _reason(error: sa.exc.SQLAlchemyError) -> str:
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
