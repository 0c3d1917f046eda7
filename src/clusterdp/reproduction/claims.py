"""The paper's claims, which `report.toml` lists, and what came out when each was tested."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

Verdict = Literal["reproduced", "not reproduced"]
# Rows of numbers with named columns; each table becomes a CSV file.
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of the paper that could be false.

    Attributes:
        name: A short name that stays the same from run to run.
        place: Where it stands in the paper.
        sentence: The claim itself.
        test: What was computed to decide.
        verdict: What came out.
        evidence: The numbers, in a line.
        why: For a claim that fails: the reason, and under which reading it would hold.
    """

    name: str
    place: str
    sentence: str
    test: str
    verdict: Verdict
    evidence: str
    why: str = ""


def decide(name: str, *, holds: bool, evidence: str, **numbers: Any) -> Claim:
    """A claim of the paper with its verdict.

    Args:
        name: Its name in `report.toml`.
        holds: Whether its test was passed.
        evidence: The numbers, in a line.
        numbers: What the texts of the claim leave in braces.
    """
    texts = report_texts("claims", "name")[name]
    return Claim(
        name=name,
        place=texts["place"],
        sentence=texts["sentence"],
        test=texts["test"].format(**numbers),
        verdict="reproduced" if holds else "not reproduced",
        evidence=evidence,
        why="" if holds else texts.get("why", "").format(**numbers),
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
        tables: Its tables of numbers, by name.
        claims: The claims it decides.
    """

    number: int
    tables: dict[str, Rows]
    claims: list[Claim]
