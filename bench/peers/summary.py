"""Means over runs, and sentences of them, from what a study found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.peers.study import OVERALL, Found, Key, Mean
from bench.peers.trial import BY_ONE_FEATURE, BY_OWN_COLUMN, BY_TWO_FEATURES, SEGMENTS

if TYPE_CHECKING:
    from bench.peers.methods import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: one entry of a study, or the mean of several."""

    title: str
    parts: tuple[str, ...]
    measure: str


ERROR, COVERED, WIDTH = "squared error", "covered", "width"
OVERALL_ERROR = Question(title="the overall effect", parts=(OVERALL,), measure=ERROR)
OVERALL_COVERED = Question(title="the overall effect", parts=(OVERALL,), measure=COVERED)
OVERALL_WIDTH = Question(title="the overall effect", parts=(OVERALL,), measure=WIDTH)
FEATURE_ERROR = Question(
    title="segments of features", parts=(BY_TWO_FEATURES, BY_ONE_FEATURE), measure=ERROR
)
OWN_ERROR = Question(title="a segment of the analyst's", parts=(BY_OWN_COLUMN,), measure=ERROR)
SEGMENT_COVERED = Question(title="segments", parts=SEGMENTS, measure=COVERED)
SEGMENT_WIDTH = Question(title="segments", parts=SEGMENTS, measure=WIDTH)
GAIN = Question(title="whom to treat", parts=("targeting",), measure="gain")


@dataclass(frozen=True, slots=True)
class Summary:
    """What was found, with means of it."""

    found: Found

    @property
    def populations(self) -> list[str]:
        """In the order of the study."""
        return list(dict.fromkeys(key.population for key in self.found))

    def mean(
        self, question: Question, population: str, method: Method, epsilon: float
    ) -> Mean | None:
        """Over runs; None where the method has no answer."""
        keys = [
            Key(population, method.name, epsilon, part, question.measure) for part in question.parts
        ]
        if any(key not in self.found for key in keys):
            return None
        return Mean.of(np.mean([self.found[key] for key in keys], axis=0).tolist())

    def ratios(
        self, question: Question, above: Method, below: Method, epsilons: tuple[float, ...] = (1.0,)
    ) -> tuple[float, float]:
        """The least and the largest ratio of means of two methods, over populations and ε."""
        found = []
        for population in self.populations:
            for epsilon in epsilons:
                pair = [self.mean(question, population, one, epsilon) for one in (above, below)]
                if pair[0] is not None and pair[1] is not None:
                    found.append(pair[0].value / pair[1].value)
        return min(found), max(found)

    def between(
        self, question: Question, above: Method, below: Method, epsilons: tuple[float, ...] = (1.0,)
    ) -> str:
        """The same in words, such as "0.9 to 1.2 times"."""
        low, high = (f"{one:.2g}" for one in self.ratios(question, above, below, epsilons))
        return f"{low} times" if low == high else f"{low} to {high} times"

    def n_runs(self, method: Method) -> int:
        """How many runs each of its means has."""
        return max(len(values) for key, values in self.found.items() if key.method == method.name)
