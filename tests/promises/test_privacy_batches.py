"""A chain of batches, enumerated: people lose what the ledger says, and no more.

The second batch is designed from all that the first one published: who is in it, its ε and its
prior. Every noisy count and every response of both is enumerated, for every pair of neighbours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pytest

import clusterdp as cdp
from categories import one_outcome, one_question
from clusterdp.ledger.ledger import Ledger
from enumeration import joint_release
from ledger_runs import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clusterdp._arrays import BoolArray, FloatArray
    from enumeration import JointRelease

SLACK = 1e-9
TWO = cdp.OutcomeSpace.binary()
SPACE = one_outcome("y", TWO)
SIZE, SCALE, REACH = 20, 2.0, 12
FIRST = cdp.cluster_dp(noise_scale=SCALE, prior_floor=0.1, epsilon=1.5)
# What the second batch may be, and the answer about the first: chosen from what was published.
DESIGNS = (
    cdp.optimal(epsilon=0.7, prior=[0.5, 0.5]),
    cdp.optimal(epsilon=1.4, prior=[0.9, 0.1]),
    cdp.optimal(epsilon=2.2, prior=[0.2, 0.8]),
)
ANSWER = cdp.noisy_histogram(epsilon=0.4)
# Persons: two in the first batch, two that may be in the second; all others are the same.
PERSONS = ("a", "b", "c", "d")


@cache
def responses(mechanism: cdp.Mechanism) -> FloatArray:
    """P(response | outcome) of a channel that public numbers decide; axes `[response, outcome]`."""
    channel = mechanism.settled_rows(SPACE).design(LAYOUT, SPACE, None)
    found: FloatArray = channel.transition()[channel.groups[0, 0]]
    return found


@dataclass(frozen=True)
class Chain:
    """Two batches, the second one designed from the first.

    Attributes:
        first: The first batch: noisy counts of its cell, and the response of person a.
        design: The second batch's design, for each point of noisy counts and each response.
        members: Who is in the second batch, for each of the same.
    """

    first: JointRelease
    design: Callable[[int, int], int]
    members: Callable[[int, int], tuple[str, ...]]

    def kinds(self) -> dict[tuple[int, tuple[str, ...]], BoolArray]:
        """The designs and members of the second batch; which outputs of the first lead to them."""
        n_points, n_responses = self.first.log_transition.shape[:2]
        found: dict[tuple[int, tuple[str, ...]], BoolArray] = {}
        for path in itertools.product(range(n_points), range(n_responses)):
            kind = (self.design(*path), self.members(*path))
            found.setdefault(kind, np.zeros((n_points, n_responses), np.bool_))[path] = True
        return found

    def log_probs(self, outcomes: dict[str, int]) -> Iterator[tuple[int, FloatArray]]:
        """The log probability of all that both batches can publish, by the design of the second."""
        n_ones = outcomes["a"] + outcomes["b"]
        first = self.first.log_prob((SIZE - n_ones, n_ones), outcomes["a"])
        for (design, members), leads_here in self.kinds().items():
            log_prob = first[leads_here]
            for person in members:
                with np.errstate(divide="ignore"):
                    own = np.log(responses(DESIGNS[design])[:, outcomes[person]])
                log_prob = np.add.outer(log_prob, own)
            yield design, log_prob


def losses(chain: Chain, person: str) -> dict[int, float]:
    """The largest loss of a person, by the design that the first batch led to."""
    worst: dict[int, float] = {}
    others = [one for one in PERSONS if one != person]
    for known in itertools.product((0, 1), repeat=len(others)):
        fixed = dict(zip(others, known, strict=True))
        pairs = zip(*(chain.log_probs({**fixed, person: one}) for one in (0, 1)), strict=True)
        for (design, one), (_, other) in pairs:
            there = np.isfinite(one)
            assert (there == np.isfinite(other)).all()
            loss = float(np.abs(one - other, where=there, out=np.zeros(one.shape)).max())
            worst[design] = max(worst.get(design, 0.0), loss)
    return worst


def in_ledger(tmp_path: Path, design: int, *, answered: bool = False) -> float:
    """ε of the ledger after both batches, for one design of the second."""
    ledger = Ledger.create(tmp_path / f"{design}.db", 9)

    def publish(name: str, mechanism: cdp.Mechanism, *earlier: str, **more: str) -> str:
        reservation = ledger.reserve(
            "us",
            terms=one_question(SPACE, mechanism),
            about={},
            place="x",
            continues=earlier,
            answers=more.get("answers"),
        )
        reservation.keep("drawn", b"what it drew")
        reservation.seal(name.encode())
        reservation.commit(name)
        return sha256(name.encode()).hexdigest()

    first = publish("first", FIRST)
    publish("second", DESIGNS[design], first)
    if answered:
        publish("answer", ANSWER, answers=first)
    assert ledger.verify() == []
    return ledger.balance("us").basic.epsilon


@pytest.fixture(scope="module")
def first() -> JointRelease:
    return joint_release(FIRST, TWO, SIZE, REACH, SCALE)


def chosen(release: JointRelease) -> Callable[[int, int], int]:
    """A design that follows from noisy counts and a response."""
    return lambda point, response: int(release.noisy[point, 1] + 2 * response) % len(DESIGNS)


def test_a_chain_costs_the_largest_batch(first: JointRelease, tmp_path: Path) -> None:
    """Also where the first batch decides who is in the second, and how it is randomized."""

    def members(point: int, response: int) -> tuple[str, ...]:
        return [(), ("c",), ("d",), ("c", "d")][int(first.noisy[point, 0] + response) % 4]

    chain = Chain(first, chosen(first), members)
    stated = {design: in_ledger(tmp_path, design) for design in range(len(DESIGNS))}
    of_each = {person: losses(chain, person) for person in PERSONS}
    worst = {design: max(one[design] for one in of_each.values()) for design in stated}
    for design, epsilon in stated.items():
        assert worst[design] <= epsilon + SLACK
        # No less would do.
        assert worst[design] >= 0.98 * epsilon
    assert max(of_each["a"].values()) <= FIRST.guarantee(SPACE).epsilon + SLACK
    for design, mechanism in enumerate(DESIGNS):
        assert of_each["c"][design] <= mechanism.guarantee(SPACE).epsilon + SLACK


def test_planted_a_person_in_two_batches_loses_more_than_the_ledger_says(
    first: JointRelease, tmp_path: Path
) -> None:
    """Were ids not compared, the maximum would be wrong; a sum is right again."""
    chain = Chain(first, chosen(first), lambda *_: ("a", "c"))
    found = losses(chain, "a")
    for design, mechanism in enumerate(DESIGNS):
        stated = in_ledger(tmp_path, design)
        in_sum = (FIRST.guarantee(SPACE).epsilon, mechanism.guarantee(SPACE).epsilon)
        assert found[design] > stated + 0.5
        assert found[design] <= sum(in_sum) + SLACK


def test_answers_count_with_their_batch(first: JointRelease, tmp_path: Path) -> None:
    """A histogram of the first batch alone adds to what its people lost, and to nobody else's."""
    chain = Chain(first, chosen(first), lambda *_: ("c",))
    own = max(losses(chain, "a").values()) + ANSWER.guarantee(SPACE).epsilon
    for design, mechanism in enumerate(DESIGNS):
        stated = in_ledger(tmp_path, design, answered=True)
        second = mechanism.guarantee(SPACE).epsilon
        assert stated >= max(own, second) - SLACK
        assert stated <= max(own, second) * 1.02
