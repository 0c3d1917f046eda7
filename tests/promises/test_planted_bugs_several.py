"""Bugs of several outcomes, planted on purpose: the test that should catch each of them does."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from batch_runs import WordGrid, batch_of, encoder_of, randomizer_of
from clusterdp.cells.layout import LARGEST_WEIGHT, stratified_weights
from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.outcomes.metric_values import MetricIntegers
from clusterdp.privacy.accounting import joint_loss
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import KeyRing, ReleaseKey
from clusterdp.rows.randomizing import BatchRandomizer, QuestionRandomizer
from clusterdp.rows.tally import CountRequest, QuestionTally, Tally
from clusterdp.spec.columns import Columns
from clusterdp.statistics._sum_noise import NoiseBox, SumNoise
from clusterdp.statistics.noise import ALONE
from clusterdp.statistics.sums import DrawnMetricSums, NoisyMetricSums, NoisyTotals
from clusterdp.storage.folder import LocalFolder
from joint_enumeration import category_chances, joint_release, worst_loss
from neighbour_tables import NOISE_IN_ROWS, REGION, NeighbourTables, Row
from populations import make_layout
from runs import write_release

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.outcomes.encoding import OutcomeCodes
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.privacy.accounting import LossAtom
    from clusterdp.rows.encoding import QuestionEncoder, RowCodes
    from clusterdp.statistics.base import SumReading

FUNNEL = Categories(
    declared=declare({"visit": "0,1", "spend": "0,1,5"}, constraints=["spend>0 -> visit"])
)
ROUNDS = cdp.Number(0, 4)
GRID = Grid(number=ROUNDS, points=(0, ROUNDS.n_steps // 4, ROUNDS.n_steps))
NUMBER = Categories(declared=declare({"rounds": ROUNDS}), grids=(GRID,))
MAY_BE_MISSING = Categories(declared=declare({"rounds": ROUNDS}, missing=["rounds"]), grids=(GRID,))
NUMBER_ROWS = cdp.optimal(epsilon=0.5)
# Words of each key in an exhaustive run.
N_WORDS = 256


def audit_folder() -> None:
    """What a folder holds is what `clusterdp verify` asks for."""
    number = pl.int_range(40)
    table = pl.select(
        user=number,
        treated=number % 2,
        market=number // 2 % 2,
        visit=(number % 3 > 0).cast(pl.Int64),
        spend=pl.when(number % 3 == 2).then(5).otherwise(0),
    )
    columns = Columns(
        unit="user", arm="treated", cluster="market", outcomes=("visit", "spend"), folds=2
    )
    mechanism = cdp.optimal(epsilon=2, sums=cdp.SumShares(totals=0.1, noise_in_rows=NOISE_IN_ROWS))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "out"
        prepared = prepare(table, columns=columns, spaces=(FUNNEL,))
        write_release(prepared, [mechanism], LocalFolder(place))
        assert [check.problem for check in verify_folder(place) if check.problem] == []


def audit_debiased() -> None:
    """E[debiased | category] is the category's value of each outcome, from the integers."""
    randomizer = randomizer_of(FUNNEL, cdp.optimal(epsilon=2), 1)
    channel = cdp.optimal(epsilon=2).settled_rows(FUNNEL).public_channel(FUNNEL)
    decodings = np.stack(randomizer.questions[0].decodings)
    means = decodings @ channel.transition()[0]
    np.testing.assert_allclose(means, FUNNEL.outcome_values(), atol=1e-9)


def swap_the_columns(patch: pytest.MonkeyPatch) -> None:
    honest = QuestionRandomizer.from_channel.__func__  # type: ignore[attr-defined]

    def swapped(encoder: QuestionEncoder, channel: Channel) -> QuestionRandomizer:
        made: QuestionRandomizer = honest(QuestionRandomizer, encoder, channel)
        return replace(made, decodings=made.decodings[::-1])

    patch.setattr(QuestionRandomizer, "from_channel", swapped)


