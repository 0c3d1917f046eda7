"""How rows are used with no software of ours: means and standard errors in SQL, pandas and R.

The mean of an arm is r = Σ wy/Σ wx, with x = 1, or whether y was observed. Units have weights w, so
that every arm represents the same mix of clusters: n_c/n_ac, as `estimate` weighs them. Its error
is that of the sum of the scores u = w(y − rx)/Σ wx: scores vary within cells, or from group to
group where arms were assigned to groups. Where units were asked different questions, all of it is
of those with an answer.

Next to them: what columns are not for, and queries on noisy sums.
"""

from __future__ import annotations

import json
import math
import shlex
from typing import TYPE_CHECKING, Any

from clusterdp._text import shortest_decimal, with_article
from clusterdp.document.markup import render
from clusterdp.document.model import Code, Paragraph, code, strong
from clusterdp.outcomes.metric import quoted
from clusterdp.outcomes.number import Number
from clusterdp.spec.columns import RESPONSE, question_suffixes
from clusterdp.storage.folder import UNIT_PARTS, UNITS

if TYPE_CHECKING:
    from collections.abc import Collection

    from clusterdp.outcomes.finite import OutcomeSpace
    from clusterdp.published.manifest import Label, Manifest


def row_files(names: Collection[str]) -> str:
    """The files of rows as SQL names them, from the names of files, others among them or not."""
    return UNITS if UNITS in names else f"{UNIT_PARTS}/*.parquet"


def folder_of(rows: str) -> str:
    """The file or folder of rows, from what SQL calls them."""
    return rows.removesuffix("/*.parquet")


def recipes(manifest: Manifest, rows: str) -> list[Code]:
    """How to compare arms: within clusters, by assigned groups, among observed outcomes.

    Of the first outcome: the means of arms in SQL, the effects in pandas and R.
    """
    columns, named = manifest.columns, manifest.named_columns
    # As shares of arms are private, weights are those of calibrated rows.
    weighed, is_missing = manifest.assignment is not None, named.outcomes[0] in named.missing
    files = "../rows.parquet" if weighed else rows
    told = {
        "rows": files,
        "folder": folder_of(files),
        "unit": columns.unit,
        "arm": columns.arm,
        "value": named.debiased[0],
        "observed": named.debiased[len(named.outcomes)] if is_missing else None,
        "cluster": None if weighed else columns.cluster,
        "group": columns.randomization_unit,
        "weight": "stratified_weight" if weighed else None,
        "asked": len(manifest.questions) > 1,
        "n_arms": len(manifest.arms),
        "control": manifest.control,
        "index": [repr(one) for one in manifest.arms].index(repr(manifest.control)),
    }
    # Without these, plain means and their usual standard errors are right.
    reasons = ("observed", "cluster", "group", "weight")
    told["is_plain"] = not any(told[reason] for reason in reasons)
    return [
        Code("SQL (DuckDB)", _snippet("means.sql.txt", name=_sql_name, **told), "sql"),
        Code("pandas", _snippet("means.pandas.txt", name=repr, **told), "python"),
        Code("R", _snippet("means.r.txt", name=_r_name, level=_r_text, **told), "r"),
    ]


def _snippet(template: str, **values: Any) -> str:
    return render("clusterdp.published", template, **values).strip("\n")


def _sql_name(name: str) -> str:
    """A quoted name for SQL, with any characters."""
    return '"' + name.replace('"', '""') + '"'


def _r_text(label: Label) -> str:
    """A label as R writes the level of a factor."""
    return json.dumps(str(label).upper() if isinstance(label, bool) else str(label))


def _r_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return name if name.isidentifier() else f"`{escaped}`"


def _caution(what: str, why: str, instead: str) -> str:
    return f"{strong(f'Not {what}')}: {why}. Instead: {code(instead)}"


