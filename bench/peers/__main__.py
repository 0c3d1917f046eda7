"""Every method beside ours: what it promises and what it delivers on the same data.

    make bench-peers

Writes `docs/studies/peers.md` and its figures. Hillstrom's table is read from `../shared/data` next
to the repository, or from where `--hillstrom` says; without it only simulated populations are run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.peers.costs import measure_costs, row_rates
from bench.peers.figures import draw_figures
from bench.peers.page import as_markdown
from bench.peers.results import Results, load, save
from bench.peers.study import HILLSTROM, SIMULATED, Plan, measure
from bench.peers.summary import Summary
from bench.study_page import STUDIES_FOLDER, write_study

ROOT = Path(__file__).parents[2]
N_UNITS_OF_COSTS = 50_000


def plan_of(hillstrom: Path, n_runs: int, minutes: float) -> Plan:
    """What is run, with Hillstrom's table or without it."""
    there = hillstrom.is_file()
    if not there:
        print(f"there is no {hillstrom.name} at {hillstrom}: simulated populations alone")
    return Plan(
        populations=(*SIMULATED, HILLSTROM) if there else SIMULATED,
        hillstrom=hillstrom if there else None,
        n_runs=n_runs,
        minutes=minutes,
    )


def run(plan: Plan) -> Results:
    """Measure everything."""
    return Results(
        summary=Summary(measure(plan)),
        costs=measure_costs(N_UNITS_OF_COSTS),
        n_units=N_UNITS_OF_COSTS,
        rates=row_rates(),
    )


def main() -> None:
    """Measure, or read what was measured; write and show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=100, help="draws of each population at each ε")
    parser.add_argument("--minutes", type=float, default=20, help="begin no draw after as many")
    parser.add_argument(
        "--hillstrom", type=Path, default=ROOT.parent / "shared" / "data" / "hillstrom.csv"
    )
    parser.add_argument("--save", type=Path, help="keep what was measured in this file")
    parser.add_argument("--load", type=Path, help="write the page of such a file again")
    options = parser.parse_args()
    if options.load:
        results = load(options.load)
    else:
        results = run(plan_of(options.hillstrom, options.runs, options.minutes))
    if options.save:
        save(results, options.save)
    draw_figures(results.summary, STUDIES_FOLDER / "figures")
    text = as_markdown(results)
    write_study("peers", text)
    print(text)


if __name__ == "__main__":
    main()
