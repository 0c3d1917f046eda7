"""A table by its name, and what must be known to read it, whichever engine does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Collection


# The schemes of databases' URLs, and the modules of this package that read them.
SCHEMES = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
# Databases that are servers; others are files.
_SERVERS = {"postgresql"}
_NO_DELIMITER = frozenset('"\r\n')


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRequest:
    """Which columns of a source are wanted, and as what.

    Attributes:
        public: The columns that are read for what they are, ids among them; None for every column
            that is no outcome.
        outcomes: The sensitive outcomes, and a private cluster. Where types are found from rows,
            theirs are not: each value is read by itself. If many rows decided the type, those would
            decide whether another row can be read.
        labelled: Those of them that are labels.
        decimal: What separates the decimals of numbers that are written as text.
        unit: The column of ids: text, unless each of them is written as a whole number is.
    """

    public: Collection[str] | None = None
    outcomes: tuple[str, ...] = ()
    labelled: Collection[str] = ()
    decimal: str = "."
    unit: str | None = None

    @property
    def numeric(self) -> tuple[str, ...]:
        """The outcomes that are numbers."""
        return tuple(name for name in self.outcomes if name not in self.labelled)

    def is_public(self, name: str) -> bool:
        """Whether a column is read for what it is."""
        return name not in self.outcomes and (self.public is None or name in self.public)

    def among(self, names: Collection[str]) -> list[str]:
        """Those of some columns that are wanted, in their order."""
        return [name for name in names if self.is_public(name) or name in self.outcomes]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSource:
    """A table by its name.

    Attributes:
        name: A file, a folder, a glob, or the URL of a database.
        query: The query whose rows are the table, for databases alone.
        delimiter: What separates the fields of text files; None to find it in the header.
    """

    name: str
    query: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.database is None and self.query is not None:
            raise ParameterError(
                "query (--query) belongs to a database: give postgresql://..., sqlite:///file.db, "
                "duckdb:///file.db, or duckdb:// to query files, in place of a file"
            )
        if self.database is not None:
            self._check_database()
        delimiter = self.delimiter
        if delimiter is not None and (
            len(delimiter.encode()) != 1 or delimiter in _NO_DELIMITER or self.database is not None
        ):
            raise ParameterError(
                "delimiter (--delimiter) is one character between the fields of a text file, such "
                f"as ';' or '|', got {delimiter!r}"
            )

    def __str__(self) -> str:
        return self.name

    @property
    def database(self) -> str | None:
        """Which kind of database it is, by the module that reads it; None for files."""
        scheme, found, _ = self.name.partition(":")
        return SCHEMES.get(scheme.lower()) if found else None

    @property
    def database_file(self) -> str:
        """The file of a SQLite or DuckDB database; empty for a DuckDB database in memory."""
        return self.name.partition("://")[2].removeprefix("/")

    @property
    def trimmed_query(self) -> str:
        """The query, without what may end it."""
        return (self.query or "").strip().rstrip(";").rstrip()

    def absolute(self) -> str:
        """A name that means the same in another working directory; a URL of a server as it is."""
        if self.database is not None and self.database not in _SERVERS:
            scheme, file = self.name.partition(":")[0], self.database_file
            return f"{scheme}:///{os.path.abspath(file)}" if file else self.name  # noqa: PTH100 - resolve() would follow links
        if "://" in self.name:
            return self.name
        return os.path.abspath(self.name)  # noqa: PTH100 - as above

    def _check_database(self) -> None:
        kind, is_server = self.database, self.database in _SERVERS
        if "://" not in self.name or (
            not is_server and self.name.partition("://")[2][:1] not in {"", "/"}
        ):
            form = "user@host/database" if is_server else "/file.db, with three slashes"
            raise ParameterError(f"the URL of a {kind} database reads {kind}://{form}")
        if is_server and _has_password(self.name):
            raise ParameterError(
                "the URL of the database holds a password, which histories and plans would keep; "
                "leave it out, and give it as PGPASSWORD or in ~/.pgpass"
            )
        if not self.trimmed_query:
            raise ParameterError(
                f"a {kind} source needs a query: give query='select ...' (--query)"
            )


def named_source(source: Any, query: str | None = None, delimiter: str | None = None) -> Any:
    """What was given by name as a `NamedSource`; a frame as it is.

    Raises:
        ParameterError: If a frame comes with what belongs to a name, or a name does not fit it.
    """
    if isinstance(source, NamedSource):
        return source
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    if isinstance(source, str):
        return NamedSource(name=source, query=query, delimiter=delimiter)
    for name, given in (("query", query), ("delimiter", delimiter)):
        if given is not None:
            raise ParameterError(f"{name} belongs to a table by name, and this is a frame")
    return source


def _has_password(url: str) -> bool:
    """Whether a URL holds a password, also one whose / or # ends the name of the server."""
    place, _, asked = url.partition("://")[2].partition("?")
    user, found, _ = place.rpartition("@")
    names = {name.lower() for name, _ in parse_qsl(asked, keep_blank_values=True)}
    return bool(found and ":" in user) or not names.isdisjoint({"password", "sslpassword"})


# What a ledger records as the source of a release whose table had no name.
FRAME = "frame://python"
