"""The worked example of CONTRIBUTING.md: it costs what it states, and can be used."""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import ALONE
from populations import make_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import FloatArray, IntArray

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SPACE = cdp.OutcomeSpace.integers(-1, 2)
# Noise beyond this many scales has a probability below 1e-17.
REACH = 40
COMMAND = "from clusterdp.cli.app import app; app()"


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """The blocks of the page in some language: the file that each is about, and its text."""
    found = re.finditer(rf"^```{language} (\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return ((block[1], block[2]) for block in found)


def patched(text: str, change: str) -> str:
    """A file after a change that is shown as a diff without line numbers."""
    lines = change.splitlines()
    before, after = (
        "\n".join(line[1:] for line in lines if not line.startswith(sign)) for sign in "+-"
    )
    assert text.count(before) == 1, f"the page changes lines that are not there:\n{before}"
    return text.replace(before, after)


def statistic(code: str, epsilon: float) -> Any:
    """The statistic of the page, from its code."""
    module = ModuleType("clusterdp.statistics.positives")
    sys.modules[module.__name__] = module  # where dataclasses look; no other test imports it
    exec(code, vars(module))  # noqa: S102 - our own document
    return module.NoisyPositives(epsilon=epsilon)


def drawn_around(noisy: Any, outcome: int) -> tuple[IntArray, float]:
    """What noise is added to, for a cell of one unit beside others, and the scale of the noise."""
    counts = np.ones((1, 2, SPACE.n_categories), dtype=np.int64)
    counts[0, 0, outcome] += 1
    added: list[tuple[IntArray, float]] = []

    def record(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        added.append((values, scale))
        return values

    totals = CellTotals.from_counts(counts, SPACE)
    noisy.draw(totals, make_layout([[5, 4]]), SPACE, record)
    ((values, scale),) = added
    return values.ravel(), scale


def losses(noisy: Any, one: int, other: int) -> dict[float, float]:
    """The distribution of the privacy loss between two outcomes, by adding up probabilities."""
    (values, scale), (others, same_scale) = (drawn_around(noisy, end) for end in (one, other))
    assert scale == same_scale
    distribution = {0.0: 1.0}
    for value, moved in zip(values, others, strict=True):
        points = np.arange(value - int(REACH * scale) - 1, value + int(REACH * scale) + 2)
        probs = probabilities(points, value, scale)
        ratios = np.round((np.abs(points - moved) - np.abs(points - value)) / scale, 9)
        grown: dict[float, float] = {}
        for (loss, prob), (ratio, share) in itertools.product(
            distribution.items(), zip(ratios.tolist(), probs.tolist(), strict=True)
        ):
            grown[loss + ratio] = grown.get(loss + ratio, 0.0) + prob * share
        distribution = grown
    return distribution


def probabilities(points: IntArray, centre: int, scale: float) -> FloatArray:
    """Of discrete Laplace noise around a centre."""
    return np.asarray(math.tanh(1 / (2 * scale)) * np.exp(-np.abs(points - centre) / scale))


def check_loss(noisy: Any) -> None:
    """The largest loss between any two outcomes is the stated one, and as likely as stated."""
    stated = noisy.loss()
    pairs = itertools.permutations(range(SPACE.n_categories), 2)
    worst = max((losses(noisy, *pair) for pair in pairs), key=max)
    assert sorted(worst) == pytest.approx(sorted(float(atom.loss) for atom in stated), abs=1e-8)
    for atom in stated:
        nearest = min(worst, key=lambda loss: abs(loss - float(atom.loss)))
        assert worst[nearest] == pytest.approx(float(atom.prob), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_it_costs_what_it_says(epsilon: float) -> None:
    ((_, code),) = (one for one in blocks("python") if "statistics/" in one[0])
    check_loss(statistic(code, epsilon))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Fraction(1), self.epsilon", "Fraction(1, 2), self.epsilon"),  # half of the noise
        ("Fraction(1), self.epsilon", "Fraction(2), self.epsilon"),  # twice as much as is stated
        (
            "totals.counts[..., space.metric_values()[0] > 0].sum(axis=-1)",
            "totals.counts @ np.arange(4)",
        ),  # a sum
    ],
)
def test_a_planted_bug_is_caught(right: str, wrong: str) -> None:
    ((_, code),) = (one for one in blocks("python") if "statistics/" in one[0])
    assert code.count(right) == 1
    with pytest.raises(AssertionError):
        check_loss(statistic(code.replace(right, wrong), 1.0))


def test_the_page_can_be_followed(tmp_path: Path) -> None:
    """Every block is applied to a copy of the package, which then publishes and estimates."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in blocks("python"):
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(text)
    for name, change in blocks("diff"):
        path = tmp_path / name
        path.write_text(patched(path.read_text(), change))
    printed = run(tmp_path, "try_it.py")
    for promised in ("noisy_positives", "ε = 2", "clicks"):
        assert promised in printed
    checked = run(tmp_path, "-c", COMMAND, "verify", "published")  # fails if it finds a problem
    assert "is sound" in checked
    shown = run(tmp_path, "-c", COMMAND, "inspect", "published", "-v")
    assert "epsilon of positives 0.2" in shown


def run(folder: Path, *arguments: str) -> str:
    """What a program prints that uses the copy of the package."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(  # noqa: S603 - our own programs
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
