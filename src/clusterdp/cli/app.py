"""The command `clusterdp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clusterdp.cli.console import errors_in_one_line
from clusterdp.cli.ledger import app as ledger_app
from clusterdp.cli.options import (
    ARM,
    BUDGET,
    CLUSTER,
    CONTROL,
    DELTA,
    ENGINE,
    EPSILON,
    LEDGER_KEY_FILE,
    MIN_CELL_SIZE,
    NEW_POPULATION,
    OUTCOMES,
    OUTPUT,
    PRIVACY,
    REFERENCE,
    SEGMENT_SHARE,
    TABLE,
    WITHIN_SHARE,
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
        from clusterdp import __version__

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
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="A Parquet, CSV or Arrow file, a folder or a glob of them, or "
            "'duckdb:warehouse.db?select ...'; with Spark also s3a://... or hdfs://...",
        ),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Column of ids.", rich_help_panel=TABLE)] = None,
    arm: Annotated[str | None, ARM] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Column of sensitive outcomes.", rich_help_panel=TABLE)
    ] = None,
    outcomes: Annotated[str | None, OUTCOMES] = None,
    control: Annotated[str | None, CONTROL] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL,...",
            help="Public columns to publish as they are; nothing else of the table is.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    clip: Annotated[
        bool | None,
        typer.Option(
            "--clip",
            help="Move outcomes beyond the ends to the nearest end.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    min_cell_size: Annotated[int | None, MIN_CELL_SIZE] = None,
    keep_order: Annotated[
        bool | None,
        typer.Option(
            "--keep-order",
            help="Publish rows in the order of the table, which is then public, instead of the "
            "order of ids.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    epsilon: Annotated[float | None, EPSILON] = None,
    delta: Annotated[float | None, DELTA] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="optimal, cluster-dp, cluster-free-dp, uniform-prior-dp, noisy-horvitz-thompson "
            "or noisy-histogram; the best that releases rows by default.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    noise_scale: Annotated[
        float | None, typer.Option(help="Scale of the noise on counts.", rich_help_panel=PRIVACY)
    ] = None,
    prior_floor: Annotated[
        float | None,
        typer.Option(help="Least prior probability of an outcome.", rich_help_panel=PRIVACY),
    ] = None,
    resample_prob: Annotated[
        float | None,
        typer.Option(
            help="Probability that a row is redrawn, instead of --epsilon.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    calibrate: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of --epsilon for noisy cell sums, which estimates then use.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="P,P,...",
            help="Public prior that the optimal channel is designed for; costs nothing.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    reference: Annotated[str | None, REFERENCE] = None,
    within_share: Annotated[float | None, WITHIN_SHARE] = None,
    segment_share: Annotated[float | None, SEGMENT_SHARE] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Carry out a plan of `clusterdp plan` to the letter."),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(help="These options in a TOML file; the command line overrides it."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Budget ledger to spend from: a file, or postgresql://user@host/database.",
            rich_help_panel=BUDGET,
        ),
    ] = None,
    population: Annotated[
        str | None,
        typer.Option(
            help="Whose budget: releases about the same people add up.", rich_help_panel=BUDGET
        ),
    ] = None,
    new_population: Annotated[bool, NEW_POPULATION] = False,
    ledger_key_file: Annotated[Path | None, LEDGER_KEY_FILE] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Finish an interrupted release of a --ledger; it spends nothing more.",
            rich_help_panel=BUDGET,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="local|spark",
            help="What reads the table: this process (the default), or Spark.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Where Spark runs, such as local[2] or yarn; by default on all cores here.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    allow_unencrypted_spark: Annotated[
        bool | None,
        typer.Option(
            "--allow-unencrypted-spark",
            help="Use a Spark cluster that does not encrypt what it stores and sends: who reads "
            "its disks or network can learn the key, and with it every outcome.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="The folder to publish; with Spark also s3a://... or hdfs://...",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what would be released, from public columns; publish nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Say how many rows an error or a warning is about. For your eyes only: such "
            "numbers depend on true outcomes, and several of them add up to a histogram.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Turn a table into a published folder, once.

    clusterdp release clicks.parquet --unit user --arm treated --cluster market
    --outcome clicks --outcomes 0..5 --epsilon 2 --out published/
    """
    from clusterdp.cli.release import run_release_command, run_resume_command

    given: dict[str, Any] = {
        "input": table,
        "unit": unit,
        "arm": arm,
        "cluster": cluster,
        "outcome": outcome,
        "outcomes": outcomes,
        "control": control,
        "keep": keep,
        "clip": clip,
        "min_cell_size": min_cell_size,
        "keep_order": keep_order,
        "mechanism": mechanism,
        "epsilon": epsilon,
        "delta": delta,
        "noise_scale": noise_scale,
        "prior_floor": prior_floor,
        "resample_prob": resample_prob,
        "calibrate": calibrate,
        "prior": prior,
        "reference": reference,
        "within_share": within_share,
        "segment_share": segment_share,
        "engine": engine,
        "master": master,
        "allow_unencrypted_spark": allow_unencrypted_spark,
        "out": out,
        "ledger": ledger,
        "population": population,
    }
    with errors_in_one_line():
        if resume is not None:
            also = {
                "plan": plan,
                "spec": spec,
                "dry_run": dry_run or None,
                "new_population": new_population or None,
            }
            run_resume_command(
                resume,
                given | also,
                key_file=ledger_key_file,
                verbose=verbose,
                as_json=as_json,
            )
            return
        run_release_command(
            spec,
            plan,
            given,
            key_file=ledger_key_file,
            new_population=new_population,
            dry_run=dry_run,
            verbose=verbose,
            as_json=as_json,
        )


