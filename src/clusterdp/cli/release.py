"""`clusterdp release`: what is shown before, what is done, what is shown after."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp import planning, specs
from clusterdp.cli.console import Bars, console, print_json
from clusterdp.encoding import Columns
from clusterdp.engine import LocalTable
from clusterdp.errors import ParameterError
from clusterdp.folder import Prepared, write_release
from clusterdp.mechanisms import NoisyCounts
from clusterdp.pipeline import lay_out
from clusterdp.sources import cross_columns, open_source
from clusterdp.staging import check_free

if TYPE_CHECKING:
    from clusterdp.mechanisms import Mechanism
    from clusterdp.planning import Prediction


_UNIFORM_ADVICE = (
    "the best prior floor is 1/K, at which the prior is uniform: uniform-prior-dp gives the same "
    "rows and saves the cost of the noisy counts"
)


def run_release_command(
    spec_path: Path | None, given: dict[str, Any], *, dry_run: bool, as_json: bool
) -> None:
    """Plan from public columns, show it, and unless it is a dry run, release."""
    spec = specs.read_spec(spec_path, given)
    space = specs.parse_outcomes(spec["outcomes"])
    columns = Columns(
        unit=spec["unit"],
        arm=spec["arm"],
        cluster=spec["cluster"],
        outcome=spec["outcome"],
        kept=specs.parse_names(spec.get("keep")),
    )
    target = _target(spec, dry_run=dry_run)
    with ExitStack() as stack:

        def scratch() -> Path:
            # 0700; only a query's rows ever go there, and they go with the command.
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clusterdp-")))

        rows = cross_columns(open_source(str(spec["input"]), scratch), columns.cluster)
        table = LocalTable(rows=rows, columns=columns, space=space, clip=bool(spec.get("clip")))
        layout, encoder, notes = lay_out(table, spec.get("control"), spec.get("min_cell_size"))
        prepared = Prepared(table=table, layout=layout, encoder=encoder, notes=notes)
        mechanism, prediction = _plan(spec, prepared)
        plan = _describe(prepared, mechanism, prediction)
        if not as_json:
            _show_plan(plan)
        if target is None:
            if as_json:
                print_json({"plan": plan})
            return
        with Bars() as bars:
            n_clipped = write_release(prepared, mechanism, target, bars)
    if as_json:
        print_json({"plan": plan, "folder": str(target), "n_clipped": n_clipped})
        return
    out = console()
    if n_clipped:
        out.print(f"{n_clipped:,} outcomes were clipped (for your eyes: this is not in the folder)")
    out.print(f"published [bold]{target}[/bold]; look at it with: clusterdp inspect {target}")


def _target(spec: dict[str, Any], *, dry_run: bool) -> Path | None:
    if dry_run:
        return None
    if spec.get("out") is None:
        raise ParameterError("missing: --out, the folder to publish (or --dry-run)")
    target = Path(spec["out"])
    check_free(target)
    return target


def _plan(spec: dict[str, Any], prepared: Prepared) -> tuple[Mechanism, Prediction]:
    layout = prepared.layout
    listed = spec.get("reference")
    reference = planning.check_reference(
        None if listed is None else specs.parse_numbers(listed), layout.space
    )
    request = planning.Request(
        mechanism=spec.get("mechanism"),
        epsilon=spec.get("epsilon"),
        delta=spec.get("delta") or 0.0,
        noise_scale=spec.get("noise_scale"),
        prior_floor=spec.get("prior_floor"),
        resample_prob=spec.get("resample_prob"),
    )
    mechanism = planning.choose(request, layout, reference)
    return mechanism, planning.predict(mechanism, layout, reference)


def _describe(prepared: Prepared, mechanism: Mechanism, prediction: Prediction) -> dict[str, Any]:
    """The plan as plain values; everything in it is public."""
    layout = prepared.layout
    guarantee = mechanism.guarantee(layout.space)
    parameters: dict[str, float] = {}
    if isinstance(mechanism.summary, NoisyCounts):
        parameters["noise_scale"] = mechanism.summary.noise_scale
    if mechanism.releases_rows:
        response = mechanism.response(layout.space)
        parameters["prior_floor"] = float(response.prior_floor)
        parameters["resample_prob"] = response.resample_prob
    return {
        "mechanism": mechanism.name,
        "parameters": parameters,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "guarantee": str(guarantee),
        "n_units": layout.n_units,
        "n_clusters": len(layout.clusters),
        "arms": [str(arm) for arm in layout.arms],
        "control": str(layout.arms[layout.control]),
        "smallest_cells": sorted(layout.sizes.ravel().tolist())[:3],
        "published_columns": list(prepared.table.columns.public),
        "expected_std_error": prediction.std_error,
        "expected_std_error_from_sampling": prediction.sampling_std_error,
        "expected_std_error_from_privacy": prediction.privacy_std_error,
        "notes": [*prepared.notes, *_advice(mechanism, layout.space.n_outcomes)],
    }


def _advice(mechanism: Mechanism, n_outcomes: int) -> list[str]:
    floor = mechanism.prior_floor
    if mechanism.summary is not None and floor is not None and floor * n_outcomes > 0.999:
        return [_UNIFORM_ADVICE]
    return []


def _show_plan(plan: dict[str, Any]) -> None:
    from rich.table import Table

    parameters = ", ".join(f"{name} {value:.6g}" for name, value in plan["parameters"].items())
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    grid.add_row("guarantee", plan["guarantee"])
    grid.add_row("mechanism", plan["mechanism"] + (f" ({parameters})" if parameters else ""))
    grid.add_row(
        "table",
        f"{plan['n_units']:,} units, {plan['n_clusters']:,} clusters, "
        f"arms {', '.join(plan['arms'])} (control {plan['control']})",
    )
    smallest = ", ".join(f"{size:,}" for size in plan["smallest_cells"])
    grid.add_row("smallest cells", f"{smallest} units")
    grid.add_row("publishes", ", ".join(plan["published_columns"]) + ", and private outcomes")
    grid.add_row(
        "expected std error",
        f"{plan['expected_std_error']:.4g} of the overall effect "
        f"(sampling {plan['expected_std_error_from_sampling']:.4g}, "
        f"privacy {plan['expected_std_error_from_privacy']:.4g})",
    )
    out = console()
    out.print(grid)
    for note in plan["notes"]:
        out.print(f"note: {note}")
