"""What a release would cost and publish, before it is made: from public columns alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._text import counted, percent, plural, range_in_words, two_digits
from clusterdp.cells.layout import units_in_words
from clusterdp.document.markup import to_html
from clusterdp.document.model import Facts, Paragraph, as_notes
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.estimation.metrics.sample_ratio import arm_share_notes
from clusterdp.mechanisms.draw import disclosure_notes
from clusterdp.outcomes.number import Number
from clusterdp.owner.plan import assignment_notes
from clusterdp.planning.advice import advise_pilot, wide_ranges
from clusterdp.planning.decide import asked_in_words, assumed_in_words
from clusterdp.planning.report import WITHOUT_LEDGER
from clusterdp.precision.forecast import predict
from clusterdp.precision.visible import shown_metrics, unseen_notes
from clusterdp.published.manifest import plain
from clusterdp.spec.columns import question_suffixes
from clusterdp.spec.file_terms import in_file_terms
from clusterdp.spec.provenance import unsaid_pairs
from clusterdp.statistics.counts import NoisyCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.document.model import Part
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.planning.decide import Draft
    from clusterdp.precision.expected import Scenario
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.fields import Options
    from clusterdp.spec.provenance import Provenance
    from clusterdp.spec.spec import ReleaseSpec

_SMALL_CELL = 5
_UNIFORM_ADVICE = (
    "The best prior floor is 1/K, which makes the prior uniform. Mechanism 'optimal' gives better "
    "rows and needs no noisy counts."
)


@dataclass(frozen=True, slots=True, repr=False)
class Preview:
    """What a release would publish; everything in it is public.

    Attributes:
        content: The same as plain values.
        for_file: Whether an experiment file declares it.
    """

    content: dict[str, Any]
    for_file: bool = False

    def parts(self) -> list[Part]:
        """What is published and what it costs, then what the owner should know."""
        held = self.content
        n_units = counted(held["n_units"], held["unit"])
        place = f" to {held['out']}" if held["out"] else ""
        lead = f"This publishes {n_units}{place} and cannot be undone."
        noisy = [] if held["noisy_cluster"] is None else [held["noisy_cluster"]]
        exact = [name for name in held["published_columns"] if name not in noisy]
        protected = [*noisy, *held["outcomes"]]
        budget = held["budget"]["in_short"] if "budget" in held else self.for_file * WITHOUT_LEDGER
        public = (
            f"{', '.join(exact)}: exactly as in your table" if exact else "noisy totals, no rows"
        )
        pairs = [
            ("Public", public),
            ("Protected", f"{', '.join(protected)}: {held['privacy']['budget']}"),
            ("", held["privacy"]["short"]),
            *([("Covariates", held["covariates"])] if held["covariates"] else []),
            *([("Questions", self._asked())] if len(held["questions"]) > 1 and exact else []),
            *([("Budget", budget)] if budget else []),
            *unsaid_pairs(held["not_stated"]),
        ]
        return [Paragraph(lead, "lead"), Facts(pairs), *as_notes(self.notes)]

    def _asked(self) -> str:
        """Which question a unit's row answers."""
        every = [(one["outcomes"], percent(one["asked"])) for one in self.content["questions"]]
        return asked_in_words(self.content["unit"], every)

    def details(self) -> list[Part]:
        """The mechanism, its parameters, and the standard errors to expect."""
        held = self.content
        numbers = ", ".join(f"{name} {value:.6g}" for name, value in held["parameters"].items())
        units = units_in_words(held["n_units"], held["n_clusters"], held["unit"])
        arms = ", ".join(map(str, held["arms"]))
        sizes = ", ".join(f"{size:,}" for size in held["smallest_cells"])
        sizes += f" {plural(held['unit'])}"
        labels = "label_epsilon" in held
        pairs = [
            ("Mechanism", held["mechanism"] + (f" ({numbers})" if numbers else "")),
            ("Outcomes", "; ".join(f"{name}: {text}" for name, text in held["outcomes"].items())),
            ("Table", f"{units}, arms {arms} (control {held['control']})"),
            (
                "Cells",
                f"the smallest have {sizes}{', expected in noisy clusters' * labels}",
            ),
            *(
                (
                    "SE",
                    (
                        f"{metric}: {two_digits(one['std_error'])} overall "
                        f"({two_digits(one['sampling_std_error'])} sampling, "
                        f"{two_digits(one['privacy_std_error'])} privacy)"
                    ),
                )
                for metric, one in held["expected"].items()
            ),
            ("Assumes", held["assumed"]),
        ]
        if labels:
            share = f"{held['label_epsilon']:g} of ε = {held['epsilon']:g}"
            pairs.append(("Private clusters", f"take {share}"))
        return [Facts(pairs)]

    @property
    def notes(self) -> list[str]:
        """What the owner should know."""
        notes: list[str] = self.content["notes"]
        return notes

    def __repr__(self) -> str:
        return to_screen(self.parts(), terminal_width())

    def _repr_html_(self) -> str:
        return to_html(*self.parts())


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
    expected = [one.overall for pair in pairs for one in predict(*pair)]
    metrics = [metric for space in spaces for metric in shown_metrics(space)]
    guarantee, shown = terms.guarantee, opened.table.columns.as_published()
    notes = [*opened.notes, *_planned_for(request.options, layout), *draft.notes]
    notes += arm_share_notes(layout, opened.table.columns.randomization_unit)
    notes += assignment_notes(request, layout)
    notes += request.clusters.notes(draft.columns, layout)
    for mechanism, space in zip(mechanisms, spaces, strict=True):
        advice = _advice(mechanism, space, request.provenance)
        notes += [note for note in advice if note not in notes]
    if request.budget.pilot is None:
        for one in zip(mechanisms, scenarios, spaces, strict=True):
            notes += _pilot_notes(*one, guarantee.epsilon)
    notes += unseen_notes(metrics, expected, request.provenance.units)
    smallest = int(layout.sizes.min())
    if smallest < _SMALL_CELL:
        size = counted(smallest, request.provenance.unit)
        notes.append(
            f"The smallest cell (one cluster and arm) has {size}. Merge small clusters with "
            "--min-cell-size."
            if layout.n_clusters
            else f"The smallest arm has {size}."
        )
    stated = guarantee.statement(request.provenance.unit)
    content = {
        "out": request.options.out,
        "noisy_cluster": None if spec.clusters.response is None else shown.cluster,
        "mechanism": terms.mechanism_names,
        "parameters": _parameters(mechanisms, spaces),
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "guarantee": str(guarantee),
        "unit": request.provenance.unit,
        "privacy": {"budget": stated.budget, "short": stated.short},
        "covariates": terms.covariates_in_words(request.provenance.unit),
        "not_stated": request.provenance.unsaid,
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
        "expected": {
            metric.name: one._asdict() for metric, one in zip(metrics, expected, strict=True)
        },
        "assumed": assumed_in_words(zip(draft.questions, scenarios, strict=True)),
        "notes": notes,
    }
    if spec.clusters.response is not None:
        content["label_epsilon"] = spec.clusters.epsilon
    for_file = request.options.experiment is not None
    if for_file:
        notes[:] = map(in_file_terms, notes)
    if budget is not None:
        content["budget"] = budget
        notes[:0] = budget["refusals"]  # first: nothing else matters if it would be refused
        notes += budget["notes"]
    return Preview(content, for_file=for_file)


