"""Published folders that were damaged, or edited and sealed anew."""

from __future__ import annotations

import copy
import json
import math
from typing import TYPE_CHECKING, Any

import polars as pl

from soak.attempts import Tried, damaged, run_command, write_folder
from soak.second_opinion import find_flaw, is_same
from soak.sound_folders import as_parquet, seal, sealed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from soak.sound_folders import SoundFolder

# What a value of a manifest may be replaced by.
_ODDITIES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 0.5, -0.5, 1e-300, 1e308, -1e308, 10**400, 2**63, 1.0),
    *(math.nan, math.inf, -math.inf, "", "x", "0", "1.0", "user", "treated", "\ud800", "a\nb\x1b"),
    *("..", "../x", "/etc/passwd", "units.parquet", "cells.parquet", "x" * 5000, "\x00"),
    *([], {}, [[]], [None], ["a", "a"], {"a": 1}, [0, 1], ["x", 1], [0.0, 1.0, 2.0, 3.0], [[0]]),
]
_TYPES: list[Any] = [
    pl.Int8,
    pl.Int32,
    pl.Int64,
    pl.UInt64,
    pl.Float32,
    pl.Float64,
    pl.String,
    pl.Boolean,
    pl.Date,
    pl.Datetime,
    pl.Categorical,
    pl.Binary,
    pl.List(pl.Int64),
    pl.List(pl.Float64),
    pl.Array(pl.Float64, 4),
    pl.Struct({"a": pl.Int64}),
    pl.Null,
    pl.Decimal(20, 4),
]


def try_manifest(folders: list[SoundFolder], rng: np.random.Generator, place: Path) -> Tried:
    """Spoil the manifest of a folder."""
    folder = folders[int(rng.integers(len(folders)))]
    if rng.random() < 0.3:
        others = [other.files["manifest.json"] for other in folders if other is not folder]
        mutation, content = _damaged_text(folder.files["manifest.json"], rng, others)
    else:
        manifest = folder.manifest()
        mutation = _edit(manifest, rng)
        if rng.random() < 0.2:
            mutation += ", " + _edit(manifest, rng)
        content = seal(manifest)
    write_folder(place, {**folder.files, "manifest.json": content})
    return judge(f"{folder.name}: manifest, {mutation}", folder, place)


def try_table(folders: list[SoundFolder], rng: np.random.Generator, place: Path) -> Tried:
    """Spoil a Parquet file of a folder, and seal it anew."""
    folder = folders[int(rng.integers(len(folders)))]
    name = folder.tables()[int(rng.integers(len(folder.tables())))]
    files = dict(folder.files)
    if rng.random() < 0.5:
        others = [file for other in folders for file in other.files.values()]
        mutation, files[name] = damaged(files[name], rng, others)
    else:
        mutation, rows = _edited_table(folder.table(name), rng)
        files[name] = as_parquet(rows)
    write_folder(place, sealed(folder.manifest(), files))
    return judge(f"{folder.name}: {name}, {mutation}", folder, place)


def judge(mutation: str, original: SoundFolder, place: Path) -> Tried:
    """Does anything take the folder as sound, or fall over it?"""
    commands = {name: run_command(name, place) for name in ("verify", "inspect", "estimate")}
    faults = [command.fault for command in commands.values() if command.fault]
    if faults:
        return Tried(mutation, "traceback", faults[0])
    if commands["verify"].exit_code:
        return Tried(mutation, "refused")
    if any(command.exit_code for command in commands.values()):
        return Tried(mutation, "accepted", "by verify, and refused by another command")
    if is_same(place, original):
        return Tried(mutation, "harmless")
    flaw = find_flaw(place, original)
    return Tried(mutation, "sound") if flaw is None else Tried(mutation, "accepted", flaw)


def _damaged_text(
    content: bytes, rng: np.random.Generator, others: list[bytes]
) -> tuple[str, bytes]:
    text = content.decode()
    special = {
        "nested lists": b"[" * 100_000,
        "nested objects": b'{"a":' * 100_000,
        "UTF-16": text.encode("utf-16"),
        "UTF-32": text.encode("utf-32-be"),
        "Latin-1": text.replace("clusterdp", "clust\xe9rdp").encode("latin-1", "replace"),
        "byte order mark": b"\xef\xbb\xbf" + content,
        "duplicate key": text.replace("{", '{"guarantee": {"epsilon": 0.1},', 1).encode(),
        "NaN": text.replace('"n_units": ', '"n_units": NaN, "old": ').encode(),
        "many digits": text.replace('"n_units": ', '"n_units": ' + "9" * 5000).encode(),
        "another value": json.dumps([text]).encode(),
        "only a number": b"7",
    }
    if rng.random() < 0.7:
        return damaged(content, rng, others)
    name = str(rng.choice(list(special)))
    return name, special[name]


