"""The joint release of sums, squares, counts and a row, enumerated for all the planner can choose.

Given the noisy counts, the row, the sum and the squares are independent, so their losses add; each
part is enumerated over every value it can take.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.channels.optimal import OptimalRows
from clusterdp.planning import choose as planning
from clusterdp.precision import expected as reference
from clusterdp.precision.expected import Scenario
from clusterdp.spec.request import BudgetRequest
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.sums import NoisySums
from enumeration import joint_release, neighbours
from populations import make_layout

SPACES = {
    "binary": cdp.OutcomeSpace.binary(),
    "three": cdp.OutcomeSpace.integers(-1, 1),
    "uneven": cdp.OutcomeSpace.of([0, 1, 2.5]),
}
MECHANISMS = {
    "uniform": cdp.optimal(epsilon=1.5),
    "public prior": None,
    "sums": cdp.optimal(epsilon=1.5, sums=cdp.SumShares(clusters=0.4)),
    "counts": cdp.optimal(epsilon=1.5, noise_scale=3),
    "counts and sums": cdp.optimal(epsilon=1.5, noise_scale=4, sums=cdp.SumShares(clusters=0.3)),
    "uniform prior, sums": cdp.uniform_prior_dp(epsilon=1.5, sums=cdp.SumShares(clusters=0.5)),
    "cluster-dp, sums": cdp.cluster_dp(
        noise_scale=4, prior_floor=0.2, epsilon=1.5, sums=cdp.SumShares(clusters=0.25)
    ),
    "cluster-free-dp, sums": cdp.cluster_free_dp(
        noise_scale=4, prior_floor=0.2, epsilon=1.5, sums=cdp.SumShares(clusters=0.25)
    ),
}
UNIFORM = reference.uniform_baseline(SPACES["three"])
SIZE = 3
SLACK = 1e-9


def noise_loss(shift: int, scale: float) -> float:
    """The largest loss of a discrete Laplace variable that is moved, over all its values."""
    values = np.arange(-abs(shift) - 200, abs(shift) + 201)
    log_before, log_after = -np.abs(values) / scale, -np.abs(values - shift) / scale
    return float((log_before - log_after).max())


def scales_of(sums: NoisySums, space: cdp.OutcomeSpace) -> tuple[float, float]:
    """The scales of the noise on the sums of one metric, and on its squares."""
    facts = sums.facts(space)
    (of_sums,), (of_squares,) = facts["noise_scale"], facts["squares_noise_scale"]
    assert of_sums is not None
    assert of_squares is not None
    return of_sums, of_squares


def worst_loss(mechanism: cdp.Mechanism, space: cdp.OutcomeSpace) -> float:
    """The largest loss of everything in a release, over all neighbours and all that comes out."""
    _, multiples = space.lattice()
    doubled = [2 * value - (multiples[0] + multiples[-1]) for value in multiples]
    sums, counts = mechanism.find(NoisySums), mechanism.find(NoisyCounts)
    facts = {} if sums is None else sums.facts(space)
    counted = dict.fromkeys(itertools.permutations(range(space.n_categories), 2), 0.0)
    if counts is not None:
        release = joint_release(mechanism, space, SIZE, 5, counts.noise_scale)
        for before, after, old, new in neighbours(SIZE, space.n_categories):
            one, other = release.log_prob(before, old), release.log_prob(after, new)
            possible = np.isfinite(one) | np.isfinite(other)
            losses = one[possible] - other[possible]
            counted[old, new] = max(counted[old, new], float(losses.max()))
    else:
        rows = mechanism.settled_rows(space)
        channel = rows.design(make_layout([[SIZE, SIZE]]), space, None)
        transition = channel.transition()[0]
        for old, new in counted:
            counted[old, new] = float(np.log(transition[:, old] / transition[:, new]).max())
    worst = 0.0
    for (old, new), loss in counted.items():
        total = loss
        for scale in facts.get("noise_scale", []):
            total += noise_loss(multiples[new] - multiples[old], scale or 0.0)
        for scale in facts.get("squares_noise_scale", []):
            if scale is not None:
                total += noise_loss(doubled[new] ** 2 - doubled[old] ** 2, scale)
        worst = max(worst, total)
    return worst


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_joint_loss_is_stated_and_nearly_reached(name: str, space: cdp.OutcomeSpace) -> None:
    mechanism = MECHANISMS[name] or cdp.optimal(
        epsilon=1.5, sums=cdp.SumShares(clusters=0.2), prior=list(range(1, space.n_categories + 1))
    )
    stated = mechanism.guarantee(space).epsilon
    loss = worst_loss(mechanism, space)
    assert loss <= stated + SLACK
    assert stated <= 1.5
    assert loss >= 0.85 * stated


@pytest.mark.parametrize("values", [[0, 1, 2, 3], [-5, 0, 6], [0.5, 1.25, 10], [0, 1, 100]])
def test_squares_cost_nothing_beside_sums(values: list[float]) -> None:
    """Every pair of outcomes, exactly; and the claim is tight for the two ends."""
    space = cdp.OutcomeSpace.of(values)
    _, multiples = space.lattice()
    of_sums, of_squares = scales_of(NoisySums(epsilon=0.7), space)
    doubled = [2 * value - (multiples[0] + multiples[-1]) for value in multiples]
    losses = [
        abs(multiples[a] - multiples[b]) / of_sums
        + abs(doubled[a] ** 2 - doubled[b] ** 2) / of_squares
        for a, b in itertools.combinations(range(len(values)), 2)
    ]
    assert max(losses) <= 0.7 * (1 + 1e-12)
    assert max(losses) == pytest.approx(0.7)


def test_squares_at_twice_the_precision_would_not_be_free() -> None:
    """The negative control: half the noise on squares breaks the promise."""
    space = cdp.OutcomeSpace.integers(0, 100)
    of_sums, of_squares = scales_of(NoisySums(epsilon=1.0), space)
    worst = max(
        abs(a - b) / of_sums + abs((2 * a - 100) ** 2 - (2 * b - 100) ** 2) / (of_squares / 2)
        for a, b in itertools.combinations(range(101), 2)
    )
    assert worst > 1.05


@pytest.mark.parametrize("delta", [1e-4, 1e-3])
def test_delta_of_designed_rows(delta: float) -> None:
    """Hockey-stick of the table, exactly as stated: ε of the rows, δ of the release."""
    mechanism = cdp.optimal(epsilon=1.5, delta=delta, sums=cdp.SumShares(clusters=0.3))
    space = SPACES["three"]
    assert mechanism.guarantee(space) == cdp.Guarantee(epsilon=1.5, delta=delta)
    rows = mechanism.settled_rows(space)
    assert isinstance(rows, OptimalRows)
    transition = rows.design(make_layout([[3, 3]]), space, None).transition()[0]
    ratio = math.exp(rows.bound(space).epsilon)
    reached = max(
        float(np.maximum(transition[:, old] - ratio * transition[:, new], 0).sum())
        for old, new in itertools.permutations(range(3), 2)
    )
    assert 0.5 * delta <= reached <= delta * (1 + 1e-6)


@pytest.mark.parametrize("purpose", [None, "overall", "segments:0.1"])
@pytest.mark.parametrize("within", [1.0, 0.1])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_whatever_is_planned_keeps_its_budget(
    epsilon: float, within: float, purpose: str | None
) -> None:
    space = SPACES["three"]
    layout = make_layout(np.full((10, 2), 400))
    known = Scenario(layout, space, reference.histogram_baseline(space, [1, 1, 1], within))
    request = BudgetRequest(epsilon=epsilon, optimize_for=purpose)
    mechanism = planning.choose(request, known)
    assert worst_loss(mechanism, space) <= epsilon + SLACK


def test_sums_are_never_rounded() -> None:
    """Beyond 2^53, where floats round: one outcome moves the sum by exactly what it moved."""
    space = cdp.OutcomeSpace.of([2**31 - 2, 2**31 - 1, 2**31])
    layout = make_layout([[2**22 + 4, 2**22 + 4]])
    counts = np.array([[[2**22 + 4, 0, 0], [2**22 + 4, 0, 0]]])
    moved = np.array([[[2**22 + 3, 0, 1], [2**22 + 4, 0, 0]]])
    sums = [
        NoisySums(epsilon=1).draw(
            CellTotals.from_counts(table, space), layout, space, lambda values, *_: values
        )
        for table in (counts, moved)
    ]
    assert (sums[1].sums - sums[0].sums).ravel().tolist() == [2, 0]


def test_sums_that_could_wrap_around_are_refused() -> None:
    space = cdp.OutcomeSpace.of([0, 1, 2**26])
    layout = make_layout([[2048, 2048]])
    counts = np.array([[[0, 0, 2048], [0, 0, 2048]]])
    with pytest.raises(cdp.ParameterError, match="too large for exact 64-bit sums"):
        NoisySums(epsilon=1).draw(
            CellTotals.from_counts(counts, space), layout, space, lambda values, *_: values
        )


@pytest.mark.parametrize("n_outcomes", [2, 3, 12])
@pytest.mark.parametrize("delta", [1e-12, 1e-8, 1e-7, 1e-6, 1e-5])
def test_any_small_delta_makes_a_channel(delta: float, n_outcomes: int) -> None:
    space = cdp.OutcomeSpace.integers(0, n_outcomes - 1)
    mechanism = cdp.optimal(epsilon=1, delta=delta)
    rows = mechanism.settled_rows(space)
    assert isinstance(rows, OptimalRows)
    channel = rows.design(make_layout([[3, 3]]), space, None)
    assert rows.bound(space).allows(channel)


def test_a_budget_beyond_use_is_not_spent() -> None:
    mechanism = cdp.optimal(epsilon=50, sums=cdp.SumShares(clusters=0.1))
    assert mechanism.guarantee(SPACES["three"]).epsilon == pytest.approx(17)
    scenario = Scenario(make_layout([[50, 50]] * 3), SPACES["three"], UNIFORM)
    planned = planning.choose(BudgetRequest(epsilon=30), scenario)
    assert planned.guarantee(SPACES["three"]).epsilon <= 30
    with pytest.raises(cdp.ParameterError, match="must lie between"):
        cdp.optimal(epsilon=0.005).guarantee(SPACES["three"])
