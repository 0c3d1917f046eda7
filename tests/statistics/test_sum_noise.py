"""Which noise sums of several metrics have, and that no other kind would have less."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from clusterdp.cells.layout import LARGEST_WEIGHT
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.statistics import _sum_noise as module
from clusterdp.statistics._sum_noise import sum_noise, sum_variances
from clusterdp.statistics.sums import NoisySums, NoisyTotals


def independent(n_metrics: int) -> Categories:
    return Categories(declared=declare({f"y{place}": "0,1" for place in range(n_metrics)}))


def exclusive(n_metrics: int) -> Categories:
    """At most one of them is 1."""
    names = [f"y{place}" for place in range(n_metrics)]
    constraints = [f"{one} -> {other}<1" for one, other in itertools.combinations(names, 2)]
    declared = declare(dict.fromkeys(names, "0,1"), constraints=constraints)
    return Categories(declared=declared)


SPACES = {f"{n_metrics} binary": independent(n_metrics) for n_metrics in (1, 2, 3, 5)} | {
    "binary and levels": Categories(declared=declare({"a": "0,1", "b": "0..4"})),
    "exclusive": exclusive(5),
}


def relative(space: Categories, kind: Any) -> float:
    """Variances over squared spans, added up, at a small ε."""
    found = module._variances(kind(space, LARGEST_WEIGHT)[0], 0.01)  # noqa: SLF001 - what if
    spans = np.ptp(space.metric_lattice().integers, axis=1)
    return float(sum(found[metric] / span**2 for metric, span in enumerate(spans.tolist())))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_smaller_noise_is_chosen(space: Categories) -> None:
    kinds = (module._apart, module._together)  # noqa: SLF001 - both kinds
    chosen = relative(space, lambda *_: sum_noise(space, 0.01, LARGEST_WEIGHT)[1:])
    assert chosen == pytest.approx(min(relative(space, kind) for kind in kinds), rel=1e-3)


@pytest.mark.parametrize(("n_metrics", "factor"), [(2, 1 / 2), (3, 10 / 27), (5, 7 / 25)])
def test_independent_metrics_gain_what_the_formula_says(n_metrics: int, factor: float) -> None:
    """(m + 1)(m + 2)/3 against 2m²."""
    of_box, of_laplace = (
        relative(SPACES[f"{n_metrics} binary"], kind)
        for kind in (module._together, module._apart)  # noqa: SLF001 - both kinds
    )
    assert of_box / of_laplace == pytest.approx(factor, rel=1e-3)


def test_metrics_that_exclude_each_other_stay_apart() -> None:
    assert len(sum_noise(SPACES["exclusive"], 1.0).of_sums) == 5
    assert len(sum_noise(SPACES["5 binary"], 1.0).of_sums) == 1


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_planned_variances_are_those_of_the_noise(space: Categories) -> None:
    epsilons = np.array([0.0, 0.05, 1.0, 3.0])
    for kind in (NoisyTotals, NoisySums):
        planned = sum_variances(space, epsilons, kind.largest_weight)
        assert np.isinf(planned[0]).all()
        for epsilon, variances in zip(epsilons[1:], planned[1:], strict=True):
            noise = kind(epsilon=epsilon).noise(space)
            of_noise = [noise.variance(space, metric) for metric in range(len(variances))]
            assert variances == pytest.approx(of_noise, rel=1e-9)
