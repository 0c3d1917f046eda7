"""What a release would cost and publish, before it is made: from public columns alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._text import counted, shortest_decimal
from clusterdp.cells.layout import units_in_words
from clusterdp.document.markup import to_html
from clusterdp.document.model import Facts
from clusterdp.document.text import to_lines
from clusterdp.estimation.metrics.sample_ratio import arm_share_notes
from clusterdp.mechanisms.draw import disclosure_notes
from clusterdp.outcomes.number import Number
from clusterdp.owner.plan import assignment_notes
from clusterdp.planning.advice import advise_look, wide_ranges
from clusterdp.planning.prediction import predict_metrics
from clusterdp.precision.visible import unseen_notes
from clusterdp.published.manifest import plain
from clusterdp.spec.columns import question_suffixes
from clusterdp.statistics.counts import NoisyCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.planning.decide import Draft
    from clusterdp.planning.expected import Scenario
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.fields import Options
    from clusterdp.spec.request import Request
    from clusterdp.spec.spec import ReleaseSpec

_SMALL_CELL = 5
_UNIFORM_ADVICE = (
    "the best prior floor is 1/K, at which the prior is uniform: uniform-prior-dp gives the same "
    "rows and saves the cost of the noisy counts, and optimal better ones"
)
_BINARY_ADVICE = (
    "with two outcomes the optimal channel is Warner's randomized response, whatever the prior: "
    "clusters and priors cannot reduce the noise of rows"
)


@dataclass(frozen=True, slots=True, repr=False)
class Preview:
    """What a release would be; everything in it is public.

    Attributes:
        content: It all as plain values.
    """

    content: dict[str, Any]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names and values, for people."""
        held = self.content
        parameters = ", ".join(f"{name} {value:.6g}" for name, value in held["parameters"].items())
        columns = ", ".join(map(repr, held["published_columns"]))
        units = units_in_words(held["n_units"], held["n_clusters"])
        arms = ", ".join(map(str, held["arms"]))
        rows = f"{columns}, and private outcomes" if columns else "aggregates alone, no rows"
        budget = [("budget", held["budget"]["in_short"])] if "budget" in held else []
        errors = [
            f"{one['std_error']:.4g} of the overall effect on {metric} "
            f"(sampling {one['sampling_std_error']:.4g}, privacy {one['privacy_std_error']:.4g})"
            for metric, one in held["expected"].items()
        ]
        return [
            ("guarantee", held["guarantee"]),
            *self._label_pairs,
            *budget,
            ("mechanism", held["mechanism"] + (f" ({parameters})" if parameters else "")),
            ("outcomes", "; ".join(_in_words(held["outcomes"]))),
            ("table", f"{units}, arms {arms} (control {held['control']})"),
            ("smallest cells", self._smallest_cells),
            ("publishes", rows),
            *(("expected std error", error) for error in errors),
            ("assumed", held["assumed"]),
        ]

    @property
    def _label_pairs(self) -> list[tuple[str, str]]:
        """What private clusters take of ε; nothing where clusters are public."""
        if "label_epsilon" not in self.content:
            return []
        return [("private clusters", f"take epsilon {self.content['label_epsilon']:g} of it")]

    @property
    def _smallest_cells(self) -> str:
        sizes = ", ".join(f"{size:,}" for size in self.content["smallest_cells"])
        expected = ", to be expected of noisy labels" if self._label_pairs else ""
        return f"{sizes} units{expected}"

    @property
    def notes(self) -> list[str]:
        """What the owner should know."""
        notes: list[str] = self.content["notes"]
        return notes

    def __repr__(self) -> str:
        return "\n".join(to_lines([Facts(self.pairs, self.notes)]))

    def _repr_html_(self) -> str:
        return to_html(Facts(self.pairs, self.notes))


def describe_release(
    opened: OpenTable,
    spec: ReleaseSpec,
    draft: Draft,
    budget: dict[str, Any] | None,
) -> Preview:
    """What a release of a table would be.

    Args:
        opened: The table.
        spec: What to publish of it.
        draft: What was asked for, with its questions.
        budget: What it would take from a ledger; None without one.
    """
    layout, spaces, request = opened.layout, spec.spaces, draft.request
    terms, mechanisms = spec.terms, spec.mechanisms
    scenarios = draft.scenarios(layout)
    pairs = zip(mechanisms, scenarios, strict=True)
    expected = [one for pair in pairs for one in predict_metrics(*pair)]
    metrics = [str(metric) for space in spaces for metric in space.declared.metrics]
    guarantee, shown = terms.to_guarantee(), opened.table.columns.as_published()
    notes = [*opened.notes, *_planned_for(request.options, layout), *draft.notes]
    notes += arm_share_notes(layout, opened.table.columns.assigned_by)
    notes += assignment_notes(request, layout)
    notes += request.clusters.notes(draft.columns, layout)
    for mechanism, space in zip(mechanisms, spaces, strict=True):
        notes += [note for note in _advice(mechanism, space) if note not in notes]
    if request.budget.look is None:
        for one in zip(mechanisms, scenarios, spaces, strict=True):
            notes += _look_notes(*one, guarantee.epsilon)
    notes += [*unseen_notes(metrics, expected), *_layout_notes(layout), *_unsaid(request)]
    content = {
        "mechanism": terms.mechanism_names,
        "parameters": _parameters(mechanisms, spaces),
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "guarantee": guarantee.in_short(),
        "n_units": layout.n_units,
        "n_clusters": layout.n_clusters,
        "arms": [plain(arm) for arm in layout.arms],
        "control": plain(layout.arms[layout.control]),
        "smallest_cells": sorted(layout.sizes.ravel().tolist())[:3],
        "published_columns": list(shown.public) if terms.releases_rows else [],
        "outcomes": {
            one.name: str(one.space) for space in spaces for one in space.declared.outcomes
        },
        "missing": [name for space in spaces for name in space.declared.missing],
        "questions": [
            {
                "outcomes": list(space.declared.names),
                "n_categories": space.n_categories,
                "asked": mechanism.asked_share,
                "epsilon": question.epsilon,
            }
            for question, space, mechanism in zip(terms.questions, spaces, mechanisms, strict=True)
        ],
        "expected": {metric: one._asdict() for metric, one in zip(metrics, expected, strict=True)},
        "assumed": draft.assumption(scenarios),
        "notes": notes,
    }
    if spec.clusters.response is not None:
        content["label_epsilon"] = spec.clusters.epsilon
    if budget is not None:
        content["budget"] = budget
        notes[:0] = budget["refusals"]  # first: nothing else matters if it would be refused
        notes += budget["notes"]
    return Preview(content)


