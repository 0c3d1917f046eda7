"""`clusterdp reproduce`: run the paper's experiments and write the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterdp.cli.console import errors_in_one_line, print_line, print_pairs, progress_bars
from clusterdp.errors import ParameterError
from clusterdp.reproduction.run import parse_numbers, run_experiments
from clusterdp.reproduction.study import Study
from clusterdp.reproduction.writing import write_report
from clusterdp.reproduction.youtube import features_from_snap, shipped_features
from clusterdp.storage.folder import staged_folder

# As in the paper; points are ours, the paper does not give them.
_FULL = {"n_populations": 50, "n_realizations": 500, "n_points": 8}
_QUICK = {"n_populations": 6, "n_realizations": 250, "n_points": 4}
SEED = 2025


@errors_in_one_line()
def reproduce(
    experiments: Annotated[
        list[str] | None, typer.Argument(help="Numbers from 1 to 7, or all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("reproduction"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer repetitions: the same verdicts in seconds.")
    ] = False,
    snap_communities: Annotated[
        Path | None, typer.Option(help="SNAP's com-youtube.top5000.cmty.txt.")
    ] = None,
    snap_edges: Annotated[Path | None, typer.Option(help="SNAP's com-youtube.ungraph.txt.")] = None,
) -> None:
    """Run the paper's seven experiments, and give a verdict on every claim.

    clusterdp reproduce all --out reproduction/
    """
    numbers = parse_numbers(experiments or [])
    if (snap_communities is None) != (snap_edges is None):
        raise ParameterError("--snap-communities and --snap-edges go together; give both")
    features = shipped_features()
    if snap_communities is not None and snap_edges is not None:
        features = features_from_snap(snap_communities, snap_edges)
    study = Study(seed=SEED, features=features, **(_QUICK if quick else _FULL))
    findings = []
    with staged_folder(out) as folder:
        with progress_bars() as bars:
            done = {number: bars.stage(f"experiment {number}", 1) for number in numbers}
            for found in run_experiments(numbers, study):
                findings.append(found)
                if found.number in done:
                    done[found.number](1)
        write_report(findings, study, folder)
    claims = [c for found in sorted(findings, key=lambda f: f.number) for c in found.claims]
    print_pairs([(claim.verdict, claim.name) for claim in claims])
    print_line(f"wrote {out}; read {out}/REPORT.md")
