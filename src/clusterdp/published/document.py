"""The README of a published folder: what it is, and how to use it with no software of ours.

What is in the files and columns of a folder, in words; names stand in backticks.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from clusterdp._text import plain_text, shortest_decimal
from clusterdp.cells.layout import units_in_words
from clusterdp.document.text import aligned
from clusterdp.outcomes.declaration import parse_space
from clusterdp.outcomes.number import Number
from clusterdp.outcomes.published_names import QUESTION, question_name
from clusterdp.published._recipes import RowFiles, cautions, recipes, sum_queries
from clusterdp.published.manifest import arms_in_words, title_of, what_is_public
from clusterdp.spec.columns import FOLD, RESPONSE
from clusterdp.spec.provenance import provenance_pairs
from clusterdp.storage.folder import CELLS, CHANNELS, ERRATA, INDEX, LOOK, MANIFEST, README, TOTALS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from clusterdp.outcomes.declaration import Outcome
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.visible import Visible
    from clusterdp.spec.terms import QuestionTerms


# Of more values than this, the first and the last are named.
_MOST_VALUES = 8


class PublishedColumn(NamedTuple):
    """A column of rows: its name, whether it is exact or private, and what it is."""

    name: str
    kind: str
    text: str


def file_texts(manifest: Manifest, rows: RowFiles) -> dict[str, str]:
    """What is in each file, by its name; that of the rows first."""
    pairs = list(zip(manifest.terms.mechanisms, manifest.terms.spaces, strict=True))
    statistics = [one for mechanism, _ in pairs for one in mechanism.statistics]
    words = [one.in_words for one in statistics if one.level is None]
    found = {}
    if manifest.terms.releases_rows:
        of_rows = [mechanism.settled_rows(space) for mechanism, space in pairs]
        words += [one.cells_in_words for one in of_rows]
        published = ", ".join(f"`{name}`" for name in manifest.to_columns().published)
        remarks = " ".join(dict.fromkeys(one.released_in_words for one in of_rows))
        found[rows.name] = f"one row per unit: {published}. {remarks}"
    per = "arm" if manifest.columns.cluster is None else "cluster and arm"
    found[CELLS] = f"one row per {per}: its size, {', '.join(dict.fromkeys(words))}."
    levels = list(dict.fromkeys(one.level for one in statistics if one.level is not None))
    if levels:
        of = ", ".join("of everyone" if not by else f"by {', '.join(by)}" for by in levels)
        found[TOTALS] = (
            f"noisy totals {of}; of each group, fold and arm the sum of every metric "
            "(`noisy_sum`), where a unit counts as often as the `weight` of its cell says."
        )
    if manifest.terms.has_look:
        found[LOOK] = (
            "how many units have outcomes in each bin, with noise; each bin by the values at its "
            "lower ends. Ranges of numbers and the channel follow from it."
        )
    if any(mechanism.designs_rows for mechanism, _ in pairs):
        found[CHANNELS] = (
            "of each channel and response, what it counts as in each metric (`decode`) and "
            "P(response given each category) × 2^48 (`weights`)."
        )
    found[README] = "how to use it with no software of ours, and what can be seen in it."
    found[INDEX] = "the same for a browser, with charts and where the release comes from."
    return found


def published_columns(manifest: Manifest) -> list[PublishedColumn]:
    """The columns of rows, in their order."""
    columns, named = manifest.to_columns(), manifest.columns
    exact = dict.fromkeys(columns.kept, "a public column")
    exact |= {name: "a public column to cut by" for by in columns.breakdowns for name in by}
    exact |= {named.unit: "the id of a unit", named.arm: "the arm that the unit was assigned to"}
    if named.cluster is not None:
        exact[named.cluster] = "the cluster of the unit, within which arms are compared"
        if manifest.labels is not None:
            del exact[named.cluster]
    if named.assigned_by is not None:
        exact[named.assigned_by] = "the group that was assigned to an arm as a whole"
    exact[FOLD] = f"one of {columns.folds} folds, by a hash of the id"
    exact[QUESTION] = "the question that the unit was asked, by a hash of the id"
    private = {RESPONSE: "which noisy answer the unit gave, as a number; it is not an outcome"}
    if manifest.labels is not None and named.cluster is not None:
        private[named.cluster] = (
            f"a noisy label of the unit's `{manifest.true_cluster}`: {manifest.labels.in_words}"
        )
    means = [f"`{name}`" for name in columns.outcomes]
    for place, name in enumerate(columns.outcomes):
        if name in columns.missing:
            means[place] += ", counted as 0 where it is missing"
    means += [f"whether `{name}` was observed" for name in columns.missing]
    for name, mean in zip(columns.debiased, means, strict=True):
        private[name] = f"a noisy number; its mean over many units estimates that of {mean}"
    return [
        PublishedColumn(name, "private", private[name])
        if name in private
        else PublishedColumn(name, "exact", exact[name])
        for name in columns.published
    ]


def asked_in_words(manifest: Manifest) -> list[str]:
    """Each question with the share of units that are asked; nothing where there is one."""
    if len(manifest.questions) == 1 or not manifest.terms.releases_rows:
        return []
    return [
        f"`{question_name(question.names)}`, asked of {question.mechanism.asked_share:.1%} of units"
        for question in manifest.questions
    ]


def outcomes_in_words(question: QuestionTerms) -> list[str]:
    """What was measured of each unit in a question: outcomes, combinations, further metrics."""
    declared = question.outcomes.declared
    return [
        *map(_in_words, question.outcomes.categories().declared.outcomes),
        *(
            f"By definition `{one}`: where the left side holds, so does the right."
            for one in declared.implications
        ),
        *(f"Also measured: `{one}`." for one in declared.metrics),
    ]


def _in_words(outcome: Outcome) -> str:
    space = outcome.space
    if isinstance(space, Number):
        text = (
            f"a number from {shortest_decimal(space.low)} to {shortest_decimal(space.high)}. "
            f"Numbers beyond count as "
            "the nearest end, so effects are on the clipped number"
        )
    elif space.edges is not None:
        text = (
            f"bins with edges {_listed(space.edges)}. A value counts as its bin's: "
            f"{_listed(space.values)}"
        )
    elif space.names is not None:
        text = space.in_words
    else:
        text = f"one of {_listed(space.values)}"
    missing = (
        " It may be missing, and who has it is private, too." if outcome.may_be_missing else ""
    )
    return f"`{outcome.name}`: {text}.{missing}"


def _listed(values: tuple[float, ...]) -> str:
    texts = list(map(shortest_decimal, values))
    if len(texts) > _MOST_VALUES:
        texts = [*texts[: _MOST_VALUES - 2], "…", texts[-1]]
    return ", ".join(texts)


_WIDTH, _WIDE = 80, 100
_ERRATA = f"\nWhat turned out to be wrong later is in `{ERRATA}`, if there is one."
_QUESTIONS = (
    "Each person's row answers one question. Which one is public and was drawn by a hash. Debiased "
    "columns of other questions are empty, and a mean that skips empty fields is unbiased. Noisy "
    "sums are of everyone. In `cells.parquet`, columns of the second question end with `_2`."
)


def write_readme(
    manifest: Manifest, row_files: Collection[str], seen: Visible, notes: Sequence[str]
) -> str:
    """The text.

    Args:
        manifest: Of the release.
        row_files: The names of the files of rows.
        seen: What to expect of effects.
        notes: What a reader should know.
    """
    head = f"""# {in_markdown(title_of(manifest))}