def _planned_for(options: Options, layout: Layout) -> list[str]:
    """A note if the plan was made for another table."""
    units, clusters = options.n_units, options.n_clusters
    if units is None or (units, clusters) == (layout.n_units, layout.n_clusters):
        return []
    return [
        (
            f"the plan was made for {units_in_words(units, clusters or 0)}; this table has "
            f"{layout.in_words}"
        )
    ]


def _parameters(mechanisms: Sequence[Mechanism], spaces: Sequence[Categories]) -> dict[str, float]:
    """The numbers of all mechanisms; those that differ, with the number of their question."""
    every = [one.parameters(space) for one, space in zip(mechanisms, spaces, strict=True)]
    names = dict.fromkeys(name for one in every for name in one)
    alike = {name for name in names if len({one.get(name) for one in every}) == 1}
    found = {name: every[0][name] for name in names if name in alike}
    for one, ending in zip(every, question_suffixes(len(spaces)), strict=True):
        found |= {name + ending: value for name, value in one.items() if name not in alike}
    return found


def _advice(mechanism: Mechanism, space: Categories) -> list[str]:
    """What an owner should know of a question before they publish."""
    notes = []
    floor = mechanism.parameters(space).get("prior_floor", 0.0)
    # With several metrics noisy counts pay by what estimates take from them, not by the prior.
    alone = mechanism.find(NoisyCounts) is not None and len(space.declared.metrics) == 1
    if alone and floor * space.n_categories > 0.999:
        notes.append(_UNIFORM_ADVICE)
    if mechanism.designs_rows and space.n_categories == 2:
        notes.append(_BINARY_ADVICE)
    notes += disclosure_notes(mechanism, space)
    notes += _outcome_notes(mechanism, space)
    return notes


def _look_notes(
    mechanism: Mechanism, scenario: Scenario, space: Categories, epsilon: float
) -> list[str]:
    """A note where nobody knows a range: without a look, the release would be of little use."""
    advice = advise_look(mechanism, scenario, space, epsilon) if wide_ranges(space) else None
    if advice is None:
        return []
    remedy = f"take a look (look={advice.share:g}, --look {advice.share:g})"
    return [f"{advice.reason}; {remedy}, or go without one (look=0)"]


def _unsaid(request: Request) -> list[str]:
    """A note about what a reader of the folder will ask for: once it is sealed, it is too late."""
    unsaid = request.provenance.unsaid
    if not unsaid:
        return []
    flags = ", ".join(f"--{name}" for name in unsaid)
    note = (
        f"the folder is going to say that it was given no {', no '.join(unsaid)}; that cannot be "
        f"added later ({flags})"
    )
    return [note]


def _layout_notes(layout: Layout) -> list[str]:
    """A note about small cells."""
    smallest = int(layout.sizes.min())
    if smallest >= _SMALL_CELL:
        return []
    note = (
        f"the smallest cell has {counted(smallest, 'unit')}; min_cell_size (--min-cell-size) pools "
        "small clusters into one"
    )
    return [note]


def _outcome_notes(mechanism: Mechanism, space: Categories) -> list[str]:
    """What effects are on, where that is not the outcome as it is."""
    notes = []
    for outcome in space.declared.outcomes:
        if outcome.may_be_missing:
            notes.append(f"effects on {outcome.name} are on those with {outcome.name} observed")
        if isinstance(outcome.space, Number):
            low, high = shortest_decimal(outcome.space.low), shortest_decimal(outcome.space.high)
            ends = f"{low}..{high}"
            if mechanism.look is not None:
                ends = f"a range inside {ends}, which the look is going to find"
            notes.append(f"effects on {outcome.name} are on {outcome.name} clipped to {ends}")
        elif outcome.space.edges is not None:
            listed = ", ".join(f"{value:g}" for value in outcome.space.values)
            notes.append(
                f"effects on {outcome.name} are on its bins: values count as their bin's {listed}"
            )
    return notes


def _in_words(outcomes: Mapping[str, str]) -> list[str]:
    return [f"{name} of {space}" for name, space in outcomes.items()]
