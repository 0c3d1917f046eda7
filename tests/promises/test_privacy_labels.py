"""Private clusters, enumerated: all results of small tables, and the words labels are drawn by."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given as drawn_from
from hypothesis import strategies as st

import clusterdp as cdp
from batch_runs import WordGrid, batch_of
from categories import one_outcome, questions_of
from clusterdp.cells.assignment import pool_small_clusters
from clusterdp.channels.base import KEEP_TOTAL
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.privacy.accounting import largest_ratio
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.stages import label_units
from clusterdp.rows.encoding import RowEncoder
from clusterdp.rows.keys import CLUSTERS_KEY, KeyRing, ReleaseKey, UnitIds, response_key
from clusterdp.rows.randomizing import BatchRandomizer
from clusterdp.rows.value_codes import CellEncoder, ValueCodes
from clusterdp.spec.clusters import PrivateClusters
from clusterdp.spec.columns import Columns
from clusterdp.spec.terms import Terms
from populations import make_layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray, IntArray, WordArray
    from clusterdp.cells.assignment import PooledLayout
    from clusterdp.cells.layout import Layout

SLACK = 1e-9
LABELS = ("a", "b", "c")
RESPONSE = ClusterResponse.for_epsilon(LABELS, 0.7)
SPACE = one_outcome("y", cdp.OutcomeSpace.binary())
ROWS = cdp.optimal(epsilon=0.8)
COLUMNS = Columns(unit="user", arm="arm", cluster="region", outcomes=("y",), private_cluster=True)
ARMS = (0, 1, 0)
# The units beside the first one: their clusters and outcomes.
OTHERS = (((0, 0), (0, 1)), ((1, 0), (2, 1)))
# Labels are pooled where they are small; with probabilities of arms of their own, they are not.
ASSIGNMENTS = (None, dict.fromkeys(LABELS, "0.5"))
KEY = ReleaseKey(bytes(32))
Table = tuple[tuple[int, int], ...]
Assigned = dict[str, str] | None


def words_for(own: list[int], given: tuple[int, ...]) -> Callable[[UnitIds, bytes], WordArray]:
    """Words of units 0, 1, … by which units with these clusters are given these labels."""
    numbers = []
    for cluster, label in zip(own, given, strict=True):
        others = [one for one in range(len(LABELS)) if one != cluster]
        below = 0 if label == cluster else RESPONSE.own + others.index(label) * RESPONSE.other
        numbers.append(below << 12)
    words = np.array(numbers, dtype=np.uint64)
    return lambda units, _: words[units.ids.to_numpy()][:, np.newaxis]


def results_of_labels(table: Table, assigned: Assigned) -> dict[tuple[Any, ...], float]:
    """Everything that labels decide, with its probability: published labels, sizes, refusals.

    The pipeline is run for every list of labels that units may be given.
    """
    clusters = [cluster for cluster, _ in table]
    frame = pl.DataFrame(
        {
            "user": range(len(table)),
            "arm": ARMS,
            "region": [LABELS[cluster] for cluster in clusters],
            "y": [outcome for _, outcome in table],
        }
    )
    declared = PrivateClusters(response=RESPONSE, shares=(1.0,) * len(LABELS), assignment=assigned)
    prepared = prepare(frame, columns=COLUMNS, spaces=(SPACE,), clusters=declared)
    probs = RESPONSE.probs()
    found: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    for given in itertools.product(range(len(LABELS)), repeat=len(table)):
        chance = math.prod(probs[own, got] for own, got in zip(clusters, given, strict=True))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("clusterdp.rows.value_codes.unit_words", words_for(clusters, given))
            try:
                labelled = label_units(prepared, NoJournal(KEY))
            except cdp.DataError as error:
                found[str(error),] += chance
                continue
            layout, encoder = labelled.layout, labelled.encoder
            units = pl.Series(range(len(table)))
            cells = encoder.encode_rows(frame, COLUMNS, UnitIds(units), KeyRing(KEY))[0]
        published = tuple(layout.clusters[cell // 2] for cell in cells)
        found[published, layout.sizes.tobytes(), labelled.pooling] += chance
    return dict(found)


def results(table: Table, assigned: Assigned) -> dict[tuple[Any, ...], float]:
    """The same with the responses of all units, whose channel is public here."""
    transition = ROWS.settled_rows(SPACE).public_channel(SPACE).transition()[0]
    responses = itertools.product(range(len(transition)), repeat=len(table))
    of_rows = {
        drawn: math.prod(
            transition[response, outcome]
            for response, (_, outcome) in zip(drawn, table, strict=True)
        )
        for drawn in responses
    }
    of_labels = results_of_labels(table, assigned)
    return {
        (label, drawn): chance * prob
        for label, chance in of_labels.items()
        for drawn, prob in of_rows.items()
        if prob > 0
    }


def largest_loss(one: dict[Any, float], other: dict[Any, float]) -> float:
    return max(
        math.log(prob / other[result]) if result in other else math.inf
        for result, prob in one.items()
    )


def losses(first_units: list[tuple[int, int]]) -> list[float]:
    """The largest loss for each pair that the first unit may be, beside all others."""
    found = []
    for others, assigned in itertools.product(OTHERS, ASSIGNMENTS):
        every = [results((first, *others), assigned) for first in first_units]
        found += [largest_loss(*pair) for pair in itertools.permutations(every, 2)]
    return found


def audit_results() -> None:
    """Clusters and outcomes together lose ε₁ + ε₂, and nearly all of it; clusters alone ε₁."""
    stated = Terms.from_questions(questions_of([SPACE], [ROWS]), RESPONSE).guarantee
    assert stated.neighbours == "replace-one-cluster-and-outcome"
    assert stated.epsilon <= 1.5 + SLACK
    together = losses(list(itertools.product(range(len(LABELS)), (0, 1))))
    assert 0.99 * stated.epsilon <= max(together) <= stated.epsilon + SLACK
    own = RESPONSE.guarantee().epsilon
    assert 0.99 * own <= max(losses([(0, 1), (1, 1), (2, 1)])) <= own + SLACK


def pool_by_true_sizes(patch: pytest.MonkeyPatch) -> None:
    """Clusters are pooled that are small in truth."""
    honest = PrivateClusters.expected
    true: dict[str, Layout] = {}

    def remember(self: PrivateClusters, layout: Layout, cluster: str | None = None) -> PooledLayout:
        found = honest(self, layout, cluster)
        true["layout"] = found.layout
        return found

    def pool(self: PrivateClusters, layout: Layout) -> PooledLayout:
        del self
        by_truth = pool_small_clusters(
            _with_sizes(true["layout"], TRUE_SIZES["now"]), min_cell_size=1
        )
        if by_truth.regroup is None:
            return by_truth._replace(layout=layout)
        sizes = np.zeros_like(by_truth.layout.sizes)
        np.add.at(sizes, by_truth.regroup, layout.sizes)
        return by_truth._replace(layout=_with_sizes(by_truth.layout, sizes))

    patch.setattr(PrivateClusters, "expected", remember)
    patch.setattr(PrivateClusters, "pool", pool)
    patch.setitem(globals(), "results_of_labels", _with_truth(results_of_labels))


TRUE_SIZES: dict[str, IntArray] = {}


def _with_truth(
    honest: Callable[[Table, Assigned], dict[Any, float]],
) -> Callable[[Table, Assigned], dict[Any, float]]:
    def found(table: Table, assigned: Assigned) -> dict[Any, float]:
        sizes = np.zeros((len(LABELS), 2), dtype=np.int64)
        np.add.at(sizes, ([cluster for cluster, _ in table], list(ARMS)), 1)
        TRUE_SIZES["now"] = sizes
        return honest(table, assigned)

    return found


def _with_sizes(layout: Layout, sizes: IntArray) -> Layout:
    return replace(layout, sizes=sizes)


def test_clusters_and_outcomes_together_lose_what_is_stated() -> None:
    audit_results()


def test_pooling_by_true_sizes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    pool_by_true_sizes(monkeypatch)
    with pytest.raises(AssertionError, match="inf"):
        audit_results()


N_WORDS = 600


def machine(cluster: str, outcome: int) -> FloatArray:
    """P(label, response) of the machine, over all words of its keys."""
    cells = CellEncoder(
        clusters=ValueCodes.from_values(pl.Series("market", LABELS)),
        arms=ValueCodes.from_column(pl.Series([0, 1])),
        response=RESPONSE,
    )
    columns = Columns(
        unit="user", arm="treated", cluster="market", outcomes=("y",), private_cluster=True
    )
    layout = make_layout([[N_WORDS**2, 1]] * len(LABELS))
    channel = ROWS.settled_rows(SPACE).design(layout, SPACE, None)
    encoder = RowEncoder.for_spaces(columns, (SPACE,), cells, clip=False)
    made = BatchRandomizer.from_channels(encoder, [channel], layout)
    keys, (question,) = KeyRing(KEY), made.questions
    words = WordGrid(N_WORDS, (keys[CLUSTERS_KEY], keys[question.response_key]))
    batch = batch_of({"y": outcome, "market": cluster}, N_WORDS**2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusterdp.rows.randomizing.unit_words", words)
        patch.setattr("clusterdp.rows.value_codes.unit_words", words)
        rows, _ = made(batch, keys)
        labels = made.encoder(batch, keys).cells // 2
    together = np.zeros((len(LABELS), question.n_outputs))
    np.add.at(together, (labels, rows["response"].to_numpy()), 1 / N_WORDS**2)
    return together


def audit_words() -> None:
    """The label that a unit is given says nothing of its response beyond what is true of it."""
    transition = ROWS.settled_rows(SPACE).public_channel(SPACE).transition()[0]
    for place, outcome in itertools.product(range(len(LABELS)), (0, 1)):
        wanted = np.outer(RESPONSE.probs()[place], transition[:, outcome])
        np.testing.assert_allclose(machine(LABELS[place], outcome), wanted, atol=4 / N_WORDS)


@drawn_from(epsilon=st.floats(0.01, 12.0), n_labels=st.integers(2, 60))
def test_a_response_keeps_what_its_epsilon_allows_and_no_unit_more(
    epsilon: float, n_labels: int
) -> None:
    """Exactly: e^ε is compared as a fraction. One unit of 2^52 less for others is too much."""
    response = ClusterResponse.for_epsilon([str(label) for label in range(n_labels)], epsilon)
    ratio, n_others = largest_ratio(epsilon, KEEP_TOTAL), n_labels - 1
    assert Fraction(response.own, response.other) <= ratio
    assert Fraction(response.own + n_others, response.other - 1) > ratio


def test_labels_and_rows_have_words_of_their_own() -> None:
    audit_words()


def test_one_word_for_labels_and_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = KeyRing.__missing__

    def shared(self: KeyRing, name: str) -> bytes:
        return honest(self, response_key(("y",)) if name == CLUSTERS_KEY else name)

    monkeypatch.setattr(KeyRing, "__missing__", shared)
    with pytest.raises(AssertionError):
        audit_words()


def test_published_labels_are_those_that_cells_count() -> None:
    """And no row tells its own: the column is the given label, also where none is pooled."""
    n_units = 600
    rng = np.random.default_rng()
    frame = pl.DataFrame(
        {
            "user": rng.permutation(n_units),
            "arm": rng.integers(0, 2, n_units),
            "region": np.array(LABELS)[rng.integers(0, 3, n_units)],
            "y": rng.integers(0, 2, n_units),
        }
    )
    release = cdp.release(
        frame,
        unit="user",
        arm="arm",
        cluster="region",
        outcomes={"y": "0,1"},
        mechanism=ROWS,
        private_cluster=0.5,
        labels=list(LABELS),
    )
    sizes = release.units.group_by("region_noisy", "arm").len().sort("region_noisy", "arm")
    assert sizes["len"].to_list() == release.cells.sort("region_noisy", "arm")["size"].to_list()
    both = frame.join(release.units, on="user")
    kept = int((both["region"] == both["region_noisy"]).sum())
    # Each is kept with probability 0.45; ten standard deviations are 0.2.
    assert 0.25 * n_units < kept < 0.65 * n_units
