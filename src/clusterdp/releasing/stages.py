"""The release: one pipeline from a table to what is published, in memory or in a folder.

Memory, folder, store and Spark differ in the engine's table and in the target, nowhere else. Each
stage takes the state of a release and returns the next one.

Where noisy counts decide how rows are randomized, one pass counts and another randomizes. Else an
engine that writes rows where nobody else sees them randomizes them while it counts, in one pass.

    one pass:    write down that rows begin · count and randomize · draw noise, write it down
    two passes:  count · draw noise, write it down · write down that rows begin · randomize
    resumed:     count and compare the table · write down that rows begin · randomize

So no row is randomized before that is on record, and no noise is drawn before every row was
checked. Once noise is on record, so is which table it came from: a run that is resumed compares
first.

No key is used with two tables, even if the table changed while a killed run read it:

- Rows that begin in a private folder get a key of their own.
- Rows that others may see, or have seen, keep their key: two keys would be two draws. So do labels
  of private clusters, whose counts are on record. Then the second pass stores no readable row
  before it has read all of them and compared the table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from clusterdp._progress import NoProgress, no_progress
from clusterdp.cells.layout import EVERYONE
from clusterdp.engines.base import BOTH_AT_ONCE, COUNTING, RANDOMIZING
from clusterdp.errors import TableChangedError
from clusterdp.mechanisms.draw import Question, complete, draw_together, pilot_notes, public_channel
from clusterdp.mechanisms.settling import settle, settled_rounding
from clusterdp.published.manifest import Manifest
from clusterdp.releasing.journal import (
    DRAWN,
    LABELLED,
    LOOKED,
    NoJournal,
    once,
    pack_cells,
    unpack_cells,
)
from clusterdp.releasing.prepare import asked_of
from clusterdp.rows.keys import KeyRing
from clusterdp.rows.tally import CountRequest
from clusterdp.rows.value_codes import ValueCodes
from clusterdp.spec.spec import QuestionSpec, ReleaseSpec
from clusterdp.statistics.noise import add_exact_noise
from clusterdp.statistics.pilot import DrawnPilot, pilot_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from clusterdp._progress import Progress, RowsDone
    from clusterdp.channels import Channel
    from clusterdp.engines.base import PassResult
    from clusterdp.mechanisms.draw import ReleasedQuestion
    from clusterdp.outcomes.categories import Categories
    from clusterdp.releasing.journal import Arrays, Journal
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.statistics.noise import NoiseSource
    from clusterdp.storage.folder import Staged

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleaseState:
    """How far a release has come.

    Attributes:
        opened: The table.
        spec: What is going to be published.
        journal: What makes the release resumable.
        add_noise: Where noise on statistics comes from.
        progress: Where to report to.
        pilots: What was drawn first of each question; None where it has no pilot.
        found: What followed from pilots, in sentences; public.
        drawn: The noisy statistics and the channel of each question.
        counted: The pass that counted the table.
        rows: The pass that randomized rows; None where none did yet, or no rows are published.
    """

    opened: OpenTable
    spec: ReleaseSpec
    journal: Journal
    add_noise: NoiseSource
    progress: Progress
    pilots: tuple[DrawnPilot | None, ...] = ()
    found: tuple[str, ...] = ()
    drawn: tuple[ReleasedQuestion, ...] = ()
    counted: PassResult | None = None
    rows: PassResult | None = None

    @property
    def keys(self) -> KeyRing:
        """The keys by now: rows that begin again may have others."""
        return KeyRing(self.journal.key, self.journal.row_key)

    @property
    def draws_anew(self) -> bool:
        """Whether this run alone uses the keys of its rows, and nobody sees these meanwhile."""
        return self.opened.table.writes_privately and self.journal.draws_anew

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channel of every question; none where no rows are published."""
        return tuple(one.channel for one in self.drawn if one.channel is not None)


