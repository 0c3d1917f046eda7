"""`clusterdp plan`: compare mechanisms before any outcome is read, and write a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clusterdp.cli.console import errors_in_one_line, print_json, say
from clusterdp.cli.options import OUTPUT, OwnerJson, Spec, with_options
from clusterdp.owner.keywords import PlanKeywords


@errors_in_one_line()
@with_options(PlanKeywords)
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
    as_json: OwnerJson = False,
    **given: Any,
) -> None:
    """Choose a mechanism and split its budget, before any outcome is read.

    It compares every mechanism, or the one that you name. Of the table, only
    arms and clusters are read.

    clusterdp plan clicks.parquet --arm treated --cluster market --outcomes 0..5
    --epsilon 2 --segment-share 0.1 --plot tradeoff.svg
    """
    from clusterdp._figures import new_figure
    from clusterdp.cli.release import options_of
    from clusterdp.owner.plan import make_plan

    options = options_of(given, spec)
    if plot is not None:
        new_figure(plot, (1, 1))  # refused now if it cannot be drawn later
    made = make_plan(options.input, options)
    made.save(out)
    if plot is not None:
        made.plot(plot)
    if as_json:
        print_json(made.to_dict())
        return
    say(repr(made))
    missing = [f"--{name} ..." for name in ("unit", "outcome") if getattr(options, name) is None]
    words = ["clusterdp release", *(["TABLE"] if options.size else []), f"--plan {out}"]
    say(f"wrote {out}; carry it out with: {' '.join([*words, *missing, '--out ...'])}")
