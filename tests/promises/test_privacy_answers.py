"""A release and its answers, taken together, cost what the ledger says: every output of one unit.

One unit's outcome is 0 or 1, and everything else is fixed. Its row, the totals of its arm and the
totals of its group in two answers are all that depends on it. The second follow-up is chosen from
what the first answer gave, and the first from the release. Values of noise with the same loss and
the same consequence are counted together, so that every output is in the sums.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.catalogue import answering
from clusterdp.mechanisms.draw import Question
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.categories import Categories, together
from clusterdp.spec.terms import Terms
from clusterdp.statistics.noise import ALONE
from clusterdp.statistics.sums import NoisyTotals

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp._arrays import FloatArray

SPACE = one_outcome("y", cdp.OutcomeSpace.binary())
RELEASE = cdp.uniform_prior_dp(epsilon=1.5, sums=cdp.SumShares(totals=0.5 / 1.5, noise_in_rows=64))
ANSWERED = 0.5
SLACK = 1e-6


def answer_of(epsilon: float = ANSWERED, *names: str) -> Mechanism:
    return answering(
        epsilon=epsilon, dimensions=names or ("tier",), released=[RELEASE], row_epsilon=1
    )


def terms_of(mechanism: Mechanism, *spaces: Categories) -> Terms:
    every = together(spaces or [SPACE])
    return Terms.from_questions([Question(space=one, mechanism=mechanism) for one in every])


class Outputs(NamedTuple):
    """Outputs with their probabilities if the outcome is 0 and if it is 1, and a public bit."""

    zero: FloatArray
    one: FloatArray
    bit: FloatArray

    def then(self, more: Outputs, *, always: bool = False) -> Outputs:
        """What follows: the unit is in what is drawn next where the bit is 1, or always."""
        asked = np.ones_like(self.bit, bool) if always else self.bit == 1
        zero = self.zero[:, np.newaxis] * more.zero
        inside = self.one[:, np.newaxis] * more.one
        one = np.where(asked[:, np.newaxis], inside, self.one[:, np.newaxis] * more.zero)
        bit = np.broadcast_to(more.bit, zero.shape)
        return Outputs(zero.ravel(), one.ravel(), bit.ravel()).merged()

    def merged(self) -> Outputs:
        """Outputs of one loss and one bit, counted together."""
        loss = np.round(np.log(self.one / self.zero), 9)
        _, places = np.unique(np.stack([loss, self.bit]), axis=1, return_inverse=True)
        zero, one = (
            np.bincount(places.ravel(), part).astype(np.float64) for part in (self.zero, self.one)
        )
        bits = np.zeros(len(zero))
        bits[places.ravel()] = self.bit
        return Outputs(zero, one, bits)

    @property
    def loss(self) -> float:
        return float(np.abs(np.log(self.one / self.zero)).max())

    def delta(self, epsilon: float) -> float:
        pairs = ((self.zero, self.one), (self.one, self.zero))
        return max(float(np.maximum(p - np.exp(epsilon) * q, 0).sum()) for p, q in pairs)


def row() -> Outputs:
    """The unit's row: with its response, whether it may be asked about."""
    table = RELEASE.settled_rows(SPACE).public_channel(SPACE).transition()
    zero, one = table[0, :, 0], table[0, :, 1]
    return Outputs(zero, one, np.zeros_like(zero))


def noisy_total(totals: NoisyTotals) -> Outputs:
    """The total that the unit is part of, with the largest weight; even totals have the bit 1."""
    noise = totals.noise(SPACE)
    (box,) = noise.of_sums
    assert box.widths == ALONE
    assert not noise.of_squares
    scale, weight = box.scale(noise.epsilon), totals.largest_weight
    values = np.arange(-60 * int(scale), 60 * int(scale) + weight)
    far = [np.abs(values - shift) / scale for shift in (0, weight)]
    zero, one = (np.tanh(0.5 / scale) * np.exp(-one) for one in far)
    assert zero.sum() == pytest.approx(1)
    return Outputs(zero, one, (values % 2 == 0).astype(np.float64)).merged()


def totals_in(mechanism: Mechanism) -> NoisyTotals:
    totals = mechanism.find(NoisyTotals)
    assert totals is not None
    return totals


def released() -> Outputs:
    return row().then(noisy_total(totals_in(RELEASE)), always=True)


