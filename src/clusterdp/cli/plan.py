"""`clusterdp plan`: compare mechanisms before any outcome is read, and write a plan."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterdp._figures import new_figure
from clusterdp.cli.console import (
    errors_in_one_line,
    print_json,
    print_line,
    print_text,
    progress_bars,
)
from clusterdp.cli.options import OUTPUT, OwnerJson, Spec, options_of, with_options
from clusterdp.errors import OutputError
from clusterdp.owner import plan as owner
from clusterdp.owner.plan_command import in_lines, later_options

if TYPE_CHECKING:
    from clusterdp.owner.plan import Plan


@errors_in_one_line()
@with_options(owner.plan)
def plan(
    *,
    spec: Spec = None,
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
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a page for a meeting: what can be detected at each epsilon, where epsilon "
            "goes, and the commands. It opens in any browser.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: OwnerJson = False,
    **given: Any,
) -> None:
    """Choose a mechanism and split its budget, before any outcome is read.

    It compares every mechanism, or the one that you name. Of the table, only
    arms and clusters are read.

    clusterdp plan players.csv --arm version --cluster country
    --outcome retention_1=0,1 --outcome retention_7=0,1
    --outcome rounds=number:0..493 --reference retention_1=0.4
    --metric "rounds>=10" --epsilon 2 --html plan.html
    """
    options = options_of(given, spec)
    if plot is not None:
        new_figure(plot, (1, 1))  # refused now if it cannot be drawn later
    if html is not None and not html.parent.is_dir():
        raise OutputError(f"cannot write {html}: there is no folder {html.parent}; make it first")
    made = owner.make_plan(options.input, options)
    made.save(out)
    if plot is not None:
        made.plot(plot)
    if html is not None:
        _write_page(made, html)
    if as_json:
        print_json(made.to_dict())
        return
    print_text(repr(made))
    missing = ["--unit ..."] if options.unit is None else []
    missing += later_options(options)
    words = ["clusterdp release", *(["TABLE"] if options.size else []), f"--plan {out}"]
    if html is not None:
        print_line(f"wrote {html}; open it in a browser")
    print_line(f"wrote {out}; carry it out with:")
    print_text(textwrap.indent(in_lines([*words, *missing, "--out ..."]), "  "))


def _write_page(plan: Plan, path: Path) -> None:
    with progress_bars() as progress:
        page = plan.to_html(progress)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