def swap_two_outputs(patch: pytest.MonkeyPatch) -> None:
    """In every decode: the folder then agrees with itself."""
    honest = OptimalChannel.decode

    def swapped(self: OptimalChannel, metric: int = 0) -> FloatArray:
        made = honest(self, metric).copy()
        made[:, :2] = made[:, 1::-1]
        return made

    patch.setattr(OptimalChannel, "decode", swapped)


def audit_loss() -> None:
    """Enumerated over all neighbours and outputs, the loss is within the guarantee."""
    sums = cdp.SumShares(
        totals=0.2, clusters=0.2, breakdowns=((REGION, 0.2),), noise_in_rows=NOISE_IN_ROWS
    )
    mechanism = cdp.optimal(epsilon=2, sums=sums)
    rows = tuple(map(tuple, FUNNEL.outcome_values().T.tolist()))
    release = joint_release(mechanism, FUNNEL, rows, 0)
    loss = worst_loss(mechanism, NeighbourTables(FUNNEL, rows[0], folds=2), release)
    assert loss <= mechanism.guarantee(FUNNEL).epsilon + 1e-9


def spend_epsilon_on_each_sum(patch: pytest.MonkeyPatch) -> None:
    """As if each outcome's sum were the only one: ε is spent twice."""

    def each_alone(self: NoisyMetricSums, space: CategorySpace) -> SumNoise:
        spans = np.ptp(space.metric_lattice().integers, axis=1).tolist()
        boxes = tuple(
            NoiseBox((metric,), ALONE, Fraction(self.largest_weight * span))
            for metric, span in enumerate(spans)
        )
        return SumNoise(self.epsilon, boxes, ())

    patch.setattr(NoisyMetricSums, "noise", each_alone)


def change_the_noise(patch: pytest.MonkeyPatch, change: Callable[[SumNoise], SumNoise]) -> None:
    honest = NoisyMetricSums.noise
    patch.setattr(NoisyMetricSums, "noise", lambda self, space: change(honest(self, space)))