@app.command()
def plan(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT", help="As for release; only arms and clusters are read of it."
        ),
    ] = None,
    arm: Annotated[str | None, ARM] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="Column of cell sizes, for a table with one row per cluster and arm.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    outcomes: Annotated[str | None, OUTCOMES] = None,
    control: Annotated[str | None, CONTROL] = None,
    min_cell_size: Annotated[int | None, MIN_CELL_SIZE] = None,
    epsilon: Annotated[float | None, EPSILON] = None,
    mde: Annotated[
        float | None,
        typer.Option(
            help="Instead of --epsilon: find the smallest that can see an effect of this size.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    delta: Annotated[float | None, DELTA] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="Only this mechanism.", rich_help_panel=PRIVACY)
    ] = None,
    reference: Annotated[str | None, REFERENCE] = None,
    within_share: Annotated[float | None, WITHIN_SHARE] = None,
    segment_share: Annotated[float | None, SEGMENT_SHARE] = None,
    spec: Annotated[
        Path | None,
        typer.Option(help="Options in a TOML file; the command line overrides it."),
    ] = None,
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Choose a mechanism and split its budget, before any outcome is read.

    clusterdp plan clicks.parquet --arm treated --cluster market --outcomes 0..5
    --epsilon 2 --segment-share 0.1 --plot tradeoff.svg
    """
    from clusterdp.cli.plan import run_plan_command

    given = {
        "input": table,
        "arm": arm,
        "cluster": cluster,
        "outcomes": outcomes,
        "control": control,
        "min_cell_size": min_cell_size,
        "mechanism": mechanism,
        "epsilon": epsilon,
        "delta": delta,
        "reference": reference,
        "within_share": within_share,
        "segment_share": segment_share,
    }
    with errors_in_one_line():
        run_plan_command(spec, given, size=size, mde=mde, out=out, plot=plot, as_json=as_json)


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
    from clusterdp.cli.estimate import run_estimate_command

    with errors_in_one_line():
        run_estimate_command(
            folder,
            control=control,
            segments=segments,
            on=on,
            by=by,
            adjust=adjust,
            unstratified=unstratified,
            rows_only=rows_only,
            shares=shares,
            level=level,
            as_json=as_json,
            csv=csv,
            plot=plot,
        )


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="A published folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a published folder is and what it promises."""
    from clusterdp.cli.folders import run_inspect_command

    with errors_in_one_line():
        run_inspect_command(folder, as_json=as_json)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A published folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that a folder is undamaged and that everything in it follows from the rest."""
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
