"""A second opinion on published folders: docs/reference/folder.md, checked row by row.

It shares no code with the package's reader. What both take as sound is sound; what only the package
takes as sound was accepted by mistake.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl

from clusterdp.channels.priors import estimate_prior, to_weights
from soak.second_opinion_on_totals import (
    Flawed,
    check_groups,
    check_totals,
    folds_of,
    need,
    weights_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from soak.sound_folders import SoundFolder

_POLARS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_CELLS, _CHANNELS, _TOTALS = "cells.parquet", "channels.parquet", "totals.parquet"
# What each statistic and each channel adds to the table of cells, where outcomes are more than two.
_COLUMNS = {
    "counts": ["noisy_counts"],
    "contrasts": ["noisy_contrast"],
    "sums": ["noisy_sum", "noisy_sum_in_units", "noisy_squares"],
    "totals": [],
    "resampling": ["prior", "decode"],
    "optimal": ["channel"],
}
_TOTAL = 2**48
# Above what the package allows for, so that no number lies between the two.
_NEARLY = 1e-11


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
    for name in ("files", "sha256", "software", "provenance"):
        content.pop(name, None)
    return json.dumps(content, sort_keys=True)


def _rounded(number: str) -> float:
    read = float(f"{float(number):.12g}")
    return 0.0 if abs(read) < 1e-100 else read


def _check_manifest(content: dict[str, Any], original: dict[str, Any]) -> None:
    declared, columns = content["questions"][0]["outcomes"]["declared"], content["columns"]
    rows = original["questions"][0]["mechanism"]["rows"]
    need("software", holds=_is_version(content["software"]))
    names = [columns["unit"], *_cell_columns(content), *columns["kept"]]
    names += [one["name"] for one in declared["outcomes"]]
    texts = [*names, content["questions"][0]["mechanism"]["name"]]
    need("texts", holds=all(isinstance(text, str) for text in texts))
    need("plain texts", holds=all(text.isprintable() for text in texts))
    need("lists", holds=isinstance(columns["kept"], list))
    need("one question", holds=len(content["questions"]) == 1)
    need("names differ", holds=len(set(names)) == len(names))
    need("control is an arm", holds=_places(content["arms"], content["control"]) == 1)
    need("spaces", holds=all(_values(one["space"]) for one in declared["outcomes"]))
    # What nothing else follows from may be anything; all else must be what it was.
    wanted = json.loads(json.dumps(original))
    wanted["questions"][0]["mechanism"]["name"] = content["questions"][0]["mechanism"]["name"]
    if rows is None:
        wanted["columns"] |= {"unit": columns["unit"], "kept": columns["kept"]}
        wanted["questions"][0]["outcomes"] = content["questions"][0]["outcomes"]
    else:
        wanted["control"] = content["control"]
        need("values", holds=_values_of(content) == _values_of(original))
        wanted["questions"][0]["outcomes"]["declared"]["outcomes"] = declared["outcomes"]
        # What counted more when a channel was designed shows in nothing that can be checked.
        wanted["questions"][0]["outcomes"]["declared"]["weights"] = declared["weights"]
        if rows.get("prior") is not None:
            _check_prior(
                content["questions"][0]["mechanism"]["rows"]["prior"], len(_values_of(content))
            )
            wanted["questions"][0]["mechanism"]["rows"]["prior"] = content["questions"][0][
                "mechanism"
            ]["rows"]["prior"]
    wanted["n_units"] = content["n_units"] if rows is None else wanted["n_units"]
    need("all else is as it was", holds=_fixed(content) == _fixed(wanted))


def _is_version(text: Any) -> bool:
    return isinstance(text, str) and bool(re.fullmatch(r"clusterdp (\d{1,4}\.){2}\d{1,4}", text))


def _cell_columns(content: dict[str, Any]) -> list[str]:
    """The columns of clusters, if there are any, and of arms."""
    columns = content["columns"]
    return [columns[part] for part in ("cluster", "arm") if columns[part] is not None]


def _levels(content: dict[str, Any]) -> list[list[str]]:
    """The columns that totals are by, each time."""
    return [one["by"] for one in _totals(content)]


def _totals(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in content["questions"][0]["mechanism"]["statistics"] if "by" in one]


def _places(labels: list[Any], label: Any) -> int:
    return sum(type(one) is type(label) and one == label for one in labels)


def _values_of(content: dict[str, Any]) -> list[float]:
    """The values of the one outcome of a folder: what is checked here has no more than one."""
    (outcome,) = content["questions"][0]["outcomes"]["declared"]["outcomes"]
    return _values(outcome["space"])


def _values(space: str) -> list[float]:
    """The values that a space stands for: listed, a range of integers, or bins."""
    if space.startswith("bins:"):
        edges, _, given = space.removeprefix("bins:").partition(" as ")
        numbers = _numbers(edges)
        middles = [(low + high) / 2 for low, high in itertools.pairwise(numbers)]
        values = _numbers(given) if given else middles
        need("bins", holds=len(values) == len(middles))
        return values
    if ".." in space:
        low, high = map(int, space.split(".."))
        return [float(value) for value in range(low, high + 1)]
    return _numbers(space)


def _numbers(listed: str) -> list[float]:
    numbers = [float(number) for number in listed.split(",")]
    need("numbers", holds=all(map(math.isfinite, numbers)))
    need("order", holds=all(a < b for a, b in itertools.pairwise(numbers)))
    return numbers


def _check_prior(prior: Any, n_outcomes: int) -> None:
    need("a prior is a list", holds=isinstance(prior, list) and len(prior) == n_outcomes)
    plain = all(type(number) in (int, float) for number in prior)
    need("of probabilities", holds=plain and min(prior) >= 0 and abs(sum(prior) - 1) < 1e-9)


def _check_tables(content: dict[str, Any], tables: dict[str, pl.DataFrame]) -> None:
    cells = tables[_CELLS]
    units = [tables[name] for name in sorted(tables) if name.startswith("units")]
    rows = content["questions"][0]["mechanism"]["rows"]
    designed = rows is not None and rows["channel"] == "optimal"
    names = {_CELLS, *([_CHANNELS] if designed else []), *([_TOTALS] if _levels(content) else [])}
    need("files", holds=set(tables) - names == {n for n in tables if n.startswith("units")})
    need("rows", holds=bool(units) == (rows is not None))
    need("texts", holds=set(content["files"]) == {"README.md", "index.html", *tables})
    _check_cells(content, cells)
    if _levels(content):
        check_totals(content, _levels(content), tables[_TOTALS])
    if not units:
        return
    n_keys = len(_cell_columns(content))
    sizes = {row[:n_keys]: row[n_keys] for row in cells.iter_rows()}
    if designed:
        outputs = _check_channels(content, tables[_CHANNELS])
        numbers = {
            row[:n_keys]: outputs[cells["channel"][i]] for i, row in enumerate(cells.iter_rows())
        }
        decode = {cell: dict(enumerate(listed)) for cell, listed in numbers.items()}
    else:
        _check_priors(content, cells)
        decode = {
            row[:n_keys]: dict(enumerate(listed))
            for row, (listed,) in zip(cells.iter_rows(), cells["decode"].to_list(), strict=True)
        }
    _check_rows(content, pl.concat(units), sizes, decode)


def _check_cells(content: dict[str, Any], cells: pl.DataFrame) -> None:
    columns, mechanism = content["columns"], content["questions"][0]["mechanism"]
    keys = _cell_columns(content)
    expected = [*keys, "size", *(["weight"] if _levels(content) else [])]
    for statistic in mechanism["statistics"]:
        expected += _COLUMNS[statistic["statistic"]]
    if mechanism["rows"] is not None:
        expected += _COLUMNS[mechanism["rows"]["channel"]]
    need("columns of cells", holds=cells.columns == expected)
    arms = cells[columns["arm"]].to_list()
    clusters = [list(dict.fromkeys(cells[name].to_list())) for name in keys[:-1]]
    need("clusters", holds=sum(map(len, clusters)) == content["n_clusters"])
    need("labels of clusters", holds=all(None not in labels for labels in clusters))
    several = [cells[name].to_list() for name in keys[:-1]]
    pairs = list(zip(*several, map(_typed, arms), strict=True))
    wanted = list(itertools.product(*clusters, map(_typed, content["arms"])))
    need("a row for every cell", holds=pairs == wanted)
    sizes = cells["size"].to_list()
    need("sizes", holds=all(type(size) is int and size > 0 for size in sizes))
    need("units", holds=sum(sizes) == content["n_units"])
    if _levels(content):
        (noise,) = {one["noise_in_rows"] for one in _totals(content)}
        weights = weights_of(sizes, len(content["arms"]), noise)
        need("weights", holds=cells["weight"].to_list() == weights)
    _check_statistics(content, cells, arms)


def _typed(label: Any) -> tuple[str, Any]:
    return type(label).__name__, label


def _check_statistics(content: dict[str, Any], cells: pl.DataFrame, arms: list[Any]) -> None:
    n_outcomes = len(_values_of(content))
    if "noisy_counts" in cells.columns:
        counts = cells["noisy_counts"].to_list()
        whole = all(type(count) is int for listed in counts for count in listed)
        need("counts", holds=whole and all(len(listed) == n_outcomes for listed in counts))
        if _of_counts(content)["scope"] == "population":
            by_arm = {(arm, tuple(listed)) for arm, listed in zip(arms, counts, strict=True)}
            need("clusters repeat the counts of arms", holds=len(by_arm) == len(content["arms"]))
    if "noisy_contrast" in cells.columns:
        for arm, contrast in zip(arms, cells["noisy_contrast"].to_list(), strict=True):
            told = type(contrast) is float and math.isfinite(contrast)
            need("contrasts", holds=contrast is None if arm == content["control"] else told)
    for name in ("noisy_sum_in_units", "noisy_squares"):
        if name in cells.columns:
            need(name, holds=all(_is_one(listed, int) for listed in cells[name].to_list()))
    if "noisy_sum" in cells.columns:
        (unit,) = content["questions"][0]["noise"]["sums"]["unit"]
        expected = [[unit * number] for (number,) in cells["noisy_sum_in_units"].to_list()]
        need("noisy_sum", holds=cells["noisy_sum"].to_list() == expected)
    if "channel" in cells.columns:
        need("channel", holds=all(type(number) is int for number in cells["channel"].to_list()))


def _is_one(listed: Any, kind: type) -> bool:
    """Whether a list has one number of a kind: there is one metric."""
    return isinstance(listed, list) and [type(number) for number in listed] == [kind]


def _of_counts(content: dict[str, Any]) -> dict[str, Any]:
    """How counts were drawn; empty if there are none."""
    listed = content["questions"][0]["mechanism"]["statistics"]
    return next((one for one in listed if one["statistic"] == "counts"), {})


def _check_priors(content: dict[str, Any], cells: pl.DataFrame) -> None:
    rows, counted = content["questions"][0]["mechanism"]["rows"], _of_counts(content)
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
        need("priors", holds=all(abs(a - b) <= near for a, b in zip(made, wanted, strict=True)))
        need("priors are integers", holds=all(number == int(number) for number in made))
        mean = math.fsum(p * v for p, v in zip(stated, values, strict=True))
        for value, told in zip(values, decode, strict=True):
            exact = (value - (1 - keep) * mean) / keep
            need("decode", holds=abs(told - exact) <= _NEARLY * max(1, abs(exact)))


def _check_channels(content: dict[str, Any], listed: pl.DataFrame) -> dict[int, list[float]]:
    values, rows = _values_of(content), content["questions"][0]["mechanism"]["rows"]
    need("columns", holds=listed.columns == ["channel", "response", "decode", "weights"])
    outputs: dict[int, list[float]] = {}
    tables: dict[int, list[list[int]]] = {}
    for channel, response, decode, weights in listed.iter_rows():
        need("whole", holds=type(channel) is int and _is_one(decode, float))
        need("responses are numbered", holds=response == len(outputs.get(channel, [])))
        need("weights", holds=all(type(weight) is int and weight >= 0 for weight in weights))
        need("every outcome", holds=len(weights) == len(values) and any(weights))
        outputs.setdefault(channel, []).extend(decode)
        tables.setdefault(channel, []).append(weights)
    need("channels are numbered", holds=list(outputs) == list(range(len(outputs))))
    bound = math.exp(rows["epsilon"]) * (1 + 1e-9)
    for channel, table in tables.items():
        numbers = outputs[channel]
        need("finite", holds=all(map(math.isfinite, numbers)))
        need("ratios", holds=all(max(weights) <= bound * min(weights) for weights in table))
        largest = max(1.0, *map(abs, numbers))
        for place, value in enumerate(values):
            probs = [weights[place] for weights in table]
            mean = math.fsum(p * number for p, number in zip(probs, numbers, strict=True)) / _TOTAL
            need("probabilities", holds=sum(probs) == _TOTAL)
            need("bias", holds=abs(mean - value) <= _NEARLY * largest)
    return outputs


def _check_rows(
    content: dict[str, Any],
    units: pl.DataFrame,
    sizes: dict[tuple[Any, ...], int],
    decode: dict[tuple[Any, ...], dict[int, float]],
) -> None:
    columns = content["columns"]
    keys = _cell_columns(content)
    names = [columns["unit"], *reversed(keys), *columns["kept"]]
    names += ["fold"] if content["folds"] > 1 else []
    (declared,) = content["questions"][0]["outcomes"]["declared"]["outcomes"]
    outcome = declared["name"]
    need("columns", holds=units.columns == [*names, "response", f"{outcome}_debiased"])
    ids = units[columns["unit"]]
    need("ids", holds=ids.dtype == pl.String or ids.dtype.is_integer())
    need("unique", holds=ids.null_count() == 0 and ids.n_unique() == len(units))
    if content["folds"] > 1:
        wanted = folds_of(ids, content["folds"])
        need("folds", holds=units.schema["fold"] == pl.Int32 and units["fold"].to_list() == wanted)
    check_groups(content, units)
    cells = list(zip(*(units[name] for name in keys), strict=True))
    need("labels", holds={tuple(map(type, cell)) for cell in cells} == _types(sizes))
    need("rows fill the cells", holds=dict(Counter(cells)) == sizes)
    released = zip(cells, units["response"], units[f"{outcome}_debiased"], strict=True)
    for cell, number, told in released:
        exact = decode[cell].get(number)
        need("released", holds=exact is not None and type(told) is float)
        assert exact is not None
        need("debiased", holds=abs(told - exact) <= _NEARLY * max(1, abs(exact)))


def _types(cells: dict[tuple[Any, ...], int]) -> set[tuple[type, ...]]:
    return {tuple(map(type, cell)) for cell in cells}
