"""The command `clusterdp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterdp.cli.console import errors_in_one_line
from clusterdp.cli.ledger import app as ledger_app
from clusterdp.cli.options import (
    OUTPUT,
    PRIVACY,
    TABLE,
    AllowUnencrypted,
    Arm,
    AsJson,
    Clip,
    Cluster,
    Control,
    Delta,
    DryRun,
    EngineName,
    Epsilon,
    Input,
    Keep,
    KeepOrder,
    LedgerKeyFile,
    LedgerPlace,
    Master,
    MechanismName,
    MinCellSize,
    NewPopulation,
    NoiseScale,
    Outcome,
    Outcomes,
    Population,
    Prior,
    PriorFloor,
    ReferenceText,
    ResampleProb,
    Resume,
    SegmentShare,
    Spec,
    SumsShare,
    Unit,
    Verbose,
    WithinShare,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    # A traceback with local variables would show data.
    pretty_exceptions_enable=False,
    help="Publish user-level results of a randomized experiment under label differential privacy, "
    "and measure effects from them.",
)


app.add_typer(ledger_app, name="ledger")


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from clusterdp._version import __version__

        typer.echo(f"clusterdp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Options of no command in particular."""


@app.command()
def release(
    table: Input = None,
    unit: Unit = None,
    arm: Arm = None,
    cluster: Cluster = None,
    outcome: Outcome = None,
    outcomes: Outcomes = None,
    control: Control = None,
    keep: Keep = None,
    clip: Clip = None,
    min_cell_size: MinCellSize = None,
    keep_order: KeepOrder = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    mechanism: MechanismName = None,
    noise_scale: NoiseScale = None,
    prior_floor: PriorFloor = None,
    resample_prob: ResampleProb = None,
    sums_share: SumsShare = None,
    prior: Prior = None,
    reference: ReferenceText = None,
    within_share: WithinShare = None,
    segment_share: SegmentShare = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Carry out a plan of `clusterdp plan` to the letter."),
    ] = None,
    spec: Spec = None,
    ledger: LedgerPlace = None,
    population: Population = None,
    new_population: NewPopulation = False,
    ledger_key_file: LedgerKeyFile = None,
    resume: Resume = None,
    engine: EngineName = None,
    master: Master = None,
    allow_unencrypted_spark: AllowUnencrypted = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="The folder to publish; with Spark also s3a://... or hdfs://...",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Turn a table into a published folder, once.

    clusterdp release clicks.parquet --unit user --arm treated --cluster market
    --outcome clicks --outcomes 0..5 --epsilon 2 --out published/
    """
    given = locals()
    from clusterdp.cli.release import run_release_command

    with errors_in_one_line():
        run_release_command(given)


@app.command()
def plan(
    table: Input = None,
    unit: Unit = None,
    arm: Arm = None,
    cluster: Cluster = None,
    outcome: Outcome = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="Column of cell sizes, for a table with one row per cluster and arm.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    outcomes: Outcomes = None,
    control: Control = None,
    keep: Keep = None,
    min_cell_size: MinCellSize = None,
    epsilon: Epsilon = None,
    mde: Annotated[
        float | None,
        typer.Option(
            help="Instead of --epsilon: find the smallest that can see an effect of this size.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    delta: Delta = None,
    mechanism: Annotated[
        str | None, typer.Option(help="Compare only this one.", rich_help_panel=PRIVACY)
    ] = None,
    reference: ReferenceText = None,
    within_share: WithinShare = None,
    segment_share: SegmentShare = None,
    spec: Spec = None,
    engine: EngineName = None,
    master: Master = None,
    allow_unencrypted_spark: AllowUnencrypted = None,
    out: Annotated[Path, typer.Option(help="The plan to write.", rich_help_panel=OUTPUT)] = Path(
        "plan.toml"
    ),
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw standard errors against epsilon (.svg, .png or .pdf).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose a mechanism and split its budget, before any outcome is read.

    Of the table, only arms and clusters are read.

    clusterdp plan clicks.parquet --arm treated --cluster market --outcomes 0..5
    --epsilon 2 --segment-share 0.1 --plot tradeoff.svg
    """
    given = locals()
    from clusterdp.cli.plan import run_plan_command

    with errors_in_one_line():
        run_plan_command(given)


@app.command()
def estimate(
    folder: Annotated[Path, typer.Argument(help="A published folder.")],
    control: Annotated[str | None, typer.Option(help="The arm to compare with.")] = None,
    segments: Annotated[
        str | None,
        typer.Option(help="Your own table (Parquet, CSV, Arrow); it never leaves you."),
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="Its column of ids; as in the release by default.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Cut by a column, kept or joined; crossed: tier,region. Repeatable."),
    ] = None,
    adjust: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL,...",
            help="Numeric columns, known before treatment, to adjust for (Lin's regression).",
        ),
    ] = None,
    unstratified: Annotated[
        bool,
        typer.Option("--unstratified", help="Compare overall means instead of within clusters."),
    ] = False,
    rows_only: Annotated[
        bool,
        typer.Option(
            "--rows-only", help="Use rows alone, and not what noisy sums or counts tell of cells."
        ),
    ] = False,
    shares: Annotated[
        str | None,
        typer.Option(
            metavar="ARM=SHARE,...",
            help="What shares arms were meant to have, to check sample ratios against.",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a forest plot (.svg, .png or .pdf).")
    ] = None,
) -> None:
    """Effects with intervals from a published folder, overall and in your own segments.

    clusterdp estimate published/ --segments crm.csv --on user --by tier --by tier,region
    """
    given = locals()
    from clusterdp.cli.estimate import run_estimate_command

    with errors_in_one_line():
        run_estimate_command(**given)


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="A published folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a published folder is and what it promises.

    clusterdp inspect published/
    """
    from clusterdp.cli.folders import run_inspect_command

    with errors_in_one_line():
        run_inspect_command(folder, as_json=as_json)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A published folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that a folder is undamaged and that everything in it follows from the rest.

    clusterdp verify published/
    """
    from clusterdp.cli.folders import run_verify_command

    with errors_in_one_line():
        run_verify_command(folder, as_json=as_json)


@app.command()
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
    from clusterdp.cli.reproduce import run_reproduce_command

    with errors_in_one_line():
        run_reproduce_command(
            experiments or [],
            out=out,
            quick=quick,
            snap_communities=snap_communities,
            snap_edges=snap_edges,
        )
