"""The paper's claims, which `report.toml` lists, and what came out when each was tested.

The privacy theorems themselves, by enumeration of a small cell. No experiment of the paper.

The paper's accounting of Cluster-DP: understated, so never a guarantee (corrections C1, C2).

It exists to reproduce the paper's figures. `docs/explanation/privacy.md` has the counter-examples.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clusterdp.channels.priors import estimate_prior
from clusterdp.errors import ParameterError
from clusterdp.mechanisms import catalogue as builders
from clusterdp.statistics.counts import NoisyCounts

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.finite import OutcomeSpace


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


def state_claim(name: str, *, holds: bool, evidence: str) -> Claim:
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
    text = resources.files("clusterdp.studies").joinpath("report.toml").read_text("utf-8")
    return {entry[key]: entry for entry in tomllib.loads(text)[table]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentFindings:
    """What an experiment gives.

    Attributes:
        number: The paper's number of the experiment.
        tables: Its tables of numbers, by name; the column `draw` distinguishes populations.
        claims: The claims it decides.
    """

    number: int
    tables: Tables
    claims: list[Claim]


_REACH = 60
# Two neighbouring tables of one cell: an outcome of the first kind becomes one of the second.
_BEFORE, _AFTER = np.array([10, 10]), np.array([9, 11])


def privacy_claims() -> ExperimentFindings:
    """Counter-examples to C1, C3 and C4, computed."""
    return ExperimentFindings(
        number=0, tables={}, claims=[_cluster_dp(), _histogram(), _contrasts()]
    )


def _cluster_dp() -> Claim:
    scale, floor = 2.0, 0.01
    noisy = np.array(list(itertools.product(range(-_REACH, 20 + _REACH), repeat=2)))
    prior = estimate_prior(noisy, np.array(20), floor)
    priors, place = np.unique(np.round(prior[:, 0], 12), return_inverse=True)
    mass = [
        np.bincount(place, np.exp(_log_mass(noisy, counts, scale)), len(priors))
        for counts in (_BEFORE, _AFTER)
    ]
    loss = float(np.log(mass[0] / mass[1]).max())
    delta = float(np.maximum(mass[0] - math.exp(1 / scale) * mass[1], 0).sum())
    return state_claim(
        "the privacy guarantee of Cluster-DP",
        holds=loss <= 1 / scale,
        evidence=f"The loss reaches {loss:.3f} = 2/σ; at ε = 0.5 the prior leaks δ = {delta:.3f}.",
    )


def _histogram() -> Claim:
    epsilon = 1.0
    noisy = np.array(list(itertools.product(range(-_REACH, _REACH), repeat=2)))
    before, after = (_log_mass(noisy, counts, 1 / epsilon) for counts in (_BEFORE, _AFTER))
    loss = float((before - after).max())
    return state_claim(
        "the privacy guarantee of the noisy histogram",
        holds=loss <= epsilon + 1e-9,
        evidence=f"The loss reaches {loss:.3f}, where {2 * epsilon:.0f} is 2ε.",
    )


def _contrasts() -> Claim:
    values, epsilon = np.array([-1.0, 0.0, 1.0]), 1.0
    scale = np.abs(values).max() / epsilon  # times 1/min(n₀, n₁), which cancels below
    loss = float(np.ptp(values) / scale)
    return state_claim(
        "the privacy guarantee of noisy Horvitz–Thompson",
        holds=loss <= epsilon,
        evidence=f"The mean moves by 2/n against noise of scale 1/n: the loss is {loss:.0f}.",
    )


def _log_mass(noisy: IntArray, counts: IntArray, scale: float) -> FloatArray:
    """Log P of discrete Laplace noise around the counts; axes `[point]`."""
    distance = np.abs(noisy - counts).sum(axis=1)
    return np.asarray(counts.size * math.log(math.tanh(1 / (2 * scale))) - distance / scale)


Accounting = Literal["valid", "paper"]
# The δ of all experiments.
DELTA = 1e-4


def clustered(  # noqa: PLR0913 - the parameters of the paper's mechanism
    kind: str,
    *,
    epsilon: float,
    noise_scale: float,
    prior_floor: float,
    accounting: Accounting,
    delta: float = DELTA,
) -> Mechanism:
    """Cluster-DP or Cluster-Free-DP at a privacy target, by either accounting.

    Raises:
        ParameterError: If the noisy counts leave nothing for the rows.
    """
    build = builders.cluster_dp if kind == "Cluster-DP" else builders.cluster_free_dp
    if accounting == "valid":
        return build(noise_scale=noise_scale, prior_floor=prior_floor, epsilon=epsilon, delta=delta)
    spent = summary_epsilon(noise_scale, prior_floor)
    if epsilon <= spent:
        raise ParameterError(f"noisy counts cost {spent:.6g} of epsilon={epsilon:g}")
    odds = prior_floor * math.expm1(epsilon - spent)
    keep = min(1 - 2**-52, (delta + odds) / (1 + odds))
    return build(
        noise_scale=noise_scale, prior_floor=prior_floor, resample_prob=1 - keep, delta=delta
    )


def stated_epsilon(mechanism: Mechanism, space: OutcomeSpace) -> float:
    """The ε that the paper states for Cluster-DP (thm:privacy-loss): min(1/σ, 2/γ) + ε̃."""
    numbers, counts = mechanism.parameters(space), mechanism.find(NoisyCounts)
    floor = numbers.get("prior_floor", 1 / space.n_categories)
    resample = numbers["resample_prob"]
    delta = mechanism.guarantee(space).delta
    odds = max(0.0, 1 - resample - delta) / (resample * floor)
    spent = 0.0 if counts is None else summary_epsilon(counts.noise_scale, floor)
    return spent + math.log1p(odds)


def summary_epsilon(noise_scale: float, prior_floor: float) -> float:
    """The paper's cost of the prior, min(1/σ, 2/γ)."""
    return min(1 / noise_scale, 2 / prior_floor)
