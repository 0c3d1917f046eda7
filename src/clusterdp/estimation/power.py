"""How many units the next experiment needs, from what a published folder shows.

The next experiment is like this one: the same clusters, shares of arms, questions and split of ε,
with other units and another ε. What its overall effect on a metric has as variance is

    V(N, ε) = S·n/N + P(N, ε),

S the sampling variance that is estimated here from n units, and P what privacy adds, as the owner's
planner predicts it: from the noise of rows, interpolated in ε, and of published sums. Outcomes are
taken to have the means that are estimated here. An effect is detected by a two-sided 5% test with
80% power if it is at least the minimum detectable effect, a multiple of √V.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from clusterdp._lists import parse_named
from clusterdp._text import counted, plural
from clusterdp.document.markup import to_html, to_page
from clusterdp.document.model import Document, Paragraph, Part, Section, Table, as_notes
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.errors import ParameterError, did_you_mean
from clusterdp.estimation.estimate import estimate
from clusterdp.estimation.opened import open_release
from clusterdp.mechanisms.draw import ReleasedQuestion
from clusterdp.outcomes.baseline import Moments, fit_prior
from clusterdp.precision.expected import ExpectedOutcomes, Scenario
from clusterdp.precision.forecast import Prediction, predict
from clusterdp.precision.row_noise import NoiseCurve, RowNoise
from clusterdp.precision.visible import ShownMetric, shown_metrics
from clusterdp.privacy.accounting import checked_epsilon
from clusterdp.privacy.statement import rounded_up

if TYPE_CHECKING:
    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.published.release import Release

# The ε that are shown, next to that of the folder.
EPSILONS = (0.5, 1.0, 2.0, 4.0)
# Nobody has more units.
_MOST_UNITS = 1e10
# A ratio of numbers of units below which they are the same.
_NEAR = 1.002
_FORM = "effect must be METRIC=NUMBER (visit=0.005), got {!r}"


class NeededUnits(NamedTuple):
    """What an experiment needs to detect an effect.

    Attributes:
        epsilon: Its ε; infinite without privacy.
        n_units: How many units it needs; infinite if no number is enough.
        detectable: The minimum detectable effect of as many units as the folder has.
    """

    epsilon: float
    n_units: float
    detectable: float

    def to_dict(self) -> dict[str, float | None]:
        """The same as plain values: no ε without privacy, no units where no number is enough."""
        return {
            name: number if math.isfinite(number) else None
            for name, number in self._asdict().items()
        }


class MetricPower(NamedTuple):
    """What is needed to detect an effect on one metric.

    Attributes:
        metric: The metric, as people read it.
        effect: The smallest effect that should be detected.
        needed: For each ε, and without privacy first.
    """

    metric: ShownMetric
    effect: float
    needed: tuple[NeededUnits, ...]


class Power(NamedTuple):
    """How many units the next experiment needs, metric by metric.

    Attributes:
        metrics: What is needed for the effect on each metric.
        n_units: How many units the folder has.
        epsilon: The ε of the folder.
        unit: What a unit is called.
    """

    metrics: tuple[MetricPower, ...]
    n_units: int
    epsilon: float
    unit: str = "unit"

    def __repr__(self) -> str:
        return to_screen(self.parts(), terminal_width())

    def _repr_html_(self) -> str:
        return to_html(*self.parts())

    def to_html(self) -> str:
        """A page to share: a whole, self-contained document."""
        return to_page(Document("Power of the next experiment", [Section("", self.parts())]))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "n_units": self.n_units,
            "epsilon": self.epsilon,
            "power": 0.8,
            "metrics": [
                {
                    "metric": one.metric.name,
                    "effect": one.effect,
                    "needed": [each.to_dict() for each in one.needed],
                }
                for one in self.metrics
            ],
        }

    def parts(self) -> list[Part]:
        """The answer, and a table for each metric."""
        found: list[Part] = [Paragraph(" ".join(map(self._answer, self.metrics)), "lead")]
        found += [self._table(one) for one in self.metrics]
        about = (
            f"All arms together; 80% power, two-sided 5% test of the effect on all "
            f"{plural(self.unit)}. Arms, questions and the split of ε are as in this release."
        )
        return found + as_notes([about])

    def _answer(self, one: MetricPower) -> str:
        without = one.needed[0]
        own = min(one.needed[1:], key=lambda each: abs(math.log(each.epsilon / self.epsilon)))
        change = one.metric.change(one.effect)
        return (
            f"To detect a change in {one.metric.name} of {change}, an experiment like this one "
            f"needs {self._units(own.n_units)} at ε = {rounded_up(own.epsilon)}, and "
            f"{self._units(without.n_units)} without privacy."
        )

    def _units(self, number: float) -> str:
        if math.isinf(number):
            return f"more {plural(self.unit)} than there are"
        return counted(_shown(number), self.unit)

    def _table(self, one: MetricPower) -> Table:
        rows = [("", "needed", f"MDE with {self.n_units:,}")]
        for each in one.needed:
            is_private = math.isfinite(each.epsilon)
            name = f"ε = {rounded_up(each.epsilon)}" if is_private else "no privacy"
            units = "–" if math.isinf(each.n_units) else f"{_shown(each.n_units):,}"
            rows.append((name, units, one.metric.change(each.detectable)))
        return Table(f"{one.metric.name}: {plural(self.unit)} needed, and MDE", rows)


def _shown(number: float) -> int:
    """A number of units, rounded up to three digits."""
    step: int = 10 ** max(math.floor(math.log10(max(number, 1.0))) - 2, 0)
    return math.ceil(number / step) * step


def power(
    release: Release | str | os.PathLike[str],
    *,
    effect: Mapping[str, float] | Sequence[str] | str,
    epsilon: Sequence[float] | float = (),
) -> Power:
    """How many units the next experiment needs to detect an effect, from what a folder shows.

    Args:
        release: A published folder, or a release.
        effect: The smallest overall effect that should be detected, by metric:
            `{"visit": 0.005}`.
        epsilon: The ε to compare; by default 0.5, 1, 2 and 4, and that of the folder.

    Raises:
        ParameterError: If there is no such metric, or no effect can be as large.
        FormatError: If the folder is not a release, or was damaged or edited.
    """
    release = open_release(release)
    effects = _parse_effects(effect)
    own = float(release.guarantee.epsilon)
    asked = [epsilon] if isinstance(epsilon, int | float) else list(epsilon)
    every = sorted({own, *map(checked_epsilon, asked or EPSILONS)})
    found = {one.of.metric: one for one in _overall(release)}
    metrics = []
    for question in release.questions:
        shown = shown_metrics(question.space)
        wanted = [place for place, one in enumerate(shown) if one.name in effects]
        if not wanted:
            continue
        forecasts = [_Forecast(release, question, found, one / own) for one in every]
        for place in wanted:
            name = shown[place].name
            needed = _needed(forecasts, every, place, effects[name], found[name])
            metrics.append(MetricPower(shown[place], effects[name], tuple(needed)))
    known = [one.name for question in release.questions for one in shown_metrics(question.space)]
    for name in effects:
        if name not in known:
            raise ParameterError(
                f"There is no metric {name!r}.{did_you_mean(name, known)} The metrics are "
                f"{', '.join(known)}."
            )
    ordered = sorted(metrics, key=lambda one: list(effects).index(one.metric.name))
    return Power(tuple(ordered), release.layout.n_units, own, release.provenance.unit)


def _parse_effects(given: Any) -> dict[str, float]:
    texts = [given] if isinstance(given, str) else given
    pairs: Iterable[tuple[str, Any]] = (
        given.items() if isinstance(given, Mapping) else [parse_named(one, _FORM) for one in texts]
    )
    found = {}
    for name, number in pairs:
        try:
            found[name] = abs(float(number))
        except (TypeError, ValueError):
            raise ParameterError(_FORM.format(f"{name}={number}")) from None
        if not 0 < found[name] < math.inf:
            raise ParameterError(_FORM.format(f"{name}={number}"))
    if not found:
        raise ParameterError(_FORM.format(given))
    return found


def _overall(release: Release) -> Iterator[Effect]:
    """The overall effect on each metric with the largest sampling variance."""
    effects = [one for one in estimate(release).effects if not one.of.segment]
    for metric in dict.fromkeys(one.of.metric for one in effects):
        mine = [one for one in effects if one.of.metric == metric]
        yield max(mine, key=lambda one: np.nan_to_num(one.sampling_variance))


class _Forecast:
    """What privacy adds to overall effects of experiments of any size, at some ε.

    Args:
        release: The release.
        question: One of its questions.
        found: Overall effects, by metric.
        times: The ε, as a multiple of the release's own.
    """

    def __init__(
        self, release: Release, question: ReleasedQuestion, found: dict[str, Effect], times: float
    ) -> None:
        self._layout, space = release.layout.compared(), question.space
        self.n_units = self._layout.n_units
        prior = fit_prior(space, dict(_margins(question, found)))
        self._outcomes = ExpectedOutcomes(
            kinds=prior.probs[np.newaxis, np.newaxis], rounding=tuple(prior.rounding.tolist())
        )
        self._space, self._mechanism = space, _at(question, times)
        self._noise: RowNoise | None = None
        if self._mechanism.releases_rows:
            curve = NoiseCurve(self._mechanism, self._scenario(1.0))
            self._noise = curve(np.array(self._mechanism.row_epsilon(space)))

    def __call__(self, place: int, n_times: float) -> Prediction:
        """What to expect of a metric, of so many times as many units."""
        return predict(self._mechanism, self._scenario(n_times), self._noise)[place].overall

    def _scenario(self, n_times: float) -> Scenario:
        def scaled(sizes: Any) -> Any:
            least = np.minimum(sizes, 2)
            return np.maximum(np.rint(n_times * sizes).astype(np.int64), least)

        layout = replace(
            self._layout,
            sizes=scaled(self._layout.sizes),
            breakdowns=tuple(
                replace(one, sizes=scaled(one.sizes)) for one in self._layout.breakdowns
            ),
        )
        return Scenario(layout, self._space, self._outcomes)


def _margins(question: ReleasedQuestion, found: dict[str, Effect]) -> Iterator[tuple[str, Moments]]:
    """The estimated means of outcomes, where they are possible."""
    declared = question.space.declared
    for name in declared.names:
        one, space = found.get(name), declared.spaces[name]
        if one is None or name in declared.missing or one.control_mean is None:
            continue
        mean = (one.control_mean + (one.treated_mean or one.control_mean)) / 2
        near = (space.high - space.low) / 1000  # where noise has it outside
        yield name, Moments(mean=min(max(mean, space.low + near), space.high - near), std=None)


def _at(question: ReleasedQuestion, times: float) -> Mechanism:
    """The mechanism of a question with all parts of ε multiplied."""
    mechanism, space, update = question.mechanism, question.space, msgspec.structs.replace
    statistics = [
        update(one, epsilon=one.epsilon * times)
        if hasattr(one, "epsilon")
        else update(one, noise_scale=one.noise_scale / times)
        for one in mechanism.statistics
    ]
    rows = mechanism.rows
    if rows is not None:
        settled = mechanism.settled_rows(space)
        rows = settled.at_epsilon(mechanism.row_epsilon(space) * times, space)
    return update(mechanism, statistics=tuple(statistics), rows=rows, pilot=None)


def _needed(
    forecasts: Sequence[_Forecast],
    epsilons: Sequence[float],
    place: int,
    effect: float,
    found: Effect,
) -> Iterator[NeededUnits]:
    """Units that are needed without privacy, then at each ε."""
    first = forecasts[0](place, 1.0)
    if effect > first.largest_effect:
        raise ParameterError(
            f"No effect on {found.of.metric!r} can be as large as {effect:g}. Fix: give a smaller "
            "one."
        )
    sampling = found.sampling_variance
    if not sampling > 0:  # unknown, or less than noise shows
        sampling = first.sampling_std_error**2
    every = forecasts[0].n_units

    def detectable(forecast: _Forecast | None, n_times: float) -> float:
        seen = (forecast or forecasts[0])(place, n_times)
        added = 0.0 if forecast is None else seen.privacy_std_error**2
        reach = seen.detectable_without_privacy / seen.sampling_std_error
        return reach * math.sqrt(sampling / n_times + added)

    for epsilon, forecast in ((math.inf, None), *zip(epsilons, forecasts, strict=True)):

        def of_times(n_times: float, forecast: _Forecast | None = forecast) -> float:
            return detectable(forecast, n_times)

        yield NeededUnits(epsilon, every * _smallest(of_times, effect, every), of_times(1.0))


def _smallest(detectable: Callable[[float], float], effect: float, n_units: int) -> float:
    """How many times as many units detect an effect, by halving an interval of its logarithm."""
    low = high = 1.0
    while detectable(high) > effect:
        high *= 4
        if high * n_units > _MOST_UNITS:
            return math.inf
    while low * n_units > 16 and detectable(low) <= effect:
        low /= 4
    while high / low > _NEAR:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if detectable(middle) <= effect else (middle, high)
    return high
