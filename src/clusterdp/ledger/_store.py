"""The ledger's store: its entries, and the secrets of unfinished releases.

It is a SQLite file that only its owner can read, or a PostgreSQL database. A writer locks the whole
ledger until its transaction ends, so entries follow one another and nobody reads a budget that is
half written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from clusterdp.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa


_POSTGRES = ("postgresql", "postgres")
# How long a writer waits for the lock, in seconds.
LOCK_TIMEOUT = 120

_REFUSED = "rejected the user or the password"
_UNREACHABLE = "cannot be reached"
_DAMAGED = "is damaged"
# Codes of SQLite (https://www.sqlite.org/rescode.html) are names of results, without their
# extensions; those of PostgreSQL (https://www.postgresql.org/docs/current/errcodes-appendix.html)
# are codes or their classes.
_CODES = {
    "is locked by another command; try again later": (
        *("SQLITE_BUSY", "SQLITE_LOCKED", "55P03", "40P01"),
    ),
    "cannot be written: the disk is full": ("SQLITE_FULL", "53100"),
    "cannot be written: permission denied": ("SQLITE_READONLY", "SQLITE_PERM", "25006", "42501"),
    "is not a ledger": ("SQLITE_NOTADB",),
    # Our statements are correct, so an error in one means that a table or a column is missing.
    "is not a ledger that this version can read; make one with: clusterdp ledger init": (
        *("SQLITE_ERROR", "42P01", "42703"),
    ),
    "cannot be opened; check the permissions of its file and its folder": ("SQLITE_CANTOPEN",),
    "cannot be read or written: the disk reports an error": ("SQLITE_IOERR",),
    "names a database that does not exist; create the database first": ("3D000",),
    _REFUSED: ("28",),
    _UNREACHABLE: ("08", "57P"),
    _DAMAGED: ("SQLITE_CORRUPT", "XX"),
}
_REASONS = {code: reason for reason, codes in _CODES.items() for code in codes}


def _resolve(where: str) -> tuple[str, sa.URL]:
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


def _create_file(path: Path) -> None:
    """Create an empty file that only its owner can read."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise LedgerError(
            f"{path.name} exists already, and was left as it is; choose another name, or open it: "
            f"clusterdp.Ledger({path.name!r}), or: clusterdp ledger show {shlex.quote(path.name)}"
        ) from None
    except OSError as error:
        raise LedgerError(f"cannot create {path.name}: {error.strerror}") from None
    except ValueError:
        raise LedgerError("invalid ledger path") from None


