"""The groups that a follow-up asks about, from public columns: their sizes, and what to expect.

The analyst sees it before asking, the owner before answering.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import column, columns
from clusterdp.cells.layout import Breakdown
from clusterdp.document.model import Table
from clusterdp.errors import DataError, ParameterError
from clusterdp.mechanisms.catalogue import answering
from clusterdp.precision.closed_form import arm_cells, published_noise
from clusterdp.precision.forecast import Forecast
from clusterdp.precision.visible import short_name, shown_metrics
from clusterdp.published.contents import release_scenarios, row_noise
from clusterdp.published.rows import collect_rows, scan_units
from clusterdp.rows.value_codes import ValueCodes
from clusterdp.spec.answers import NOT_ASKED, answered_spaces, metric_names
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE
from clusterdp.statistics.sums import NoisyTotals

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.precision.forecast import ExpectedVariance, Prediction
    from clusterdp.precision.row_noise import RowNoise
    from clusterdp.precision.visible import ShownMetric
    from clusterdp.published.followup import FollowUp
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.release import Release

# What names of columns that are made meanwhile begin with.
_INTERNAL = "__clusterdp"
# Groups with fewer units in some arm are pooled: no effect is seen there.
LEAST_UNITS = 20
# Of more groups than this, the largest are shown.
_MOST_SHOWN = 20


class AskedGroups(NamedTuple):
    """What a follow-up asks about, once small groups were pooled.

    Attributes:
        labels: Ids of units with a label, and that of each dimension; none where a group was
            pooled.
        breakdowns: The groups of each dimension with their sizes.
        n_labeled: How many units have a label of each dimension, those of pooled groups too.
        pooled: The groups of each dimension that were pooled.
    """

    labels: pl.DataFrame
    breakdowns: tuple[Breakdown, ...]
    n_labeled: tuple[int, ...]
    pooled: tuple[tuple[str, ...], ...]


def check_askable(release: Release) -> None:
    """Raise a ParameterError unless follow-ups to a release can be answered."""
    if release.answers is not None:
        raise ParameterError("This folder is an answer. Fix: give the release that it is about.")
    if release.units is None:
        raise ParameterError(
            "This release has no rows, and an answer is used with rows. Fix: ask the owner for a "
            "release with rows."
        )
    if release.response is not None:
        raise ParameterError(
            "Clusters of this release are private. A table cannot get the same noisy clusters "
            "again, so no totals fit its weights. Fix: ask for a release with a breakdown."
        )


def check_followup(asked: FollowUp, release: Release) -> None:
    """Raise a ParameterError unless what is asked for fits a release."""
    answered_spaces([one.space for one in release.questions], asked.metrics)
    ours = release.columns
    parts = (part.strip() for name in ours.cell for part in name.split(","))
    taken = {*ours.cell, *parts, ours.unit, ours.randomization_unit, *ours.outcomes}
    taken |= {FOLD, QUESTION, RESPONSE, *ours.debiased}
    for name in (name for dimension in asked.dimensions for name in dimension):
        if name in taken or name.startswith(_INTERNAL):
            raise ParameterError(
                f"Labels cannot be called {name!r}: the release has a column of that name for "
                "units, arms, clusters or outcomes, or gives that name itself. Fix: rename the "
                "column of labels."
            )
    declared = [one.columns for one in release.layout.breakdowns]
    again = [one for one in asked.dimensions if one in declared]
    if again:
        raise ParameterError(
            f"The release has totals by {', '.join(again[0])} already. Fix: use them with "
            f"clusterdp estimate --by {','.join(again[0])}."
        )
    fold, n_folds = asked.found_in_fold, release.layout.folds
    if fold is not None and (n_folds == 1 or fold not in range(n_folds)):
        have = f"folds 0 to {n_folds - 1}" if n_folds > 1 else "no folds"
        raise ParameterError(f"There is no fold {fold}. The release has {have}.")


def asked_groups(release: Release, asked: FollowUp, labels: pl.DataFrame) -> AskedGroups:
    """The groups of labels among the units of a release; small ones are pooled.

    Raises:
        DataError: If a label is of a unit that the release does not have, or of the fold in which
            segments were found; or if no group is left.
    """
    import polars as pl

    unit, arm = release.columns.unit, release.columns.arm
    units = scan_units(release)
    kind, own = units.collect_schema()[unit], labels.dtypes[0]
    if (kind == pl.String) != (own == pl.String):
        raise DataError(f"Ids are {kind} in the release and {own} in the labels. Fix: convert one.")
    held = labels.rename({labels.columns[0]: unit})
    held = held.with_columns(column(unit).cast(kind, strict=False))
    fold = [FOLD] if release.layout.folds > 1 else []
    rows = collect_rows(
        units.select(columns([unit, arm, *fold])).join(held.lazy(), on=unit, how="inner")
    )
    if len(rows) != len(held):
        raise DataError(
            f"{len(held) - len(rows):,} of {len(held):,} labels are of ids that the release does "
            "not have. Fix: ask about its units only."
        )
    if asked.found_in_fold is not None and (rows[FOLD] == asked.found_in_fold).any():
        raise DataError(
            f"The follow-up has labels of fold {asked.found_in_fold}, in which its segments were "
            "found. Fix: write it with clusterdp ask --found-in-fold."
        )
    by_arm, found = release.layout.sizes.sum(axis=0), []
    arms = ValueCodes.from_values(pl.Series(release.layout.arms, dtype=rows[arm].dtype))
    for name in asked.names:
        counts = rows.drop_nulls(columns([name])).group_by(columns([name, arm])).len()
        texts = sorted(counts[name].unique().to_list())
        sizes = np.zeros((len(texts), len(by_arm)), dtype=np.int64)
        places = np.searchsorted(np.array(texts, dtype=object), counts[name].to_numpy())
        sizes[places, arms.encode(counts[arm])] = counts["len"].to_numpy()
        found.append(_pooled(name, dict(zip(texts, sizes, strict=True)), by_arm))
    kept = [
        pl.when(column(name).is_in(list(one.labels[0]))).then(column(name)).alias(name)
        for name, (one, _, _) in zip(asked.names, found, strict=True)
    ]
    breakdowns, n_labeled, pooled = zip(*found, strict=True)
    return AskedGroups(held.with_columns(kept), breakdowns, n_labeled, pooled)


def has_same_units(release: Release, rows: pl.LazyFrame) -> bool:
    """Whether rows have the ids of a release, each in its arm: sums of 64-bit hashes are equal.

    A table whose units differ from the release by mishap is found out; nobody else gives tables.
    """
    import polars as pl

    unit, arm = release.columns.unit, release.columns.arm
    ours = scan_units(release)
    kind = ours.collect_schema()[unit]
    each = pl.struct(column(unit).cast(kind, strict=False), column(arm).cast(pl.String)).hash()
    held, given = (one.select(each.sum().alias("sum"), pl.len()) for one in (ours, rows))
    return collect_rows(held).equals(given.collect(engine="streaming"))


def _pooled(
    name: str, sizes: dict[str, IntArray], by_arm: IntArray
) -> tuple[Breakdown, int, tuple[str, ...]]:
    """A dimension's groups that are large enough, with all other units; labels; what is pooled."""
    small = tuple(text for text, group in sizes.items() if group.min() < LEAST_UNITS)
    kept = {text: group for text, group in sizes.items() if text not in small}
    if not kept:
        raise DataError(
            f"Every group by {name} has fewer than {LEAST_UNITS} units in some arm. Fix: ask about "
            "larger groups."
        )
    rest = by_arm - sum(kept.values())
    if rest.any():
        kept[NOT_ASKED] = rest
    texts = tuple(sorted(kept))
    breakdown = Breakdown(
        columns=(name,), labels=(texts,), sizes=np.stack([kept[text] for text in texts])
    )
    return breakdown, int(sum(group.sum() for group in sizes.values())), small


