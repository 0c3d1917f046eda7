"""A second opinion on totals, breakdowns and folds; it shares no code with the package's reader."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from collections.abc import Sequence


class Flawed(Exception):  # noqa: N818 - it is raised to end a check, and says what is wrong
    """What is wrong with a folder."""


def need(rule: str, *, holds: bool) -> None:
    """Raise a Flawed unless a rule holds."""
    if not holds:
        raise Flawed(rule)


def weights_of(sizes: list[int], n_arms: int, noise_in_rows: float) -> list[int]:
    """What a unit of each cell counts in totals, cells in the order of clusters, then arms.

    Weights are proportional to n_c/n_ac, up to a cap for each arm: the largest of Σ n·w/(N + Σ n)
    over the k largest weights w, N the noise of a total in rows.
    """
    rows = [sizes[first : first + n_arms] for first in range(0, len(sizes), n_arms)]
    inverse = [[sum(row) / size for size in row] for row in rows]
    caps = []
    for arm in range(n_arms):
        cells = sorted(((inverse[c][arm], row[arm]) for c, row in enumerate(rows)), reverse=True)
        ends = range(1, len(cells) + 1)
        caps.append(
            max(
                sum(w * n for w, n in cells[:k]) / (noise_in_rows + sum(n for _, n in cells[:k]))
                for k in ends
            )
        )
    return [
        max(round(256 * min(weight / cap, 1)), 1)
        for row in inverse
        for weight, cap in zip(row, caps, strict=True)
    ]


def folds_of(ids: pl.Series, n_folds: int) -> list[int]:
    """The fold of each id, as docs/reference/folder.md says."""
    key = hashlib.sha256(b"clusterdp fold").digest()
    return [_first_word(one, key) % n_folds for one in ids.to_list()]


def _first_word(given: Any, key: bytes) -> int:
    """CBC-MAC of a header of 8 bytes, kind and length, and the id, padded with zeros."""
    if isinstance(given, str):
        content, kind = given.encode(), 2
    else:
        content, kind = given.to_bytes(8, "little", signed=True), 1
    header = ((kind << 56) + len(content)).to_bytes(8, "little")
    padded = header + content + bytes(-(len(content) + 8) % 16)
    state = bytes(16)
    for first in range(0, len(padded), 16):
        question = bytes(a ^ b for a, b in zip(state, padded[first : first + 16], strict=True))
        encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one question
        state = encryptor.update(question)
    return int.from_bytes(state[:8], "little")


def check_totals(content: dict[str, Any], levels: list[list[str]], totals: pl.DataFrame) -> None:
    """One row for each breakdown, group, fold and arm, in this order; with whole numbers."""
    arm, folds = content["columns"]["arm"], range(content["folds"])
    names = ["by", "group", "fold", arm, "noisy_sum", "noisy_sum_in_units", "noisy_squares"]
    need("columns of totals", holds=totals.columns == names)
    groups = {tuple(one["columns"]): one["labels"] for one in content["breakdowns"]}
    wanted = [
        (", ".join(by), group, fold, label)
        for by in levels
        for group in _named(groups[tuple(by)] if by else [["everyone"]])
        for fold in folds
        for label in content["arms"]
    ]
    need("rows of totals", holds=list(totals.select(names[:4]).iter_rows()) == wanted)
    for name in names[4:]:
        listed = totals[name].to_list()
        need(name, holds=all(isinstance(one, list) and len(one) == 1 for one in listed))
        kind = float if name == "noisy_sum" else int
        need("numbers", holds=all(type(one[0]) is kind for one in listed))
    noise = content["questions"][0]["noise"]
    (unit,) = next(one["unit"] for name, one in noise.items() if "totals" in name)
    expected = [[unit * number] for (number,) in totals["noisy_sum_in_units"].to_list()]
    need("sums in units", holds=totals["noisy_sum"].to_list() == expected)


def _named(labels: Sequence[Sequence[str]]) -> list[str]:
    return [" | ".join(group) for group in itertools.product(*labels)]


def check_groups(content: dict[str, Any], units: pl.DataFrame) -> None:
    """Rows fill the groups of breakdowns."""
    arm = content["columns"]["arm"]
    for one in content["breakdowns"]:
        texts = [units[name].cast(pl.String).to_list() for name in one["columns"]]
        found = Counter(zip(*texts, units[arm].to_list(), strict=True))
        wanted = {
            (*group, label): size
            for group, row in zip(itertools.product(*one["labels"]), one["sizes"], strict=True)
            for label, size in zip(content["arms"], row, strict=True)
            if size
        }
        need("groups", holds=dict(found) == wanted)