{_what(manifest)}

**Privacy.** {manifest.guarantee.in_words} {what_is_public(manifest)}

{_outcomes(manifest)}
"""
    listed = "".join(f"- {note}\n" for note in notes)
    body = (_rows if manifest.terms.releases_rows else _aggregates)(
        manifest, RowFiles.of(row_files)
    )
    return (
        head
        + (f"\nNotes:\n{listed}" if listed else "")
        + body
        + _visible(seen)
        + _provenance(manifest)
    )


def _what(manifest: Manifest) -> str:
    arms = ", ".join(map(in_markdown, arms_in_words(manifest)))
    return (
        f"{units_in_words(manifest.n_units, manifest.n_clusters)}, "
        f"with arms {arms} (control: {in_markdown(str(manifest.control))}). Released by "
        f"{in_markdown(manifest.terms.mechanism_names)}, with {manifest.software}."
    )


def _outcomes(manifest: Manifest) -> str:
    """The declared outcomes, what is impossible, and what is measured."""
    how = "declared, and then clipped by a look" if manifest.terms.has_look else "declared"
    lines = [f"Outcomes, as they were {how}:", ""]
    for question in manifest.questions:
        lines += _question_outcomes(question)
    if len(manifest.questions) > 1:
        lines += ["", *textwrap.wrap(_QUESTIONS, _WIDTH), ""]
        lines += [f"{place}. {text}" for place, text in enumerate(asked_in_words(manifest), 1)]
    return "\n".join(lines)


def _question_outcomes(question: QuestionTerms) -> list[str]:
    """What is declared of a question."""
    declared, lines = question.outcomes.declared, []
    for outcome in declared.outcomes:
        is_number = outcome.name in question.outcomes.grids
        clipped = "; numbers beyond the range count as its nearest end" if is_number else ""
        missing = "; it may be missing, and who has it is private" if outcome.may_be_missing else ""
        values = parse_space(outcome.space).in_words
        lines.append(f"- `{outcome.name}`: {values}{clipped}{missing}")
    lines += [f"- impossible unless `{one}`" for one in declared.implications]
    lines += [f"- also measured: `{one}`" for one in declared.metrics]
    return lines


def _rows(manifest: Manifest, rows: RowFiles) -> str:
    first = manifest.to_columns().debiased[0]
    is_whole = manifest.to_columns().outcomes[0] not in manifest.to_columns().missing
    true = "the true outcome" if is_whole else "the true outcome, 0 where it is missing"
    by_groups = manifest.columns.assigned_by is not None
    spread = "" if by_groups else "and so any ordinary standard error, "
    shown_in = recipes(manifest, rows)
    return f"""
{_files(manifest, rows)}