class ReleaseTarget(Protocol[R_co]):
    """Where a release goes, and what is made of it there."""

    def staged(self, claim: str) -> AbstractContextManager[Staged | None]:
        """Where to put things; they are published when the block ends without an error.

        None is for memory: rows are then a frame.
        """

    def finish(self, state: ReleaseState, manifest: Manifest, staged: Staged | None) -> R_co:
        """What is published of a release whose noise is drawn and whose rows are randomized."""


def randomize_clusters(state: ReleaseState) -> ReleaseState:
    """Give every unit a label, if clusters are private; what that leads to is checked.

    Raises:
        DataError: If a row breaks a rule, before anything is written down; if the table is not the
            one that an earlier run labelled; or if no label has units in every arm.
    """
    if state.spec.clusters.response is None:
        return state
    progress = state.progress.stage("giving labels", state.opened.layout.n_units)
    opened = label_units(state.opened, state.journal, progress)
    state.spec.check(opened.layout)
    return replace(state, opened=opened)


def label_units(opened: OpenTable, journal: Journal, progress: RowsDone = no_progress) -> OpenTable:
    """A table with its cells counted by the labels that units are given.

    The labels follow from the key of the release. Their counts are written down before anything is
    done with them: from then on the budget stays spent. What follows, pooling and refusals
    among it, sees the given labels alone. All rows were checked when they were counted.
    """
    import polars as pl

    response = opened.clusters.response
    assert response is not None  # noqa: S101 - clusters are private
    labels = pl.Series(opened.table.columns.noisy_name, response.labels)
    encoder = replace(opened.encoder, clusters=ValueCodes.from_values(labels), response=response)
    counts = [CountRequest()] * len(opened.table.spaces)
    unasked = replace(opened, encoder=encoder, asking=None)
    asked = unasked.pass_with(KeyRing(journal.key), counts=counts, is_first=True, progress=progress)
    sizes, _ = once(
        journal,
        LABELLED,
        read=lambda: opened.table.run(asked),
        draw=lambda found: found.counted.sizes[0],
        pack=lambda sizes: {"sizes": sizes},
        unpack=lambda arrays: arrays["sizes"],
    )
    pooled = opened.clusters.pool(replace(opened.layout, sizes=sizes))
    return replace(
        opened,
        layout=pooled.layout,
        encoder=replace(encoder, pooled=pooled.regroup),
        pooling=pooled.pooling,
    )


def take_pilots(state: ReleaseState) -> ReleaseState:
    """Take the pilots that mechanisms ask for, and follow them.

    Each question may have a pilot, at the units that are asked it. All are drawn together and
    written down before they are used. All rows were checked when they were drawn, so nothing that
    follows refuses the table.

    Raises:
        DataError: If a row breaks a rule, before anything is drawn; or if the table is not the one
            that an earlier run looked at.
    """
    questions, opened = state.spec.questions, state.opened
    wanted = {
        number: question.mechanism.pilot
        for number, question in enumerate(questions)
        if question.mechanism.pilot is not None
    }
    if not wanted:
        return replace(state, pilots=(None,) * len(questions))
    bins = {number: pilot_space(questions[number].space.declared) for number in wanted}
    progress = state.progress.stage("taking a pilot", opened.layout.n_units)

    def draw(found: PassResult) -> dict[int, DrawnPilot]:
        counts = {number: found.counted.totals[number].counts for number in wanted}
        return {
            number: pilot.draw(counts[number].sum(axis=(0, 1)), bins[number], state.add_noise)
            for number, pilot in wanted.items()
        }

    def unpack(arrays: Arrays) -> dict[int, DrawnPilot]:
        return {
            number: DrawnPilot(statistic=pilot, bins=bins[number], noisy_counts=arrays[str(number)])
            for number, pilot in wanted.items()
        }

    drawn, _ = once(
        state.journal,
        LOOKED,
        read=lambda: _count_bins(state, bins, progress),
        draw=draw,
        pack=lambda pilots: {str(number): one.noisy_counts for number, one in pilots.items()},
        unpack=unpack,
    )
    return _follow(state, tuple(drawn.get(number) for number in range(len(questions))))


