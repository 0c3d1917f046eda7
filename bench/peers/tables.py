"""Tables of docs/studies/peers.md. Rows are grouped by promise, which stands above them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.peers.methods import METHODS
from bench.peers.promise import PROMISES
from bench.peers.study import EPSILONS
from bench.peers.summary import COVERED, ERROR, GAIN, Question, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.peers.costs import Cost
    from bench.peers.methods import Method
    from bench.peers.promise import Promise
    from bench.peers.study import Mean

_NO_ANSWER = "–"
_MILLIONTHS = 1e6


def promise_table() -> list[str]:
    """What ε means for each method."""
    heading = ("method", "neighboring tables", "trusted", "public", "δ", "released", "questions")
    lines = ["| " + " | ".join(heading) + " |", "|---|---|---|---|---:|---|---|"]
    for method in METHODS:
        promise = method.promise
        cells = (
            method.name,
            promise.neighbours,
            promise.trusted,
            promise.public,
            f"{promise.delta:g}",
            method.released,
            method.questions,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def question_table(
    summary: Summary, population: str, question: Question, beside: Question | None = None
) -> list[str]:
    """Means by method and ε; those of a second question beside them."""

    def cell(method: Method, epsilon: float) -> str:
        shown = [
            show(one.measure, found)
            for one in (question, beside)
            if one is not None
            and (found := summary.mean(one, population, method, epsilon)) is not None
        ]
        return ", ".join(shown) or _NO_ANSWER

    def cells(method: Method) -> Iterable[str]:
        return [method.released, *(cell(method, epsilon) for epsilon in EPSILONS)]

    heading = ["released", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    return grouped(heading, cells)


def cost_table(costs: dict[str, Cost]) -> list[str]:
    """Seconds and megabytes by method."""

    def cells(method: Method) -> Iterable[str]:
        cost = costs[method.name]
        return [f"{cost.seconds:.2g}", f"{cost.megabytes:.0f}"]

    return grouped(["processor seconds", "megabytes"], cells)


def grouped(heading: list[str], cells: Callable[[Method], Iterable[str]]) -> list[str]:
    """A table with a row for each method, below a row for its promise."""
    empty = " |" * len(heading)
    lines = ["| method | " + " | ".join(heading) + " |", "|---|" + "---:|" * len(heading)]
    for promise in PROMISES:
        lines.append(f"| *{described(promise)}* |{empty}")
        lines += [
            f"| {method.name} | " + " | ".join(cells(method)) + " |"
            for method in METHODS
            if method.promise is promise
        ]
    return lines


def described(promise: Promise) -> str:
    """What ε means, in one cell."""
    delta = f", δ = {promise.delta:g}" if promise.delta else ""
    return f"Neighboring tables: {promise.neighbours}{delta}. Trusted: {promise.trusted}."


def show(measure: str, mean: Mean) -> str:
    """A mean with its Monte Carlo error, in the unit of its measure."""
    if measure == ERROR:
        return " ± ".join(_short(one * _MILLIONTHS) for one in mean[:2])
    if measure == COVERED:
        return f"{mean.value:.0%} ± {mean.error:.0%}"
    if measure == GAIN.measure:
        return f"{mean.value:.4f} ± {mean.error:.4f}"
    return f"{mean.value:.3g} wide"


def _short(number: float) -> str:
    """Two digits, or all that stand before the point."""
    return f"{number:.0f}" if number >= 100 else f"{number:.2g}"
