"""Ask the owner of a release for noisy totals of segments: a follow-up, and what it would give."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from clusterdp._named import column, columns
from clusterdp._text import counted
from clusterdp.document.markup import to_html
from clusterdp.document.model import Paragraph, as_notes
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.reading.request import (
    check_dimensions,
    dimension_columns,
    parse_column_names,
    parse_dimensions,
)
from clusterdp.estimation.reading.rows import (
    MATCHED,
    check_joinable,
    join_table,
    read_table,
)
from clusterdp.published.asked_groups import (
    LEAST_UNITS,
    AnswerForecast,
    asked_groups,
    check_askable,
    check_followup,
    forecast_in_short,
)
from clusterdp.published.folder import read_files
from clusterdp.published.followup import (
    CROSSED,
    LONGEST_LABEL,
    LONGEST_REASON,
    dimension_name,
    new_followup,
    write_followup,
)
from clusterdp.published.rows import collect_rows, scan_units
from clusterdp.spec.answers import NOT_ASKED
from clusterdp.spec.columns import FOLD
from clusterdp.spec.provenance import check_line
from clusterdp.storage.folder import LABELS
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp.document.model import Part
    from clusterdp.published.followup import FollowUp
    from clusterdp.published.release import Release
    from clusterdp.spec.provenance import Provenance

# The ε of answers whose precision is shown.
SHOWN_EPSILONS = (0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Asked:
    """A follow-up that was written, and what an answer would give. It can be used as a path.

    Attributes:
        folder: Where it is.
        followup: What is asked for.
        forecast: What to expect of effects in its groups.
        notes: What the analyst should know.
        n_labeled: How many units have a label.
        units: What units are called.
    """

    folder: str
    followup: FollowUp
    forecast: AnswerForecast
    notes: tuple[str, ...]
    n_labeled: int
    units: str

    def __fspath__(self) -> str:
        return self.folder

    def __repr__(self) -> str:
        return to_screen(self.parts(), terminal_width())

    def _repr_html_(self) -> str:
        return to_html(*self.parts())

    def parts(self) -> list[Part]:
        """What the owner will see, and standard errors now and with an answer."""
        lead = (
            f"Wrote {self.folder}: the owner will see these labels. {LABELS} has an id and a label "
            f"for {self.n_labeled:,} {self.units}. Send the folder only if you may share them."
        )
        tables = self.forecast.tables(SHOWN_EPSILONS, self.units)
        return [Paragraph(lead), *tables, *as_notes(list(self.notes))]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values; the key stays in the folder."""
        held = msgspec.to_builtins(self.followup)
        del held["key"]
        expected = {f"{one:g}": forecast_in_short(self.forecast, one) for one in SHOWN_EPSILONS}
        return {"folder": self.folder, "followup": held, "expected": expected}


def ask(  # noqa: PLR0913 - what to ask for, all by name
    release: str | os.PathLike[str],
    *,
    by: Sequence[str | Sequence[str]] | str,
    out: str | os.PathLike[str],
    segments: Any = None,
    on: str | None = None,
    metrics: Sequence[str] | str | None = None,
    found_in_fold: int | None = None,
    reason: str = "",
) -> Asked:
    """Write a follow-up, which asks the owner of a release for noisy totals of segments.

    The owner will see the labels of these segments by id, and no outcome is in it. An answer makes
    effects in them nearly as precise as a breakdown declared before the release.

    Args:
        release: A published folder with rows.
        by: The columns of segments, published or joined. Several in one entry are crossed.
        out: The folder to write, which must not exist.
        segments: The analyst's own table, or the path of its file. It is joined by unit id.
        on: The column of ids in that table; by default named as in the release.
        metrics: The declared metrics to ask for; all by default. Fewer have less noise.
        found_in_fold: The fold in which the segments were found, if they were chosen by looking at
            released rows. Its units get no labels, so that the effect is confirmed on others.
        reason: Why, in a line that the owner sees.

    Raises:
        ParameterError: If an argument is out of its range, or such a release cannot be asked.
        FormatError: If the folder is not a release.
        DataError: If the table does not fit the release, or its segments are too small.
        OutputError: If the folder exists or cannot be written.
    """
    held, manifest = read_files(open_folder(release))
    check_askable(held)
    dimensions = parse_dimensions(by, held)
    if not dimensions:
        raise ParameterError("by must name a column of segments to ask about, got none.")
    if any("," in name for name in dimension_columns(dimensions)):
        raise ParameterError("A column of labels has a comma in its name. Fix: rename it.")
    if reason:
        check_line("reason", reason, LONGEST_REASON)
    wanted = None if metrics is None else parse_column_names("metrics", metrics)
    if metrics is not None and not wanted:
        raise ParameterError("metrics must name a metric to ask for. Fix: leave it out for all.")
    assert held.manifest_sha256 is not None  # noqa: S101 - it was read from a folder
    asked = new_followup(
        held.manifest_sha256,
        dimensions,
        metrics=wanted,
        found_in_fold=found_in_fold,
        reason=reason,
    )
    check_followup(asked, held)
    labels = _labels(held, dimensions, segments, on, found_in_fold)
    groups = asked_groups(held, asked, labels)
    unit = manifest.provenance.unit
    written = write_followup(out, asked, labels, unit)
    return Asked(
        folder=os.fspath(out),
        followup=written,
        forecast=AnswerForecast(held, manifest, groups.breakdowns, wanted),
        notes=tuple(_notes(groups.pooled, found_in_fold, held, manifest.provenance)),
        n_labeled=len(labels),
        units=manifest.provenance.units,
    )


