"""`clusterdp plan`: compare mechanisms before any outcome is read, and write down the best."""

from __future__ import annotations

from typing import Any

from clusterdp._figures import new_figure
from clusterdp.cli.console import print_json, say
from clusterdp.cli.release import read_options
from clusterdp.owner.plan import make_plan


def run_plan_command(given: dict[str, Any]) -> None:
    """Plan, show and write down."""
    given["input"] = given.pop("table")
    plot, out, size = given.pop("plot"), given.pop("out"), given.pop("size")
    as_json, mde = given.pop("as_json"), given.pop("mde")
    options = read_options(given.pop("spec"), None, given)
    if plot is not None:
        new_figure(plot, (1, 1))  # refused now if it cannot be drawn later
    plan = make_plan(options.table.input, options, mde=mde, size=size)
    plan.save(out)
    if plot is not None:
        plan.plot(plot)
    if as_json:
        print_json(plan.to_dict())
        return
    say(repr(plan))
    missing = [
        f"--{name} ..." for name in ("unit", "outcome") if getattr(options.table, name) is None
    ]
    words = ["clusterdp release", *(["TABLE"] if size is not None else []), f"--plan {out}"]
    say(f"wrote {out}; carry it out with: {' '.join([*words, *missing, '--out ...'])}")
