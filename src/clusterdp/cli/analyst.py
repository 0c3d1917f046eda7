"""`clusterdp estimate`: effects as a table, JSON, CSV, a forest plot and a page."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterdp._lists import parse_names
from clusterdp._text import plain_text
from clusterdp.cli.console import (
    FIRST,
    Flag,
    HelpAll,
    check_place,
    print_json,
    print_line,
    print_next,
    print_screen,
    reported_errors,
    with_flags,
)
from clusterdp.document.text import terminal_width
from clusterdp.errors import OutputError, ParameterError
from clusterdp.estimation.effects.findings import VARYING
from clusterdp.estimation.estimate import estimate as estimate_effects
from clusterdp.estimation.reading.rows import open_segments
from clusterdp.estimation.report.screen import estimate_text

if TYPE_CHECKING:
    from clusterdp.estimation.report.results import Estimate


_METHOD, _DECISIONS, _TESTS, _OUTPUT = "Method", "Decisions", "Tests", "Output"
# Every option, by the argument of `clusterdp.estimate` that it is, where it is one.
FLAGS = {
    "metrics": Flag(
        list[str],
        FIRST,
        "What to measure: rounds (mean), rounds>=10 (share), p90(rounds), median(rounds), "
        "dist(rounds) (distribution), spend/visit (ratio). Repeatable.",
        name="metric",
    ),
    "control": Flag(str, _METHOD, "The arm to compare with."),
    "arms": Flag(
        list[str],
        _DECISIONS,
        "Compare several arms as one, by all their units: email=mens+womens. Repeatable.",
        metavar="NAME=ARM+ARM",
    ),
    "segments": Flag(str, FIRST, "Your own table: a file, or a database with --segments-query."),
    "segments_query": Flag(str, _METHOD, "The query whose rows are your table: 'select ...'."),
    "answers": Flag(
        list[str],
        FIRST,
        "An answer of the owner to a follow-up (clusterdp ask). Repeatable.",
        metavar="FOLDER",
        name="answer",
    ),
    "followups": Flag(
        list[str],
        _METHOD,
        "The follow-up of an answer, if it is not next to it. Repeatable.",
        metavar="FOLDER",
        name="followup",
    ),
    "on": Flag(str, _METHOD, "Its column of ids; by default the one of the release."),
    "by": Flag(
        list[str],
        FIRST,
        "Segment by a column, or by folder; crossed: tier,region. Repeatable.",
    ),
    "adjust": Flag(
        list[str],
        FIRST,
        "Columns measured before treatment to adjust for (CUPED, Lin's regression).",
        metavar="COL,...",
    ),
    "exposure": Flag(
        str,
        _METHOD,
        "Column or outcome that records treatment received (0 or 1). Adds complier effects (CACE).",
        metavar="NAME",
    ),
    "differences": Flag(
        str,
        FIRST,
        "Compare segments with the rest or pairwise, and test for heterogeneity.",
        metavar="rest|pairs",
    ),
    "margins": Flag(
        list[str],
        _DECISIONS,
        "Is the overall effect above this? visit=-0.002: not worse than control by more. A "
        "one-sided test at 5%. Repeatable.",
        metavar="METRIC=NUMBER",
        name="margin",
    ),
    "equivalence": Flag(
        list[str],
        _DECISIONS,
        "Is the overall effect within ± this? visit=0.002. Two one-sided tests at 5%. Repeatable.",
        metavar="METRIC=NUMBER",
    ),
    "lower_is_better": Flag(
        list[str],
        _DECISIONS,
        "A metric whose lowest mean is the best, for the probability that an arm is the best. "
        "Repeatable.",
        metavar="METRIC",
    ),
    "scale": Flag(
        str,
        _DECISIONS,
        "Show effects as differences, ratios (risk ratios of shares), odds ratios or lift.",
        metavar="difference|ratio|odds|lift",
        default="difference",
    ),
    "family": Flag(
        str,
        _TESTS,
        "What a multiple-testing family covers: arms, segments, metrics. Holm and BH p-values and "
        "simultaneous CIs are for a whole family.",
        default=",".join(VARYING),
    ),
    "fold": Flag(
        int,
        _METHOD,
        "Use one fold only, so that segments can be chosen in the others.",
        metavar="FOLD",
    ),
    "unstratified": Flag(
        bool, _METHOD, "Compare overall means instead of within clusters.", default=False
    ),
    "rows_only": Flag(
        bool, _METHOD, "Use rows only, without noisy sums and counts.", default=False
    ),
    "shares": Flag(
        str, _TESTS, "Planned shares of arms, for the SRM check.", metavar="ARM=SHARE,..."
    ),
    "level": Flag(float, _TESTS, "Confidence level.", default=0.95),
    "folder_weights": Flag(
        str,
        _METHOD,
        "How several folders count: by units, or by the precision of their effects.",
        metavar="size|precision",
        default="size",
    ),
    "look": Flag(
        str,
        _TESTS,
        "Which of N planned looks this is. CIs and p-values hold over all of them.",
        metavar="K/N",
    ),
    "anytime": Flag(
        int,
        _TESTS,
        "For any number of looks: the number of units at which CIs are to be shortest, the same at "
        "every look.",
        metavar="UNITS",
    ),
    "csv": Flag(Path, FIRST, "Write a CSV file."),
    "plot": Flag(Path, _OUTPUT, "Draw a forest plot (.svg, .png or .pdf)."),
    "html": Flag(Path, FIRST, "Write a page to share. It opens in any browser."),
}
# Options that change what is written, and no number.
_OUTPUTS = ("as_json", "csv", "plot", "html", "verbose")
# How files of text may be called; places such as /dev/stdout have no ending.
_CSV = (".csv", ".txt", "")
_HTML = (".html", ".htm", "")


@reported_errors()
@with_flags(FLAGS)
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
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False,
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
    **given: Any,
) -> None:
    """Estimate effects with intervals, overall and in your segments.

    clusterdp estimate published/ --segments crm.csv --by tier
    """
    csv, plot, html = (given.pop(name) for name in ("csv", "plot", "html"))
    segments, query, shares = (given.pop(name) for name in ("segments", "segments_query", "shares"))
    read = folders if segments is None else [*folders, segments]
    written = _checked_outputs(csv, plot, html, read)
    result = estimate_effects(
        folders,
        estimator="unstratified" if given.pop("unstratified") else "stratified",
        use="rows" if given.pop("rows_only") else "everything",
        segments=None if segments is None else open_segments(segments, given["on"], query),
        adjust=parse_names(given.pop("adjust")),
        lower_is_better=given.pop("lower_is_better") or (),
        shares=None if shares is None else _parse_shares(shares),
        **given,
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
    by = given["by"]
    ideas = {
        "--by folder for each folder": len(folders) > 1 and not by,
        "--by COLUMN for segments": not by,
        "--differences rest to compare segments": bool(by) and not given["differences"],
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
    if option in {"answers", "followups"}:
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
