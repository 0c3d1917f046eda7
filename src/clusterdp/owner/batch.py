"""A batch: new units of an experiment, next to the folders of earlier ones.

It declares what these declared, so that they mean the same: the column of ids, arms, outcomes with
their values, clips and rules. What only decides how well it is measured may differ: ε, the
mechanism, questions, grids, weights, baselines, breakdowns, planned shares, clusters' labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clusterdp._progress import no_progress
from clusterdp.errors import ParameterError, errors_about
from clusterdp.published.manifest import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from clusterdp._progress import RowsDone
    from clusterdp.outcomes.declaration import OutcomeRecord
    from clusterdp.published.earlier import EarlierFolder
    from clusterdp.published.manifest import Manifest
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.columns import Columns
    from clusterdp.spec.spec import ReleaseSpec


def as_batch(
    opened: OpenTable, earlier: Sequence[EarlierFolder], progress: RowsDone = no_progress
) -> OpenTable:
    """A table as a batch that continues earlier folders: it may have none of their ids.

    Raises:
        DataError: If it has one.
        ParameterError: If the engine cannot compare ids.
    """
    if not earlier:
        return opened
    ids = [one.ids for one in earlier]
    return replace(opened, table=opened.table.apart_from(ids, progress))


def check_declaration(opened: OpenTable, earlier: Sequence[EarlierFolder]) -> None:
    """Raise a ParameterError unless a batch declares what the folders that it continues did."""
    here = _declared_here(opened)
    for folder in earlier:
        there = _declared_there(folder.manifest)
        for what, own in here.items():
            if repr(there[what]) != repr(own):  # not "0" where 0 is an arm
                with errors_about("continues"):
                    raise ParameterError(
                        f"a batch declares what earlier batches did, and {folder.name} has other "
                        f"{what}: {_said(there[what])} there, and {_said(own)} here. Fix: declare "
                        "the same, or publish without continues (--continues)"
                    )


def check_rows_released(spec: ReleaseSpec) -> None:
    """Raise a ParameterError if a batch has no rows: nobody could compare the next one with it."""
    if not spec.terms.releases_rows:
        raise ParameterError(
            "a batch is published with rows, whose ids the next batch is compared with: choose a "
            "mechanism that releases rows, or publish without continues (--continues)"
        )


def _declared_here(opened: OpenTable) -> dict[str, Any]:
    """What a table is declared as, by what it is called in messages."""
    table, layout = opened.table, opened.layout
    arms = [plain(arm) for arm in layout.arms]
    return {
        **_columns(table.columns.as_published()),
        "arms": arms,
        "controls": arms[layout.control],
        "outcomes": _outcomes(
            one for space in table.spaces for one in space.record().declared.outcomes
        ),
        "rules for several rows of a unit": dict(sorted(table.aggregates.items())),
        "clips": table.clip,
    }


def _declared_there(manifest: Manifest) -> dict[str, Any]:
    """What an earlier batch was declared as, before a pilot chose grids."""
    pairs = zip(manifest.questions, manifest.before_pilot, strict=True)
    records = [one.outcomes if before is None else before.outcomes for one, before in pairs]
    return {
        **_columns(manifest.named_columns),
        "arms": list(manifest.arms),
        "controls": manifest.control,
        "outcomes": _outcomes(one for record in records for one in record.declared.outcomes),
        "rules for several rows of a unit": dict(sorted(manifest.aggregates.items())),
        "clips": manifest.clip,
    }


def _columns(columns: Columns) -> dict[str, Any]:
    return {
        "columns of ids": columns.unit,
        "columns of arms": columns.arm,
        "clusters": columns.cluster,
        "randomization units": columns.randomization_unit,
    }


def _outcomes(records: Iterable[OutcomeRecord]) -> list[str]:
    """Outcomes by name, in any question."""
    return sorted(f"{one.name}={one.space}{' or missing' * one.may_be_missing}" for one in records)


def _said(value: Any) -> str:
    return ", ".join(_listed(value)) or "none"


def _listed(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{name}={one}" for name, one in value.items())
    elif isinstance(value, list):
        yield from map(repr, value)
    elif value is not None:
        yield repr(value)