def narrow_the_box(patch: pytest.MonkeyPatch) -> None:
    """The noise on the last metric is for half of its span."""

    def narrowed(noise: SumNoise) -> SumNoise:
        (box,) = noise.of_sums
        *others, last = box.widths
        return noise._replace(of_sums=(box._replace(widths=(*others, last // 2)),))

    change_the_noise(patch, narrowed)


def divide_the_span_twice(patch: pytest.MonkeyPatch) -> None:
    """Widths are relative to the step already, and the scale is so too."""

    def divided(noise: SumNoise) -> SumNoise:
        (box,) = noise.of_sums
        return noise._replace(of_sums=(box._replace(cost=box.cost / max(box.widths)),))

    change_the_noise(patch, divided)


def take_squares_for_free(patch: pytest.MonkeyPatch) -> None:
    """All of ε is for sums, as where a metric is alone with its squares."""

    def free(noise: SumNoise) -> SumNoise:
        (box,) = noise.of_sums
        return noise._replace(of_sums=(box._replace(cost=box.cost * 8 / 9),))

    change_the_noise(patch, free)


def count_a_little_more(patch: pytest.MonkeyPatch) -> None:
    """The largest weight is 65, where noise is for 64."""
    patch.setattr(
        Mechanism, "total_weights", lambda _, layout: stratified_weights(layout, NOISE_IN_ROWS) + 1
    )


def lift_the_cap(patch: pytest.MonkeyPatch) -> None:
    """Units of small cells count as much as the stratified mean asks for."""

    def uncapped(_: Mechanism, layout: Layout) -> IntArray:
        inverse = layout.sizes.sum(axis=1, keepdims=True) / layout.sizes
        shares = inverse / np.median(inverse, axis=0)
        return np.asarray(np.rint(LARGEST_WEIGHT * shares), dtype=np.int64)

    patch.setattr(Mechanism, "total_weights", uncapped)


def publish_other_weights(patch: pytest.MonkeyPatch) -> None:
    honest = DrawnMetricSums.sum_readings

    def others(self: DrawnMetricSums, metric: int = 0) -> tuple[SumReading, ...]:
        return tuple(one._replace(weights=one.weights - 1) for one in honest(self, metric))

    patch.setattr(DrawnMetricSums, "sum_readings", others)


def publish_other_folds(patch: pytest.MonkeyPatch) -> None:
    """Rows say another fold than the one they were counted in."""
    honest = BatchRandomizer.complete

    def swapped(self: BatchRandomizer, rows: pl.DataFrame) -> pl.DataFrame:
        return honest(self, rows).with_columns(fold=1 - pl.col("fold"))

    patch.setattr(BatchRandomizer, "complete", swapped)


def account_levels_in_parallel(patch: pytest.MonkeyPatch) -> None:
    """As if no unit were part of both a total and a group: the dearest level pays for all."""

    def of_the_dearest(self: cdp.Mechanism) -> tuple[LossAtom, ...]:
        levels = [one for one in self.statistics if isinstance(one, NoisyTotals)]
        others = [one.loss() for one in self.statistics if one.level is None]
        return joint_loss(max(levels, key=lambda one: one.epsilon).loss(), *others)

    patch.setattr(cdp.Mechanism, "statistics_loss", of_the_dearest)


def add_units_to_both_folds(patch: pytest.MonkeyPatch) -> None:
    honest = QuestionTally._add_groups  # noqa: SLF001 - what is broken

    def twice(self: QuestionTally, rows: RowCodes, *parts: Any) -> None:
        honest(self, rows, *parts)
        sizes = self.level_sizes
        n_arms = sizes[()] // 2
        moved = {level: (places + n_arms) % sizes[level] for level, places in rows.places.items()}
        honest(self, rows._replace(places=moved), *parts)

    patch.setattr(QuestionTally, "_add_groups", twice)


def draw_totals_twice(patch: pytest.MonkeyPatch) -> None:
    """A second draw of the same totals, as a retry after the first was shown."""
    honest = NoisyTotals.draw

    def again(self: NoisyTotals, *parts: Any) -> DrawnMetricSums:
        honest(self, *parts)
        return honest(self, *parts)

    patch.setattr(NoisyTotals, "draw", again)


def audit_missing() -> None:
    """The same of a number that may be missing, with sums of whether it is."""
    mechanism = cdp.optimal(epsilon=1.5, sums=cdp.SumShares(clusters=0.4))
    rows: tuple[Row, ...] = ((0,), (1.5,), (4,), (None,))
    release = joint_release(mechanism, MAY_BE_MISSING, rows, 2)
    loss = worst_loss(mechanism, NeighbourTables(MAY_BE_MISSING, rows[0]), release)
    assert loss <= mechanism.guarantee(MAY_BE_MISSING).epsilon + 1e-9


def count_missing_at_an_end(patch: pytest.MonkeyPatch) -> None:
    """In sums a missing number is its lower end, as far from the upper one as can be."""
    honest = MetricIntegers.of_rows

    def counted(self: MetricIntegers, rows: OutcomeCodes) -> IntArray:
        is_missing = rows.positions == len(GRID.points)
        return np.where(is_missing, self.categories.min(), honest(self, rows))

    patch.setattr(MetricIntegers, "of_rows", counted)


def halve_the_noise_on_shares(patch: pytest.MonkeyPatch) -> None:
    """Sums of who is observed have noise as if no squares were beside them."""

    def halved(noise: SumNoise) -> SumNoise:
        first, second = noise.of_sums
        return noise._replace(of_sums=(first, second._replace(cost=second.cost / 2)))

    change_the_noise(patch, halved)


def responses_of(true: float) -> FloatArray:
    """P(response | true number) of the machine, over all words of its keys; axes `[response]`."""
    keys, n_units = KeyRing(ReleaseKey(bytes(32))), N_WORDS**2
    made = randomizer_of(NUMBER, NUMBER_ROWS, n_units)
    (question,) = made.questions
    words = WordGrid(N_WORDS, tuple(keys[name] for name in made.key_names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusterdp.rows.randomizing.unit_words", words)
        patch.setattr("clusterdp.rows.encoding.unit_words", words)
        rows, _ = made(batch_of({"rounds": true}, n_units), keys)
    drawn = np.bincount(rows["response"].to_numpy(), minlength=question.n_outputs)
    return np.asarray(drawn / n_units)


def audit_words() -> None:
    """A number that is rounded goes through the mixture of the channel's rows."""
    channel = NUMBER_ROWS.settled_rows(NUMBER).public_channel(NUMBER)
    for true in (0, 0.5, 1, 2.5, 3.75, 4):
        wanted = channel.transition()[0] @ category_chances(NUMBER, (true,))
        # Every column of an alias table is cut at one place, between two words of the grid.
        np.testing.assert_allclose(responses_of(true), wanted, atol=8 / N_WORDS)


def use_one_word(patch: pytest.MonkeyPatch) -> None:
    """Rounding and the channel's draw take the same word."""

    honest = KeyRing.__missing__

    def one_key(self: KeyRing, name: str) -> bytes:
        return honest(self, name.replace("rounding/rows/", "response/"))

    patch.setattr(KeyRing, "__missing__", one_key)


def audit_roundings() -> None:
    """Whether a number is rounded up for counts says nothing of how it is rounded for rows."""
    keys, n_units = KeyRing(ReleaseKey(bytes(32))), N_WORDS**2
    made = encoder_of(NUMBER)
    asked = [CountRequest(counts=True, rounded=True)]
    (tally,) = Tally(made, make_layout([[n_units, 1]]), asked).questions
    (encoder,) = made.questions
    rounding = encoder.rounding_keys("rows")
    words = WordGrid(N_WORDS, tuple(keys[name] for name in (*tally.rounding_keys, *rounding)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusterdp.rows.encoding.unit_words", words)
        rows = made(batch_of({"rounds": 2.5}, n_units), keys).asked(0)
        for_rows = encoder.round(rows, rounding, keys)
        for_counts = tally.encoder.round(rows, tally.rounding_keys, keys)
    together = np.zeros((3, 3))
    np.add.at(together, (for_rows, for_counts), 1 / n_units)
    alone = category_chances(NUMBER, (2.5,))
    np.testing.assert_allclose(together, np.outer(alone, alone), atol=2 / N_WORDS)


def share_the_rounding(patch: pytest.MonkeyPatch) -> None:
    honest = KeyRing.__missing__

    def for_rows(self: KeyRing, name: str) -> bytes:
        return honest(self, name.replace("rounding/counts/", "rounding/rows/"))

    patch.setattr(KeyRing, "__missing__", for_rows)


@pytest.mark.parametrize(
    ("audit", "plant"),
    [
        (audit_folder, swap_the_columns),
        (audit_debiased, swap_the_columns),
        (audit_debiased, swap_two_outputs),
        (audit_loss, spend_epsilon_on_each_sum),
        (audit_loss, narrow_the_box),
        (audit_loss, divide_the_span_twice),
        (audit_loss, take_squares_for_free),
        (audit_loss, count_a_little_more),
        (audit_loss, lift_the_cap),
        (audit_loss, account_levels_in_parallel),
        (audit_loss, add_units_to_both_folds),
        (audit_loss, draw_totals_twice),
        (audit_folder, publish_other_weights),
        (audit_folder, publish_other_folds),
        (audit_missing, count_missing_at_an_end),
        (audit_missing, halve_the_noise_on_shares),
        (audit_words, use_one_word),
        (audit_roundings, share_the_rounding),
    ],
    ids=lambda function: function.__name__,
)
def test_planted_bugs_are_caught(
    audit: Callable[[], None],
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audit()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        audit()


def test_one_word_for_rounding_and_channel_would_cost_more_than_is_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest ratio of the machine's probabilities, over pairs of 33 numbers."""

    def worst_ratio() -> float:
        found = [responses_of(true) for true in np.linspace(0, 4, 33).tolist()]
        ratios = (np.max(one / other) for one, other in itertools.permutations(found, 2))
        return float(max(ratios))

    stated = np.exp(NUMBER_ROWS.guarantee(NUMBER).epsilon)
    assert worst_ratio() <= 1.05 * stated  # a grid of words knows probabilities to a few percent
    use_one_word(monkeypatch)
    assert worst_ratio() > 1.2 * stated
