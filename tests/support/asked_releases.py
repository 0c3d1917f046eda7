"""Releases of several questions, each unit asked one of them: made of a release for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import QUESTION, RESPONSE, Columns
from clusterdp.statistics.noise import simulated_noise
from runs import release_in_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    import clusterdp as cdp
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories


def release_questions(
    table: pl.DataFrame,
    columns: Columns,
    spaces: Sequence[Categories],
    mechanisms: Sequence[Mechanism],
    asked: Sequence[int],
    *,
    rng: np.random.Generator,
    control: Any = None,
) -> cdp.Release:
    """A release of a table in which a coin decides what each unit is asked.

    Sums are of everyone. Everyone's outcomes are randomized, and one response of each is published.

    Args:
        table: The table.
        columns: Its columns, with the outcomes of all questions.
        spaces: The categories of each question.
        mechanisms: What is published of each.
        asked: How many of `ASKED_TOTAL` units each is asked of.
        rng: Where randomness comes from.
        control: The control arm.
    """
    table = table.sort(columns.unit)
    places = rng.choice(len(asked), len(table), p=np.array(asked) / ASKED_TOTAL)
    units, questions = [], []
    for place, (space, mechanism) in enumerate(zip(spaces, mechanisms, strict=True)):
        space = space.together[space.place]  # noqa: PLW2901 - sums of each are drawn alone
        declared = space.declared
        own = replace(columns, outcomes=declared.names, missing=declared.missing, question_names=())
        prepared = prepare(table, columns=own, spaces=(space,), control=control)
        key = ReleaseKey(rng.bytes(32))
        alone: Any = release_in_memory(prepared, (mechanism,), key, simulated_noise(rng))
        (found,) = alone.questions
        questions.append(
            replace(found, mechanism=msgspec.structs.replace(found.mechanism, asked=asked[place]))
        )
        named = pl.lit(questions[-1].name).alias(QUESTION)
        units.append(alone.units.filter(pl.Series(places == place)).with_columns(named))
    together = replace(columns, question_names=tuple(one.name for one in questions))
    rows = pl.concat(units, how="diagonal").sort(columns.unit)
    last = [QUESTION, RESPONSE, *together.debiased]
    made: cdp.Release = replace(
        alone,
        units=rows.select([name for name in rows.columns if name not in last] + last),
        questions=tuple(questions),
        columns=together,
    )
    return made
