"""What a run says in words: where others are better, where ours is, and which to use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.peers import methods
from bench.peers.promise import PROMISES, TRUE_ROWS
from bench.peers.prose import paragraph
from bench.peers.study import EPSILONS
from bench.peers.summary import (
    FEATURE_ERROR,
    GAIN,
    OVERALL_ERROR,
    OWN_ERROR,
    Question,
    Summary,
)

if TYPE_CHECKING:
    from bench.peers.methods import Method
    from bench.peers.promise import Promise

_AT: Final = 1.0  # the ε that sentences speak of
_QUESTIONS: Final = (OVERALL_ERROR, FEATURE_ERROR, OWN_ERROR, GAIN)


def claims(summary: Summary) -> list[str]:
    """The first lines: where others are better, and where rows show their worth."""
    return [*_where_others_are_better(summary), *_where_rows_are(summary)]


def _where_others_are_better(summary: Summary) -> list[str]:
    def over_true(method: Method) -> str:
        return summary.between(OVERALL_ERROR, method, methods.NO_PRIVACY)

    boosted = summary.between(GAIN, methods.BOOSTED, methods.OURS)
    binned = summary.between(GAIN, methods.FEW_BINS, methods.OURS)
    return [
        *paragraph(
            "**Where others are better.** For one question that is known before the release, a",
            "trusted collector needs no rows. One noisy number (noisy Horvitz–Thompson of one",
            f"cluster) has {over_true(methods.ONE_CLUSTER)} the mean squared error of true rows at",
            f"ε = {_AT:g}. Our default plan has {over_true(methods.OURS)}, and our plan for the",
            f"overall effect {over_true(methods.OURS_OVERALL)}.",
            "Where nobody trusts the collector, forced response is private and ours is not. For",
            "binary outcomes its rows equal ours at the same ε of rows. Ours spend a part of ε on",
            "sums, so forced response is better by that part in an undeclared segment.",
            "Where you need only a model of uplift, a trusted collector can train it or count in",
            f"bins. At ε = {_AT:g} DP-EBM gains {boosted} as much as linear models of our default",
            f"rows, and ADUM with 16 bins {binned}. DP-EBM also protects features, at δ > 0.",
        )
    ]


def _where_rows_are(summary: Summary) -> list[str]:
    bins = summary.between(OWN_ERROR, methods.FEW_BINS, methods.OURS, EPSILONS[-1:])
    local = summary.between(OVERALL_ERROR, methods.FORCED, methods.OURS)
    return [
        *paragraph(
            "**Where rows are better.** An analyst with rows can ask anything, also by a column",
            "that the owner never saw. Bins and models answer such a question from features only,",
            f"and that error stays for any ε. At ε = {EPSILONS[-1]:g} ADUM with 16 bins has {bins}",
            "the mean squared error of our default plan. The ratio is largest where the column",
            "matters, and smallest where it does not. One number answers one question. A trusted",
            "collector can also publish noisy sums next to the rows: forced response has",
            f"{local} the error of our default plan in the overall effect at ε = {_AT:g}. With",
            "more than two outcomes our rows have less noise, too (below).",
        )
    ]


def advice(summary: Summary) -> list[str]:
    """When to use which, and the best of each promise."""
    best = [
        f"| *{promise.title}* | "
        + " | ".join(_best(summary, promise, question) for question in _QUESTIONS)
        + " |"
        for promise in PROMISES
        if promise is not TRUE_ROWS
    ]
    return [
        *_USES,
        "",
        *paragraph(
            f"The best method under each guarantee at ε = {_AT:g}, by the mean over populations.",
            "In brackets: its mean squared error, or its gain, over that of true rows. Compare",
            "cells within a row only: each row has another guarantee.",
        ),
        "| guarantee | overall effect | segments of features | the analyst's segment | targeting |",
        "|---|---|---|---|---|",
        *best,
        "",
    ]


def _best(summary: Summary, promise: Promise, question: Question) -> str:
    """The method of a promise with the least error or the largest gain."""
    sign = -1 if question is GAIN else 1
    scored = [
        (score, one)
        for one in methods.METHODS
        if one.promise is promise and (score := _score(summary, question, one)) is not None
    ]
    if not scored:
        return "no answer"
    score, method = min(scored, key=lambda pair: sign * pair[0])
    return f"{method.name} ({score:.2g})"


def _score(summary: Summary, question: Question, method: Method) -> float | None:
    """The mean over populations of the ratio to true rows."""
    ratios = []
    for population in summary.populations:
        found = summary.mean(question, population, method, _AT)
        true = summary.mean(question, population, methods.NO_PRIVACY, _AT)
        if found is None or true is None:
            return None
        ratios.append(found.value / true.value)
    return sum(ratios) / len(ratios)


_USES: Final = [
    "| you have | use | because |",
    "|---|---|---|",
    (
        "| one question, known before, and a trusted collector | one noisy number: noisy "
        "Horvitz–Thompson, which clusterdp has, too | all of ε goes to it; nothing else is "
        "revealed |"
    ),
    (
        "| people who do not trust the collector | forced response (Kancharla & Kang), by "
        "pure-ldp, multi-freq-ldpy or OpenDP | the collector never sees an outcome; "
        "clusterdp's sees all |"
    ),
    (
        "| people who may disobey the device | two devices (Kancharla & Kang) | one device is "
        "biased by them and does not show it; in clusterdp a machine randomizes, and "
        "nobody can disobey |"
    ),
    (
        "| arms that are sensitive, too | Ohnishi & Awan, Guha & Reiter | arms are public in all "
        "others |"
    ),
    (
        "| features that must be protected, and a trusted collector | DP-EBM (Niu et al.), Guha & "
        "Reiter | features are public in all others |"
    ),
    (
        "| one uplift model on features that the collector has | DP-EBM, ADUM, or clusterdp with "
        "bins as clusters | averages over many people carry less noise than rows |"
    ),
    (
        "| questions that come later, from people with tables of their own; several outcomes, "
        "numbers, ratios, quantiles | clusterdp, default plan | rows answer whatever can be "
        "joined, with intervals; noisy sums make the overall effect precise |"
    ),
]
