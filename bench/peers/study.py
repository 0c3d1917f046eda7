"""All methods on the same draws of every population, at every ε, many times."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bench.peers.hillstrom import read_hillstrom
from bench.peers.methods import METHODS, Method
from bench.peers.simulated import AllRespond, FewRespond, SimulatedPopulation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.peers.given import Answer, Given
    from bench.peers.trial import Population, Trial

EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
OVERALL: Final = "overall"
TREATED_SHARE: Final = 0.3
SIMULATED: Final = (FewRespond.name, AllRespond.name)
HILLSTROM: Final = "Hillstrom's e-mails"


class Key(NamedTuple):
    """What was measured: `question` is OVERALL, a segment, or "targeting"."""

    population: str
    method: str
    epsilon: float
    question: str
    measure: str


# What every run found; runs in which a method was not run, or has no answer, have no entry.
Found = dict[Key, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run.

    Attributes:
        populations: Their names.
        hillstrom: The file of Hillstrom's table; None if there is none.
        n_runs: Draws of each population at each ε, at most.
        minutes: After so many no new draws are begun.
        slow_every: Methods that take seconds are run on the first of as many draws.
        n_workers: Processes at a time.
    """

    populations: tuple[str, ...]
    hillstrom: Path | None
    n_runs: int
    minutes: float
    slow_every: int = 5
    n_workers: int = 2


class _Task(NamedTuple):
    population: str
    hillstrom: Path | None
    epsilon: float
    methods: tuple[str, ...]
    seed: np.random.SeedSequence


@cache
def population_named(name: str, hillstrom: Path | None) -> Population:
    """A population; Hillstrom's is read from its file."""
    if hillstrom is not None and name == HILLSTROM:
        return read_hillstrom(hillstrom)
    laws = {law.name: law for law in (FewRespond(), AllRespond())}
    return SimulatedPopulation(laws[name])


def measure(plan: Plan) -> Found:
    """Run everything, draw by draw, so that all populations and ε have as many."""
    found: Found = {}
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context, max_workers=plan.n_workers) as workers:
        for run in range(plan.n_runs):
            for one in workers.map(run_task, _tasks(plan, run)):
                for key, value in one.items():
                    found.setdefault(key, []).append(value)
            minutes = (time.monotonic() - start) / 60
            print(f"{run + 1} of {plan.n_runs} draws, {minutes:.1f} minutes", flush=True)
            if minutes > plan.minutes:
                break
    return found


def _tasks(plan: Plan, run: int) -> Iterator[_Task]:
    """One draw of every population at every ε."""
    slow = run % plan.slow_every == 0
    methods = tuple(one.name for one in METHODS if slow or not one.slow)
    for population in plan.populations:
        for epsilon in EPSILONS:
            yield _Task(population, plan.hillstrom, epsilon, methods, np.random.SeedSequence())


def run_task(task: _Task) -> dict[Key, float]:
    """One draw of a population, and what each method makes of it."""
    rng = np.random.default_rng(task.seed)
    trial = population_named(task.population, task.hillstrom).draw(rng)
    chosen = [one for one in METHODS if one.name in task.methods]
    return {
        Key(task.population, method.name, task.epsilon, *what): value
        for method in chosen
        for what, value in measure_method(method, trial, task.epsilon, rng).items()
    }


def measure_method(
    method: Method, trial: Trial, epsilon: float, rng: np.random.Generator
) -> dict[tuple[str, str], float]:
    """What one release of a method answers, by question and measure."""
    given = method.release(trial.sample, epsilon, rng)
    asked = {OVERALL: (given.overall(), trial.effect)}
    for name, inside in trial.sample.segments.items():
        asked[name] = (given.segment(inside), trial.segment_effects[name])
    found = {
        (question, measure): value
        for question, (answer, truth) in asked.items()
        if answer is not None
        for measure, value in judge(answer, truth).items()
    }
    gain = gain_of(given, trial)
    return found if gain is None else {**found, ("targeting", "gain"): gain}


def judge(answer: Answer, truth: float) -> dict[str, float]:
    """How far off an answer is; whether its interval covers, and how wide it is."""
    judged = {"squared error": (answer.effect - truth) ** 2}
    if not np.isnan(answer.low):
        judged["covered"] = float(answer.low <= truth <= answer.high)
        judged["width"] = answer.high - answer.low
    return judged


def gain_of(given: Given, trial: Trial) -> float | None:
    """The true gain of treating those with the highest predicted uplift; ties go by chance."""
    uplift = given.uplift(trial.targeting.features)
    if uplift is None:
        return None
    n_treated = round(TREATED_SHARE * len(uplift))
    tie_breaks = np.random.default_rng(0).random(len(uplift))
    order = np.lexsort((tie_breaks, -uplift))
    chosen = np.zeros(len(uplift), dtype=np.bool_)
    chosen[order[:n_treated]] = True
    return trial.targeting.gain(chosen)


class Mean(NamedTuple):
    """A mean over runs, with its Monte Carlo standard error."""

    value: float
    error: float
    n_runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Of what runs found."""
        n_runs = len(values)
        spread = float(np.std(values, ddof=1)) if n_runs > 1 else float("nan")
        return cls(float(np.mean(values)), spread / n_runs**0.5, n_runs)