def _labels(
    release: Release,
    dimensions: tuple[tuple[str, ...], ...],
    segments: Any,
    on: str | None,
    found_in_fold: int | None,
) -> pl.DataFrame:
    """The ids of a release with a text for each dimension, where one has a label."""
    import polars as pl

    unit, names = release.columns.unit, dimension_columns(dimensions)
    rows = scan_units(release)
    if found_in_fold is not None:
        rows = rows.filter(pl.col(FOLD) != found_in_fold)
    if segments is not None:
        table = read_table(release, segments, on, names)
        check_joinable(rows.collect_schema(), release, table)
        parts, _ = join_table(rows, table, on or unit)
        rows = pl.concat(parts)
    check_dimensions(
        pl.Schema({name: kind for name, kind in rows.collect_schema().items() if name != MATCHED}),
        list(dimensions),
        release,
    )
    texts = {name: column(name).cast(pl.String) for name in names}
    made = [
        pl.concat_str([texts[name] for name in one], separator=CROSSED).alias(dimension_name(one))
        for one in dimensions
    ]
    found = collect_rows(rows.select(columns([unit]), *made)).sort(column(unit))
    labels = found.filter(pl.any_horizontal(pl.nth(range(1, found.width)).is_not_null()))
    if not len(labels):
        raise DataError("No unit of the release has a label. Fix: use the same ids in both.")
    for dimension in dimensions:
        held = labels[dimension_name(dimension)]
        n_parts = held.drop_nulls().str.count_matches(CROSSED, literal=True)
        if (held == NOT_ASKED).any() or (n_parts != len(dimension) - 1).any():
            raise DataError(
                f"Labels by {', '.join(dimension)} have a text that an answer uses itself "
                f"({NOT_ASKED!r} or {CROSSED!r}). Fix: rename that label."
            )
        if (held.str.len_chars() > LONGEST_LABEL).any():
            raise DataError(
                f"Labels by {', '.join(dimension)} have more than {LONGEST_LABEL} characters. Fix: "
                "shorten them."
            )
    return labels


def _notes(
    pooled: Sequence[tuple[str, ...]],
    found_in_fold: int | None,
    release: Release,
    about: Provenance,
) -> list[str]:
    """What the analyst should know of a follow-up."""
    found = []
    if about.spent_before is None:
        found.append("No ledger paid for this release, so its owner cannot answer.")
    n_pooled = sum(map(len, pooled))
    if n_pooled:
        found.append(
            f"{counted(n_pooled, 'group')} with fewer than {LEAST_UNITS} units in some arm will "
            f"be pooled into {NOT_ASKED}, and keep the precision of rows."
        )
    if found_in_fold is None:
        fix = (
            "If you chose these segments by looking at released rows, ask with --found-in-fold"
            if release.layout.folds > 1
            else "If you chose these segments by looking at released rows, confirm them on new "
            "units, such as a next batch"
        )
        found.append(f"{fix}: the same units overstate the effects they were chosen for.")
    else:
        found.append(
            f"Units of fold {found_in_fold} have no labels. The answer is about the other folds."
        )
    return found
