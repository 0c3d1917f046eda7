"""The paper's claims, which `report.toml` lists, and what came out when each was tested."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray

Verdict = Literal["reproduced", "not reproduced", "depends on the draw"]
# Rows of numbers with named columns; each table becomes a CSV file.
Rows = list[dict[str, Any]]
Tables = dict[str, Rows]
# The share of draws, as a fraction, that a claim must hold in, or fail in, to be decided.
DECIDING = (19, 20)
RULE = (
    "A claim is tested in every draw. It is *reproduced* if it holds in at least "
    "95% of draws, *not reproduced* if it holds in at most 5%, and *depends on the draw* between."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of the paper that could be false.

    Attributes:
        name: A short name that stays the same from run to run.
        place: Where it stands in the paper.
        sentence: The claim itself.
        test: What was computed to decide.
        verdict: What came out.
        held: In how many draws it held; empty for a claim about no population.
        evidence: The numbers, in a line.
        why: For a claim that fails: the reason, and under which reading it would hold.
    """

    name: str
    place: str
    sentence: str
    test: str
    verdict: Verdict
    held: str
    evidence: str
    why: str


def decide(name: str, *, holds: bool, evidence: str) -> Claim:
    """A claim that no population enters, with its verdict.

    Args:
        name: Its name in `report.toml`.
        holds: Whether its test was passed.
        evidence: The numbers, in a line.
    """
    return _claim(name, "reproduced" if holds else "not reproduced", "", evidence, {})


def decide_over_draws(name: str, *, holds: BoolArray, evidence: str, **numbers: Any) -> Claim:
    """A claim about populations that are drawn at random, with its verdict by `RULE`.

    Args:
        name: Its name in `report.toml`.
        holds: Whether its test was passed; axes `[draw]`.
        evidence: The numbers, in a line.
        numbers: What the texts of the claim leave in braces.
    """
    n_held, n_draws = int(holds.sum()), len(holds)
    held = f"{n_held} of {n_draws} draws"
    return _claim(name, verdict_of(n_held, n_draws), held, evidence, numbers)


def verdict_of(n_held: int, n_draws: int) -> Verdict:
    """What follows if a claim holds in so many of the draws."""
    share, whole = DECIDING
    if whole * n_held >= share * n_draws:
        return "reproduced"
    if whole * (n_draws - n_held) >= share * n_draws:
        return "not reproduced"
    return "depends on the draw"


def _claim(name: str, verdict: Verdict, held: str, evidence: str, numbers: dict[str, Any]) -> Claim:
    texts = report_texts("claims", "name")[name]
    why = "" if verdict == "reproduced" else texts.get("why", "")
    return Claim(
        name=name,
        place=texts["place"],
        sentence=texts["sentence"],
        test=texts["test"].format(**numbers),
        verdict=verdict,
        held=held,
        evidence=evidence,
        why=why.format(**numbers),
    )


@cache
def report_texts(table: str, key: str) -> dict[Any, dict[str, str]]:
    """A table of `report.toml`, by one of its fields."""
    text = resources.files("clusterdp.reproduction").joinpath("report.toml").read_text("utf-8")
    return {entry[key]: entry for entry in tomllib.loads(text)[table]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an experiment gives.

    Attributes:
        number: The paper's number of the experiment.
        tables: Its tables of numbers, by name; the column `draw` tells populations apart.
        claims: The claims it decides.
    """

    number: int
    tables: Tables
    claims: list[Claim]
