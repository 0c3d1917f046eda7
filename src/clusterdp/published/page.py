"""The page of a published folder: what it is, what it promises, and how to use it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._text import counted
from clusterdp.document.charts import Axis, Line, Logarithmic, line_chart
from clusterdp.document.markup import render
from clusterdp.precision.prediction import UNSEEN
from clusterdp.privacy.accounting import SLACK, rounded_up, suspicions
from clusterdp.published._recipes import RowFiles, cautions, recipes
from clusterdp.published.document import (
    asked_in_words,
    file_texts,
    outcomes_in_words,
    published_columns,
)
from clusterdp.published.manifest import arms_in_words, title_of
from clusterdp.spec.provenance import provenance_pairs
from clusterdp.storage.folder import (
    CELLS,
    CHANNELS,
    ERRATA,
    INDEX,
    LOOK,
    MANIFEST,
    TOTALS,
    UNIT_PARTS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp.document._svg import Svg
    from clusterdp.precision.prediction import Precision, Prediction
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.visible import Visible
    from clusterdp.storage.folder import FileSum


# Of more files of rows than this, the number is told.
_MOST_PARTS = 12
_FINGERPRINT = 16
_SMALL_SEGMENT = 0.05
# Segments that the chart shows.
_SHARES, _N_POINTS = (0.01, 1.0), 47
# What BibTeX reads as something else.
_IN_BIBTEX = {letter: "\\" + letter for letter in "{}%&#_$"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


class MetricView(NamedTuple):
    """What can be seen of a metric: a sentence, a table, and a chart where there are segments."""

    name: str
    sentence: str
    rows: list[tuple[str, str, str, str]]
    chart: Svg | None


def write_card(
    manifest: Manifest, files: Mapping[str, FileSum], seen: Visible, notes: Sequence[str]
) -> str:
    """The page, as text.

    Args:
        manifest: Of the release.
        files: Its files with their checksums, the page itself among them or not.
        seen: What to expect of effects.
        notes: What a reader should know.
    """
    listed = _others(files)
    rows = RowFiles.of(listed)
    guarantee = manifest.terms.to_guarantee()
    with_rows = manifest.terms.releases_rows
    return render(
        "clusterdp.published",
        "card.html",
        manifest=manifest,
        title=title_of(manifest),
        notes=notes,
        about=manifest.provenance,
        outcomes=_together([f"`{name}`" for name in manifest.terms.outcome_names]),
        units=counted(manifest.n_units, "unit"),
        clusters=f" in {counted(manifest.n_clusters, 'cluster')}" if manifest.n_clusters else "",
        arms=_together(arms_in_words(manifest)),
        delta=rounded_up(guarantee.delta) if guarantee.delta else None,
        slack=SLACK,
        suspicions=suspicions(guarantee),
        words=guarantee.words,
        spent_before=_spent_before(manifest),
        columns=published_columns(manifest) if with_rows else None,
        grouped_by=_together([" × ".join(level) for level in _levels(manifest) if level]),
        has_sums=bool(_levels(manifest)),
        assumed=seen.assumed,
        metrics=[_view(manifest, seen, place) for place in range(len(seen.metrics))],
        cautions=cautions(manifest) if with_rows else None,
        recipes=recipes(manifest, rows) if with_rows else None,
        first=manifest.to_columns().debiased[0],
        missing=_missing(manifest),
        measured=[text for question in manifest.questions for text in outcomes_in_words(question)],
        asked=asked_in_words(manifest),
        statistics=_statistics(manifest, rows),
        provenance=provenance_pairs(manifest.provenance),
        citation=_citation(manifest, listed),
        bibtex=_bibtex(manifest, listed),
        files=_listed_files(listed, rows),
        rows=rows.name,
        errata=ERRATA,
    )


def _levels(manifest: Manifest) -> list[tuple[str, ...] | None]:
    """What statistics are published of, each once: cells (None), everyone, or groups by columns."""
    statistics = (one for each in manifest.terms.mechanisms for one in each.statistics)
    return list(dict.fromkeys(one.level for one in statistics))


def _spent_before(manifest: Manifest) -> str | None:
    """The ε of earlier releases about the same people; None if no ledger tells."""
    spent = manifest.provenance.spent_before
    return None if spent is None else rounded_up(spent.epsilon)


def _together(names: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _view(manifest: Manifest, seen: Visible, metric: int) -> MetricView:
    """What can be seen of one metric."""
    found = [(one.name, one.share, one.predictions[metric]) for one in seen.sights]
    rows = [
        (
            name if share is None else _share_name(share, manifest.n_units),
            _number(told.std_error),
            _number(told.detectable_effect) if told.is_visible else UNSEEN,
            _number(told.detectable_without_privacy) if told.is_visible_without_privacy else UNSEEN,
        )
        for name, share, told in found
    ]
    precision, name = seen.precisions[metric], seen.metrics[metric]
    sentence = f"Over everyone, {_detected(precision.overall)}."
    small = precision.segment(_SMALL_SEGMENT)
    if small is not None:
        sentence += (
            f" In a segment of {_SMALL_SEGMENT:.0%} of the units, the standard error is about "
            f"{_number(small.std_error)}, and {_detected(small)}."
        )
    return MetricView(name, sentence, rows, _chart(name, precision, sentence))


def _detected(found: Prediction) -> str:
    """What can be detected, in words."""
    if found.is_visible:
        return f"effects of {_number(found.detectable_effect)} or more can be detected"
    return f"no effect can be seen: the largest possible is {_number(found.largest_effect)}"


def _chart(metric: str, precision: Precision, told: str) -> Svg | None:
    """Detectable effects against the share of a segment; None where there are no rows."""
    shares = [float(share) for share in np.geomspace(*_SHARES, _N_POINTS)]
    found = [one for share in shares if (one := precision.segment(share)) is not None]
    if not found:
        return None
    # No line goes beyond what is possible.
    ours = [min(one.detectable_effect, one.largest_effect) for one in found]
    true = [min(one.detectable_without_privacy, one.largest_effect) for one in found]
    return line_chart(
        [Line("from this release", shares, ours), Line("without privacy", shares, true)],
        Axis("segment, as a share of all units", Logarithmic.over(shares), "{:.0%}".format),
        Axis(f"smallest detectable effect on {metric}", Logarithmic.over([*ours, *true])),
        title=f"Smallest detectable effect on {metric}, by the size of the segment",
        description=told,
    )


def _share_name(share: float, n_units: int) -> str:
    units = counted(round(share * n_units), "unit")
    return f"everyone ({units})" if share == 1 else f"{share:.0%} of them ({units})"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _missing(manifest: Manifest) -> list[tuple[str, str, str]]:
    """Outcomes that may be missing, with the columns whose ratio is their mean."""
    columns = manifest.to_columns()
    observed = columns.debiased[len(columns.outcomes) :]
    return [
        (name, columns.debiased[columns.outcomes.index(name)], below)
        for name, below in zip(columns.missing, observed, strict=True)
    ]


def _statistics(manifest: Manifest, rows: RowFiles) -> list[str]:
    """What is published beside rows, file by file."""
    texts = file_texts(manifest, rows)
    return [f"`{name}`: {texts[name]}" for name in (CELLS, TOTALS, LOOK, CHANNELS) if name in texts]


def _others(files: Mapping[str, FileSum]) -> dict[str, FileSum]:
    """All files but the page itself and the manifest, sorted by their names."""
    return {name: files[name] for name in sorted(files) if name not in (INDEX, MANIFEST)}


def fingerprint(files: Mapping[str, FileSum]) -> str:
    """A checksum of the checksums of all other files, as `sha256sum` lists them."""
    lines = "".join(f"{one.sha256}  {name}\n" for name, one in _others(files).items())
    return sha256(lines.encode()).hexdigest()[:_FINGERPRINT]


def _citation(manifest: Manifest, files: Mapping[str, FileSum]) -> str:
    day = manifest.provenance.released_on
    year = "n.d." if day is None else str(day.year)
    return f"{title_of(manifest)} ({year}). {_what(manifest)}. Fingerprint {fingerprint(files)}."


def _what(manifest: Manifest) -> str:
    epsilon = rounded_up(manifest.guarantee.epsilon)
    return (
        "User-level results of a randomized experiment under label differential privacy, "
        f"epsilon = {epsilon}; {manifest.software}"
    )


def _bibtex(manifest: Manifest, files: Mapping[str, FileSum]) -> str:
    day, mark = manifest.provenance.released_on, fingerprint(files)
    fields = {"title": title_of(manifest)}
    if day is not None:
        fields |= {"year": str(day.year), "month": str(day.month)}
    fields["howpublished"] = _what(manifest)
    fields["note"] = f"Fingerprint {mark}"
    lines = [
        f"  {name} = {{{''.join(_IN_BIBTEX.get(letter, letter) for letter in text)}}},"
        for name, text in fields.items()
    ]
    return "\n".join([f"@misc{{clusterdp-{mark},", *lines, "}"])


def _listed_files(files: Mapping[str, FileSum], rows: RowFiles) -> list[tuple[str, str, str]]:
    """Each file: its name, its size and its checksum; many files of rows in one line."""
    parts = [name for name in files if name.startswith(f"{UNIT_PARTS}/")]
    found = []
    if len(parts) > _MOST_PARTS:
        size = sum(files[name].bytes for name in parts)
        found = [(rows.name, f"{size:,}", f"those of {len(parts):,} files are in {MANIFEST}")]
        files = {name: one for name, one in files.items() if name not in parts}
    found += [(name, f"{one.bytes:,}", one.sha256) for name, one in files.items()]
    return [*found, (INDEX, "", f"in {MANIFEST}"), (MANIFEST, "", "in itself")]