class AnswerForecast:
    """What to expect of effects in groups, by rows and by an answer: from public numbers.

    Attributes:
        breakdowns: The groups.
        metrics: The metrics that are asked for.

    Args:
        release: The release.
        manifest: Its manifest.
        breakdowns: The groups.
        metrics: The metrics that are asked for; None for all.
    """

    def __init__(
        self,
        release: Release,
        manifest: Manifest,
        breakdowns: Sequence[Breakdown],
        metrics: Sequence[str] | None,
    ) -> None:
        self._release, self._manifest = release, manifest
        self.breakdowns = tuple(breakdowns)
        spaces = [one.space for one in release.questions]
        self._answered = dict(answered_spaces(spaces, metrics))
        wanted = metric_names(spaces) if metrics is None else metrics
        shown = [one for space in spaces for one in shown_metrics(space)]
        self.metrics: list[tuple[int, ShownMetric]] = [
            (place, one) for place, one in enumerate(shown) if one.name in wanted
        ]

    @cached_property
    def layout(self) -> Layout:
        """The cells of the release with the groups."""
        layout = self._release.layout
        return replace(layout, breakdowns=(*layout.breakdowns, *self.breakdowns)).compared()

    def mechanism(self, epsilon: float) -> Mechanism:
        """The totals of an answer at ε."""
        questions = self._release.questions
        row_epsilon = max(one.mechanism.row_epsilon(one.space) for one in questions)
        return answering(
            epsilon=epsilon,
            dimensions=[one.columns[0] for one in self.breakdowns],
            released=[one.mechanism for one in questions],
            row_epsilon=row_epsilon,
        )

    @cached_property
    def _known(self) -> list[tuple[Forecast, RowNoise]]:
        """What predicts each question, and the noise of its rows."""
        scenarios = release_scenarios(self._manifest, self.layout)
        found = []
        for question, scenario in zip(self._release.questions, scenarios, strict=True):
            share = question.mechanism.asked_share
            noise = row_noise(question.channel, question, scenario, self._release.layout)
            assert noise is not None  # noqa: S101 - see `check_askable`
            found.append((Forecast(scenario, question.public_prior, share), noise))
        return found

    def variances(self, epsilon: float | None) -> list[ExpectedVariance]:
        """What to expect of every metric with an answer at ε; by what is published for None."""
        found: list[ExpectedVariance] = []
        for place, (question, (forecast, noise)) in enumerate(
            zip(self._release.questions, self._known, strict=True)
        ):
            mechanism, layout = question.mechanism, self.layout
            levels = published_noise(mechanism, layout, question.space)
            weights = mechanism.total_weights(layout)
            if epsilon is not None:
                answer = self.mechanism(epsilon)
                weights = answer.total_weights(layout)
                added = self._added(answer, question.space, self._answered.get(place))
                levels = [
                    level._replace(
                        breakdowns=np.append(level.breakdowns[: -len(self.breakdowns)], more)
                    )
                    for level, more in zip(levels, added, strict=True)
                ]
            found += forecast(arm_cells(layout, weights), levels, noise)
        return found

    def _added(
        self, answer: Mechanism, space: Categories, answered: Categories | None
    ) -> list[list[float]]:
        """The noise on totals of each metric of a question and dimension; none is infinite."""
        found = [[np.inf] * len(self.breakdowns) for _ in space.declared.metrics]
        if answered is None:
            return found
        metrics = list(map(str, space.declared.metrics))
        for own, metric in enumerate(answered.declared.metrics):
            found[metrics.index(str(metric))] = [
                one.noise(answered).variance(answered, own)
                for one in answer.statistics
                if isinstance(one, NoisyTotals)
            ]
        return found

    def predictions(self, epsilon: float | None) -> list[list[Prediction]]:
        """What to expect of each metric that is asked for in each group of `groups`."""
        every = self.variances(epsilon)
        return [
            [every[place].of_target(group) for group, _, _ in self.groups]
            for place, _ in self.metrics
        ]

    @cached_property
    def groups(self) -> list[tuple[int, str, int]]:
        """The groups with labels: the target of each, what it is called, and its units."""
        first = 1 + sum(len(one.sizes) for one in self._release.layout.breakdowns)
        found = []
        for one in self.breakdowns:
            for place, (label,) in enumerate(one.groups):
                if label != NOT_ASKED:
                    units = int(one.sizes[place].sum())
                    found.append((first + place, f"{one.columns[0]}={label}", units))
            first += len(one.sizes)
        return found

    def tables(self, epsilons: Sequence[float], units: str) -> list[Table]:
        """Standard errors of effects in groups, metric by metric: now, and with an answer."""
        now, *answered = [self.predictions(one) for one in (None, *epsilons)]
        found, named = [], list(enumerate(self.groups))
        largest = sorted(named, key=lambda one: -one[1][2])[:_MOST_SHOWN]
        shown = sorted(largest, key=lambda one: one[0])
        of = f", the {len(shown)} largest of {len(named)} groups" * (len(shown) < len(named))
        for number, (_, metric) in enumerate(self.metrics):
            rows = [
                ("", units, "now", *(f"ε = {one:g}" for one in epsilons), "no privacy"),
                *(
                    (
                        short_name(name),
                        f"{size:,}",
                        *(metric.change(one[number][place].std_error) for one in (now, *answered)),
                        metric.change(now[number][place].sampling_std_error),
                    )
                    for place, (_, name, size) in shown
                ),
            ]
            found.append(Table(f"SE of effects on {metric.name}{of}", rows))
        return found


def forecast_in_short(forecast: AnswerForecast, epsilon: float) -> list[dict[str, object]]:
    """The same as plain values, group by group and metric by metric."""
    now, answered = forecast.predictions(None), forecast.predictions(epsilon)
    return [
        {
            "group": name,
            "units": size,
            "metric": metric.name,
            "std_error_now": now[number][place].std_error,
            "std_error": answered[number][place].std_error,
            "sampling_std_error": now[number][place].sampling_std_error,
        }
        for number, (_, metric) in enumerate(forecast.metrics)
        for place, (_, name, size) in enumerate(forecast.groups)
    ]
