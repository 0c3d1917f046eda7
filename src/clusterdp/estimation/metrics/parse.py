"""What an analyst asks of a release: each metric with how it is estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.findings import Note, Weight
from clusterdp.estimation.effects.possible import MetricRange
from clusterdp.estimation.means.functions import CategoryFunction, Measured
from clusterdp.estimation.metrics.levels import Levels, MeanBounds, distributions
from clusterdp.estimation.metrics.mean import Found, MetricRows
from clusterdp.estimation.metrics.observed import AskedOfObserved
from clusterdp.estimation.metrics.quantiles import quantile_effects
from clusterdp.estimation.metrics.ratio import RatioRows, ratios_apart
from clusterdp.outcomes import grammar
from clusterdp.outcomes.metric import Metric, Threshold
from clusterdp.outcomes.number import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.metrics.exposure import Exposure
    from clusterdp.estimation.metrics.mean import Wanted
    from clusterdp.estimation.reading.segments import RowCounts
    from clusterdp.outcomes.categories import Categories
    from clusterdp.published.release import ReleasedQuestion


_MEANS_ALONE = (
    "{} are of means alone, not of {}, whose effects are as they would be without; ask for a mean "
    "or a share beside it"
)


class Source(NamedTuple):
    """What metrics are estimated from.

    Attributes:
        question: What is published of some outcomes, rows among it.
        rows: These rows as counts.
        wanted: What to estimate, whatever the metric.
        exposure: What units were exposed to; None if that is not asked for.
        others: The sources of all questions of the release, this one among them.
    """

    question: ReleasedQuestion
    rows: RowCounts
    wanted: Wanted
    exposure: Exposure | None = None
    others: Sequence[Source] = ()

    def measured(self, function: CategoryFunction) -> Measured:
        """What the question tells of a function."""
        return self.wanted.measured(function, self.question)

    def read(self, measured: Sequence[Measured]) -> list[MetricRows]:
        """The rows as functions read them."""
        return [MetricRows.of(one, self.rows, self.wanted) for one in measured]

    def noise_notes(self, name: str, measured: Sequence[Measured]) -> list[Note]:
        """That rows are too noisy to tell what a metric is made of, as far as that is public."""
        size = max(int(self.wanted.layout.sizes.sum(axis=0).min()), 1)
        noise = [one.noise for one in measured if not one.readings]
        declare = _remedy(measured[0].name, self.question.space)
        errors = [math.sqrt(one.variance / size) / (one.ends.span or math.inf) for one in noise]
        if errors and max(errors) > 1:
            times = f"{max(errors):.3g} times what values span"
            told = f"rows tell next to nothing of it: an arm's mean has noise of about {times}"
            return [Note(f"{name}: {told}; {declare}", Weight.WARNING)]
        if any(one.is_unseen(np.array(1 / size)) for one in noise):
            told = "a few rows carry most of its noise, so standard errors are upper bounds"
            return [Note(f"{name}: {told}; {declare}", Weight.SCOPE)]
        return []

    def notes_on(self, name: str) -> list[Note]:
        """That something which is no mean was asked for beside what there is of means alone."""
        asked = {
            "differences between segments": self.wanted.differences,
            "adjusted effects": self.wanted.covariates,
            "effects on those exposed": self.exposure,
        }
        what = " and ".join(one for one, is_asked in asked.items() if is_asked)
        return [Note(_MEANS_ALONE.format(what, name), Weight.SCOPE)] if what else []


class Asked(Protocol):
    """A metric that can be estimated."""

    def estimate(self, source: Source) -> Found:
        """Its effects."""
        ...


class AskedMean(NamedTuple):
    """The mean of a function of the category."""

    function: CategoryFunction

    def estimate(self, source: Source) -> Found:
        """Effects on the mean."""
        measured = source.measured(self.function)
        found = MetricRows.of(measured, source.rows, source.wanted).estimate()
        found.notes.extend(source.noise_notes(measured.name, [measured]))
        if source.exposure is not None:
            found.add(source.exposure.beside(self.function, source))
        found.shares.extend([measured.name] * self.function.is_share(source.question.space))
        found.ranges.append(MetricRange.of(measured.name, self.function.values))
        return found


class AskedBounds(NamedTuple):
    """A share, or the mean of a function of a number, that is known up to bounds."""

    bounds: MeanBounds
    is_share: bool

    def estimate(self, source: Source) -> Found:
        """Effects on the share."""
        measured = [source.measured(one) for one in self.bounds.functions]
        found, name = self.bounds.effects(source.read(measured)), self.bounds.name
        found.shares.extend([name] * self.is_share)
        found.notes.extend([*source.notes_on(name), *source.noise_notes(name, measured)])
        return found


class AskedRatio(NamedTuple):
    """The ratio of two means."""

    name: str
    above: CategoryFunction
    below: CategoryFunction

    def estimate(self, source: Source) -> Found:
        """Effects on the ratio."""
        found = RatioRows.of(self.above, self.below, source, name=self.name).estimate()
        found.notes.extend(source.notes_on(self.name))
        return found


class AskedRatioApart(NamedTuple):
    """The ratio of the means of two questions.

    Attributes:
        name: What it is called.
        above: The function of the category that is divided.
        below: The one that it is divided by.
        place: The place of the question that tells `below`.
    """

    name: str
    above: CategoryFunction
    below: CategoryFunction
    place: int

    def estimate(self, source: Source) -> Found:
        """Effects on the ratio."""
        pairs = ((source, self.above), (source.others[self.place], self.below))
        above, below = (of.read([of.measured(one)])[0] for of, one in pairs)
        found = ratios_apart(above, below, self.name)
        text = (
            f"{self.name}: its two means are of different people, so that intervals allow for the "
            "worst covariance; asked together (--question), it would be more precise"
        )
        found.notes.extend([*source.notes_on(self.name), Note(text, Weight.SCOPE)])
        return found


class AskedQuantile(NamedTuple):
    """A quantile of an outcome."""

    name: str
    levels: Levels
    share: float

    def estimate(self, source: Source) -> Found:
        """Effects on the quantile."""
        measured = [source.measured(one) for one in self.levels.functions]
        found = quantile_effects(source.read(measured), self.levels, self.share, self.name)
        found.notes.extend([*source.notes_on(self.name), *source.noise_notes(self.name, measured)])
        found.ranges.append(MetricRange.of(self.name, self.levels.values))
        return found


class AskedDistribution(NamedTuple):
    """The distribution of an outcome in every arm."""

    name: str
    levels: Levels

    def estimate(self, source: Source) -> Found:
        """The distributions; there are no effects on them."""
        measured = [source.measured(one) for one in self.levels.functions]
        found = distributions(source.read(measured), self.levels)
        return Found(notes=source.noise_notes(self.name, measured), distributions=found)


def parse_metrics(given: Any, spaces: Sequence[Categories]) -> list[tuple[int, Asked]]:
    """What to estimate, each with the place of its question; every declared metric by default.

    Args:
        given: None; or a text such as `rounds>=10` or `p90(rounds)`, a mapping of a name to values
            by category or to an outcome and a function of it, or a list of these.
        spaces: The categories of the release, question by question.

    Raises:
        ParameterError: If something else is given, or the outcomes of no question have it.
    """
    if given is None:
        return [
            (question, _mean(metric, space))
            for question, space in enumerate(spaces)
            for metric in space.declared.metrics
        ]
    entries = given if isinstance(given, list | tuple) else [given]
    if not entries:
        raise ParameterError("metrics must name one at least, got none; leave it out for all")
    return [asked for entry in entries for asked in _parse_entry(entry, spaces)]


def _parse_entry(entry: Any, spaces: Sequence[Categories]) -> list[tuple[int, Asked]]:
    """What one entry asks for; an error names it."""
    try:
        return _parse(entry, spaces)
    except ParameterError as error:
        if not isinstance(entry, str) or entry in str(error):
            raise
        raise ParameterError(f"{entry}: {error}") from None


def _parse(entry: Any, spaces: Sequence[Categories]) -> list[tuple[int, Asked]]:
    if isinstance(entry, Mapping):
        return [
            _asked_function(str(name), *values, spaces)
            if isinstance(values, tuple) and len(values) == 2 and callable(values[1])
            else _asked_values(name, values, spaces)
            for name, values in entry.items()
        ]
    if isinstance(entry, str):
        request = grammar.parse_metric_request(entry)
        missing = [name for space in spaces for name in space.declared.missing]
        if not isinstance(request, grammar.Ratio):
            question = _question_of(request.outcomes(missing), request, spaces)
            return [(question, _asked(request, spaces[question]))]
        metrics = [one.naming_observed(missing) for one in (request.above, request.below)]
        first, second = (_question_of(one.outcomes, request, spaces) for one in metrics)
        above, below = (
            _function(*pair) for pair in zip(metrics, (spaces[first], spaces[second]), strict=True)
        )
        if first == second:
            return [(first, AskedRatio(str(request), above, below))]
        return [(first, AskedRatioApart(str(request), above, below, second))]
    raise ParameterError(
        "metrics must be texts such as 'p90(rounds)', or mappings of a name to values by "
        f"category, got {type(entry).__name__}"
    )


def _question_of(
    used: Collection[str], request: grammar.MetricRequest, spaces: Sequence[Categories]
) -> int:
    """The place of the question that has some outcomes, which a request uses."""
    names = [name for space in spaces for name in space.declared.names]
    for name in sorted(set(used) - set(names)):
        raise ParameterError(
            f"{str(request)!r} uses {name!r}, which is no declared outcome; the outcomes are "
            f"{', '.join(map(repr, names))}"
        )
    held = [place for place, space in enumerate(spaces) if {*used} & set(space.declared.names)]
    if len(held) > 1:
        together = ",".join(name for name in names if name in used)
        raise ParameterError(
            f"{str(request)!r} uses outcomes of different questions, and no unit answers two; the "
            f"owner would have to ask them together (--question {together})"
        )
    return held[0]


def _asked(
    request: grammar.Mean | grammar.Quantile | grammar.Distribution,
    space: Categories,
) -> Asked:
    match request:
        case grammar.Mean(metric=metric):
            return _mean(metric, space)
        case grammar.Quantile(outcome=outcome, share=share):
            return AskedQuantile(str(request), Levels.of(outcome, space), share)
        case grammar.Distribution(outcome=outcome):
            return AskedDistribution(str(request), Levels.of(outcome, space))


def _mean(metric: Metric, space: Categories) -> Asked:
    """The mean of a metric: of everyone, or of those with an outcome observed."""
    metric = metric.with_missing(space.declared.missing)
    if metric.valued & set(space.declared.missing):
        return AskedOfObserved.of(metric, _function(metric, space), space)
    if (comparison := _uncut(metric, space)) is not None:
        return AskedBounds(MeanBounds.of_share(comparison, space), is_share=True)
    return AskedMean(_function(metric, space))


def _uncut(metric: Metric, space: Categories) -> Threshold | None:
    """The metric as a comparison that shares are bounded for; None if it is none."""
    factor, *others = metric.factors
    if others or not isinstance(factor, Threshold) or factor.sign in {"==", "!="}:
        return None
    metric.check_factors(space.declared.spaces)
    return None if _is_exact(factor, space) else factor


def _is_exact(comparison: Threshold, space: Categories) -> bool:
    """Whether no number is rounded across a threshold."""
    number = space.declared.spaces[comparison.outcome]
    if not isinstance(number, Number):
        return True
    grid = space.grids[list(space.declared.numbers).index(comparison.outcome)]
    return grid.holds_cuts(comparison.cuts(number))


def _remedy(name: str, space: Categories) -> str:
    """What would make a metric more precise: that the owner declares it, where that is possible."""
    try:
        grammar.parse_metric(name).check(space.declared.spaces)
    except ParameterError:
        return "ask for a product or a threshold, which the owner could declare"
    return f'the owner would have to declare it (--metric "{name}")'


def _function(metric: Metric, space: Categories) -> CategoryFunction:
    """A metric as a function of the category."""
    declared, name = space.declared, str(metric)
    if metric in declared.metrics:
        return CategoryFunction.declared(name, space, declared.metrics.index(metric))
    metric.check(declared.spaces)
    for factor in metric.factors:
        if isinstance(factor, Threshold) and not _is_exact(factor, space):
            raise ParameterError(
                f"{name!r} compares the number {factor.outcome!r} with a value that is no cut, "
                "where units were rounded across it; the owner would have to declare it "
                f'(--metric "{name}")'
            )
    values = space.values_of(metric)
    if not np.ptp(values):
        raise ParameterError(f"{name!r} is the same in every category; ask for something else")
    return CategoryFunction.of(name, values, space)


def _asked_function(
    name: str, outcome: Any, function: Callable[..., Any], spaces: Sequence[Categories]
) -> tuple[int, Asked]:
    """A function of one outcome, given as such."""
    held = [place for place, space in enumerate(spaces) if outcome in space.declared.names]
    if not held:
        names = [repr(one) for space in spaces for one in space.declared.names]
        raise ParameterError(
            f"metric {name!r} is of {outcome!r}, which is no declared outcome; the outcomes are "
            f"{', '.join(names)}"
        )
    space = spaces[held[0]]
    if outcome in space.declared.missing:
        raise ParameterError(
            f"metric {name!r} is of {outcome!r}, which may be missing; ask for {outcome!r} itself"
        )

    def of_array(values: FloatArray) -> FloatArray:
        found = np.asarray(function(values), dtype=np.float64)
        if found.shape != values.shape or not np.isfinite(found).all():
            raise ParameterError(
                f"metric {name!r} needs a function that gives a finite number for each of an array "
                "of numbers, such as numpy.log1p"
            )
        return found

    if outcome in space.declared.numbers:
        bounds = MeanBounds.of_function(name, outcome, of_array, space)
        if bounds.is_exact:
            return held[0], AskedMean(bounds.functions[0])
        return held[0], AskedBounds(bounds, is_share=False)
    values = space.outcome_values()[space.declared.names.index(outcome)]
    return held[0], AskedMean(_given_values(name, of_array(values), space))


def _asked_values(name: Any, values: Any, spaces: Sequence[Categories]) -> tuple[int, Asked]:
    """A function given by its value in each category, of the one question that has such."""
    if callable(values):
        raise ParameterError(
            f"metric {name!r} is a function; give it with its outcome, as ('spend', numpy.log1p)"
        )
    found: list[tuple[int, CategoryFunction]] = []
    refused: list[ParameterError] = []
    for question, space in enumerate(spaces):
        try:
            found.append((question, _given_values(name, values, space)))
        except ParameterError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    if len(found) > 1:
        raise ParameterError(
            f"metric {name!r} has values that fit the categories of {len(found)} questions; ask "
            "for it by a text that names outcomes, such as 'rounds>=10'"
        )
    ((question, function),) = found
    if function.combination is None:
        _check_between(function, spaces[question])
    return question, AskedMean(function)


def _given_values(name: Any, values: Any, space: Categories) -> CategoryFunction:
    """A function given by its value in each category."""
    if isinstance(values, Mapping):
        values = _by_key(name, values, space)
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    if numbers.shape != (space.n_categories,) or not np.isfinite(numbers).all():
        labels = "; ".join(space.labels())
        raise ParameterError(
            f"metric {name!r} needs a finite number for each of {space.n_categories} categories, "
            f"in this order: {labels}"
        )
    if not np.ptp(numbers):
        raise ParameterError(f"metric {name!r} is the same in every category; give other values")
    return CategoryFunction.of(str(name), numbers, space)


def _check_between(function: CategoryFunction, space: Categories) -> None:
    """Raise a ParameterError if values change between grid points that numbers were rounded to."""
    name, values = function.name, function.values.tolist()
    known = dict(zip(map(tuple, space.levels.T.tolist()), values, strict=True))
    for outcome, grid in zip(space.declared.numbers, space.grids, strict=True):
        place = space.declared.names.index(outcome)
        for levels, value in known.items():
            level = levels[place]
            if level + 1 >= len(grid.points) or grid.points[level + 1] - grid.points[level] == 1:
                continue
            above = (*levels[:place], level + 1, *levels[place + 1 :])
            if known.get(above, value) != value:
                raise ParameterError(
                    f"metric {name!r} has values at the grid points of {outcome!r}, and none "
                    "between them, from where numbers were rounded; give the function itself: "
                    f"metrics={{{name!r}: ({outcome!r}, numpy.log1p)}}"
                )


def _by_key(name: Any, values: Mapping[Any, Any], space: Categories) -> list[Any]:
    """Values in the order of categories, from those by outcome or by tuples of outcomes."""
    keys = [
        tuple(column) if len(column) > 1 else column[0]
        for column in space.outcome_values().T.tolist()
    ]
    if set(keys) != set(values):
        raise ParameterError(
            f"metric {name!r} must have a value for each of {', '.join(map(str, keys))}, and for "
            "nothing else"
        )
    return [values[key] for key in keys]
