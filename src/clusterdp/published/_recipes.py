"""How rows are used with no software of ours: means and standard errors in SQL, pandas and R.

The mean of an arm is r = Σ wy/Σ wx, with x = 1, or whether y was observed. Units have weights w, so
that every arm represents the same mix of clusters: n_c/n_ac, as `estimate` weighs them. Its error
is that of the sum of the scores u = w(y − rx)/Σ wx: scores vary within cells, or from group to
group where arms were assigned to groups. Where units were asked different questions, all of it is
of those with an answer.

Beside them: what columns are not for, and queries on noisy sums.
"""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp._text import shortest_decimal
from clusterdp.document.model import Code, Paragraph, code, strong
from clusterdp.outcomes.metric import quoted
from clusterdp.outcomes.number import Number
from clusterdp.spec.columns import QUESTION, RESPONSE, question_suffixes
from clusterdp.storage.folder import UNIT_PARTS, UNITS

if TYPE_CHECKING:
    from collections.abc import Collection

    from clusterdp.outcomes.finite import OutcomeSpace
    from clusterdp.published.manifest import Label, Manifest


# The rows of `clusterdp calibrate`, as READMEs name them, and what units count in them.
_WEIGHED_ROWS, _WEIGHT = "../rows.parquet", "stratified_weight"


def row_files(names: Collection[str]) -> str:
    """The files of rows as SQL names them, from the names of files, others among them or not."""
    return UNITS if UNITS in names else f"{UNIT_PARTS}/*.parquet"


