"""`clusterdp estimate`: effects as a table, JSON, CSV and a forest plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.cli.console import console, print_json, say
from clusterdp.engines.local.sources import open_unstored
from clusterdp.errors import OutputError, ParameterError
from clusterdp.estimation import formatting as report
from clusterdp.estimation.estimate import estimate
from clusterdp.experiment.lists import parse_names

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.estimation.results import Estimate


def run_estimate_command(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    *,
    control: str | None,
    segments: str | None,
    on: str | None,
    by: list[str] | None,
    adjust: list[str] | None,
    unstratified: bool,
    rows_only: bool,
    shares: str | None,
    level: float,
    as_json: bool,
    csv: Path | None,
    plot: Path | None,
) -> None:
    """Estimate and show."""
    result = estimate(
        folder,
        control=control,
        estimator="unstratified" if unstratified else "stratified",
        use="rows" if rows_only else "everything",
        segments=None if segments is None else _read_segments(segments),
        on=on,
        by=by,
        adjust=parse_names(adjust),
        shares=None if shares is None else _parse_shares(shares),
        level=level,
    )
    for path in (csv, plot):
        _check_not_input(path, folder, segments)
    if csv is not None:
        _write_csv(result, csv)
    if plot is not None:
        result.plot(plot)
    if as_json:
        print_json(result.to_dict())
        return
    _show(result)
    for path in (csv, plot):
        if path is not None:
            say(f"wrote {path}")


def _read_segments(source: str) -> pl.DataFrame:
    return open_unstored(source).collect(engine="streaming")


def _parse_shares(text: str) -> dict[str, float]:
    try:
        pairs = [entry.rsplit("=", 1) for entry in text.split(",")]
        return {arm.strip(): float(share) for arm, share in pairs}
    except ValueError:
        raise ParameterError(f"shares reads ARM=SHARE,ARM=SHARE; got {text!r}") from None


def _check_not_input(path: Path | None, folder: Path, segments: str | None) -> None:
    """Never write over what was read."""
    if path is None:
        return
    place = path.resolve()
    read = [folder] if segments is None else [folder, Path(segments)]
    if any(place.is_relative_to(source.resolve()) for source in read):
        raise OutputError(f"{path} is what is being read; write somewhere else")


def _write_csv(result: Estimate, path: Path) -> None:
    try:
        result.to_polars().write_csv(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or 'no such place'}") from None


def _show(result: Estimate) -> None:
    import sys

    if not sys.stdout.isatty():
        sys.stdout.write(f"{result}\n")
        return
    from rich.table import Table

    header, rows = report.as_table(result)
    table: Any = Table(box=None, padding=(0, 1), header_style="bold")
    for name in header:
        table.add_column(name, justify="left" if name == "segment" else "right", no_wrap=True)
    for effect, row in zip(result.effects, rows, strict=True):
        table.add_row(*row, style=None if effect.of.segment else "bold")
    out = console()
    out.print(report.title(result))
    out.print(table)
    for note in result.notes:
        say(f"note: {note}")