def _check_file(path: Path) -> None:
    """Raise a LedgerError unless the file exists and only its owner can read it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        raise LedgerError(
            f"There is no ledger {str(path)!r}. Nothing was published. Fix: check the name. For "
            f"a new budget, choose its cap: clusterdp.Ledger.create({str(path)!r}, "
            f"cap_epsilon=...), or: clusterdp ledger init {shlex.quote(str(path))} --cap-epsilon "
            "EPSILON"
        ) from None
    if not stat.S_ISREG(mode):
        raise LedgerError(f"{path.name} is not a ledger: it is not a file")
    if stat.S_IMODE(mode) & 0o077:
        raise LedgerError(
            f"others can read the ledger {path.name}, and it may hold keys; restrict it: chmod 600 "
            f"{path.name}"
        )


def _connect(url: sa.URL) -> sa.Engine:
    """An engine whose transactions run one after another and are on disk when they end."""
    import sqlalchemy as sa

    # Keys are among parameters.
    create = partial(sa.create_engine, url, poolclass=sa.NullPool, hide_parameters=True)
    if url.get_backend_name() != "sqlite":
        # Each statement sees what was written before it. A server may have another default, by
        # which all of a transaction sees what was there before it had waited for the lock.
        return create(isolation_level="READ COMMITTED", connect_args={"connect_timeout": 10})
    engine = create(connect_args={"timeout": LOCK_TIMEOUT})

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


def explain_failure(error: sa.exc.SQLAlchemyError) -> str:
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
    return "was rejected by its server; check that the database exists and that the user may use it"


# The number of the lock that all ledgers in a PostgreSQL database share; any number works.
_LOCK = 0x636C7573
# What a release draws and writes down before it goes on, in this order.
DrawnEvent = Literal["labelled", "looked", "drawn"]
DRAWN_EVENTS: tuple[DrawnEvent, ...] = get_args(DrawnEvent)
# The event of a run that begins to randomize rows, into a folder that nobody else can read.
RANDOMIZING = "randomizing"
# What the last event of a release is until it is published ("committed"), and if it never is.
UNFINISHED = ("reserved", *DRAWN_EVENTS, RANDOMIZING)
ENDED = ("cancelled", "closed")
# The event after "committed" by which an owner says that a folder is not to be used.
WITHDRAWN = "withdrawn"
# The previous hash of the first entry.
FIRST_PREVIOUS = "0" * 64


class Entry(NamedTuple):
    """One entry of the ledger. Entries are added and never changed.

    Attributes:
        number: Its position in the history, from 0.
        at: When it was added, in UTC.
        who: The user who added it.
        event: "opened" for the first one, "committed", or one of `UNFINISHED` and `ENDED`.
        release_id: The release it is about; empty for the first entry.
        content: The details of the event.
        previous: The hash of the entry before.
        hash: The hash of all of the above.
    """

    number: int
    at: str
    who: str
    event: str
    release_id: str
    content: dict[str, Any]
    previous: str
    hash: str

    def expected_hash(self) -> str:
        """The hash that the entry should have."""
        # An edited database may hold bytes in place of text; their hash is different, too.
        text = json.dumps(self[:-1], sort_keys=True, separators=(",", ":"), default=repr)
        return hashlib.sha256(text.encode()).hexdigest()


class Secrets(NamedTuple):
    """What the ledger keeps of an unfinished release, as it is stored.

    Attributes:
        key: The key of its rows.
        labelled: Its counts of given labels; None before, and where clusters are public.
        looked: Its pilot; None before it is drawn, and without one.
        drawn: The noisy statistics of its first pass; None before that pass.
        sealed: The checksum of the manifest it is about to publish; None before. Not a secret.
        place: Where its last run was going to publish it; None before there was one. Not a secret.
        host: The machine of that run. Not a secret.
    """

    key: bytes
    labelled: bytes | None = None
    looked: bytes | None = None
    drawn: bytes | None = None
    sealed: str | None = None
    place: str | None = None
    host: str | None = None


class LedgerStore:
    """A ledger's tables in a database."""

    def __init__(self, where: str) -> None:
        """Open the tables.

        Raises:
            LedgerError: If there is no such file, or others can read it.
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
        """Create the tables and the first entry.

        Raises:
            LedgerError: If there is a ledger already, or the tables cannot be created.
        """
        _, url = _resolve(where)
        path = Path(str(url.database)) if url.get_backend_name() == "sqlite" else None
        if path is not None:
            _create_file(path)
        try:
            store = cls(where)
            with store.writing() as transaction:
                transaction.create()
                transaction.append(event="opened", release_id="", content=content)
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
                "PostgreSQL ledgers need psycopg: pip install '.[postgres]'"
            ) from None
        except UnicodeDecodeError:  # SQLite quotes damaged text in its message
            raise LedgerError(f"the ledger {self._shown} is damaged") from None
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self._shown} {explain_failure(error)}") from None

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that takes effect as a whole or not at all; other writers wait."""
        with self._errors(), self._engine.begin() as connection:
            if not self._is_file:
                # These hold with any settings of the server.
                connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            yield Transaction(connection, self._tables)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that writes nothing."""
        with self._errors(), self._engine.connect() as connection:
            if not self._is_file:  # all of it sees one state, even if others write meanwhile
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield Transaction(connection, self._tables)


class Transaction:
    """Reading and writing within one transaction."""

    def __init__(self, connection: sa.Connection, tables: tuple[sa.Table, sa.Table]) -> None:
        self._execute, self._connection = connection.execute, connection
        self._entries, self._secrets = tables

    def create(self) -> None:
        """Create the tables."""
        import sqlalchemy as sa

        if sa.inspect(self._connection).has_table(self._entries.name):
            raise LedgerError("there is a ledger already")
        self._entries.metadata.create_all(self._connection)

    def entries(self, release_id: str | None = None) -> list[Entry]:
        """All entries, or those of one release, in their order."""
        query = self._entries.select().order_by(self._entries.c.number)
        if release_id is not None:
            query = query.where(self._entries.c.release_id == release_id)
        rows = self._execute(query).mappings()
        return [Entry(**{**row, "content": _read(row["content"])}) for row in rows]

    def append(self, *, event: str, release_id: str, content: dict[str, Any]) -> Entry:
        """Add an entry at the end."""
        from datetime import UTC, datetime

        table = self._entries
        last = self._execute(table.select().order_by(table.c.number.desc()).limit(1)).first()
        entry = Entry(
            number=0 if last is None else last.number + 1,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            who=current_user(),
            event=event,
            release_id=release_id,
            content=content,
            previous=FIRST_PREVIOUS if last is None else last.hash,
            hash="",
        )
        entry = entry._replace(hash=entry.expected_hash())
        stored = {**entry._asdict(), "content": json.dumps(content, sort_keys=True)}
        self._execute(table.insert().values(**stored))
        return entry

    def unfinished(self) -> list[str]:
        """The ids of the releases whose secrets are stored."""
        ids = self._secrets.select().with_only_columns(self._secrets.c.release_id)
        return list(self._execute(ids).scalars())

    def secrets(self, release_id: str) -> Secrets | None:
        """The secrets of a release; None once it is finished."""
        found = self._execute(self._secrets.select().where(self._is(release_id))).first()
        if found is None:
            return None
        return Secrets(*(getattr(found, name) for name in Secrets._fields))

    def add_secrets(self, release_id: str, kept: Secrets) -> None:
        """Store what a release begins with."""
        self._execute(self._secrets.insert().values(release_id=release_id, **kept._asdict()))

    def set_once(self, release_id: str, event: DrawnEvent, drawn: bytes) -> bool:
        """Store what was drawn; False if that is done already, or the release is finished."""
        mine = self._is(release_id) & self._secrets.c[event].is_(None)
        changed = self._execute(self._secrets.update().where(mine).values({event: drawn}))
        return changed.rowcount == 1

    def set_known(self, release_id: str, **known: Any) -> None:
        """Store what is no secret: `place` and `host`, or `sealed`."""
        self._execute(self._secrets.update().where(self._is(release_id)).values(**known))

    def wipe(self, release_id: str) -> None:
        """Delete the secrets of a release."""
        # Overwritten first, so that a row that the database keeps after deletion holds no secret.
        self.set_known(release_id, key=b"", **dict.fromkeys(DRAWN_EVENTS))
        self._execute(self._secrets.delete().where(self._is(release_id)))

    def _is(self, release_id: str) -> sa.ColumnElement[bool]:
        return self._secrets.c.release_id == release_id


def _tables() -> tuple[sa.Table, sa.Table]:
    """The tables of entries and of secrets."""
    import sqlalchemy as sa

    metadata = sa.MetaData()
    entries = sa.Table(
        "clusterdp_entries",
        metadata,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("at", "who", "event", "release_id", "content", "previous", "hash")
        ),
    )
    secrets = sa.Table(
        "clusterdp_secrets",
        metadata,
        sa.Column("release_id", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
        *(sa.Column(name, sa.LargeBinary) for name in DRAWN_EVENTS),
        *(sa.Column(name, sa.Text) for name in ("sealed", "place", "host")),
    )
    return entries, secrets


def current_user() -> str:
    """The user of this process, by the system's records where it has some."""
    try:
        import pwd
    except ImportError:  # Windows
        import getpass

        return getpass.getuser()
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