def folder_of(rows: str) -> str:
    """The file or folder of rows, from what SQL calls them."""
    return rows.removesuffix("/*.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """What a recipe compares.

    Attributes:
        rows: Their files, as SQL names them.
        unit: The column of ids.
        arm: The column of arms.
        value: The column of the outcome, 0 where it is missing.
        observed: The column that says whether it was observed; None if it cannot be missing.
        cluster: The column that arms are compared within; None without clusters.
        group: The column of groups that arms were assigned to; None without groups.
        weighed: Whether weights are those of calibrated rows, as shares of arms are private.
        asked: Whether some units were asked other questions, and have no value.
        n_arms: How many arms there are.
        control: The arm to compare with.
        index: Its index among the arms.
    """

    rows: str
    unit: str
    arm: str
    value: str
    observed: str | None
    cluster: str | None
    group: str | None
    weighed: bool
    asked: bool
    n_arms: int
    control: Label
    index: int

    @property
    def is_plain(self) -> bool:
        """Whether plain means and their usual standard errors are right."""
        return not (self.observed or self.cluster or self.group or self.weighed)


def recipes(manifest: Manifest, rows: str) -> list[Code]:
    """How to compare arms: within clusters, by assigned groups, among observed outcomes.

    Of the first outcome: the means of arms in SQL, the effects in pandas and R.
    """
    columns, named = manifest.columns, manifest.named_columns
    weighed, is_missing = manifest.assignment is not None, named.outcomes[0] in named.missing
    compared = _Comparison(
        rows=_WEIGHED_ROWS if weighed else rows,
        unit=columns.unit,
        arm=columns.arm,
        value=named.debiased[0],
        observed=named.debiased[len(named.outcomes)] if is_missing else None,
        cluster=None if weighed else columns.cluster,
        group=columns.randomization_unit,
        weighed=weighed,
        asked=len(manifest.questions) > 1,
        n_arms=len(manifest.arms),
        control=manifest.control,
        index=[repr(one) for one in manifest.arms].index(repr(manifest.control)),
    )
    return [
        Code("SQL (DuckDB)", _in_sql(compared), "sql"),
        Code("pandas", _in_pandas(compared), "python"),
        Code("R", _in_r(compared), "r"),
    ]


def _in_sql(of: _Comparison) -> str:
    arm, value, source = _sql_name(of.arm), _sql_name(of.value), f"'{of.rows}'"
    if of.asked:
        source += f"\nwhere {value} is not null  -- asked about it"
    if of.is_plain:
        return f"""select {arm}, avg({value}) as mean,
       stddev({value}) / sqrt(count(*)) as std_error, count(*) as units
from {source}
group by {arm}
order by {arm};"""
    weight, cell, kept = _WEIGHT if of.weighed else "1", "arm", ""
    if of.cluster is not None:
        cluster, cell = _sql_name(of.cluster), "cell"
        whole, part = f"over (partition by {cluster})", f"over (partition by {cluster}, {arm})"
        weight = f"count(*) {whole} / count(*) {part}"
        kept = f"\n    qualify count(distinct {arm}) {whole} = {of.n_arms}  -- has every arm"
    named = [f"{arm} as arm", f"{value} as value"]
    named += [f"{'1' if of.observed is None else _sql_name(of.observed)} as observed"]
    named += [f"{_sql_name(of.cluster)} as cell"] if of.cluster else []
    named += [f"{_sql_name(of.group)} as assigned"] if of.group else []
    score, by = "weight * (value - mean * observed) / total as score", f"arm, {cell}"
    scores, by_group, counted_as = f"select {by}, {score}", "", "units"
    if of.group is not None:
        # Units of a group were not assigned one by one.
        scores, by = "select arm, sum(weight * (value - mean * observed) / total) as score", "arm"
        by_group, counted_as = "\n    group by arm, assigned", "groups"
    return f"""with weighed as (
    select {", ".join(named)},
        {weight} as weight
    from {source}{kept}
), means as (
    select arm, sum(weight * observed) as total, sum(weight * value) / total as mean
    from weighed
    group by arm
), scores as (
    {scores}
    from weighed join means using (arm){by_group}
), cells as (
    select arm, count(*) as n,
        coalesce(n * var_samp(score), sum(score * score)) as variance
    from scores
    group by {by}
)
select arm, mean, sqrt(sum(variance)) as std_error, sum(n) as {counted_as}
from cells join means using (arm)
group by arm, mean
order by arm;"""


def _in_pandas(of: _Comparison) -> str:
    arm, value, cluster = repr(of.arm), repr(of.value), repr(of.cluster)
    answered = f"\nunits = units[units[{value}].notna()]  # asked about it" if of.asked else ""
    head = f"""import pandas as pd
units = pd.read_parquet("{folder_of(of.rows)}"){answered}
mine = units  # .merge(my_segments, on={of.unit!r})"""
    tail = f"""
control = arms.iloc[{of.index}]  # {of.control!r}
arms["effect"] = arms["mean"] - control["mean"]
arms["effect_error"] = (arms["std_error"] ** 2 + control["std_error"] ** 2) ** 0.5
print(arms.drop(index=control.name))"""
    if of.is_plain:
        return f"""{head}
arms = mine.groupby({arm})[{value}].agg(mean="mean", std_error="sem"){tail}"""
    weight, cells = "pd.Series(1, mine.index)", "score.groupby(arm)"
    if of.weighed:
        weight = f"mine[{_WEIGHT!r}]"
    elif of.cluster is not None:
        head += f"""
n_arms = mine.groupby({cluster})[{arm}].transform("nunique")
mine = mine[n_arms == {of.n_arms}]  # clusters that have every arm
whole = mine.groupby({cluster})[{arm}].transform("size")"""
        weight = f"whole / mine.groupby([{cluster}, {arm}])[{arm}].transform('size')"
        cells = f"score.groupby([arm, mine[{cluster}]])"
    if of.group is not None:
        cells = f"score.groupby([arm, mine[{of.group!r}]]).sum().groupby(level=0)"
    return f"""{head}
arm, value = mine[{arm}], mine[{value}]
weight = {weight}
weighed = weight{"" if of.observed is None else f" * mine[{of.observed!r}]"}
total = weighed.groupby(arm).sum()
mean = (weight * value).groupby(arm).sum() / total
score = (weight * value - weighed * arm.map(mean)) / arm.map(total)
cells = {cells}
variance = (cells.size() * cells.var()).fillna(cells.sum() ** 2).groupby(level=0).sum()
arms = pd.DataFrame({{"mean": mean, "std_error": variance**0.5}}){tail}"""


def _in_r(of: _Comparison) -> str:
    def column(name: str) -> str:
        return f"units${_r_name(name)}"

    reader = "read_parquet" if folder_of(of.rows) == of.rows else "open_dataset"
    head = f'units <- as.data.frame(arrow::{reader}("{folder_of(of.rows)}"))'
    if of.asked:
        head += f"\nunits <- units[!is.na({column(of.value)}), ]  # asked about it"
    arm = f"arm <- relevel(factor({column(of.arm)}), ref = {_r_text(of.control)})"
    if of.is_plain:
        return f"""{head}
{arm}
fit <- lm({_r_name(of.value)} ~ arm, data = units)
coefficients(fit)  # beside control's mean, the effects
sqrt(diag(sandwich::vcovHC(fit, "HC2")))"""
    weight, cells, groups = "rep(1, nrow(units))", "list(arm)", ""
    if of.weighed:
        weight = column(_WEIGHT)
    elif of.cluster is not None:
        head += f"""
n_arms <- tapply({column(of.arm)}, {column(of.cluster)}, function(a) length(unique(a)))
units <- units[n_arms[as.character({column(of.cluster)})] == {of.n_arms}, ]  # have every arm
cluster <- factor({column(of.cluster)})"""
        weight = "as.vector(table(cluster)[cluster] / table(cluster, arm)[cbind(cluster, arm)])"
        cells = "list(arm, cluster)"
    if of.group is not None:
        cells = "list(groups$arm)"
        groups = f"""
groups <- aggregate(list(score = score), list(arm = arm, group = {column(of.group)}), sum)
score <- groups$score"""
    return f"""{head}
{arm}
weight <- {weight}
weighed <- weight{"" if of.observed is None else f" * {column(of.observed)}"}
total <- tapply(weighed, arm, sum)
mean <- tapply(weight * {column(of.value)}, arm, sum) / total
score <- (weight * {column(of.value)} - weighed * mean[arm]) / total[arm]{groups}
spread <- function(u) if (length(u) > 1) length(u) * var(u) else u^2
variance <- rowSums(as.matrix(tapply(score, {cells}, spread)), na.rm = TRUE)
std_error <- sqrt(variance + variance[1])
effects <- data.frame(effect = mean - mean[1], std_error)[-1, ]
print(effects)"""


def _sql_name(name: str) -> str:
    """A name as SQL reads it, whatever characters it has."""
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

    Examples are of the outcome with the most levels among those that cannot be missing, as
    quantiles are of such only. Without one, means take the place of quantiles.
    """
    columns = manifest.named_columns
    every = [one for space in manifest.terms.spaces for one in space.declared.outcomes]
    whole = [one for one in every if not one.may_be_missing]
    example = max(whole or every, key=lambda one: _n_values(one.space))
    name = quoted(example.name)
    column = columns.debiased[columns.outcomes.index(example.name)]
    level = _level_between(example.space)
    of_quantile, of_distribution = (f"p90({name})", f"dist({name})") if whole else (name, name)
    held = "--fold 1" if manifest.folds > 1 else "--rows-only --by MINE"
    split = "train on fold 0" if manifest.folds > 1 else "train on other units than you estimate on"
    return [
        *_label_cautions(manifest),
        *_question_cautions(manifest, column),
        _caution(
            f"a median, quantile or maximum of a private column, such as {code(column)}",
            "the noise of privacy decides it, not the outcomes",
            f"clusterdp estimate . --metric {shlex.quote(of_quantile)}"
            + ("  # p50 is the median" if whole else ""),
        ),
        _caution(
            "a histogram, or a count of values",
            "a value is what a response counts as, and not an outcome",
            f"clusterdp estimate . --metric {shlex.quote(of_distribution)}",
        ),
        _caution(
            f"a threshold, such as {code(f'{column} >= {level}')}",
            "a noisy value beyond it is no outcome beyond it",
            f"clusterdp estimate . --metric {shlex.quote(f'{name}>={level}')}",
        ),
        _caution(
            "a logarithm, a square, a ratio or a product of values, row by row",
            "the mean of a function of noisy values is not that of the outcomes",
            f"clusterdp estimate . --metric METRIC  # such as {name}*other, {name}/other",
        ),
        _caution(
            f"rows that are kept, dropped, sorted or grouped by it or by {code(RESPONSE)}",
            "they were chosen by their noise, so their means are biased",
            "clusterdp estimate . --by COLUMN  # a column that does not depend on outcomes",
        ),
        _caution(
            "segments, covariates or a model chosen and tested on the same rows",
            "the test meets the noise that the choice was made by",
            f"clusterdp estimate . {held}  # {split}",
        ),
        (
            f"{strong('Not a model that takes these values for the truth')}: it learns the noise "
            "of single rows. Instead: fit it to averages, or as a regression whose coefficients "
            "you report, and test it on other units."
        ),
        f"{strong('Not a statement about one unit')}: a single row may be only noise.",
    ]


def _label_cautions(manifest: Manifest) -> list[str]:
    """What noisy labels of private clusters do not tell; nothing where clusters are public."""
    if manifest.labels is None:
        return []
    of_groups = _caution(
        f"rows that are grouped by {code(str(manifest.columns.cluster))}, or a regression on it",
        "it holds noisy labels, so every group mixes all true clusters",
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


def _question_cautions(manifest: Manifest, column: str) -> list[str]:
    """What units that were not asked do not say; nothing where all were asked the same."""
    if len(manifest.questions) == 1:
        return []
    return [
        _caution(
            f"nulls that are filled, such as {code(column)} with 0",
            "a unit that was asked another question has no value, and is not 0",
            "clusterdp estimate . --rows-only  # in other tools, skip nulls",
        )
    ]


def _n_values(space: OutcomeSpace | Number) -> float:
    """How many values an outcome can have."""
    return math.inf if isinstance(space, Number) else len(space.values)


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
                "They have less noise than a sum over rows, and no spread that would give a "
                "standard error. Means of cells count by the sizes of clusters. In totals, a unit "
                f"counts as often as the {code('weight')} of its cell says."
            )
            labels = ("SQL, from the sums of cells", "SQL, from totals")
            pairs = zip(labels, queries, strict=True)
            return [Paragraph(about), *(Code(name, one, "sql") for name, one in pairs if one)]
    return []


def _of_cells(manifest: Manifest, index: int) -> str | None:
    """The query on the sums of cells of a question; None if it has none."""
    question, ending = manifest.questions[index], question_suffixes(len(manifest.questions))[index]
    space, arm = question.outcomes.categories, _sql_name(manifest.columns.arm)
    of_cells = (one for one in question.mechanism.statistics if one.level is None)
    if not any("noisy_sum" in one.column_types(space) for one in of_cells):
        return None
    mean, source = f"sum(noisy_sum{ending}[1]) / sum(size)", "'cells.parquet'"
    if manifest.columns.cluster is not None:
        mean = f"sum(whole * noisy_sum{ending}[1] / size) / sum(whole)"
        within = f"over (partition by {_sql_name(manifest.columns.cluster)})"
        source = f"""(
    select *, sum(size) {within} as whole
    from 'cells.parquet'
    qualify count(nullif(size, 0)) {within} = {len(manifest.arms)}  -- has every arm
)"""
    return f"""select {arm}, {mean} as mean
from {source}
group by {arm}
order by {arm};"""


def _of_totals(manifest: Manifest, index: int, rows: str) -> str | None:
    """The query on the totals of everyone of a question; None if it has none."""
    if not any(one.level == () for one in manifest.questions[index].mechanism.statistics):
        return None
    arm, columns = _sql_name(manifest.columns.arm), manifest.named_columns
    cells = ", ".join(map(_sql_name, columns.cell))
    keys = ", ".join([*(["fold"] if manifest.folds > 1 else []), arm])
    several = ""
    if columns.question_names:
        name = columns.question_names[index].replace("'", "''")
        several = f" and {QUESTION} = '{name}'"
    return f"""with sizes as (
    select {keys}, sum(weight) as size
    from '{rows}' join 'cells.parquet' using ({cells})
    group by {keys}
)
select {arm}, sum(noisy_sum[1]) / sum(size) as mean
from 'totals.parquet' join sizes using ({keys})
where "by" = ''{several}
group by {arm}
order by {arm};"""