def cautions(manifest: Manifest) -> list[str]:
    """What gives wrong answers, why, and the command that gives a right one.

    Examples use the outcome with the most levels among those that cannot be missing, as
    only these have quantiles. Without one, means replace quantiles.
    """
    columns = manifest.named_columns
    every = [one for space in manifest.terms.spaces for one in space.declared.outcomes]
    whole = [one for one in every if not one.may_be_missing]
    example = max(
        whole or every,
        key=lambda one: math.inf if isinstance(one.space, Number) else len(one.space.values),
    )
    name = quoted(example.name)
    column = columns.debiased[columns.outcomes.index(example.name)]
    level = _level_between(example.space)
    of_quantile, of_distribution = (f"p90({name})", f"dist({name})") if whole else (name, name)
    unit = manifest.provenance.unit
    filled = [
        _caution(
            f"nulls that are filled, such as {code(column)} with 0",
            f"{with_article(unit)} that was asked another question has no value, and is not 0",
            "clusterdp estimate . --rows-only  # in other tools, skip nulls",
        )
    ]
    units = manifest.provenance.units
    held = "--fold 1" if manifest.folds > 1 else "--rows-only --by MINE"
    split = "train on fold 0" if manifest.folds > 1 else f"train on other {units}"
    return [
        *_label_cautions(manifest),
        *(filled if len(manifest.questions) > 1 else []),
        _caution(
            f"a median, quantile or maximum of a private column, such as {code(column)}",
            "privacy noise determines it, not the outcomes",
            f"clusterdp estimate . --metric {shlex.quote(of_quantile)}"
            + ("  # p50 is the median" if whole else ""),
        ),
        _caution(
            "a histogram, or a count of values",
            "a value is the debiased code of a response, not an outcome",
            f"clusterdp estimate . --metric {shlex.quote(of_distribution)}",
        ),
        _caution(
            f"a threshold, such as {code(f'{column} >= {level}')}",
            "many noisy values are above it, and their outcomes are not",
            f"clusterdp estimate . --metric {shlex.quote(f'{name}>={level}')}",
        ),
        _caution(
            "a logarithm, a square, a ratio or a product of values, row by row",
            "the mean of a function of noisy values is biased",
            f"clusterdp estimate . --metric METRIC  # such as {name}*other, {name}/other",
        ),
        _caution(
            f"rows that are kept, dropped, sorted or grouped by it or by {code(RESPONSE)}",
            "they were chosen by their noise, so their means are biased",
            "clusterdp estimate . --by COLUMN  # a column that does not depend on outcomes",
        ),
        _caution(
            "segments, covariates or a model chosen and tested on the same rows",
            "a choice made from noise looks good in the same noise",
            f"clusterdp estimate . {held}  # {split}",
        ),
        (
            f"{strong('Not a model that treats these values as true outcomes')}: it learns "
            "the noise of single rows. Instead: fit it to averages, or report coefficients of a "
            f"regression, and test it on other {units}."
        ),
        f"{strong(f'Not a statement about one {unit}')}: a single row may be only noise.",
    ]


def _label_cautions(manifest: Manifest) -> list[str]:
    """What noisy labels of private clusters do not show; nothing where clusters are public."""
    if manifest.labels is None:
        return []
    of_groups = _caution(
        f"rows that are grouped by {code(str(manifest.columns.cluster))}, or a regression on it",
        "it is a noisy cluster, so every group mixes all true clusters",
        f"clusterdp estimate . --by {shlex.quote(str(manifest.true_cluster))}",
    )
    if manifest.assignment is None:
        return [of_groups]
    of_arms = _caution(
        "plain means of arms, without weights",
        "arms had different probabilities in true clusters, so plain means are biased",
        "clusterdp estimate .  # or rows of clusterdp calibrate, with stratified_weight",
    )
    return [of_arms, of_groups]


def _level_between(space: OutcomeSpace | Number) -> str:
    """A value of an outcome that is not its least: half way of a number, else one in the middle."""
    if isinstance(space, Number):
        return shortest_decimal((space.low + space.high) / 2)
    return shortest_decimal(space.values[len(space.values) // 2])


def sum_queries(manifest: Manifest, rows: str) -> list[Paragraph | Code]:
    """Means of a question's first metric from noisy sums, in SQL; nothing if there are no sums.

    Of several questions, queries are on the first one with sums.
    """
    for index, question in enumerate(manifest.questions):
        declared = question.outcomes.categories.declared
        if manifest.assignment is not None or declared.observed_place(0) is not None:
            continue  # Means need weights of rows, or are ratios.
        queries = [_of_cells(manifest, index), _of_totals(manifest, index, rows)]
        if any(queries):
            metrics = ", ".join(code(str(one)) for one in declared.metrics)
            about = (
                f"Noisy sums are in the units of their metrics, one number for each: {metrics}. "
                "They have less noise than a sum over rows, but give no standard error. Weight "
                "the means of cells by the sizes of clusters. In totals, each "
                f"{manifest.provenance.unit} counts {code('weight')} times, as its cell states."
            )
            labels = ("SQL, from the sums of cells", "SQL, from totals")
            pairs = zip(labels, queries, strict=True)
            return [Paragraph(about), *(Code(name, one, "sql") for name, one in pairs if one)]
    return []


def _of_cells(manifest: Manifest, index: int) -> str | None:
    """The query on the sums of cells of a question; None if it has none."""
    question, columns = manifest.questions[index], manifest.columns
    of_cells = (one for one in question.mechanism.statistics if one.level is None)
    space = question.outcomes.categories
    if not any("noisy_sum" in one.column_types(space) for one in of_cells):
        return None
    return _snippet(
        "cells.sql.txt",
        name=_sql_name,
        arm=columns.arm,
        cluster=columns.cluster,
        ending=question_suffixes(len(manifest.questions))[index],
        n_arms=len(manifest.arms),
    )


def _of_totals(manifest: Manifest, index: int, rows: str) -> str | None:
    """The query on the totals of everyone of a question; None if it has none."""
    if not any(one.level == () for one in manifest.questions[index].mechanism.statistics):
        return None
    columns = manifest.named_columns
    return _snippet(
        "totals.sql.txt",
        name=_sql_name,
        rows=rows,
        arm=columns.arm,
        cells=", ".join(map(_sql_name, columns.cell)),
        folds=manifest.folds,
        question=columns.question_names[index] if columns.question_names else None,
    )
