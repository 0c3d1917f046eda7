"""`clusterdp plan`: compare mechanisms before any outcome is read, and write down the best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clusterdp._figures import new_figure
from clusterdp.channels.disclosure import disclosure_notes
from clusterdp.cli import options_file as specs
from clusterdp.cli.console import print_json, say
from clusterdp.cli.preview import describe_parameters, to_request
from clusterdp.engines.local.sources import cross_columns, open_unstored
from clusterdp.engines.local.table import read_layout
from clusterdp.engines.source_names import possible_parts
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.formatting import aligned
from clusterdp.planning import plan as plans
from clusterdp.planning.figure import trade_off_plot
from clusterdp.releasing.in_memory import pool

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.experiment.layout import Layout
    from clusterdp.planning.choose import Prediction
    from clusterdp.planning.plan import Option, Plan

_NEEDED = ("input", "arm", "cluster", "outcomes")


def run_plan_command(  # noqa: PLR0913 - one parameter per option
    spec_path: Path | None,
    given: dict[str, Any],
    *,
    size: str | None,
    mde: float | None,
    out: Path,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Plan, show and write down."""
    spec = specs.read_spec(spec_path, given, _NEEDED)
    if (spec.get("epsilon") is None) == (mde is None):
        raise ParameterError("give --epsilon, the budget, or --mde, the effect to find; not both")
    if plot is not None:
        new_figure(plot, (1, 1))  # refused now if it cannot be drawn later
    layout, notes = _read_cells(spec, size)
    reference = specs.parse_reference(spec.get("reference"), layout.space, spec.get("within_share"))
    request = to_request(spec)
    if mde is not None:
        found = plans.smallest_epsilon(request, mde, layout, reference)
        request = replace(request, epsilon=found)
    plan = plans.make_plan(request, layout, reference)
    choice = plan.choice
    options = plans.to_options(choice.mechanism, choice.name, plan.epsilon, request.delta)
    kept = {
        key: spec.get(key) for key in ("arm", "cluster", "outcomes", "control", "min_cell_size")
    }
    if size is None:
        kept = {"input": spec["input"], **kept}
    kept |= {key: spec.get(key) for key in ("reference", "within_share", "segment_share")}
    kept |= {"n_units": layout.n_units, "n_clusters": len(layout.clusters)}
    specs.write_plan(out, {**kept, **options}, _remarks(plan, layout))
    if plot is not None:
        trade_off_plot(plans.trade_off(request, layout, reference), plan, plot)
    if as_json:
        print_json(_as_json(plan, layout))
        return
    _show(plan, layout, notes)
    source = "" if size is None else "TABLE "
    say(
        f"wrote {out}; carry it out with: clusterdp release {source}--plan {out} --unit ... "
        "--outcome ..."
    )


def _read_cells(spec: dict[str, Any], size: str | None) -> tuple[Layout, tuple[str, ...]]:
    """The cells of a table, from its columns of clusters and arms alone."""
    space = specs.parse_outcomes(spec["outcomes"])
    needed = [spec["cluster"], spec["arm"], *([] if size is None else [size])]
    rows = open_unstored(str(spec["input"]), read={*needed, *possible_parts(spec["cluster"])})
    rows = cross_columns(rows, spec["cluster"], ())
    schema = rows.collect_schema()
    for name in needed:
        if name not in schema:
            raise DataError(f"the table has no column {name!r}")
    if size is not None and not schema[size].is_integer():
        raise DataError(f"column {size!r} (size) must hold whole numbers")
    layout, encoder = read_layout(
        rows.select(needed), spec["cluster"], spec["arm"], space, spec.get("control"), size
    )
    layout, _, notes = pool(layout, encoder, spec.get("min_cell_size"))
    layout.check()
    return layout, notes


def _remarks(plan: Plan, layout: Layout) -> list[str]:
    overall, segment = plan.choice.overall, plan.choice.segment
    remarks = [
        f"A plan for {layout.n_units} units in {len(layout.clusters)} clusters: {plan.reason}.",
        f"Expected standard error of the overall effect: {overall.std_error:.4g}",
    ]
    if segment is not None:
        remarks.append(f"and in a segment of {plan.shown_share:.0%}: {segment.std_error:.4g}.")
    return remarks


def _show(plan: Plan, layout: Layout, notes: tuple[str, ...]) -> None:
    for note in notes:
        say(f"note: {note}")
    say(
        f"{layout.n_units:,} units, {len(layout.clusters):,} clusters, {len(layout.arms)} arms; "
        f"epsilon {plan.epsilon:g}; no outcome was read\n"
    )
    segment = f"{plan.shown_share:.0%} segment"
    rows = [
        ("", "std error", "sampling", "privacy", "detectable", segment, "detectable"),
        *(_row(option, chosen=option.name == plan.chosen) for option in plan.options),
    ]
    say("\n".join(aligned(rows)))
    say(
        "\nstandard errors of the overall effect and in a segment, of the least certain arm; "
        "detectable by a two-sided\n5% test with 80% power. Each mechanism is at its best, noisy "
        "sums included; the noisy-* release no rows."
    )
    choice = plan.choice
    numbers = describe_parameters(choice.mechanism, layout.space)
    shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    say(f"\nrecommended: {choice.name} ({shown})")
    say(f"because: {plan.reason}")
    say(f"guarantee: {choice.mechanism.guarantee(layout.space).in_short()}")
    for note in disclosure_notes(choice.mechanism, layout.space):
        say(f"note: {note}")
    if plan.segment_share == 1 and choice.mechanism.sums is not None:
        say("for small segments rather than the overall effect, plan with --segment-share")


def _row(option: Option, *, chosen: bool) -> tuple[str, ...]:
    segment = option.segment
    return (
        ("* " if chosen else "") + option.name,
        *(f"{number:.4g}" for number in (*option.overall, option.overall.detectable_effect)),
        "no rows" if segment is None else f"{segment.std_error:.4g}",
        "" if segment is None else f"{segment.detectable_effect:.4g}",
    )


def _as_json(plan: Plan, layout: Layout) -> dict[str, Any]:
    return {
        "epsilon": plan.epsilon,
        "segment_share": plan.segment_share,
        "shown_share": plan.shown_share,
        "n_units": layout.n_units,
        "n_clusters": len(layout.clusters),
        "recommended": plan.chosen,
        "reason": plan.reason,
        "guarantee": plan.choice.mechanism.guarantee(layout.space).in_short(),
        "notes": list(disclosure_notes(plan.choice.mechanism, layout.space)),
        "options": [
            {
                "mechanism": option.name,
                "parameters": describe_parameters(option.mechanism, layout.space),
                "overall": _prediction(option.overall),
                "segment": None if option.segment is None else _prediction(option.segment),
            }
            for option in plan.options
        ],
    }


def _prediction(prediction: Prediction) -> dict[str, float]:
    return {**prediction._asdict(), "detectable_effect": prediction.detectable_effect}