def _count_bins(
    state: ReleaseState, bins: Mapping[int, Categories], progress: RowsDone
) -> PassResult:
    """Units that are asked by bin, clusters together; notices of nets come with the next count."""
    opened = state.opened
    layout, table = opened.layout, opened.table
    spaces = tuple(bins.get(number, space) for number, space in enumerate(table.spaces))
    in_bins = replace(
        opened,
        table=replace(table, spaces=spaces),
        layout=replace(layout, clusters=(EVERYONE,), sizes=layout.sizes.sum(axis=0, keepdims=True)),
        encoder=replace(opened.encoder, clusters=None, pooled=None, response=None),
    )
    counts = [CountRequest(counts=number in bins) for number in range(len(spaces))]
    keys = KeyRing(state.journal.key)
    return in_bins.table.run(in_bins.pass_with(keys, counts=counts, progress=progress))


def _follow(state: ReleaseState, pilots: tuple[DrawnPilot | None, ...]) -> ReleaseState:
    """The same release with the outcomes and priors that looks show."""
    spec, opened = state.spec, state.opened
    settled = settle(spec.questions, opened.layout, pilots)
    questions: list[QuestionSpec] = []
    found: list[str] = []
    for before, after, pilot in zip(spec.questions, settled, pilots, strict=True):
        found += pilot_notes(before.space, before.mechanism.prior, after)
        questions.append(
            QuestionSpec(
                space=after.space,
                mechanism=after.mechanism,
                expected=before.expected
                if pilot is None
                else (tuple(after.public_prior.tolist()),),
                rounding=before.rounding
                if pilot is None
                else settled_rounding(after, opened.layout, pilot),
                declared=None if pilot is None else before,
            )
        )
    return replace(
        state,
        opened=replace(
            opened, table=replace(opened.table, spaces=tuple(one.space for one in settled))
        ),
        spec=ReleaseSpec.from_questions(questions, spec.clusters, spec.provenance),
        pilots=pilots,
        found=tuple(dict.fromkeys(found)),
    )


def count_and_draw(state: ReleaseState, folder: str | None) -> ReleaseState:
    """Count, draw noise and design channels; and write rows, if the engine does both at once.

    Args:
        state: The release.
        folder: Where rows go; None to get them as a frame.

    Raises:
        DataError: If a row breaks a rule, before noise is drawn; or if the table is not the one
            that an earlier run drew noise for.
    """
    opened, spec, journal = state.opened, state.spec, state.journal
    layout, is_new = opened.layout, journal.recall(DRAWN) is None
    known = public_channels(state) if is_new else ()
    at_once = bool(known) and state.draws_anew

    def read() -> PassResult:
        counts = [asked_of(mechanism, layout) for mechanism in spec.mechanisms]
        if at_once:
            progress = state.progress.stage(BOTH_AT_ONCE, layout.n_units)
            journal.begin_rows()
            asked = opened.pass_with(
                state.keys, known, counts=counts, folder=folder, progress=progress
            )
        else:
            progress = state.progress.stage(COUNTING, layout.n_units)
            asked = opened.pass_with(state.keys, counts=counts, progress=progress)
        return opened.table.run(asked)

    def draw(found: PassResult) -> tuple[ReleasedQuestion, ...]:
        state.progress.stage("drawing noise and designing the randomizer", 0)
        totals = found.counted.totals
        statistics = draw_together(totals, layout, spec.spaces, spec.mechanisms, state.add_noise)
        if known:  # rows that were written keep their channels
            return tuple(map(Question.released, spec.questions, statistics, known))
        return tuple(
            complete(one, layout, question)
            for one, question in zip(statistics, spec.questions, strict=True)
        )

    drawn, found = once(
        journal,
        DRAWN,
        read=read,
        draw=draw,
        pack=pack_cells,
        unpack=lambda arrays: unpack_cells(arrays, spec.questions, layout),
    )
    assert found is not None  # noqa: S101 - nothing is on record after it
    told = opened.telling(found.notices)
    return replace(state, opened=told, drawn=drawn, counted=found, rows=found if at_once else None)