## Use it
**A mean of `{first}` is an unbiased mean of {true}**, over all units or over
any group of them that was not chosen by looking at outcomes. Use it like any outcome; its spread,
{spread}includes the noise of privacy. It is right for means and for
nothing else (see below), and values can lie far outside the range of
outcomes.{_within(manifest)}{_missing(manifest)}{_assigned(manifest)}{_weighted(manifest)}

SQL (DuckDB):
```sql
{shown_in.sql}
```

pandas:
```python
{shown_in.pandas}
```

R:
```r
{shown_in.in_r}
```

{sum_queries(manifest, rows.glob)}
With clusterdp, compared within clusters, with intervals and segments{_better(manifest)}:
```
clusterdp estimate .
clusterdp calibrate . --out ../rows.parquet  # rows whose means in any tool are these
```
{_cautions(manifest)}"""


def _cautions(manifest: Manifest) -> str:
    """What gives wrong answers, why, and the command that gives a right one."""
    lines = [
        "",
        "## What you may not do with these columns",
        "Where rows do not tell the answer, a command says what the owner would have to declare.",
        "",
    ]
    for one in cautions(manifest):
        lines += [f"- Not {one.what}: {one.why}. Instead:", f"  `{one.instead}`"]
    return "\n".join(lines) + "\n"


def _within(manifest: Manifest) -> str:
    """A warning where arms may have different shares in clusters."""
    cluster = manifest.columns.cluster
    if cluster is None or manifest.assignment is not None:
        return ""
    return (
        f"\n\n**Compare arms within `{cluster}`.** Plain means of arms mix the effect with\n"
        "differences between clusters, if arms have different shares in them. In recipes below\n"
        "units have weights, so that every arm represents the same mix of clusters."
    )


def _missing(manifest: Manifest) -> str:
    """How outcomes are used that may be missing."""
    columns = manifest.to_columns()
    if not columns.missing:
        return ""
    name = columns.missing[0]
    above = columns.debiased[columns.outcomes.index(name)]
    below = columns.debiased[len(columns.outcomes)]
    return (
        f"\n\n**`{name}` may be missing.** Its mean among those who have it is a ratio of means,\n"
        f"weighted alike: of `{above}`, which is 0 where it is missing,\n"
        f"over `{below}`, whether it was observed. Never take ratios row by row.\n"
        "Arms may differ in who is observed: `clusterdp estimate .` tests that, and gives bounds."
    )


def _assigned(manifest: Manifest) -> str:
    """A warning where arms were assigned to groups."""
    group = manifest.columns.assigned_by
    if group is None:
        return ""
    return (
        f"\n\n**Arms were assigned by `{group}`, not unit by unit.** Standard errors must be of\n"
        "how its groups differ, as in the recipes below. Other tools need standard errors\n"
        f"clustered by `{group}`; those of single units are far too small."
    )


def _weighted(manifest: Manifest) -> str:
    """A warning where plain means of arms are biased."""
    if manifest.assignment is None:
        return ""
    return (
        "\n\n**Arms had different probabilities in true clusters, which are private.** Means of\n"
        "arms need weights: the recipes below take rows of `clusterdp calibrate`, each counted by\n"
        "`stratified_weight`."
    )


def _files(manifest: Manifest, rows: RowFiles) -> str:
    """What is in each file."""
    texts = file_texts(manifest, rows)
    del texts[README]
    lines = [
        textwrap.fill(f"- `{name}`: {text}", _WIDE, subsequent_indent="  ", break_on_hyphens=False)
        for name, text in {**texts, MANIFEST: "all of this for programs, with checksums."}.items()
    ]
    return "\n".join(["## Files", *lines])


def _better(manifest: Manifest) -> str:
    if not any(mechanism.statistics for mechanism in manifest.terms.mechanisms):
        return ""
    return ",\nand more precisely than from rows alone, by the noisy statistics beside them"


def _aggregates(manifest: Manifest, rows: RowFiles) -> str:
    return f"""
{_files(manifest, rows)}

