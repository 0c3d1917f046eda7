"""What an owner declares: outcomes, impossible combinations, metrics, weights and questions.

Which outcomes must be asked together follows from it, and what is declared of some of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from clusterdp._lists import parse_named, parse_names
from clusterdp._text import exact, shortest_decimal
from clusterdp.errors import ParameterError, errors_about
from clusterdp.outcomes.finite import AFFIRMATIVE, OutcomeSpace, folded
from clusterdp.outcomes.grammar import parse_constraint, parse_metric
from clusterdp.outcomes.metric import OBSERVED, Constraint, Metric, check_declared
from clusterdp.outcomes.number import Number, Space


def parse_space(given: Space | str | Sequence[float]) -> Space:
    """A space as people write it.

    Values (`0,1,5`), integers (`0..5`), `binary`, two labels (`no,yes`), bins (`bins:0,1,10 as
    0,4`) or a number in a range (`number:0..493`). The text of a space reads back as itself.
    """
    if isinstance(given, Number):
        return given
    if isinstance(given, str) and Number.is_meant_by(given):
        return Number.parse(given)
    return OutcomeSpace.parse(given.strip() if isinstance(given, str) else given)


Spaces = Mapping[str, Space | str | Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One outcome.

    Attributes:
        name: The name of its column.
        space: The values it can take.
        may_be_missing: Whether it can be missing, too. That is then private as well.
    """

    name: str
    space: Space
    may_be_missing: bool = False

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip() or set(self.name) & set('="\n\x00'):
            raise ParameterError(
                "the name of an outcome must not be empty, begin or end with a space, or hold "
                f'= or "; got {self.name!r}: rename the column'
            )

    def __str__(self) -> str:
        """The values it can take, in words."""
        values = self.space.in_words
        return f"{values}, or missing" if self.may_be_missing else values

    @property
    def middle(self) -> float:
        """Half way between the ends of its values."""
        return float((exact(self.space.low) + exact(self.space.high)) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredOutcomes:
    """All that is declared about the outcomes of one release.

    Make one with `declare`.

    Attributes:
        outcomes: The outcomes, in the order in which they are shown.
        constraints: Combinations that break one of them do not exist.
        metrics: What is measured: each outcome first, then whether those were observed that may be
            missing, then further functions.
        multipliers: For each metric, how much more it counts than by default.
    """

    outcomes: tuple[Outcome, ...]
    constraints: tuple[Constraint, ...]
    metrics: tuple[Metric, ...]
    multipliers: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.outcomes:
            raise ParameterError("outcomes must name at least one column, got none")
        with errors_about("metric"):
            _check_distinct("metric", tuple(map(str, self.metrics)))
            for metric in self.metrics:
                metric.check(self.spaces)
                self.check_missing(metric)
        from_metrics = {name: self._metric_cuts(name) for name in self.spaces}
        with errors_about("constraint"):
            for constraint in self.constraints:
                constraint.check(self.spaces, from_metrics)

    def check_missing(self, metric: Metric) -> None:
        """Raise a ParameterError if a metric uses several outcomes that may be missing."""
        if len(metric.valued & set(self.missing)) > 1:
            raise ParameterError(
                f"a metric can use one outcome that may be missing, got {str(metric)!r}; "
                "declare the product as an outcome of its own"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the outcomes."""
        return tuple(outcome.name for outcome in self.outcomes)

    @property
    def spaces(self) -> dict[str, Space]:
        """The space of each outcome, by its name."""
        return {outcome.name: outcome.space for outcome in self.outcomes}

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the outcomes that may be missing."""
        return tuple(outcome.name for outcome in self.outcomes if outcome.may_be_missing)

    def observed_place(self, place: int) -> int | None:
        """The place of the metric R for a metric that covers units with an observed outcome."""
        found = self.metrics[place].valued & set(self.missing)
        return len(self.outcomes) + self.missing.index(min(found)) if found else None

    @property
    def margin_spaces(self) -> dict[str, Space]:
        """The spaces of outcomes, and of whether they were observed: each may have a margin."""
        observed = {name + OBSERVED: OutcomeSpace.binary() for name in self.missing}
        return {**self.spaces, **observed}

    @property
    def labels(self) -> dict[str, tuple[str, str]]:
        """The labels of every outcome that is declared by labels, by its name."""
        return {
            outcome.name: outcome.space.names
            for outcome in self.outcomes
            if isinstance(outcome.space, OutcomeSpace) and outcome.space.names is not None
        }

    @property
    def label_notes(self) -> dict[str, str]:
        """What effects on outcomes that are labels are effects on, by outcome."""
        return {
            name: f"{name} is {first!r} or {second!r}. Its mean is the share of {second!r}."
            for name, (first, second) in self.labels.items()
        }

    @property
    def turned_label_notes(self) -> list[str]:
        """Notes on labels whose first one affirms: it counts as 0, which may not be meant."""
        return [
            f"{name}={first},{second} counts {first!r} as 0 and {second!r} as 1, so that effects "
            f"are on the share of {second!r}; if you mean {first!r}: {name}={second},{first}"
            for name, (first, second) in self.labels.items()
            if folded(first) in AFFIRMATIVE and folded(second) not in AFFIRMATIVE
        ]

    @property
    def numbers(self) -> dict[str, Number]:
        """The outcomes that are numbers, by their names."""
        return {
            outcome.name: outcome.space
            for outcome in self.outcomes
            if isinstance(outcome.space, Number)
        }

    def cuts(self, name: str) -> tuple[int, ...]:
        """The steps at which the range of a number is cut; nothing is rounded across a cut.

        A cut at `step` divides the points before `step` from `step` and those after it.
        """
        number = self.numbers[name]
        implied = (step for each in self.constraints for step in each.cuts(name, number))
        return tuple(sorted({*self._metric_cuts(name), *implied}))

    def _metric_cuts(self, name: str) -> frozenset[int]:
        number = self.numbers.get(name)
        if number is None:
            return frozenset()
        return frozenset(step for metric in self.metrics for step in metric.cuts(name, number))

    def record(self) -> DeclaredRecord:
        """The outcomes as a manifest holds them; its `declared` reads them back."""
        return DeclaredRecord(
            outcomes=[
                OutcomeRecord(
                    name=outcome.name,
                    space=str(outcome.space),
                    may_be_missing=outcome.may_be_missing,
                )
                for outcome in self.outcomes
            ],
            constraints=list(map(str, self.constraints)),
            metrics=list(map(str, self.metrics[len(self.outcomes) + len(self.missing) :])),
            weights={
                str(metric): multiplier
                for metric, multiplier in zip(self.metrics, self.multipliers, strict=True)
                if multiplier != 1
            },
        )


class OutcomeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One outcome as a manifest writes it. They are listed: their order decides the categories."""

    name: str
    space: str
    may_be_missing: bool = False


class DeclaredRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Declared outcomes as a manifest writes them, every part in its own grammar."""

    outcomes: list[OutcomeRecord]
    constraints: list[str] = []
    metrics: list[str] = []
    weights: dict[str, float] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the outcomes that may be missing."""
        return tuple(outcome.name for outcome in self.outcomes if outcome.may_be_missing)

    def declared(self) -> DeclaredOutcomes:
        """The outcomes that are written here."""
        return declare(
            [f"{outcome.name}={outcome.space}" for outcome in self.outcomes],
            constraints=self.constraints,
            metrics=self.metrics,
            weights=self.weights,
            missing=self.missing,
        )


def declare(
    outcomes: Spaces | Iterable[str],
    *,
    constraints: Iterable[Constraint | str] = (),
    metrics: Iterable[Metric | str] = (),
    weights: Mapping[str, float] | Iterable[str] = (),
    missing: Iterable[str] = (),
) -> DeclaredOutcomes:
    """Outcomes as people declare them.

    Args:
        outcomes: Spaces by name (`{"visit": "0,1", "rounds": Number(0, 493)}`), or texts
            (`["visit=0,1", "rounds=number:0..493"]`).
        constraints: Such as `conversion -> visit`.
        metrics: Further functions of the outcomes that are to be measured, such as `rounds>=10`.
        weights: How much more a metric counts than by default: `{"rounds": 2}`, or `rounds=2`.
        missing: The names of outcomes that may be missing.
    """
    named = _named_spaces(outcomes)
    _check_distinct("outcome", tuple(name for name, _ in named))
    spaces = {name: parse_space(space) for name, space in named}
    names = (missing,) if isinstance(missing, str) else tuple(missing)
    check_declared("missing names", names, spaces)
    _check_distinct("missing outcome", names)
    absent = frozenset(names)
    declared = tuple(
        Outcome(name=name, space=space, may_be_missing=name in absent)
        for name, space in spaces.items()
    )
    own = map(Metric.mean_of, spaces)
    observed = (Metric.mean_of(name + OBSERVED) for name in spaces if name in absent)
    with errors_about("metric"):
        further = tuple(map(parse_metric, metrics))
    measured = tuple(metric.with_missing(absent) for metric in (*own, *observed, *further))
    with errors_about("constraint"):
        known = (*spaces, *(name + OBSERVED for name in spaces if name in absent))
        always = [_declared_constraint(given, known) for given in constraints]
    return DeclaredOutcomes(
        outcomes=declared,
        constraints=tuple(one.with_missing(absent) for one in always),
        metrics=measured,
        multipliers=_multipliers(measured, weights, absent),
    )


def _declared_constraint(given: Constraint | str, names: Collection[str]) -> Constraint:
    """A constraint of declared outcomes; an error shows it as it was written."""
    constraint = parse_constraint(given)
    for side in (constraint.condition, constraint.consequence):
        check_declared(f"constraint {str(given)!r} uses", sorted(side.outcomes), names)
    return constraint


def _named_spaces(
    outcomes: Spaces | Iterable[str],
) -> list[tuple[str, Space | str | Sequence[float]]]:
    if isinstance(outcomes, Mapping):
        return list(outcomes.items())
    form = "an outcome must be NAME=VALUES (visit=0,1), got {!r}"
    texts = [outcomes] if isinstance(outcomes, str) else outcomes
    return [parse_named(text, form) for text in texts]


def _multipliers(
    metrics: tuple[Metric, ...],
    weights: Mapping[str, float] | Iterable[str],
    missing: Collection[str],
) -> tuple[float, ...]:
    if not isinstance(weights, Mapping):
        weights = dict(_named_weight(text) for text in weights)
    given = {
        parse_metric(name).with_missing(missing): float(weight) for name, weight in weights.items()
    }
    for metric, weight in given.items():
        if metric not in metrics:
            raise ParameterError(
                f"weight of {str(metric)!r}: there is no such metric; "
                f"the metrics are {', '.join(repr(str(known)) for known in metrics)}"
            )
        if not (math.isfinite(weight) and weight > 0):
            raise ParameterError(f"the weight of {str(metric)!r} must be above 0, got {weight}")
    return tuple(given.get(metric, 1.0) for metric in metrics)


def _named_weight(text: str) -> tuple[str, float]:
    name, _, weight = text.rpartition("=")
    try:
        return name, float(weight)
    except ValueError:
        raise ParameterError(f"a weight must be METRIC=NUMBER (rounds=2), got {text!r}") from None


def _check_distinct(noun: str, names: tuple[str, ...]) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ParameterError(f"{noun} {repeated[0]!r} is declared twice; declare it once")


Names = tuple[str, ...]


class QuestionRequest(NamedTuple):
    """A question that an owner or a plan chose.

    Attributes:
        names: Its outcomes.
        weight: How often it is asked, relative to other questions; None if that is left open.
    """

    names: Names
    weight: float | None = None

    def __str__(self) -> str:
        """What `parse_question` reads back."""
        listed = ",".join(self.names)
        return listed if self.weight is None else f"{listed}={shortest_decimal(self.weight)}"


def parse_question(text: str) -> QuestionRequest:
    """A question as people write it: `visit,sale`, or, asked twice as often, `visit,sale=2`."""
    listed, found, weight = text.partition("=")
    names = parse_names(listed)
    if not names:
        raise ParameterError(f"a question names outcomes (visit,sale), got {text!r}")
    if not found:
        return QuestionRequest(names)
    try:
        number = float(weight)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise ParameterError(
            f"how often a question is asked is a number above 0 (visit,sale=2), got {text!r}"
        )
    return QuestionRequest(names, number)


def check_partition(questions: Sequence[QuestionRequest], declared: DeclaredOutcomes) -> None:
    """Raise a ParameterError unless questions hold every outcome once, and linked ones together."""
    named = [name for question in questions for name in question.names]
    with errors_about("question"):
        check_declared("question names", named, declared.names)
    wrong = [name for name in declared.names if named.count(name) != 1]
    if wrong:
        raise ParameterError(
            f"outcome {wrong[0]!r} is in {named.count(wrong[0]) or 'no'} questions; put every "
            "outcome in one (question=..., --question)"
        )
    for linked in linked_outcomes(declared):
        if not any(set(linked) <= set(question.names) for question in questions):
            raise ParameterError(
                f"{', '.join(map(repr, linked))} are linked by constraints or metrics, so they "
                "must be in one question"
            )


def linked_outcomes(declared: DeclaredOutcomes) -> tuple[Names, ...]:
    """Outcomes that constraints or products link, directly or not; in the declared order.

    They are the smallest questions that are possible: a unit is asked one question, so that across
    questions nothing can be ruled out, and no product can be measured.
    """
    links = [metric.outcomes for metric in declared.metrics]
    links += [one.condition.outcomes | one.consequence.outcomes for one in declared.constraints]
    groups = [{name} for name in declared.names]
    for link in links:
        met = [group for group in groups if group & link]
        merged = set().union(*met)
        groups = [group for group in groups if not group & link]
        groups.append(merged)
    ordered = [tuple(name for name in declared.names if name in group) for group in groups]
    return tuple(sorted(ordered, key=lambda names: declared.names.index(names[0])))


def declared_of(declared: DeclaredOutcomes, names: Sequence[str]) -> DeclaredOutcomes:
    """What is declared of some outcomes alone; no link leads to others."""
    kept = [place for place, one in enumerate(declared.metrics) if one.outcomes <= set(names)]
    return DeclaredOutcomes(
        outcomes=tuple(one for one in declared.outcomes if one.name in names),
        constraints=tuple(
            one for one in declared.constraints if one.condition.outcomes <= set(names)
        ),
        metrics=tuple(declared.metrics[place] for place in kept),
        multipliers=tuple(declared.multipliers[place] for place in kept),
    )


def measuring(declared: DeclaredOutcomes, metrics: Collection[str]) -> DeclaredOutcomes | None:
    """What is declared of some metrics alone, with the means of their outcomes; None of none."""
    wanted = [one for one in declared.metrics if str(one) in metrics]
    names = {name for one in wanted for name in one.outcomes}
    if not names:
        return None
    own = len(declared.outcomes) + len(declared.missing)
    kept = [
        place
        for place, one in enumerate(declared.metrics)
        if one.outcomes <= names and (place < own or one in wanted)
    ]
    return DeclaredOutcomes(
        outcomes=tuple(one for one in declared.outcomes if one.name in names),
        constraints=tuple(
            one
            for one in declared.constraints
            if one.condition.outcomes | one.consequence.outcomes <= names
        ),
        metrics=tuple(declared.metrics[place] for place in kept),
        multipliers=tuple(declared.multipliers[place] for place in kept),
    )
