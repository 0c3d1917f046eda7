"""The first step of a release with a look: count everyone by bin, draw once, go on with the result.

The look is written down before it is used. A run that is resumed recalls it, and never draws it
again. All rows were checked when it was drawn, so nothing that follows refuses the table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.engines.base import no_progress
from clusterdp.errors import DataError
from clusterdp.experiment.layout import EVERYONE
from clusterdp.experiment.look_bins import look_space
from clusterdp.mechanisms.settling import look_notes, settle
from clusterdp.published.manifest import BeforeLook
from clusterdp.releasing.journal import KeptLook
from clusterdp.rows.labels import ANOTHER_TABLE
from clusterdp.statistics.look import DrawnLook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.engines.base import Counted, Progress
    from clusterdp.experiment.categories import Categories
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.statistics.look import NoisyLook
    from clusterdp.statistics.noise import NoiseSource


class Followed(NamedTuple):
    """A release as it goes on after its look, or as it was declared if there is none.

    Attributes:
        prepared: The table, with the outcomes that are released.
        mechanisms: What is published of each block.
        look: What was drawn first; None without a look.
        before: What was declared; None without a look.
        found: What followed from it, in sentences; public.
    """

    prepared: Prepared
    mechanisms: Sequence[Mechanism]
    look: DrawnLook | None = None
    before: BeforeLook | None = None
    found: tuple[str, ...] = ()


def look_first(
    prepared: Prepared,
    mechanisms: Sequence[Mechanism],
    journal: Journal,
    add_noise: NoiseSource,
    progress: Progress = no_progress,
) -> Followed:
    """Take the look that a mechanism asks for, and follow it; `Terms` hold it to one block.

    Raises:
        DataError: If a row breaks a rule, before anything is drawn; or if the table is not the one
            that an earlier run looked at.
    """
    look = mechanisms[0].look
    if look is None:
        return Followed(prepared, mechanisms)
    (mechanism,), (declared,), layout = mechanisms, prepared.table.spaces, prepared.layout
    drawn = _draw(prepared, look, journal, add_noise, progress)
    settled = settle(declared, mechanism, layout, drawn)
    rows = settled.mechanism.settled_rows(settled.space)
    after = replace(
        prepared,
        table=replace(prepared.table, spaces=(settled.space,)),
        expected=((tuple(rows.public_prior(settled.space).tolist()),),),
    )
    before = BeforeLook.of(declared, mechanism)
    found = look_notes(declared, mechanism.prior, settled)
    return Followed(after, (settled.mechanism,), drawn, before, found)


def _draw(
    prepared: Prepared,
    look: NoisyLook,
    journal: Journal,
    add_noise: NoiseSource,
    progress: Progress,
) -> DrawnLook:
    """What an earlier run drew, if there was one; else drawn now, and written down."""
    (declared,) = prepared.table.spaces
    bins = look_space(declared.declared)
    stored = journal.recall_look()
    kept = None if stored is None else KeptLook.from_bytes(stored)
    if kept is None or journal.recall() is None:
        found = _count(prepared, bins, progress)
        tag = journal.key.tag(found.seen)
        if kept is None:
            drawn = look.draw(found.counts[0].sum(axis=(0, 1)), bins, add_noise)
            journal.keep_look(bytes(KeptLook(noisy_counts=drawn.noisy_counts, table_tag=tag)))
            return drawn
        if kept.table_tag != tag:
            raise DataError(ANOTHER_TABLE)
    # Else the whole table was counted after it, and is compared with that.
    return DrawnLook(statistic=look, bins=bins, noisy_counts=kept.noisy_counts)


def _count(prepared: Prepared, bins: Categories, progress: Progress) -> Counted:
    """Everyone by bin, clusters together; the notices of safety nets come with the next count."""
    layout = prepared.layout
    together = replace(layout, clusters=(EVERYONE,), sizes=layout.sizes.sum(axis=0, keepdims=True))
    encoder = replace(prepared.encoder, clusters=None, pooled=None, noisy=None)
    return replace(prepared.table, spaces=(bins,)).count(together, encoder, progress)