def _planned_for(options: Options, layout: Layout) -> list[str]:
    """A note if the plan was made for another table."""
    units, clusters = options.n_units, options.n_clusters
    if units is None or (units, clusters) == (layout.n_units, layout.n_clusters):
        return []
    return [
        (
            f"The plan was made for {units_in_words(units, clusters or 0)}. This table has "
            f"{layout.in_words}."
        )
    ]


def _parameters(mechanisms: Sequence[Mechanism], spaces: Sequence[Categories]) -> dict[str, float]:
    """The numbers of all mechanisms; those that differ, with the number of their question."""
    every = [one.parameters(space) for one, space in zip(mechanisms, spaces, strict=True)]
    names = dict.fromkeys(name for one in every for name in one)
    shared = {name for name in names if len({one.get(name) for one in every}) == 1}
    found = {name: every[0][name] for name in names if name in shared}
    for one, ending in zip(every, question_suffixes(len(spaces)), strict=True):
        found |= {name + ending: value for name, value in one.items() if name not in shared}
    return found


def _advice(mechanism: Mechanism, space: Categories, about: Provenance) -> list[str]:
    """What an owner should know of a question before they publish."""
    notes = []
    floor = mechanism.parameters(space).get("prior_floor", 0.0)
    # With several metrics noisy counts pay by what estimates take from them, not by the prior.
    alone = mechanism.find(NoisyCounts) is not None and len(space.declared.metrics) == 1
    if alone and floor * space.n_categories > 0.999:
        notes.append(_UNIFORM_ADVICE)
    notes += disclosure_notes(mechanism, space, unit=about.unit)
    notes += _outcome_notes(mechanism, space, about.units)
    return notes


def _pilot_notes(
    mechanism: Mechanism, scenario: Scenario, space: Categories, epsilon: float
) -> list[str]:
    """A note where nobody knows a range: without a pilot, the release would be of little use."""
    advice = advise_pilot(mechanism, scenario, space, epsilon) if wide_ranges(space) else None
    if advice is None:
        return []
    return [f"{advice.reason} Use --pilot {advice.share:g}, or --pilot 0 to go without."]


def _outcome_notes(mechanism: Mechanism, space: Categories, units: str) -> list[str]:
    """What effects are on, where that is not the outcome as it is."""
    notes = []
    for outcome in space.declared.outcomes:
        if outcome.may_be_missing:
            notes.append(f"Effects on {outcome.name} are for {units} with an observed value.")
        if isinstance(outcome.space, Number):
            ends = range_in_words(outcome.space.low, outcome.space.high)
            if mechanism.pilot is not None:
                ends = f"a range within {ends}, which the pilot finds"
            notes.append(f"{outcome.name} is clipped to {ends}.")
        elif outcome.space.edges is not None:
            listed = ", ".join(f"{value:g}" for value in outcome.space.values)
            notes.append(
                f"{outcome.name} is measured in bins: a value counts as its bin's, {listed}."
            )
    return notes