This release holds aggregates alone. `clusterdp estimate .` gives effects with intervals.
"""


def _visible(seen: Visible) -> str:
    """What to expect of effects, metric by metric."""
    about = (
        f"Standard errors to expect of effects, {seen.assumed}. Detectable is the smallest effect "
        "that a two-sided 5% test finds with 80% probability; beside it, the same without "
        "privacy. Of several arms, it is the least certain one."
    )
    parts = ["", "## What can be seen", *textwrap.wrap(about, _WIDTH)]
    for metric, rows in seen.tables().items():
        shown_rows = [tuple(map(_in_block, row)) for row in rows]
        parts += ["", f"`{metric}`:", "```", *aligned(shown_rows), "```"]
    return "\n".join(parts) + "\n"


def _provenance(manifest: Manifest) -> str:
    """Where the release comes from."""
    pairs = provenance_pairs(manifest.provenance)
    told = [f"- {name}: {in_markdown(text)}" for name, text in pairs]
    lines = [
        textwrap.fill(one, _WIDTH, subsequent_indent="  ", break_on_hyphens=False) for one in told
    ]
    return "\n".join(["", "## Where it comes from", *lines, _ERRATA]) + "\n"


def in_markdown(text: str) -> str:
    """A text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>#|~&!])", r"\\\1", text)


def _in_block(text: str) -> str:
    """A text that stays in its line, and in its block."""
    return plain_text(text).replace("`", " ")
