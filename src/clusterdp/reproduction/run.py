"""Run experiments side by side and write what they find."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.reproduction import clusters, guarantees, one_shot, tradeoffs, validity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp.reproduction.claims import Findings
    from clusterdp.reproduction.study import Study

EXPERIMENTS: dict[int, Callable[[Study], Findings]] = {
    1: tradeoffs.experiment_one,
    2: clusters.experiment_two,
    3: clusters.experiment_three,
    4: validity.experiment_four,
    5: validity.experiment_five,
    6: one_shot.experiment_six,
    7: validity.experiment_seven,
}
# The longest first, so that the others fill in beside it.
_ORDER = (1, 3, 2, 6, 5, 4, 7)


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


def run_experiments(numbers: list[int], study: Study) -> Iterator[Findings]:
    """Findings as they come in. The same seed gives the same numbers, whatever runs beside."""
    yield guarantees.privacy_claims()
    chosen = [number for number in _ORDER if number in numbers]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context, max_workers=min(2, len(chosen))) as workers:
        pending = [workers.submit(EXPERIMENTS[number], study) for number in chosen]
        for done in as_completed(pending):
            yield done.result()
