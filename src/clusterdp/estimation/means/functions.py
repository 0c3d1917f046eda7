"""What a release shows about a metric: any function f of the category.

Outputs of a channel count as g, whose mean given the category is f. Where f is a weighted sum of
declared metrics, g is the same sum of what is published for them, and so are the published sums.
Any other f is decoded from the channel; only noisy counts determine its sums.

A number is rounded at random to the grid, which keeps the mean of what is linear between grid
points. Declared metrics are that, and so are weighted sums of them.

Texts of metrics are functions of the category of a question, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.cells.layout import Layout
from clusterdp.channels import Channel
from clusterdp.channels.asked import AskedChannel
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.channels.priors import learn_priors, with_every_outcome
from clusterdp.errors import ParameterError, did_you_mean
from clusterdp.estimation.means.responses import ResponseValues
from clusterdp.estimation.means.spread import RowNoiseBound
from clusterdp.estimation.means.sums import of_fold, public_ridge
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.mechanisms.draw import ReleasedQuestion
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import Metric, Threshold
from clusterdp.outcomes.space import CategorySpace, ValueRange
from clusterdp.statistics.base import DrawnStatistic, SumReading

# How far, as a share of its span, a function may be from a weighted sum of metrics that it is.
_SAME = 1e-9


class CategoryFunction(NamedTuple):
    """A function of the category.

    Attributes:
        name: What it is called.
        values: f; axes `[category]`.
        combination: Its weights, if it is a weighted sum of declared metrics and `constant`; axes
            `[metric]`. None if it is not such a sum.
        constant: What is added to the weighted sum.
    """

    name: str
    values: FloatArray
    combination: FloatArray | None
    constant: float = 0.0

    @classmethod
    def declared(cls, name: str, space: CategorySpace, place: int) -> CategoryFunction:
        """The declared metric at some place."""
        every = space.metric_values()
        return cls(name, every[place], np.eye(len(every))[place])

    @classmethod
    def measured(cls, name: str, space: CategorySpace, place: int) -> CategoryFunction:
        """The same; of an outcome that may be missing R·y, which is R·(y − middle) and middle·R."""
        function, ratio = cls.declared(name, space, place), space.of_observed().get(place)
        if ratio is not None:
            observed = cls.declared("", space, ratio.observed)
            function = function.minus(-ratio.origin, observed)._replace(name=name)
        return function

    @classmethod
    def from_values(cls, name: str, values: FloatArray, space: CategorySpace) -> CategoryFunction:
        """Any function: as a weighted sum of as few declared metrics as are needed, one or all."""
        every, span = space.metric_values(), np.ptp(values)
        for places in [*([place] for place in range(len(every))), list(range(len(every)))]:
            scale = np.ptp(every[places], axis=1)
            design = np.vstack([np.ones(len(values)), every[places] / scale[:, np.newaxis]])
            weights, *_ = np.linalg.lstsq(design.T, values, rcond=None)
            if np.abs(weights @ design - values).max() <= _SAME * span:
                combination = np.zeros(len(every))
                combination[places] = weights[1:] / scale
                return cls(name, values, combination, float(weights[0]))
        return cls(name, values, None)

    def from_counts_alone(self) -> CategoryFunction:
        """The same, as if it were no weighted sum of declared metrics."""
        return self._replace(combination=None, constant=0.0)

    def minus(self, factor: float, other: CategoryFunction) -> CategoryFunction:
        """This minus a multiple of another; both are weighted sums of metrics, or neither is."""
        values = self.values - factor * other.values
        combination = None
        if self.combination is not None and other.combination is not None:
            combination = self.combination - factor * other.combination
        constant = self.constant - factor * other.constant
        return CategoryFunction(
            f"{self.name}-{factor:.4g}*{other.name}", values, combination, constant
        )

    def in_space(self, own: Categories, other: Categories) -> CategoryFunction:
        """The same function of other categories, as another folder has them.

        A weighted sum of declared metrics is the same sum there, on any grid.
        Any other function goes by the values of outcomes.

        Raises:
            ParameterError: If the other categories do not have it.
        """
        if own == other:
            return self
        if self.combination is not None:
            names, places = list(map(str, other.declared.metrics)), np.flatnonzero(self.combination)
            used = [str(own.declared.metrics[place]) for place in places]
            if undeclared := sorted(set(used) - set(names)):
                raise ParameterError(f"{self.name} needs {undeclared[0]}, which is not declared")
            combination = np.zeros(len(names))
            combination[[names.index(name) for name in used]] = self.combination[places]
            values = combination @ other.metric_values() + self.constant
            return CategoryFunction(self.name, values, combination, self.constant)
        order = [other.declared.names.index(name) for name in own.declared.names]
        ours, theirs = own.outcome_values(), other.outcome_values()[order]
        if own.grids != other.grids:
            raise ParameterError(f"{self.name} needs numbers that were rounded to the same grid")
        keys, wanted = (
            list(map(tuple, np.nan_to_num(one, nan=np.inf).T.tolist())) for one in (ours, theirs)
        )
        known = dict(zip(keys, self.values.tolist(), strict=True))
        if not set(wanted) <= set(known):
            raise ParameterError(f"{self.name} has no value for some outcome combinations")
        return CategoryFunction(self.name, np.array([known[key] for key in wanted]), None)

    def outcomes(self, space: Categories) -> tuple[str, ...]:
        """The outcomes that it changes with, where all others stay; all, if none does so alone."""
        names, found = space.declared.names, []
        for outcome in names if len(names) > 1 else ():
            others = np.delete(space.levels, space.outcome(outcome).axis, axis=0)
            _, groups = np.unique(others, axis=1, return_inverse=True)
            first = np.full(groups.max() + 1, np.nan)
            first[groups] = self.values
            if (self.values != first[groups]).any():
                found.append(outcome)
        return tuple(found) or names

    def has_two_values(self, space: CategorySpace) -> bool:
        """Whether units have two values at most; a number has those between its categories'."""
        numbers = np.array(space.metric_lattice().is_number)
        used = self.combination is not None and bool((numbers & (self.combination != 0)).any())
        return not used and len(np.unique(self.values)) <= 2

    def is_share(self, space: CategorySpace) -> bool:
        """Whether its mean is a share of units: they have the values 0 and 1."""
        return self.has_two_values(space) and set(self.values.tolist()) <= {0.0, 1.0}

    def outputs(self, channel: Channel | AskedChannel, priors: FloatArray) -> ResponseValues:
        """What outputs of a channel count as in it.

        Args:
            channel: The channel.
            priors: What categories are thought to be like; axes `[..., channel, category]`.

        Raises:
            ParameterError: If it is not in the span of the channel.
        """
        if self.combination is None:
            debiased, spanned = channel.decode_function(self.values, priors)
            if not spanned:
                # Owners declare thresholds and products, not every function.
                is_declarable = ">=" in self.name or "*" in self.name
                what = "it" if is_declarable else "thresholds or products that it follows from"
                flag = f' (--metric "{self.name}")' if is_declarable else ""
                raise ParameterError(
                    f"This release does not identify {self.name}. Fix: ask the owner to declare "
                    f"{what} in the next release{flag}."
                )
        else:
            places = np.flatnonzero(self.combination)
            parts = [self.combination[place] * channel.decode(int(place)) for place in places]
            debiased = np.asarray(sum(parts) + self.constant)
        return ResponseValues.decoded(channel, debiased, self.values)

    def noise_tails(
        self, channel: Channel, outputs: ResponseValues, priors: FloatArray
    ) -> tuple[float, float]:
        """The largest noise variance of a category, and the noise's fourth moment.

        That is over the squared variance of debiased values, noise and spread together. Both of
        the channel where they are largest; arguments as of `outputs`.
        """
        distances = outputs.values[..., np.newaxis] + outputs.middle - self.values
        second, fourth = (
            (channel.transition() * distances**power).sum(axis=-2) for power in (2, 4)
        )
        means = priors @ self.values
        spread = priors @ self.values**2 - means**2
        # A constant has no spread; its square is a number, too.
        total = np.maximum((second * priors).sum(axis=-1) + spread, np.finfo(float).tiny ** 0.5)
        moments = (fourth * priors).sum(axis=-1) / total**2
        return float(second.max()), float(moments.max())

    def readings(self, statistics: Sequence[DrawnStatistic]) -> tuple[SumReading, ...]:
        """Published sums of its values, less `constant` for every unit."""
        linear = self.values - self.constant
        return tuple(
            reading for one in statistics for reading in one.readings_of(linear, self.combination)
        )

    def unit_noise(
        self, mechanism: Mechanism, space: CategorySpace, published: Channel | None = None
    ) -> RowNoiseBound:
        """What is public of the noise of rows, with units that are not asked.

        That of the channel; or, if noisy counts decide that, of a plain one.

        Args:
            mechanism: What is published.
            space: The categories.
            published: The published channel; None before there is one.
        """
        rows = mechanism.settled_rows(space)
        prior = rows.public_prior(space)
        if any(one.of_categories for one in mechanism.statistics):
            channel = rows.plain_channel(space)
        elif published is not None and mechanism.designs_rows:
            channel = published
        else:
            channel = rows.public_channel(space)
        answers: Channel | AskedChannel = channel
        if mechanism.asked < ASKED_TOTAL:
            answers = AskedChannel(channel=channel, share=mechanism.asked_share, prior=prior)
        every = with_every_outcome(prior)[np.newaxis]
        outputs = self.outputs(answers, every)
        ends, true = ValueRange.from_values(self.values), self.values - outputs.middle

        def spread(read: FloatArray, numbers: FloatArray) -> float:
            errors = answers.transition()[0] * (read[0][:, np.newaxis] - numbers) ** 2
            return float(errors.sum(axis=0) @ prior)

        plain = self.outputs(channel, every)
        largest, kurtosis = self.noise_tails(channel, plain, prior[np.newaxis])
        return RowNoiseBound(
            ends=ends,
            variance=spread(outputs.values, true),
            square_variance=spread(outputs.values**2 - outputs.noise, true**2),
            largest=largest,
            kurtosis=kurtosis,
            two_values=self.has_two_values(space),
            origin=ends.middle - self.constant,
            share=mechanism.asked_share,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedFunction:
    """A function of the category as a release identifies it.

    Attributes:
        name: What it is called.
        outputs: What responses count as in it.
        readings: Published sums that determine it; none for rows only.
        noise: What is public of the noise of a row.
        breakdowns: The columns of each breakdown whose groups have totals that are used.
        row_noise: v̄ of the rows that each sum is weighed against, if it is not that of `noise`.
    """

    name: str
    outputs: ResponseValues
    readings: tuple[SumReading, ...]
    noise: RowNoiseBound
    breakdowns: frozenset[frozenset[str]]
    row_noise: tuple[float, ...] | None = None

    @property
    def ridge(self) -> FloatArray:
        """W/v̄, by which sums are weighed against rows."""
        each = self.noise.variance if self.row_noise is None else self.row_noise
        return public_ridge(self.readings, each)

    @classmethod
    def from_question(
        cls,
        function: CategoryFunction,
        question: ReleasedQuestion,
        request: EstimateRequest,
    ) -> DecodedFunction:
        """A function as a question of a release of rows identifies it.

        Args:
            function: The function.
            question: The question of its category.
            request: Which sums are used, and of which fold.

        Raises:
            ParameterError: If the rows do not identify it.
        """
        assert question.channel is not None  # noqa: S101 - there are rows
        used = question.statistics if request.use_sums else ()
        if question.mechanism.asked < ASKED_TOTAL:  # noisy counts cover units that were asked
            used = tuple(one for one in used if one.histogram() is None)
        readings = function.readings(used)
        if request.fold is not None:
            readings = of_fold(readings, request.fold)
        priors = channel_priors(question, request.released)
        outputs = function.outputs(question.channel, priors)
        largest, kurtosis = function.noise_tails(question.channel, outputs, priors)
        public = function.unit_noise(question.mechanism, question.space, question.channel)
        return cls(
            name=function.name,
            outputs=outputs,
            readings=readings,
            noise=public._replace(largest=largest, kurtosis=kurtosis),
            breakdowns=frozenset(frozenset(one.level) for one in used if one.level),
        )


def declared_noise(mechanism: Mechanism, space: CategorySpace, metric: int = 0) -> RowNoiseBound:
    """What is public of the noise of a declared metric."""
    return CategoryFunction.declared(f"metric {metric}", space, metric).unit_noise(mechanism, space)


def channel_priors(question: ReleasedQuestion, layout: Layout) -> FloatArray:
    """What each channel's categories are thought to be like; axes `[channel, category]`.

    The public prior; or, with noisy counts, the mean of what these say of the channel's cells.
    """
    assert question.channel is not None  # noqa: S101 - there are rows
    space, n_channels = question.space, question.channel.possible().shape[-2]
    public = question.mechanism.settled_rows(space).public_prior(space)
    priors = np.tile(with_every_outcome(public), (n_channels, 1))
    for one in question.statistics:
        if (histogram := one.histogram()) is not None:
            by_group = learn_priors(histogram, public)
            np.add.at(
                priors,
                question.channel.groups.ravel(),
                layout.sizes.ravel()[:, np.newaxis] * by_group[histogram.groups.ravel()],
            )
    return np.asarray(priors / priors.sum(axis=-1, keepdims=True))


def take_call(parser: Parser) -> tuple[str, str] | None:
    """The function and the outcome of a text such as `p90(rounds)`; None for other texts."""
    if parser.kind() != "name" or parser.kind(ahead=1) != "(":
        return None
    name = parser.take("name")
    parser.take("(")
    outcome = parser.take("name")
    parser.take(")")
    parser.end()
    return name, outcome


def question_of(used: Collection[str], text: str, spaces: Sequence[Categories]) -> int:
    """The index of the question that has some outcomes.

    Args:
        used: The outcomes.
        text: What uses them.
        spaces: The categories of the release, question by question.

    Raises:
        ParameterError: If none has them, or several do.
    """
    names = [name for space in spaces for name in space.declared.names]
    for name in sorted(set(used) - set(names)):
        raise ParameterError(
            f"there is no outcome {name!r}{f', as in {text!r}' if text != name else ''}."
            f"{did_you_mean(name, names)} Available: {', '.join(names)}."
        )
    held = [index for index, space in enumerate(spaces) if {*used} & set(space.declared.names)]
    if len(held) > 1:
        together = ",".join(name for name in names if name in used)
        raise ParameterError(
            f"{text!r} combines outcomes of different questions, which no unit answered together. "
            f"Fix: ask the owner to put them in one question (--question {together})."
        )
    return held[0]


def naming_observed(metric: Metric, spaces: Sequence[Categories]) -> Metric:
    """The same metric; what says whether an outcome was observed is known as such."""
    return metric.naming_observed([name for space in spaces for name in space.declared.missing])


def metric_function(metric: Metric, space: Categories) -> CategoryFunction:
    """A metric as a function of the category.

    Raises:
        ParameterError: If categories do not identify it.
    """
    declared, name = space.declared, str(metric)
    if metric in declared.metrics:
        return CategoryFunction.declared(name, space, declared.metrics.index(metric))
    metric.check(declared.spaces)
    for factor in metric.factors:
        if isinstance(factor, Threshold) and not is_exact(factor, space):
            raise ParameterError(
                f"{name!r} needs a declared threshold of {factor.outcome!r}, because values were "
                f'rounded across it. Fix: ask the owner to declare it (--metric "{name}").'
            )
    values = space.values_of(metric)
    if not np.ptp(values):
        raise ParameterError(f"{name!r} has the same value for every outcome combination.")
    return CategoryFunction.from_values(name, values, space)


def is_exact(comparison: Threshold, space: Categories) -> bool:
    """Whether no number is rounded across a threshold."""
    grid = space.outcome(comparison.outcome).grid
    return grid is None or grid.holds_cuts(comparison.cuts(grid.number))
