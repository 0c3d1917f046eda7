"""The README of a published folder: what it is, and how to use it with no software of ours."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from clusterdp._tables import aligned
from clusterdp._words import plain_text
from clusterdp.experiment.layout import units_in_words
from clusterdp.experiment.spaces import space_in_words
from clusterdp.privacy.accounting import shown
from clusterdp.published.contents import file_texts
from clusterdp.published.manifest import arms_in_words, title_of, what_is_public
from clusterdp.published.provenance import provenance_pairs
from clusterdp.published.readme_advice import cautions, sum_queries
from clusterdp.published.recipes import RowFiles, recipes
from clusterdp.storage.files import ERRATA, MANIFEST, README

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from clusterdp.published.manifest import Manifest
    from clusterdp.published.sights import Visible
    from clusterdp.published.terms import BlockTerms

_WIDTH, _WIDE = 80, 100
_ERRATA = f"\nWhat turned out to be wrong later is in `{ERRATA}`, if there is one."
_BLOCKS = (
    "They are released in blocks, each with a channel, noise and a share of epsilon of its own. "
    "Columns of a block end with its number, as in `response_1`; in `totals.parquet` and "
    "`channels.parquet` a column `block` holds it."
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
    how = "declared" if manifest.before_look is None else "declared, and then clipped by a look"
    lines = [f"Outcomes, as they were {how}:", ""]
    for block in manifest.blocks:
        lines += _block_outcomes(block)
    if len(manifest.blocks) > 1:
        lines += ["", *textwrap.wrap(_BLOCKS, _WIDTH), ""]
        lines += [
            f"{place}. {', '.join(f'`{name}`' for name in block.names)}: epsilon = "
            f"{shown(block.epsilon)}"
            for place, block in enumerate(manifest.blocks, start=1)
        ]
    return "\n".join(lines)


def _block_outcomes(block: BlockTerms) -> list[str]:
    """What is declared of a block."""
    declared, lines = block.outcomes.declared, []
    for outcome in declared.outcomes:
        is_number = outcome.name in block.outcomes.grids
        clipped = "; numbers beyond the range count as its nearest end" if is_number else ""
        missing = "; it may be missing, and who has it is private" if outcome.may_be_missing else ""
        values = space_in_words(outcome.space)
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
