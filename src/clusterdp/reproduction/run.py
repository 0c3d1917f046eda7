"""Run the draws of experiments side by side and judge what they find."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.errors import ParameterError
from clusterdp.reproduction import clusters, guarantees, one_shot, tradeoffs, validity
from clusterdp.reproduction.claims import Findings
from clusterdp.reproduction.draws import joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.reproduction.claims import Claim, Tables
    from clusterdp.reproduction.study import Study


class Experiment(NamedTuple):
    """One of the paper's experiments.

    Attributes:
        measure: The tables of one draw of its population, by the number of the draw.
        judge: The verdicts, from the tables of all draws.
    """

    measure: Callable[[Study, int], Tables]
    judge: Callable[[Tables], list[Claim]]


EXPERIMENTS = {
    1: Experiment(tradeoffs.measure, tradeoffs.judge),
    2: Experiment(clusters.measure_ratio, clusters.judge_ratio),
    3: Experiment(clusters.measure_youtube, clusters.judge_youtube),
    4: Experiment(validity.measure_errors, validity.judge_errors),
    5: Experiment(validity.measure_bound, validity.judge_bound),
    6: Experiment(one_shot.measure, one_shot.judge),
    7: Experiment(validity.measure_youtube_errors, validity.judge_youtube_errors),
}


def parse_numbers(names: list[str]) -> list[int]:
    """Which experiments: `all`, or numbers from 1 to 7."""
    if not names or names == ["all"]:
        return sorted(EXPERIMENTS)
    try:
        numbers = sorted({int(name) for name in names})
    except ValueError:
        numbers = [0]
    if not set(numbers) <= set(EXPERIMENTS):
        raise ParameterError(f"experiments are 1 to 7, or all; got {' '.join(names)}")
    return numbers


def run_experiments(
    numbers: list[int], study: Study, report: Callable[[int], None]
) -> list[Findings]:
    """The guarantees, and the experiments asked for. A draw is the same whatever runs beside it.

    Args:
        numbers: Which experiments.
        study: How much to compute.
        report: Called with an experiment's number after each of its draws.
    """
    tables = _all_draws(numbers, study, report)
    judged = [
        Findings(number=number, tables=found, claims=EXPERIMENTS[number].judge(found))
        for number, found in tables.items()
    ]
    return [guarantees.privacy_claims(), *judged]


def _all_draws(
    numbers: list[int], study: Study, report: Callable[[int], None]
) -> dict[int, Tables]:
    """The tables of every experiment, its draws joined."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context, max_workers=2) as workers:
        pending = {
            workers.submit(EXPERIMENTS[number].measure, study, draw): number
            for number in numbers
            for draw in range(study.n_draws)
        }
        try:
            for done in as_completed(pending):
                done.result()
                report(pending[done])
        finally:
            workers.shutdown(cancel_futures=True)
    return {
        number: joined([task.result() for task, owner in pending.items() if owner == number])
        for number in numbers
    }