def ledger_epsilon(folder: Path, n_answers: int) -> float:
    """What a ledger says of a release with some answers."""
    ledger = cdp.Ledger.create(folder / "budget.db", 10)
    reserved = ledger.reserve("us", terms=terms_of(RELEASE), about={}, place="x")
    reserved.keep("drawn", b"drawn")
    reserved.seal(b"manifest")
    reserved.commit("x")
    manifest = sha256(b"manifest").hexdigest()
    for number in range(n_answers):
        ledger.reserve(
            "us",
            terms=terms_of(answer_of()),
            about={},
            place=f"a{number}",
            answers=manifest,
            followup=f"{number:064}",
        )
    return float(ledger.balance("us").basic.epsilon)


def test_a_release_and_adaptive_answers_cost_what_the_ledger_says(tmp_path: Path) -> None:
    one = noisy_total(totals_in(answer_of()))
    joint = released().then(one).then(one)
    stated = ledger_epsilon(tmp_path, 2)
    assert joint.zero.sum() == pytest.approx(1)
    assert joint.loss <= stated + SLACK
    assert joint.loss >= 0.99 * stated
    assert joint.delta(stated) <= SLACK
    assert joint.delta(0.9 * stated) > 1e-9


def test_an_answer_that_is_not_counted_would_be_found(tmp_path: Path) -> None:
    """Planted: a ledger that counts the release alone."""
    joint = released().then(noisy_total(totals_in(answer_of())))
    assert joint.loss > ledger_epsilon(tmp_path, 0) + 0.9 * ANSWERED


def test_an_answer_that_is_drawn_twice_would_be_found(tmp_path: Path) -> None:
    """Planted: a second draw for the same follow-up, which the ledger has once."""
    one = noisy_total(totals_in(answer_of()))
    twice = released().then(one, always=True).then(one, always=True)
    stated = ledger_epsilon(tmp_path, 1)
    assert released().then(one, always=True).loss <= stated + SLACK
    assert twice.loss > stated + 0.9 * ANSWERED


def test_units_that_are_not_asked_pay_nothing_more() -> None:
    """Given what was published before, an answer about others has one distribution."""
    one = noisy_total(totals_in(answer_of()))
    never = released()
    never = never._replace(bit=np.zeros_like(never.bit))
    assert never.then(one).loss == pytest.approx(never.loss, abs=SLACK)


def worst_moves(mechanism: Mechanism, *spaces: Categories) -> float:
    """The largest loss of the totals of several questions, which one unit is in with all outcomes.

    Noise of a box falls as the largest of its parts rises, each over its width.
    """
    every, worst = together(spaces), 0.0
    for totals in mechanism.statistics:
        assert isinstance(totals, NoisyTotals)
        noise = totals.noise(every[0])
        spans = [max(one) - min(one) for space in every for one in space.metric_lattice().integers]
        worst += sum(
            max(
                totals.largest_weight * spans[metric] / width
                for metric, width in zip(box.metrics, box.widths, strict=True)
            )
            / box.scale(noise.epsilon)
            for box in noise.of_sums
        )
    return worst


def test_questions_share_the_sums_of_an_answer() -> None:
    """A unit is in the totals of every question; their noise is drawn for all of them together."""
    other = one_outcome("z", cdp.OutcomeSpace.integers(0, 3))
    mechanism = answer_of(ANSWERED, "tier", "region")
    stated = terms_of(mechanism, SPACE, other).guarantee.epsilon
    assert stated == pytest.approx(ANSWERED, abs=1e-6)
    assert worst_moves(mechanism, SPACE, other) <= stated + SLACK
    # Planted: the noise of each question by itself, as if units were asked one of them.
    apart = worst_moves(mechanism, SPACE) + worst_moves(mechanism, other)
    assert apart > 1.5 * stated


def test_totals_alone_are_no_release() -> None:
    with pytest.raises(ParameterError, match="would publish no effects"):
        Mechanism(name="Totals", statistics=(NoisyTotals(epsilon=1),))


def test_an_answer_to_nothing_is_no_release(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "user": range(80),
            "arm": [0, 1] * 40,
            "y": [0, 1, 1, 0] * 20,
            "tier": ["a", "a", "b", "b"] * 20,
        }
    )
    asked: dict[str, Any] = {
        "unit": "user",
        "arm": "arm",
        "outcomes": {"y": "0,1"},
        "breakdown": "tier",
    }
    with pytest.raises(ParameterError, match="totals of groups without rows answer a follow-up"):
        cdp.publish(table, out=tmp_path / "out", mechanism=answer_of(), **asked)
    assert not (tmp_path / "out").exists()
