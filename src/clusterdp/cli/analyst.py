"""`clusterdp estimate`: effects as a table, JSON, CSV, a forest plot and a page."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterdp._lists import parse_names
from clusterdp._text import plain_text
from clusterdp.cli.console import (
    FIRST,
    HelpAll,
    check_place,
    print_json,
    print_line,
    print_next,
    print_screen,
    reported_errors,
)
from clusterdp.document.text import terminal_width
from clusterdp.errors import OutputError, ParameterError
from clusterdp.estimation.effects.findings import VARYING
from clusterdp.estimation.estimate import estimate as estimate_effects
from clusterdp.estimation.reading.rows import open_segments
from clusterdp.estimation.report.screen import estimate_text

if TYPE_CHECKING:
    from clusterdp.estimation.report.results import Estimate


# Options that change what is written, and no number.
_OUTPUTS = ("as_json", "csv", "plot", "html", "verbose")
# How files of text may be called; places such as /dev/stdout have no ending.
_CSV = (".csv", ".txt", "")
_HTML = (".html", ".htm", "")


@reported_errors()
def estimate_command(
    context: typer.Context,
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER...",
            help="A published folder, on disk or in object storage (s3://...); or several folders "
            "of one experiment about different units.",
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="What to measure: rounds (mean), rounds>=10 (share), p90(rounds), "
            "median(rounds), dist(rounds) (distribution), spend/visit (ratio). Repeatable.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    control: Annotated[
        str | None, typer.Option(help="The arm to compare with.", rich_help_panel="Method")
    ] = None,
    segments: Annotated[
        str | None,
        typer.Option(
            help="Your own table: a file, or a database with --segments-query.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    segments_query: Annotated[
        str | None,
        typer.Option(
            help="The query whose rows are your table: 'select ...'.", rich_help_panel="Method"
        ),
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="An answer of the owner to a follow-up (clusterdp ask). Repeatable.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    followup: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="The follow-up of an answer, if it is not next to it. Repeatable.",
            rich_help_panel="Method",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Its column of ids; by default the one of the release.",
            rich_help_panel="Method",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Segment by a column, or by folder; crossed: tier,region. Repeatable.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    adjust: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL,...",
            help="Columns measured before treatment to adjust for (CUPED, Lin's regression).",
            rich_help_panel=FIRST,
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column or outcome that records treatment received (0 or 1). Adds complier "
            "effects (CACE).",
            rich_help_panel="Method",
        ),
    ] = None,
    differences: Annotated[
        str | None,
        typer.Option(
            metavar="rest|pairs",
            help="Compare segments with the rest or pairwise, and test for heterogeneity.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=NUMBER",
            help="Is the overall effect above this? visit=-0.002: not worse than control by more. "
            "Repeatable.",
            rich_help_panel="Method",
        ),
    ] = None,
    equivalence: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=NUMBER",
            help="Is the overall effect within ± this? visit=0.002. Repeatable.",
            rich_help_panel="Method",
        ),
    ] = None,
    family: Annotated[
        str,
        typer.Option(
            help="What a multiple-testing family covers: arms, segments, metrics. Holm and BH "
            "p-values and simultaneous CIs are for a whole family.",
            rich_help_panel="Tests",
        ),
    ] = ",".join(VARYING),
    fold: Annotated[
        int | None,
        typer.Option(
            metavar="FOLD",
            help="Use one fold only, so that segments can be chosen in the others.",
            rich_help_panel="Method",
        ),
    ] = None,
    unstratified: Annotated[
        bool,
        typer.Option(
            "--unstratified",
            help="Compare overall means instead of within clusters.",
            rich_help_panel="Method",
        ),
    ] = False,
    rows_only: Annotated[
        bool,
        typer.Option(
            "--rows-only",
            help="Use rows only, without noisy sums and counts.",
            rich_help_panel="Method",
        ),
    ] = False,
    shares: Annotated[
        str | None,
        typer.Option(
            metavar="ARM=SHARE,...",
            help="Planned shares of arms, for the SRM check.",
            rich_help_panel="Tests",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level.", rich_help_panel="Tests")] = 0.95,
    folder_weights: Annotated[
        str,
        typer.Option(
            metavar="size|precision",
            help="How several folders count: by units, or by the precision of their effects.",
            rich_help_panel="Method",
        ),
    ] = "size",
    look: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Which of N planned looks this is. CIs and p-values hold over all of them.",
            rich_help_panel="Tests",
        ),
    ] = None,
    anytime: Annotated[
        int | None,
        typer.Option(
            metavar="UNITS",
            help="For any number of looks: the number of units at which CIs are to be shortest, "
            "the same at every look.",
            rich_help_panel="Tests",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")
    ] = False,
    csv: Annotated[
        Path | None, typer.Option(help="Write a CSV file.", rich_help_panel=FIRST)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw a forest plot (.svg, .png or .pdf).", rich_help_panel="Output"),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page to share. It opens in any browser.", rich_help_panel=FIRST),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Show all columns, passed checks and method notes.",
            rich_help_panel=FIRST,
        ),
    ] = False,
    help_all: HelpAll = False,  # noqa: ARG001 - it prints and exits
) -> None:
    """Estimate effects with confidence intervals, overall and in your own segments.

    clusterdp estimate published/ --segments crm.csv --by tier
    """
    read = folders if segments is None else [*folders, segments]
    written = _checked_outputs(csv, plot, html, read)
    result = estimate_effects(
        folders,
        metrics=metric or None,
        control=control,
        estimator="unstratified" if unstratified else "stratified",
        use="rows" if rows_only else "everything",
        answers=answer,
        followups=followup,
        segments=None if segments is None else open_segments(segments, on, segments_query),
        on=on,
        by=by,
        adjust=parse_names(adjust),
        exposure=exposure,
        differences=differences,  # type: ignore[arg-type]  # it is checked there
        margins=margin,
        equivalence=equivalence,
        family=family,
        fold=fold,
        shares=None if shares is None else _parse_shares(shares),
        level=level,
        folder_weights=folder_weights,  # type: ignore[arg-type]  # it is checked there
        look=look,
        anytime=anytime,
    )
    if csv is not None:
        _write_csv(result, csv)
    if plot is not None:
        result.plot(plot)
    if html is not None:
        made = replace(result, origin=replace(result.origin, made_by=_command(context)))
        _write_page(made, html)
    if as_json:
        print_json(result.to_dict())
        return
    print_screen(estimate_text(result, terminal_width(), verbose=verbose))
    if written:
        print_line(f"Wrote {' and '.join(map(str, written))}")
    ideas = {
        "--by folder for each folder": len(folders) > 1 and not by,
        "--by COLUMN for segments": not by,
        "--differences rest to compare segments": bool(by) and not differences,
        "--html report.html to share": html is None,
        "-v for more": not verbose,
    }
    if any(ideas.values()):
        print_next(f"add {', '.join(idea for idea, fits in ideas.items() if fits)}")


def _parse_shares(text: str) -> dict[str, float]:
    try:
        pairs = [entry.rsplit("=", 1) for entry in text.split(",")]
        return {arm.strip(): float(share) for arm, share in pairs}
    except ValueError:
        raise ParameterError(
            f"Cannot read --shares {text!r}. Fix: write ARM=SHARE,ARM=SHARE."
        ) from None


def _checked_outputs(
    csv: Path | None, plot: Path | None, html: Path | None, read: list[str]
) -> list[Path]:
    """What is going to be written; what cannot be written later is refused now."""
    if plot is not None:
        from clusterdp.document._matplotlib import new_figure

        new_figure(plot, (1, 1))
    if csv is not None and csv.suffix.lower() not in _CSV:
        raise ParameterError(f"--csv writes a CSV file, got {csv.name!r}. Fix: name it .csv.")
    if html is not None and html.suffix.lower() not in _HTML:
        raise ParameterError(f"--html writes a page, got {html.name!r}. Fix: name it .html.")
    written = [path for path in (csv, plot, html) if path is not None]
    for path in written:
        check_place(path)
        if any(path.resolve().is_relative_to(Path(source).resolve()) for source in read):
            raise OutputError(f"{path} is an input. Nothing was written. Fix: choose another path.")
    return written


def _command(context: typer.Context) -> str:
    """The command that makes the same estimate: without outputs, and files by their names alone."""
    words = ["clusterdp", "estimate"]
    for option in context.command.params:
        value = context.params.get(str(option.name))
        if option.name in _OUTPUTS or not value or value == option.default:
            continue
        if option.param_type_name == "argument":
            words += [Path(one).resolve().name for one in value]
        elif isinstance(value, bool):
            words.append(option.opts[0])
        else:
            each = value if isinstance(value, list) else [value]
            names = [_shown_word(str(option.name), one) for one in each]
            words += [word for name in names for word in (option.opts[0], name)]
    return shlex.join(words)


def _shown_word(option: str, value: object) -> str:
    """The value of an option, of files and folders by their names.

    A table that is no file may hold paths and passwords, and is not shown.
    """
    if option in {"answer", "followup"}:
        return Path(str(value)).resolve().name
    if option == "segments":
        return Path(str(value)).name if Path(str(value)).exists() else "SEGMENTS"
    return str(value)


def _write_page(result: Estimate, path: Path) -> None:
    try:
        path.write_text(result.to_html(), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror or 'invalid path'}.") from None


def _write_csv(result: Estimate, path: Path) -> None:
    import polars as pl

    texts = pl.selectors.string().map_elements(plain_text, return_dtype=pl.String)
    try:
        result.to_polars().with_columns(texts).rename(plain_text).write_csv(path)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror or 'invalid path'}.") from None
