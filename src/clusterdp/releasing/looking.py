"""The first step of a release with looks: count units by bin, draw once, go on with the result.

Each question may have a look, at the units that are asked it. All are drawn together and written
down before they are used. A run that is resumed recalls them, and never draws them again. All rows
were checked when they were drawn, so nothing that follows refuses the table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from clusterdp._progress import no_progress
from clusterdp.cells.layout import EVERYONE
from clusterdp.errors import DataError
from clusterdp.mechanisms.draw import look_notes, settle
from clusterdp.outcomes.look import look_space
from clusterdp.published.manifest import BeforeLook
from clusterdp.releasing.journal import KeptLooks
from clusterdp.rows.keys import KeyRing
from clusterdp.rows.tally import CountRequest
from clusterdp.rows.value_codes import ANOTHER_TABLE
from clusterdp.statistics.look import DrawnLook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp._progress import RowsDone
    from clusterdp.engines.base import PassResult
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.statistics.look import NoisyLook
    from clusterdp.statistics.noise import NoiseSource


class Followed(NamedTuple):
    """A release as it goes on after its looks, or as it was declared if there are none.

    Attributes:
        prepared: The table, with the outcomes that are released.
        mechanisms: What is published of each question.
        looks: What was drawn first of each question; None where it has no look.
        before: What was declared of each question; None where it has no look.
        found: What followed from looks, in sentences; public.
    """

    prepared: Prepared
    mechanisms: Sequence[Mechanism]
    looks: tuple[DrawnLook | None, ...]
    before: tuple[BeforeLook | None, ...]
    found: tuple[str, ...] = ()


def look_first(
    prepared: Prepared,
    mechanisms: Sequence[Mechanism],
    journal: Journal,
    add_noise: NoiseSource,
    progress: RowsDone = no_progress,
) -> Followed:
    """Take the looks that mechanisms ask for, and follow them.

    Raises:
        DataError: If a row breaks a rule, before anything is drawn; or if the table is not the one
            that an earlier run looked at.
    """
    declared = prepared.table.spaces
    wanted = {number: one.look for number, one in enumerate(mechanisms) if one.look is not None}
    if not wanted:
        nothing = (None,) * len(mechanisms)
        return Followed(prepared, mechanisms, nothing, nothing)
    drawn = _draw(prepared, wanted, journal, add_noise, progress)
    looks = tuple(drawn.get(number) for number in range(len(mechanisms)))
    settled = settle(declared, mechanisms, prepared.layout, looks)
    expected = [
        before if look is None else (tuple(one.public_prior().tolist()),)
        for before, look, one in zip(prepared.expected, looks, settled, strict=True)
    ]
    after = replace(
        prepared,
        table=replace(prepared.table, spaces=tuple(one.space for one in settled)),
        expected=tuple(expected),
    )
    pairs = list(zip(declared, mechanisms, strict=True))
    return Followed(
        prepared=after,
        mechanisms=tuple(one.mechanism for one in settled),
        looks=looks,
        before=tuple(BeforeLook.of(*pair) if pair[1].look else None for pair in pairs),
        found=tuple(
            dict.fromkeys(
                note
                for (space, mechanism), one in zip(pairs, settled, strict=True)
                for note in look_notes(space, mechanism.prior, one)
            )
        ),
    )


def _draw(
    prepared: Prepared,
    looks: Mapping[int, NoisyLook],
    journal: Journal,
    add_noise: NoiseSource,
    progress: RowsDone,
) -> dict[int, DrawnLook]:
    """What an earlier run drew, if there was one; else drawn now, and written down."""
    bins = {number: look_space(prepared.table.spaces[number].declared) for number in looks}
    stored = journal.recall_look()
    kept = None if stored is None else KeptLooks.from_bytes(stored)
    if kept is None or journal.recall() is None:
        found = _count(prepared, bins, KeyRing(journal.key), progress)
        tag = journal.key.tag(found.seen)
        if kept is None:
            counts = {
                number: found.counted.totals[number].counts.sum(axis=(0, 1)) for number in looks
            }
            drawn = {
                number: look.draw(counts[number], bins[number], add_noise)
                for number, look in looks.items()
            }
            noisy = {number: one.noisy_counts for number, one in drawn.items()}
            journal.keep_look(bytes(KeptLooks(noisy_counts=noisy, table_tag=tag)))
            return drawn
        if kept.table_tag != tag:
            raise DataError(ANOTHER_TABLE)
    # Else the whole table was counted after it, and is compared with that.
    return {
        number: DrawnLook(statistic=look, bins=bins[number], noisy_counts=kept.noisy_counts[number])
        for number, look in looks.items()
    }


def _count(
    prepared: Prepared, bins: Mapping[int, Categories], keys: KeyRing, progress: RowsDone
) -> PassResult:
    """Units that are asked by bin, clusters together; notices of nets come with the next count."""
    layout, table = prepared.layout, prepared.table
    together = replace(layout, clusters=(EVERYONE,), sizes=layout.sizes.sum(axis=0, keepdims=True))
    spaces = tuple(bins.get(number, space) for number, space in enumerate(table.spaces))
    in_bins = replace(
        prepared,
        table=replace(table, spaces=spaces),
        layout=together,
        encoder=replace(prepared.encoder, clusters=None, pooled=None, response=None),
    )
    counts = [CountRequest(counts=number in bins) for number in range(len(spaces))]
    return in_bins.table.run(in_bins.pass_with(keys, counts=counts, progress=progress))
