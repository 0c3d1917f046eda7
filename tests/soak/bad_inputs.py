"""Tables that cannot be released: files that are broken, or break a rule."""

from __future__ import annotations

import shutil
from io import BytesIO
from typing import TYPE_CHECKING, Any

import polars as pl

from soak.attempts import MARKER, Tried, damaged, run_command
from soak.sound_folders import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

_OPTIONS = (
    *("--unit", "user", "--arm", "treated", "--cluster", "market", "--outcome", "clicks=0..3"),
    *("--epsilon", "1", "--passthrough", "tier"),
)
_COLUMNS = ("user", "treated", "market", "clicks")


def try_input(rng: np.random.Generator, folder: Path) -> Tried:
    """Release a table that must be refused."""
    suffix = str(rng.choice(["csv", "tsv", "parquet", "arrow", "pq", "feather", "ipc"]))
    text = suffix in ("csv", "tsv")
    spoilt = _spoilt_text(rng) if text and rng.random() < 0.6 else None
    if spoilt is None:
        mutation, rows = _spoilt_table(rng)
        content = _written(rows, suffix)
    else:
        mutation, listed = spoilt
        content = listed.replace(b",", b"\t") if suffix == "tsv" else listed
    # Delimiters are found, and ids of text files that are no integers are text.
    may_be_sound = text and mutation in {"another separator", "fractional ids"}
    if not text and rng.random() < 0.5:
        mutation, content = _broken(_written(table(), suffix), rng)
    elif not text and rng.random() < 0.5:
        # Bytes of a table that change may well make another one.
        mutation, content = damaged(_written(table(), suffix), rng, [])
        may_be_sound = True
    place, out = folder / f"input.{suffix}", folder / "out"
    place.write_bytes(content)
    ran = run_command("release", place, *_OPTIONS, "--out", out)
    place.unlink()
    published = out.exists() or any(folder.glob(".out*"))
    shutil.rmtree(out, ignore_errors=True)
    mutation = f"{suffix}, {mutation}"
    if ran.fault:
        return Tried(mutation, "traceback", ran.fault)
    if published != (ran.exit_code == 0):
        return Tried(mutation, "accepted", "refused, and published")
    if not published:
        return Tried(mutation, "refused")
    return Tried(mutation, "sound" if may_be_sound else "accepted")


def _written(rows: pl.DataFrame, suffix: str) -> bytes:
    file = BytesIO()
    if suffix in ("csv", "tsv"):
        rows.write_csv(file, separator="\t" if suffix == "tsv" else ",")
    elif suffix in ("parquet", "pq"):
        rows.write_parquet(file)
    else:
        rows.write_ipc(file)
    return file.getvalue()


def _broken(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A binary file that cannot be read to its end."""
    start = int(rng.integers(len(content) - 12))
    made = {
        "cut": content[:start],
        "empty": b"",
        "without its end": content[:-1],
        "noise": rng.bytes(len(content)),
        "text": b"user,treated,market,clicks\n1,0,0,1\n",
        "zeros": bytes(len(content)),
        "reversed": content[::-1],
    }
    name = str(rng.choice(list(made)))
    return name, made[name]


def _spoilt_text(rng: np.random.Generator) -> tuple[str, bytes]:
    """A text file that is no table, or not one of these columns."""
    lines = table().write_csv().strip().encode().split(b"\n")
    row = 1 + int(rng.integers(len(lines) - 1))
    marker = str(MARKER).encode()
    fields = lines[row].split(b",")
    outcome = 3

    def with_outcome(value: bytes) -> bytes:
        changed = [*fields[:outcome], value, *fields[outcome + 1 :]]
        return b"\n".join([*lines[:row], b",".join(changed), *lines[row + 1 :]])

    def with_row(line: bytes) -> bytes:
        return b"\n".join([*lines[:row], line, *lines[row + 1 :]])

    made = {
        "a field too many": with_row(lines[row] + b"," + marker),
        "a field too few": with_row(b",".join(fields[:outcome])),
        "an open quote": with_outcome(b'"' + marker),
        "a quote within": with_outcome(marker + b'"'),
        "a NUL": with_outcome(marker + b"\x00"),
        "not UTF-8": with_outcome(b"\xff\xfe" + marker),
        "text": with_outcome(b"word" + marker),
        "outside": with_outcome(marker),
        "negative": with_outcome(b"-1"),
        "a fraction": with_outcome(b"0.5"),
        "huge": with_outcome(marker * 40),
        "infinite": with_outcome(b"inf"),
        "NaN": with_outcome(b"NaN"),
        "missing": with_outcome(b""),
        "blank": with_outcome(b" "),
        "a date": with_outcome(b"2024-01-01"),
        "a word": with_outcome(b"yes"),
        "hexadecimal": with_outcome(b"0x" + marker),
        "an empty line": b"\n".join([*lines[:row], b"", *lines[row:]]),
        "no rows": lines[0] + b"\n",
        "nothing": b"",
        "line ends alone": b"\n\n\n",
        "no header": b"\n".join(lines[1:]),
        "two headers": b"\n".join([lines[0], *lines]),
        "UTF-16": b"\n".join(lines).decode().encode("utf-16"),
        "old line ends": b"\r".join(lines),
        "another separator": b"\n".join(lines).replace(b",", b";"),
        "a column twice": b"\n".join([b"user,treated,market,clicks,clicks", *lines[1:]]),
        "noise": rng.bytes(400),
    }
    name = str(rng.choice(list(made)))
    return name, made[name]


def _spoilt_table(rng: np.random.Generator) -> tuple[str, pl.DataFrame]:
    """A table that breaks a rule."""
    rows = table()
    one = int(rng.integers(len(rows)))
    column = str(rng.choice(_COLUMNS))

    def put(name: str, value: Any) -> pl.DataFrame:
        here = pl.int_range(pl.len()) == one
        return rows.with_columns(pl.when(here).then(pl.lit(value)).otherwise(name).alias(name))

    made: dict[str, Callable[[], pl.DataFrame]] = {
        f"no column {column}": lambda: rows.drop(column),
        f"a gap in {column}": lambda: put(column, None),
        "outside": lambda: put("clicks", MARKER),
        "far outside": lambda: put("clicks", -(2**62)),
        "a fraction": lambda: put("clicks", 0.5),
        "NaN": lambda: put("clicks", float("nan")),
        "infinite": lambda: put("clicks", float("-inf")),
        "an id twice": lambda: pl.concat([rows, rows[one : one + 1]]),
        "every id the same": lambda: rows.with_columns(user=MARKER),
        "one arm": lambda: rows.with_columns(treated=1),
        "clusters in one arm each": lambda: rows.with_columns(market=pl.col("treated")),
        "an arm more": lambda: put("treated", 7),
        "no rows": rows.clear,
        "text outcomes": lambda: rows.with_columns(clicks=pl.lit(f"word{MARKER}")),
        "fractional ids": lambda: rows.with_columns(user=pl.col("user") + 0.5),
        "missing outcomes": lambda: rows.with_columns(clicks=pl.lit(None, pl.Int64)),
    }
    name = str(rng.choice(list(made)))
    return name, made[name]()
