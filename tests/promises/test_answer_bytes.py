"""The bytes of an answer follow from the noisy totals, public columns, what is asked, and the day.

Nothing else of the table shows in them: no outcome but by the totals, nor how outcomes are written
down, nor in which order, chunks or format rows are read.
"""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from asked_answers import Experiment, make_experiment
from fixed_randomness import fixed_randomness
from fixed_release import checksums

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np


@pytest.fixture
def experiment(tmp_path: Path, rng: np.random.Generator) -> Experiment:
    made = make_experiment(tmp_path, rng)
    made.ask(metrics="visit")
    shutil.copy(made.folder / "budget.db", made.folder / "before.db")
    return made


def blind_laplace(domain: Any, metric: Any, scale: float) -> Callable[[list[int]], list[int]]:
    """Noise by which totals come out the same, whatever outcomes are: as noise can."""
    unit = math.ceil(scale)
    return lambda values: [(place % 5) * unit for place, _ in enumerate(values)]


def answered(experiment: Experiment, table: Any) -> dict[str, str]:
    """The checksums of an answer from a table, each time by the ledger as it was before."""
    shutil.copy(experiment.folder / "before.db", experiment.folder / "budget.db")
    with fixed_randomness():
        made = cdp.answer(
            experiment.folder / "followup",
            table,
            epsilon=0.5,
            ledger=experiment.ledger,
            out=experiment.folder / "answer",
        )
    found = checksums(experiment.folder / "answer")
    assert made.release_id
    shutil.rmtree(experiment.folder / "answer")
    return found


def test_other_outcomes_show_by_totals_alone(
    experiment: Experiment, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit = pl.Series("visit", rng.integers(0, 2, len(experiment.table)))
    others = experiment.table.with_columns(visit, spend=0.0)
    with monkeypatch.context() as patched:
        patched.setattr("fixed_randomness._laplace", blind_laplace)
        first, second = (answered(experiment, one) for one in (experiment.table, others))
    assert first == second
    # The same noise on totals that differ: were they the same, this test could not fail.
    first, second = (answered(experiment, one) for one in (experiment.table, others))
    differ = {name for name in first if first[name] != second[name]}
    assert "totals.parquet" in differ


def test_neither_format_nor_order_nor_chunks_show(experiment: Experiment) -> None:
    table, folder = experiment.table, experiment.folder
    mixed = table.sample(fraction=1.0, shuffle=True)
    mixed.write_csv(folder / "table.csv")
    mixed.write_parquet(folder / "mixed.parquet", row_group_size=101)
    parts = pl.concat([table[:7], table[7:900], table[900:]], rechunk=False)
    texts = table.with_columns(pl.col("visit").cast(pl.String))
    places = (str(folder / "table.csv"), str(folder / "mixed.parquet"), parts, texts)
    first, *others = (answered(experiment, one) for one in (table, *places))
    for one in others:
        assert one == first