def _edit(manifest: dict[str, Any], rng: np.random.Generator) -> str:
    """Change something in a manifest, and say where."""
    path, holder, key = _somewhere(manifest, rng)
    value = holder[key]
    odd = copy.deepcopy(_ODDITIES[int(rng.integers(len(_ODDITIES)))])
    edits = ["remove", "replace", "replace", "replace", "add"]
    if type(value) in (int, float) and abs(value) < 1e15:
        edits += ["number"] * 4
    if isinstance(value, list) and value:
        edits += ["list"] * 4
    if isinstance(value, dict) and value:
        edits += ["rename", "swap"]
    edit = str(rng.choice(edits))
    if edit == "remove":
        del holder[key]
    elif edit == "replace":
        holder[key] = odd
    elif edit == "add":
        target = value if isinstance(value, dict) else manifest
        target[str(rng.choice(["more", "..", "/etc/passwd", "sums", "epsilon", "extra.csv"]))] = odd
    elif edit == "number":
        numbers = [
            -value,
            value + 1,
            value * 2,
            value / 2,
            math.nextafter(value, 9e9),
            str(value),
            [value],
            int(value),
            value * (1 + 1e-9),
            float(value),
        ]
        holder[key] = numbers[int(rng.integers(len(numbers)))]
    elif edit == "list":
        lists = [
            value[1:],
            value[::-1],
            value * 2,
            [*value, value[0]],
            [*value, odd],
            value[:1],
            {"a": value},
            [str(one) for one in value],
            [*value, None],
        ]
        holder[key] = lists[int(rng.integers(len(lists)))]
    else:
        names = list(value)
        one, other = (names[int(place)] for place in rng.integers(len(names), size=2))
        if edit == "rename":
            value[one + "_"] = value.pop(one)
        else:
            value[one], value[other] = value[other], value[one]
    return f"{edit} at {path}"


def _somewhere(manifest: dict[str, Any], rng: np.random.Generator) -> tuple[str, Any, Any]:
    """A random place in a manifest: its path, what holds it, and under what key."""
    places: list[tuple[str, Any, Any]] = []

    def visit(path: str, holder: Any) -> None:
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            places.append((f"{path}/{key}", holder, key))
            if isinstance(holder[key], dict | list):
                visit(f"{path}/{key}", holder[key])

    visit("", manifest)
    return places[int(rng.integers(len(places)))] if places else ("", {"": None}, "")


def _edited_table(rows: pl.DataFrame, rng: np.random.Generator) -> tuple[str, pl.DataFrame]:
    """A table with something changed, and what."""
    name = str(rng.choice(rows.columns))
    column = rows[name]
    one, other = (int(place) for place in rng.integers(len(rows), size=2))
    edit = str(
        rng.choice(
            [
                "value",
                "value",
                "value",
                "value",
                "null",
                "NaN",
                "swap values",
                "drop",
                "duplicate",
                "swap rows",
                "rename",
                "remove",
                "add",
                "retype",
                "retype",
                "negate",
                "huge",
                "shuffle",
                "reverse",
                "none",
                "order",
                "dtype of row",
                "long list",
                "empty list",
            ]
        )
    )
    values: list[Any] = column.to_list()
    if edit in ("value", "huge", "negate"):
        values[one] = _another(values, one, edit, rng)
    elif edit in ("null", "NaN"):
        values[one] = None if edit == "null" else _nan_like(values[one])
    elif edit == "swap values":
        values[one], values[other] = values[other], values[one]
    elif edit in ("long list", "empty list") and isinstance(values[one], list):
        values[one] = [] if edit == "empty list" else [*values[one], values[one][0]]
    else:
        return f"{edit} in {name}", _reshaped(rows, name, edit, (one, other), rng)
    try:
        changed = pl.Series(name, values, dtype=column.dtype, strict=False)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return f"null in {name}", rows.with_columns(pl.lit(None, column.dtype).alias(name))
    return f"{edit} in {name}", rows.with_columns(changed)


def _another(values: list[Any], place: int, edit: str, rng: np.random.Generator) -> Any:
    """Another value of the same kind, as different as the edit says."""
    value = values[place]
    if isinstance(value, list):
        listed = list(value)
        spot = int(rng.integers(len(listed)))
        listed[spot] = _another(listed, spot, edit, rng)
        return listed
    if isinstance(value, str) or value is None:
        return str(rng.choice(["", "x", "pooled", "m0", "a", "b"]))
    if edit == "huge":
        return 2**62 if isinstance(value, int) else 1e300
    if edit == "negate":
        return -value
    near = [value + 1, value - 1, value * 2, 0 * value, value * (1 + 1e-9), value + 0.125]
    near += [one for one in values if one is not None]
    return type(value)(near[int(rng.integers(len(near)))])


def _nan_like(value: Any) -> Any:
    return [math.nan, *value[1:]] if isinstance(value, list) else math.nan


def _reshaped(
    rows: pl.DataFrame, name: str, edit: str, places: tuple[int, int], rng: np.random.Generator
) -> pl.DataFrame:
    one, other = places
    order = list(range(len(rows)))
    order[one], order[other] = order[other], order[one]
    kind = _TYPES[int(rng.integers(len(_TYPES)))]
    if edit == "retype":
        try:
            return rows.with_columns(pl.col(name).cast(kind, strict=False))
        except pl.exceptions.PolarsError:
            return rows.with_columns(pl.lit(None, kind).alias(name))
    made: dict[str, Callable[[], pl.DataFrame]] = {
        "drop": lambda: rows.filter(pl.int_range(pl.len()) != one),
        "duplicate": lambda: pl.concat([rows, rows[one : one + 1]]),
        "swap rows": lambda: rows[order],
        "rename": lambda: rows.rename({name: str(rng.choice(["x", "", name + " "]))}),
        "remove": lambda: rows.drop(name),
        "add": lambda: rows.with_columns(rows[name].alias("more")),
        "shuffle": lambda: rows.with_columns(rows[name].gather(rng.permutation(len(rows)))),
        "reverse": rows.reverse,
        "order": lambda: rows.select(rng.permutation(rows.columns).tolist()),
        "none": rows.clear,
    }
    return made.get(edit, rows.clone)()
