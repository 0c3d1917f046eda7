"""Ledgers whose file was damaged, or whose entries were edited."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import clusterdp as cdp
from categories import one_outcome, one_question
from clusterdp.ledger._store import Entry
from clusterdp.ledger.ledger import Ledger
from released import Drawn
from soak.attempts import Tried, damaged, run_command

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

_FIELDS = ("number", "at", "who", "event", "release_id", "content", "previous", "hash")
_ODDITIES: list[Any] = [
    *("", "x", "0", "reserved", "committed", "cancelled", "closed", "opened"),
    *("{}", "[]", "null", "[" * 9999),
    *('{"a": 1}', '{"guarantee": {"epsilon": NaN}}', 0, -1, 7, 2**62, 0.5, b"", b"\xff\xfe", b"{}"),
]


@dataclass(frozen=True, slots=True, eq=False)
class SoundLedger:
    """A ledger in memory: its file, the hash of its last entry, and all that its tables hold.

    `unfinished` is a release that can be closed.
    """

    file: bytes
    head: str
    tables: list[list[tuple[Any, ...]]]
    unfinished: str


def sound_ledger(path: Path) -> SoundLedger:
    """A ledger with releases that are committed, cancelled, closed, and unfinished."""
    ledger = Ledger.create(str(path), 9.0, 1e-6)
    mechanisms = (
        cdp.cluster_dp(noise_scale=4, prior_floor=0.05, epsilon=2),
        cdp.optimal(epsilon=1),
        cdp.uniform_prior_dp(epsilon=1),
        cdp.noisy_histogram(epsilon=1),
    )
    for number, mechanism in enumerate(mechanisms):
        reservation = ledger.reserve(
            "users",
            terms=one_question(one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3)), mechanism),
            about={"software": "1", "n_units": 48, "n_clusters": 3, "options": {"out": "x"}},
            place="x",
        )
        if number == 0:
            reservation.keep("drawn", bytes(Drawn(questions=(), table_tag=b"tag")))
            reservation.seal(b"manifest")
            reservation.commit("x")
        elif number == 1:
            reservation.cancel()
        elif number == 2:
            ledger.close(reservation.release_id, "the table is gone")
    return SoundLedger(
        path.read_bytes(), ledger.head().hash, _tables(path), ledger.releases()[-1].release_id
    )


def try_ledger(ledger: SoundLedger, rng: np.random.Generator, path: Path) -> Tried:
    """Spoil a ledger."""
    path.write_bytes(ledger.file)
    path.chmod(0o600)
    if rng.random() < 0.4:
        mutation, content = damaged(ledger.file, rng, [b"SQLite format 3\x00", b"[]"])
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as connection:
            mutation = _edit(connection, rng)
            connection.commit()
    shown = run_command("ledger", "show", path)
    verified = run_command("ledger", "verify", path, "--head", ledger.head)
    same = not verified.exit_code and _tables(path) == ledger.tables
    closed = run_command("ledger", "close", path, ledger.unfinished)
    for one in (shown, verified, closed):
        if one.fault:
            return Tried(mutation, "traceback", one.fault)
    if verified.exit_code:
        return Tried(mutation, "refused")
    return Tried(mutation, "harmless") if same else Tried(mutation, "accepted", "by verify")


def _tables(path: Path) -> list[list[tuple[Any, ...]]]:
    """The entries, and whose secrets are kept."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            connection.execute("SELECT * FROM clusterdp_entries ORDER BY number").fetchall(),
            connection.execute("SELECT release_id FROM clusterdp_secrets").fetchall(),
        ]


def _edit(connection: sqlite3.Connection, rng: np.random.Generator) -> str:
    """Edit a ledger as somebody with a database client would."""
    entries = connection.execute("SELECT * FROM clusterdp_entries ORDER BY number").fetchall()
    number = int(rng.integers(len(entries)))
    field = str(rng.choice(_FIELDS))
    odd = _ODDITIES[int(rng.integers(len(_ODDITIES)))]
    edit = str(
        rng.choice(
            [
                "field",
                "content",
                "content",
                "rehash",
                "rehash",
                "remove",
                "cut",
                "add",
                "secrets",
                "table",
                "column",
            ]
        )
    )
    if edit == "field":
        _set(connection, number, field, odd)
    elif edit in ("content", "rehash"):
        content = json.loads(entries[number][_FIELDS.index("content")])
        edited = _edited(content, rng, odd)
        _set(connection, number, "content", json.dumps(edited, sort_keys=True))
        if edit == "rehash":
            _rehash(connection, number)
    elif edit == "remove":
        connection.execute("DELETE FROM clusterdp_entries WHERE number = ?", (number,))
    elif edit == "cut":
        connection.execute("DELETE FROM clusterdp_entries WHERE number >= ?", (number,))
    elif edit == "add":
        again = [*entries[number]]
        again[0] = len(entries)
        marks = ", ".join("?" * len(again))
        connection.execute(f"INSERT INTO clusterdp_entries VALUES ({marks})", again)
    elif edit == "secrets":
        connection.execute("DELETE FROM clusterdp_secrets")
    elif edit == "table":
        connection.execute("DROP TABLE clusterdp_secrets")
    else:
        connection.execute(f"ALTER TABLE clusterdp_entries RENAME COLUMN {field} TO other")
    return f"{edit} of entry {number}"


def _set(connection: sqlite3.Connection, number: int, field: str, value: Any) -> None:
    """Set a field of an entry, without the rules that the table was made with."""
    connection.execute("PRAGMA ignore_check_constraints = ON")
    try:
        connection.execute(
            f"UPDATE clusterdp_entries SET {field} = ? WHERE number = ?",
            (value, number),
        )
    except sqlite3.IntegrityError:
        connection.execute("DELETE FROM clusterdp_entries WHERE number = ?", (number,))


def _edited(content: dict[str, Any], rng: np.random.Generator, odd: Any) -> dict[str, Any]:
    """A content with something changed that its writer would not have written."""
    odd = odd.decode("latin-1") if isinstance(odd, bytes) else odd
    holder, keys = content, list(content)
    inner = [key for key in keys if isinstance(content[key], dict) and content[key]]
    if inner and rng.random() < 0.6:
        holder = content[inner[int(rng.integers(len(inner)))]]
        keys = list(holder)
    key = keys[int(rng.integers(len(keys)))]
    if rng.random() < 0.4:
        del holder[key]
    else:
        holder[key] = odd
    return content


def _rehash(connection: sqlite3.Connection, number: int) -> None:
    """Write the history anew from an entry on, as a careful forger would."""
    entries = connection.execute("SELECT * FROM clusterdp_entries ORDER BY number").fetchall()
    previous = entries[number - 1][-1] if number else "0" * 64
    for row in entries[number:]:
        parts = dict(zip(_FIELDS, row, strict=True))
        parts |= {"content": json.loads(parts["content"]), "previous": previous}
        previous = Entry(**parts).expected_hash()
        _set(connection, row[0], "previous", parts["previous"])
        _set(connection, row[0], "hash", previous)
