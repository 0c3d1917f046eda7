"""The ledger's storage: a chain of entries, and the secrets of releases that are not finished.

SQLite in a file of its own, or PostgreSQL by URL. Whoever writes holds a lock over the whole ledger
until its transaction ends, so entries follow one another and budgets are never read half-way.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import LedgerError
from clusterdp.ledger.connection import PATIENCE, check_file, connect, create_file, reason, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa

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
        event: "opened", "reserved", "drawn", "committed", "cancelled" or "closed".
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
        place: Where it is about to be published; None before, or if nobody said. Not a secret.
    """

    key: bytes
    drawn: bytes | None = None
    sealed: str | None = None
    place: str | None = None


class Books:
    """A ledger's tables, in a database."""

    def __init__(self, where: str) -> None:
        """Open the tables.

        Raises:
            LedgerError: If there are none, or others can read them.
        """
        self._shown, url = resolve(where)
        self._is_file = url.get_backend_name() == "sqlite"
        if self._is_file:
            check_file(Path(str(url.database)))
        self._tables = _tables()
        with self._errors():
            self._engine = connect(url)

    @classmethod
    def create(cls, where: str, content: dict[str, Any]) -> None:
        """Make the tables, with a first entry.

        Raises:
            LedgerError: If there are some already, or they cannot be made.
        """
        _, url = resolve(where)
        path = Path(str(url.database)) if url.get_backend_name() == "sqlite" else None
        if path is not None:
            create_file(path)
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
            raise LedgerError(f"the ledger {self._shown} {reason(error)}") from None

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that nobody else writes during: all of it happens, or none."""
        import sqlalchemy as sa

        with self._errors(), self._engine.begin() as connection:
            if not self._is_file:
                # Whatever the server is set to: a commit is on its disk, and waits for its turn.
                connection.execute(sa.text("SET LOCAL synchronous_commit = on"))
                connection.execute(sa.text(f"SET LOCAL lock_timeout = '{PATIENCE}s'"))
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
        if found is None:
            return None
        return Secrets(found.key, found.drawn, found.sealed, found.place)

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

    def set_sealed(self, release: str, sealed: str, place: str | None) -> None:
        """Keep the checksum of a manifest, and where it is going to be."""
        import sqlalchemy as sa

        table = self._tables["secrets"]
        mine = table.c.release == release
        self._connection.execute(sa.update(table).where(mine).values(sealed=sealed, place=place))

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
        sa.Column("place", sa.Text),
    )
    return {"entries": entries, "secrets": secrets}


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
