"""A second opinion on published folders: docs/format.md, read anew and checked row by row.

It shares no code with the package's reader. What both take as sound is sound; what only the package
takes as sound was accepted by mistake.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl

from clusterdp.channels.priors import estimate_prior, to_weights

if TYPE_CHECKING:
    from pathlib import Path

    from soak.sound_folders import SoundFolder

_POLARS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_CELLS, _CHANNELS = "cells.parquet", "channels.parquet"
# What each statistic and each channel adds to the table of cells, where outcomes are more than two.
_COLUMNS = {
    "counts": ["noisy_counts"],
    "contrasts": ["noisy_contrast"],
    "sums": ["noisy_sum", "noisy_squares"],
    "resampling": ["prior", "decode"],
    "optimal": ["channel"],
}
_TOTAL = 2**48
# Above what the package allows for, so that no number lies between the two.
_NEARLY = 1e-11


class Flawed(Exception):  # noqa: N818 - it is raised to end a check, and says what is wrong
    """What is wrong with a folder."""


def _need(rule: str, *, holds: bool) -> None:
    if not holds:
        raise Flawed(rule)


def find_flaw(folder: Path, original: SoundFolder) -> str | None:
    """What is wrong with a folder that was made of a sound one; None if nothing can be told."""
    try:
        content = json.loads((folder / "manifest.json").read_bytes())
        content.pop("sha256")
        _check_manifest(content, original.manifest())
        tables = {
            name: pl.read_parquet(folder / name, glob=False)
            for name in content["files"]
            if name.endswith(".parquet")
        }
        _check_tables(content, tables)
    except Flawed as flaw:
        return str(flaw)
    except (LookupError, TypeError, AttributeError, ValueError, *_POLARS) as error:
        return f"it cannot be read: {type(error).__name__}"
    return None


def is_same(folder: Path, original: SoundFolder) -> bool:
    """Whether a folder holds exactly what it held, texts for people apart."""
    content = json.loads((folder / "manifest.json").read_bytes())
    try:
        same = all(
            pl.read_parquet(folder / name, glob=False).equals(original.table(name))
            for name in original.tables()
        )
    except _POLARS:
        return False
    return same and _fixed(content) == _fixed(original.manifest())


def _fixed(content: dict[str, Any]) -> str:
    """What of a manifest is fixed; numbers as numbers, to the digits that a guarantee can tell."""
    content = json.loads(json.dumps(content), parse_int=_rounded, parse_float=_rounded)
    for name in ("files", "sha256", "software", "notes"):
        content.pop(name, None)
    content["guarantee"].pop("in_words", None)
    return json.dumps(content, sort_keys=True)


def _rounded(number: str) -> float:
    read = float(f"{float(number):.12g}")
    return 0.0 if abs(read) < 1e-100 else read


def _check_manifest(content: dict[str, Any], original: dict[str, Any]) -> None:
    declared, columns = content["outcomes"]["declared"], content["columns"]
    rows = original["mechanism"]["rows"]
    texts = [content["software"], *content["notes"], content["guarantee"]["in_words"]]
    names = [columns[part] for part in ("unit", "arm", "cluster")] + list(columns["kept"])
    names += [one["name"] for one in declared["outcomes"]]
    texts += [*names, content["mechanism"]["name"]]
    _need("texts", holds=all(isinstance(text, str) for text in texts))
    _need("lists", holds=isinstance(content["notes"], list) and isinstance(columns["kept"], list))
    _need("names differ", holds=len(set(names)) == len(names))
    _need("control is an arm", holds=_places(content["arms"], content["control"]) == 1)
    _need("spaces", holds=all(_values(one["space"]) for one in declared["outcomes"]))
    # What nothing else follows from may be anything; all else must be what it was.
    wanted = json.loads(json.dumps(original))
    wanted["mechanism"]["name"] = content["mechanism"]["name"]
    if rows is None:
        wanted["columns"] |= {"unit": columns["unit"], "kept": columns["kept"]}
        wanted["outcomes"] = content["outcomes"]
    else:
        wanted["control"] = content["control"]
        _need("values", holds=_values_of(content) == _values_of(original))
        wanted["outcomes"]["declared"]["outcomes"] = declared["outcomes"]
        # What counted more when a channel was designed shows in nothing that can be checked.
        wanted["outcomes"]["declared"]["weights"] = declared["weights"]
        if rows.get("prior") is not None:
            _check_prior(content["mechanism"]["rows"]["prior"], len(_values_of(content)))
            wanted["mechanism"]["rows"]["prior"] = content["mechanism"]["rows"]["prior"]
    wanted["n_units"] = content["n_units"] if rows is None else wanted["n_units"]
    _need("all else is as it was", holds=_fixed(content) == _fixed(wanted))


def _places(labels: list[Any], label: Any) -> int:
    return sum(type(one) is type(label) and one == label for one in labels)


def _values_of(content: dict[str, Any]) -> list[float]:
    """The values of the one outcome of a folder: what is checked here has no more than one."""
    (outcome,) = content["outcomes"]["declared"]["outcomes"]
    return _values(outcome["space"])


def _values(space: str) -> list[float]:
    """The values that a space stands for: listed, a range of integers, or bins."""
    if space.startswith("bins:"):
        edges, _, given = space.removeprefix("bins:").partition(" as ")
        numbers = _numbers(edges)
        middles = [(low + high) / 2 for low, high in itertools.pairwise(numbers)]
        values = _numbers(given) if given else middles
        _need("bins", holds=len(values) == len(middles))
        return values
    if ".." in space:
        low, high = map(int, space.split(".."))
        return [float(value) for value in range(low, high + 1)]
    return _numbers(space)


def _numbers(listed: str) -> list[float]:
    numbers = [float(number) for number in listed.split(",")]
    _need("numbers", holds=all(map(math.isfinite, numbers)))
    _need("order", holds=all(a < b for a, b in itertools.pairwise(numbers)))
    return numbers


def _check_prior(prior: Any, n_outcomes: int) -> None:
    _need("a prior is a list", holds=isinstance(prior, list) and len(prior) == n_outcomes)
    plain = all(type(number) in (int, float) for number in prior)
    _need("of probabilities", holds=plain and min(prior) >= 0 and abs(sum(prior) - 1) < 1e-9)


def _check_tables(content: dict[str, Any], tables: dict[str, pl.DataFrame]) -> None:
    cells = tables[_CELLS]
    units = [tables[name] for name in sorted(tables) if name.startswith("units")]
    rows = content["mechanism"]["rows"]
    designed = rows is not None and rows["channel"] == "optimal"
    names = {_CELLS, *([_CHANNELS] if designed else [])}
    _need("files", holds=set(tables) - names == {n for n in tables if n.startswith("units")})
    _need("rows", holds=bool(units) == (rows is not None))
    _need("README", holds=set(content["files"]) == {"README.md", *tables})
    _check_cells(content, cells)
    if not units:
        return
    sizes = {(row[0], row[1]): row[2] for row in cells.iter_rows()}
    if designed:
        outputs = _check_channels(content, tables[_CHANNELS])
        numbers = {row[:2]: outputs[cells["channel"][i]] for i, row in enumerate(cells.iter_rows())}
        decode = {cell: dict(enumerate(listed)) for cell, listed in numbers.items()}
    else:
        _check_priors(content, cells)
        decode = {
            row[:2]: dict(enumerate(listed))
            for row, (listed,) in zip(cells.iter_rows(), cells["decode"].to_list(), strict=True)
        }
    _check_rows(content, pl.concat(units), sizes, decode)


def _check_cells(content: dict[str, Any], cells: pl.DataFrame) -> None:
    columns, mechanism = content["columns"], content["mechanism"]
    expected = [columns["cluster"], columns["arm"], "size"]
    for statistic in mechanism["statistics"]:
        expected += _COLUMNS[statistic["statistic"]]
    if mechanism["rows"] is not None:
        expected += _COLUMNS[mechanism["rows"]["channel"]]
    _need("columns of cells", holds=cells.columns == expected)
    arms = cells[columns["arm"]].to_list()
    clusters = list(dict.fromkeys(cells[columns["cluster"]].to_list()))
    _need("clusters", holds=None not in clusters and len(clusters) == content["n_clusters"])
    pairs = list(zip(cells[columns["cluster"]].to_list(), map(_typed, arms), strict=True))
    wanted = list(itertools.product(clusters, map(_typed, content["arms"])))
    _need("a row for every cell", holds=pairs == wanted)
    sizes = cells["size"].to_list()
    _need("sizes", holds=all(type(size) is int and size > 0 for size in sizes))
    _need("units", holds=sum(sizes) == content["n_units"])
    _check_statistics(content, cells, arms)


def _typed(label: Any) -> tuple[str, Any]:
    return type(label).__name__, label


def _check_statistics(content: dict[str, Any], cells: pl.DataFrame, arms: list[Any]) -> None:
    n_outcomes = len(_values_of(content))
    if "noisy_counts" in cells.columns:
        counts = cells["noisy_counts"].to_list()
        whole = all(type(count) is int for listed in counts for count in listed)
        _need("counts", holds=whole and all(len(listed) == n_outcomes for listed in counts))
        if _of_counts(content)["scope"] == "population":
            by_arm = {(arm, tuple(listed)) for arm, listed in zip(arms, counts, strict=True)}
            _need("clusters repeat the counts of arms", holds=len(by_arm) == len(content["arms"]))
    if "noisy_contrast" in cells.columns:
        for arm, contrast in zip(arms, cells["noisy_contrast"].to_list(), strict=True):
            told = type(contrast) is float and math.isfinite(contrast)
            _need("contrasts", holds=contrast is None if arm == content["control"] else told)
    for name in ("noisy_sum", "noisy_squares"):
        if name in cells.columns:
            _need(name, holds=all(_is_one(listed, int) for listed in cells[name].to_list()))
    if "channel" in cells.columns:
        _need("channel", holds=all(type(number) is int for number in cells["channel"].to_list()))


def _is_one(listed: Any, kind: type) -> bool:
    """Whether a list has one number of a kind: there is one metric."""
    return isinstance(listed, list) and [type(number) for number in listed] == [kind]


def _of_counts(content: dict[str, Any]) -> dict[str, Any]:
    """How counts were drawn; empty if there are none."""
    listed = content["mechanism"]["statistics"]
    return next((one for one in listed if one["statistic"] == "counts"), {})


def _check_priors(content: dict[str, Any], cells: pl.DataFrame) -> None:
    rows, counted = content["mechanism"]["rows"], _of_counts(content)
    values = _values_of(content)
    keep = 1 - rows["resample_prob"]
    sizes = cells["size"]
    if counted and counted["scope"] == "population":
        sizes = cells.select(pl.col("size").sum().over(content["columns"]["arm"])).to_series()
    weights = None
    if counted:
        floor = rows["prior_floor"]
        counts = cells["noisy_counts"].list.to_array(len(values)).to_numpy()
        prior = estimate_prior(counts, sizes.to_numpy(), floor)
        weights = to_weights(prior, round(floor * 2**32)).tolist()
    for row, (stated, (decode,)) in enumerate(
        zip(cells["prior"].to_list(), cells["decode"].to_list(), strict=True)
    ):
        made = [number * 2**32 for number in stated]
        wanted = [2**32 / len(values)] * len(values) if weights is None else weights[row]
        near = 1 if weights is None else 0
        _need("priors", holds=all(abs(a - b) <= near for a, b in zip(made, wanted, strict=True)))
        _need("priors are integers", holds=all(number == int(number) for number in made))
        mean = math.fsum(p * v for p, v in zip(stated, values, strict=True))
        for value, told in zip(values, decode, strict=True):
            exact = (value - (1 - keep) * mean) / keep
            _need("decode", holds=abs(told - exact) <= _NEARLY * max(1, abs(exact)))


def _check_channels(content: dict[str, Any], listed: pl.DataFrame) -> dict[int, list[float]]:
    values, rows = _values_of(content), content["mechanism"]["rows"]
    _need("columns", holds=listed.columns == ["channel", "response", "decode", "weights"])
    outputs: dict[int, list[float]] = {}
    tables: dict[int, list[list[int]]] = {}
    for channel, response, decode, weights in listed.iter_rows():
        _need("whole", holds=type(channel) is int and _is_one(decode, float))
        _need("responses are numbered", holds=response == len(outputs.get(channel, [])))
        _need("weights", holds=all(type(weight) is int and weight >= 0 for weight in weights))
        _need("every outcome", holds=len(weights) == len(values) and any(weights))
        outputs.setdefault(channel, []).extend(decode)
        tables.setdefault(channel, []).append(weights)
    _need("channels are numbered", holds=list(outputs) == list(range(len(outputs))))
    bound = math.exp(rows["epsilon"]) * (1 + 1e-9)
    for channel, table in tables.items():
        numbers = outputs[channel]
        _need("finite", holds=all(map(math.isfinite, numbers)))
        _need("ratios", holds=all(max(weights) <= bound * min(weights) for weights in table))
        largest = max(1.0, *map(abs, numbers))
        for place, value in enumerate(values):
            probs = [weights[place] for weights in table]
            mean = math.fsum(p * number for p, number in zip(probs, numbers, strict=True)) / _TOTAL
            _need("probabilities", holds=sum(probs) == _TOTAL)
            _need("bias", holds=abs(mean - value) <= _NEARLY * largest)
    return outputs


def _check_rows(
    content: dict[str, Any],
    units: pl.DataFrame,
    sizes: dict[tuple[Any, Any], int],
    decode: dict[tuple[Any, ...], dict[int, float]],
) -> None:
    columns = content["columns"]
    names = [columns["unit"], columns["arm"], columns["cluster"], *columns["kept"]]
    (declared,) = content["outcomes"]["declared"]["outcomes"]
    outcome = declared["name"]
    _need("columns", holds=units.columns == [*names, "response", f"{outcome}_debiased"])
    ids = units[columns["unit"]]
    _need("ids", holds=ids.dtype == pl.String or ids.dtype.is_integer())
    _need("unique", holds=ids.null_count() == 0 and ids.n_unique() == len(units))
    cells = list(zip(units[columns["cluster"]], units[columns["arm"]], strict=True))
    _need("labels", holds={tuple(map(type, cell)) for cell in cells} == _types(sizes))
    _need("rows fill the cells", holds=dict(Counter(cells)) == sizes)
    released = zip(cells, units["response"], units[f"{outcome}_debiased"], strict=True)
    for cell, number, told in released:
        exact = decode[cell].get(number)
        _need("released", holds=exact is not None and type(told) is float)
        assert exact is not None
        _need("debiased", holds=abs(told - exact) <= _NEARLY * max(1, abs(exact)))


def _types(cells: dict[tuple[Any, Any], int]) -> set[tuple[type, ...]]:
    return {tuple(map(type, cell)) for cell in cells}
