"""What is shown before a release: what it costs, what it publishes, what to expect of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.channels.disclosure import disclosure_notes
from clusterdp.cli import options_file as specs
from clusterdp.cli.console import print_pairs, say
from clusterdp.mechanisms.parts import NoisyCounts
from clusterdp.planning import choose as planning
from clusterdp.published.manifest import plain

if TYPE_CHECKING:
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.choose import Prediction
    from clusterdp.releasing.to_folder import Prepared

_SMALL_CELL = 5
_UNIFORM_ADVICE = (
    "the best prior floor is 1/K, at which the prior is uniform: uniform-prior-dp gives the same "
    "rows and saves the cost of the noisy counts, and optimal better ones"
)


_BINARY_ADVICE = (
    "with two outcomes the optimal channel is Warner's randomized response, whatever the prior: "
    "clusters and priors cannot reduce the noise of rows"
)


def to_request(spec: dict[str, Any]) -> planning.Request:
    """What was asked for, of a mechanism."""
    listed, share = spec.get("prior"), spec.get("segment_share")
    return planning.Request(
        mechanism=spec.get("mechanism"),
        epsilon=spec.get("epsilon"),
        delta=spec.get("delta") or 0.0,
        noise_scale=spec.get("noise_scale"),
        prior_floor=spec.get("prior_floor"),
        resample_prob=spec.get("resample_prob"),
        calibrate=spec.get("calibrate"),
        prior=None if listed is None else tuple(specs.parse_numbers(listed)),
        segment_share=1.0 if share is None else share,
    )


def choose_mechanism(spec: dict[str, Any], layout: Layout) -> tuple[Mechanism, Prediction]:
    """What was asked for, with the rest chosen, and what to expect of it."""
    believed = spec.get("reference")
    if believed is None:
        believed = spec.get("prior")
    reference = specs.parse_reference(believed, layout.space, spec.get("within_share"))
    mechanism = planning.choose(to_request(spec), layout, reference)
    return mechanism, planning.predict(mechanism, layout, reference)


def planned_for(spec: dict[str, Any], layout: Layout) -> list[str]:
    """What to say if a plan was made for another table."""
    units, clusters = spec.get("n_units"), spec.get("n_clusters")
    if units is None or (units, clusters) == (layout.n_units, len(layout.clusters)):
        return []
    return [
        (
            f"the plan was made for {units:,} units in {clusters or 0:,} clusters; this table has "
            f"{layout.n_units:,} in {len(layout.clusters):,}"
        )
    ]


def describe_plan(
    prepared: Prepared, mechanism: Mechanism, prediction: Prediction, planned: list[str]
) -> dict[str, Any]:
    """The plan as plain values; everything in it is public."""
    layout = prepared.layout
    guarantee = mechanism.guarantee(layout.space)
    return {
        "mechanism": mechanism.name,
        "parameters": describe_parameters(mechanism, layout.space),
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "guarantee": guarantee.in_short(),
        "n_units": layout.n_units,
        "n_clusters": len(layout.clusters),
        "arms": [plain(arm) for arm in layout.arms],
        "control": plain(layout.arms[layout.control]),
        "smallest_cells": sorted(layout.sizes.ravel().tolist())[:3],
        "published_columns": (
            list(prepared.table.columns.public) if mechanism.releases_rows else []
        ),
        "expected_std_error": prediction.std_error,
        "expected_std_error_from_sampling": prediction.sampling_std_error,
        "expected_std_error_from_privacy": prediction.privacy_std_error,
        "notes": [*prepared.notes, *planned, *_advice(mechanism, layout)],
    }


def describe_parameters(mechanism: Mechanism, space: OutcomeSpace) -> dict[str, float]:
    """The numbers of a mechanism, by name."""
    parameters: dict[str, float] = {}
    if isinstance(mechanism.summary, NoisyCounts):
        parameters["noise_scale"] = mechanism.summary.noise_scale
    if mechanism.sums is not None:
        parameters["epsilon of sums"] = mechanism.sums.epsilon
    if mechanism.designs_rows:
        parameters["epsilon of rows"] = mechanism.designed_response().epsilon
    elif mechanism.releases_rows:
        response = mechanism.response(space)
        if mechanism.prior_floor is not None:
            parameters["prior_floor"] = float(response.prior_floor)
        parameters["resample_prob"] = response.resample_prob
    return parameters


def _advice(mechanism: Mechanism, layout: Layout) -> list[str]:
    """What an owner should know before they publish."""
    notes = []
    floor = mechanism.prior_floor
    if mechanism.summary is not None and (floor or 0) * layout.space.n_outcomes > 0.999:
        notes.append(_UNIFORM_ADVICE)
    if mechanism.designs_rows and layout.space.n_outcomes == 2:
        notes.append(_BINARY_ADVICE)
    notes += disclosure_notes(mechanism, layout.space)
    if layout.space.edges is not None:
        listed = ", ".join(f"{value:g}" for value in layout.space.values)
        notes.append(f"effects are on binned outcomes: values count as their bin's {listed}")
    smallest = int(layout.sizes.min())
    if smallest < _SMALL_CELL:
        notes.append(
            f"the smallest cell has {smallest} units; --min-cell-size pools small clusters into one"
        )
    return notes


def show_plan(plan: dict[str, Any]) -> None:
    """The plan, for people."""
    parameters = ", ".join(f"{name} {value:.6g}" for name, value in plan["parameters"].items())
    columns = ", ".join(map(repr, plan["published_columns"]))
    arms = ", ".join(map(str, plan["arms"]))
    smallest = ", ".join(f"{size:,}" for size in plan["smallest_cells"])
    budget = [("budget", plan["budget"]["in_short"])] if "budget" in plan else []
    print_pairs(
        [
            ("guarantee", plan["guarantee"]),
            *budget,
            ("mechanism", plan["mechanism"] + (f" ({parameters})" if parameters else "")),
            (
                "table",
                (
                    f"{plan['n_units']:,} units, {plan['n_clusters']:,} clusters, arms {arms} "
                    f"(control {plan['control']})"
                ),
            ),
            ("smallest cells", f"{smallest} units"),
            (
                "publishes",
                f"{columns}, and private outcomes" if columns else "aggregates alone, no rows",
            ),
            (
                "expected std error",
                (
                    f"{plan['expected_std_error']:.4g} of the overall effect "
                    f"(sampling {plan['expected_std_error_from_sampling']:.4g}, "
                    f"privacy {plan['expected_std_error_from_privacy']:.4g})"
                ),
            ),
        ]
    )
    for note in plan["notes"]:
        say(f"note: {note}")
