"""`clusterdp calibrate`: rows for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterdp.cli.console import errors_in_one_line, print_line
from clusterdp.cli.options import Folder
from clusterdp.errors import OutputError, ParameterError
from clusterdp.estimation.calibrated_rows import calibrated_rows
from clusterdp.published.row_counts import read_errors

_CSV, _PARQUET = ".csv", ".parquet"


@errors_in_one_line()
def calibrate(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The file to write: .parquet or .csv.")],
    holdout: Annotated[
        int | None, typer.Option(metavar="FOLD", help="The rows of one fold alone.")
    ] = None,
) -> None:
    """Write the released rows with calibrated columns, whose means are those of `estimate`.

    clusterdp calibrate published/ --out rows.parquet
    """
    if out.suffix not in {_CSV, _PARQUET}:
        raise ParameterError(f"out must end in {_PARQUET} or {_CSV}, got {out.name!r}")
    if out.resolve().is_relative_to(Path(folder).resolve()):
        raise OutputError(f"{out} is inside the published folder; write somewhere else")
    if not out.resolve().parent.is_dir():
        raise OutputError(f"cannot write {out}: there is no folder {out.parent}; make it first")
    rows = calibrated_rows(folder, holdout=holdout)
    with read_errors():
        (rows.sink_csv if out.suffix == _CSV else rows.sink_parquet)(out)
    print_line(f"wrote {out}")