def public_channels(state: ReleaseState) -> Sequence[Channel]:
    """The channel of every question, where all of them follow from what is public; else none."""
    found = []
    for question in state.spec.questions:
        channel = public_channel(state.opened.layout, question)
        if channel is None:
            return ()
        found.append(channel)
    return tuple(found)


def randomize(state: ReleaseState, folder: str | None) -> ReleaseState:
    """Randomize the rows of a table that is on record, unless they are written, or none are.

    Args:
        state: The release.
        folder: Where rows go; None to get them as a frame.

    Raises:
        TableChangedError: If the table is not the one that was counted.
    """
    if state.rows is not None or not state.channels:
        return state
    opened, counted = state.opened, state.counted
    assert counted is not None  # noqa: S101 - see `count_and_draw`
    progress = state.progress.stage(RANDOMIZING, opened.layout.n_units)
    if opened.table.writes_privately:
        state.journal.begin_rows()
    only = None if state.draws_anew or folder is None else counted.seen
    asked = opened.pass_with(
        state.keys, state.channels, folder=folder, only=only, progress=progress
    )
    rows = None
    with suppress(TableChangedError):
        rows = opened.table.run(asked)
    if rows is None or rows.seen != counted.seen:
        # The table on record gets no rows after those of another one were stored.
        if only is None:
            state.journal.give_up("the table changed while its rows were randomized")
        raise TableChangedError
    return replace(state, opened=opened.telling(rows.notices), rows=rows)


def describe(state: ReleaseState) -> Manifest:
    """The manifest of a release, but for its files: all that is known before noise is drawn."""
    opened = state.opened
    return Manifest.from_spec(
        state.spec,
        opened.layout,
        opened.table.columns.as_published(),
        pooling=opened.pooling,
        aggregates=opened.table.aggregates,
        clip=opened.table.clip,
        row_order="table" if opened.table.keep_order else "ids",
        asking=opened.asking,
    )


def run(  # noqa: PLR0913 - what is released, where to, and where randomness comes from
    opened: OpenTable,
    spec: ReleaseSpec,
    target: ReleaseTarget[R_co],
    *,
    journal: Journal | None = None,
    add_noise: NoiseSource | None = None,
    progress: Progress | None = None,
) -> R_co:
    """Privatize every outcome of a table.

    Args:
        opened: The table.
        spec: What is published of it.
        target: Where to.
        journal: What makes the release resumable; by default it is not.
        add_noise: Where noise on statistics comes from; by default what is exact.
        progress: Where to report to.

    Returns:
        What the target makes of it: a release in memory, or what followed from pilots.

    Raises:
        ClusterDPError: If the table, a parameter or the place is wrong. Nothing is published then.
    """
    journal = journal or NoJournal()
    spec.check(opened.layout)
    state = ReleaseState(
        opened=opened.asking_by(spec.mechanisms, journal.key),
        spec=spec,
        journal=journal,
        add_noise=add_noise or add_exact_noise,
        progress=progress or NoProgress(),
    )
    with target.staged(journal.key.claim()) as staged:
        folder = None if staged is None else staged.rows
        state = take_pilots(randomize_clusters(state))
        # Before noise is drawn: nothing may fail after it that could have been checked before.
        manifest = describe(state)
        state = randomize(count_and_draw(state, folder), folder)
        finished = target.finish(state, manifest, staged)
    # Before the release is on record as published: nobody looks for what a killed run left then.
    opened.table.close()
    journal.commit(str(target))
    return finished
