"""`clusterdp estimate`: effects as a table, JSON, CSV, a forest plot and a page.

`clusterdp calibrate`: rows for other tools.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterdp._lists import parse_names
from clusterdp._text import plain_text
from clusterdp.cli.console import (
    AsJson,
    Folder,
    errors_in_one_line,
    print_json,
    print_line,
    print_text,
)
from clusterdp.errors import OutputError, ParameterError
from clusterdp.estimation.calibrated_rows import calibrated_rows
from clusterdp.estimation.effects.families import VARYING
from clusterdp.estimation.estimate import estimate as estimate_effects
from clusterdp.estimation.reading.rows import open_segments
from clusterdp.published.rows import released_row_errors

if TYPE_CHECKING:
    from clusterdp.estimation.report.results import Estimate


# Options that change what is written, and no number.
_OUTPUTS = ("as_json", "csv", "plot", "html")
# How files of text may be called; places such as /dev/stdout have no ending.
_CSV = (".csv", ".txt", "")
_HTML = (".html", ".htm", "")


@errors_in_one_line()
def estimate_command(
    context: typer.Context,
    folder: Folder,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="What to measure: rounds (mean), rounds>=10 (share), p90(rounds), "
            "median(rounds), dist(rounds) (distribution by arm), spend/visit (ratio). Repeatable; "
            "every declared metric by default."
        ),
    ] = None,
    control: Annotated[str | None, typer.Option(help="The arm to compare with.")] = None,
    segments: Annotated[
        str | None,
        typer.Option(
            help="Your own table: a file (Parquet, CSV, NDJSON, Arrow), or the URL of a database "
            "with --segments-query. It stays with you."
        ),
    ] = None,
    segments_query: Annotated[
        str | None, typer.Option(help="The query whose rows are your table: 'select ...'.")
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
            help="Columns known before treatment to adjust for: CUPED, by Lin's regression.",
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Whether units were exposed: an outcome declared as 0,1, or a column of 0 and 1, "
            "kept or joined. Adds effects on those exposed (CACE), with Anderson and Rubin's "
            "intervals.",
        ),
    ] = None,
    differences: Annotated[
        str | None,
        typer.Option(
            metavar="rest|pairs",
            help="Also compare each segment with the rest of its dimension, or with each other "
            "one, and test whether all are the same.",
        ),
    ] = None,
    family: Annotated[
        str,
        typer.Option(
            help="What varies among effects that are judged together: arms, segments, metrics. "
            "Holm's and BH's p-values and simultaneous intervals hold for a whole family.",
        ),
    ] = ",".join(VARYING),
    holdout: Annotated[
        int | None,
        typer.Option(
            metavar="FOLD",
            help="Use one fold alone: segments may be chosen by looking at the others.",
        ),
    ] = None,
    unstratified: Annotated[
        bool,
        typer.Option("--unstratified", help="Compare overall means instead of within clusters."),
    ] = False,
    rows_only: Annotated[
        bool, typer.Option("--rows-only", help="Use rows alone, without noisy sums and counts.")
    ] = False,
    shares: Annotated[
        str | None,
        typer.Option(
            metavar="ARM=SHARE,...",
            help="Shares that the arms were meant to have, to check sample ratios against.",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level.")] = 0.95,
    as_json: AsJson = False,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a forest plot (.svg, .png or .pdf).")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page to share, which opens in any browser.")
    ] = None,
) -> None:
    """Estimate effects with intervals from a published folder, overall and in your own segments.

    clusterdp estimate published/ --segments crm.csv --on user --by tier --by tier,region

    clusterdp estimate published/ --metric "rounds>=10" --metric "p90(rounds)" --metric spend/visit

    clusterdp estimate published/ --exposure clicked --metric spend
    """
    # What cannot be written later is refused now.
    if plot is not None:
        from clusterdp.document._matplotlib import new_figure

        new_figure(plot, (1, 1))
    if csv is not None and csv.suffix.lower() not in _CSV:
        raise ParameterError(f"csv (--csv) writes text, got {csv.name!r}; name it .csv")
    if html is not None and html.suffix.lower() not in _HTML:
        raise ParameterError(f"html (--html) writes a page, got {html.name!r}; name it .html")
    written = [path for path in (csv, plot, html) if path is not None]
    for path in written:
        _check_not_input(path, folder, segments)
    result = estimate_effects(
        folder,
        metrics=metric or None,
        control=control,
        estimator="unstratified" if unstratified else "stratified",
        use="rows" if rows_only else "everything",
        segments=None if segments is None else open_segments(segments, on, segments_query),
        on=on,
        by=by,
        adjust=parse_names(adjust),
        exposure=exposure,
        differences=differences,  # type: ignore[arg-type]  # it is checked there
        family=family,
        holdout=holdout,
        shares=None if shares is None else _parse_shares(shares),
        level=level,
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
    print_text(str(result))
    for path in written:
        print_line(f"wrote {path}")


def _parse_shares(text: str) -> dict[str, float]:
    try:
        pairs = [entry.rsplit("=", 1) for entry in text.split(",")]
        return {arm.strip(): float(share) for arm, share in pairs}
    except ValueError:
        raise ParameterError(f"shares reads ARM=SHARE,ARM=SHARE; got {text!r}") from None


def _check_not_input(path: Path, folder: str, segments: str | None) -> None:
    """Refuse to write over what was read."""
    place = path.resolve()
    read = [folder] if segments is None else [folder, segments]
    if any(place.is_relative_to(Path(source).resolve()) for source in read):
        raise OutputError(f"{path} is what is being read; write somewhere else")


def _command(context: typer.Context) -> str:
    """The command that makes the same estimate: without outputs, and files by their names alone."""
    words = ["clusterdp", "estimate"]
    for option in context.command.params:
        value = context.params[str(option.name)]
        if option.name in _OUTPUTS or not value or value == option.default:
            continue
        if option.param_type_name == "argument":
            words.append(Path(value).resolve().name)
        elif isinstance(value, bool):
            words.append(option.opts[0])
        else:
            each = value if isinstance(value, list) else [value]
            names = [_shown_table(one) if option.name == "segments" else str(one) for one in each]
            words += [word for name in names for word in (option.opts[0], name)]
    return shlex.join(words)


def _shown_table(source: str) -> str:
    """The name of a file; what is no file may hold paths and passwords, and is not shown."""
    return Path(source).name if Path(source).exists() else "SEGMENTS"


def _write_page(result: Estimate, path: Path) -> None:
    try:
        path.write_text(result.to_html(), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or 'no such place'}") from None


def _write_csv(result: Estimate, path: Path) -> None:
    import polars as pl

    texts = pl.selectors.string().map_elements(plain_text, return_dtype=pl.String)
    try:
        result.to_polars().with_columns(texts).rename(plain_text).write_csv(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or 'no such place'}") from None


_CSV_SUFFIX, _PARQUET = ".csv", ".parquet"


@errors_in_one_line()
def calibrate_command(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The file to write: .parquet or .csv.")],
    holdout: Annotated[
        int | None, typer.Option(metavar="FOLD", help="The rows of one fold alone.")
    ] = None,
) -> None:
    """Write the released rows with calibrated columns: their means are near those of `estimate`.

    clusterdp calibrate published/ --out rows.parquet
    """
    if out.suffix not in {_CSV_SUFFIX, _PARQUET}:
        raise ParameterError(f"out must end in {_PARQUET} or {_CSV_SUFFIX}, got {out.name!r}")
    if out.resolve().is_relative_to(Path(folder).resolve()):
        raise OutputError(f"{out} is inside the published folder; write somewhere else")
    if not out.resolve().parent.is_dir():
        raise OutputError(f"cannot write {out}: there is no folder {out.parent}; make it first")
    rows = calibrated_rows(folder, holdout=holdout)
    with released_row_errors():
        (rows.sink_csv if out.suffix == _CSV_SUFFIX else rows.sink_parquet)(out)
    print_line(f"wrote {out}")
