"""`clusterdp reproduce`: run the paper's experiments and write the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterdp._progress import progress_bars
from clusterdp.cli.console import print_line, print_text, reported_errors
from clusterdp.document.model import Facts
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.errors import ParameterError
from clusterdp.storage.folder import LocalFolder
from clusterdp.studies.populations import features_from_snap, shipped_features
from clusterdp.studies.run import parse_experiments, run_experiments, write_report
from clusterdp.studies.study import Study

# The paper draws one population, and 500 realizations of it; it does not give its points.
_FULL = {"n_draws": 100, "n_realizations": 500, "n_points": 8}
_QUICK = {"n_draws": 10, "n_realizations": 250, "n_points": 4}


@reported_errors()
def reproduce_command(
    experiments: Annotated[
        list[str] | None, typer.Argument(help="Numbers from 1 to 7, or all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("reproduction"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer draws: seconds instead of minutes.")
    ] = False,
    snap_communities: Annotated[
        Path | None, typer.Option(help="SNAP's com-youtube.top5000.cmty.txt.")
    ] = None,
    snap_edges: Annotated[Path | None, typer.Option(help="SNAP's com-youtube.ungraph.txt.")] = None,
) -> None:
    """Rerun the paper's seven experiments and check every claim.

    clusterdp reproduce all --out reproduction/
    """
    numbers = parse_experiments(experiments or [])
    if (snap_communities is None) != (snap_edges is None):
        raise ParameterError("--snap-communities and --snap-edges go together; give both")
    features = shipped_features()
    if snap_communities is not None and snap_edges is not None:
        features = features_from_snap(snap_communities, snap_edges)
    study = Study(features=features, **(_QUICK if quick else _FULL))
    with LocalFolder(out).staged("") as (folder, _):
        with progress_bars() as bars:
            done = {
                number: bars.stage(f"experiment {number}, draws", study.n_draws)
                for number in numbers
            }
            findings = run_experiments(numbers, study, lambda number: done[number](1))
        write_report(findings, study, folder)
    claims = [claim for found in findings for claim in found.claims]
    verdicts = [
        (claim.verdict, f"{claim.name} (held in {claim.held})" if claim.held else claim.name)
        for claim in claims
    ]
    print_text(to_screen([Facts(verdicts)], terminal_width()))
    print_line(f"wrote {out}; read {out}/REPORT.md")
