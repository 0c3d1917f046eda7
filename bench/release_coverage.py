"""Do 95% intervals of whole releases cover, whatever a plan is for?

    make bench-coverage

Lines run on all cores, and stop after a stated time: two cores need about five hours for all
replicates. Those that are known least go first. What was measured is kept in
`build/release_coverage`, so that the next run goes on where this one stopped; a change of the
program begins anew, and a published line stays until the program has measured it as often, or a
quarter of what is wanted. Writes
`docs/studies/release_coverage.md`.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import clusterdp as cdp
from bench import release_draws
from bench.release_draws import STUDIES, Replicates, Study, replicate
from bench.release_lines import (
    HALVES_HEADER,
    HEADER,
    TESTS_HEADER,
    Row,
    halves_cells,
    judged,
    lines,
    test_cells,
)
from bench.study_page import without_thousands, write_study, written_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

N_REPLICATES, N_TESTS = 2000, 8000
# What one run may take; a line that is cut off says how many replicates it has.
MINUTES = 120.0
# Replicates that share a plan, and are kept together.
_AT_ONCE = 250
# The share of what is wanted that takes the place of what an earlier program measured.
_ENOUGH = 0.25
_ROOT = Path(__file__).parents[1]
_KEPT = _ROOT / "build" / "release_coverage"


class Task(NamedTuple):
    """Some replicates of one design, purpose and ε, and the file that keeps them."""

    study: int
    purpose: str | None
    epsilon: float
    part: int
    file: Path

    @property
    def what(self) -> tuple[str, ...]:
        """The design, what it is planned for, and ε, as tables have them."""
        name = without_thousands(STUDIES[self.study].name)
        return (name, self.purpose or "everything", f"{self.epsilon:g}")


class Published:
    """What was measured before: the rows of all tables, by design, purpose and ε."""

    def __init__(self) -> None:
        """Read the page of the study, and the table beside it."""
        self.intervals = _by_design(written_rows("release_coverage", HEADER))
        self.tests = _by_design(written_rows("release_coverage", TESTS_HEADER))
        self.halves = _by_design(written_rows("release_coverage", HALVES_HEADER))

    def share(self, what: tuple[str, ...]) -> float:
        """How much of what is wanted is known of a design, purpose and ε."""
        counts = [int(row[4]) / N_REPLICATES for row in self.intervals.get(what, [])]
        counts += [int(row[3]) / N_TESTS for row in self.tests.get(what, [])]
        return min(counts, default=0.0)


def _by_design(rows: list[list[str]]) -> dict[tuple[str, ...], list[list[str]]]:
    found: dict[tuple[str, ...], list[list[str]]] = {}
    for row in rows:
        found.setdefault(tuple(without_thousands(cell) for cell in row[:3]), []).append(row)
    return found


def measure(chosen: Iterable[Study], minutes: float) -> list[Task]:
    """Measure what there is time for; all tasks, also of what was not measured.

    What is known least goes first.
    """
    folder, published = _KEPT / _program_hash(), Published()
    folder.mkdir(parents=True, exist_ok=True)
    names = {one.name for one in chosen}
    every = [
        Task(index, purpose, epsilon, part, folder / f"{index}-{purpose}-{epsilon:g}-{part}")
        for index, study in enumerate(STUDIES)
        for purpose in study.purposes
        for epsilon in study.epsilons
        for part in range(_n_wanted(study) // _AT_ONCE)
    ]
    todo = [one for one in every if STUDIES[one.study].name in names and not one.file.exists()]
    todo.sort(
        key=lambda one: (
            max(published.share(one.what), one.part * _AT_ONCE / _n_wanted(STUDIES[one.study])),
            one.part,
        )
    )
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_measure, todo, [time.monotonic() + 60 * minutes] * len(todo)))
    return every


def _n_wanted(study: Study) -> int:
    """Tests of homogeneity want more replicates than intervals."""
    return N_TESTS if "differences" in study.asked else N_REPLICATES


class Rows(NamedTuple):
    """The rows of the tables of a page."""

    intervals: list[Row]
    tests: list[Row]
    halves: list[Row]


def rows_of(tasks: list[Task]) -> Rows:
    """The rows of all tables: what this program measured, or what is published if it is little."""
    published, rows = Published(), Rows([], [], [])
    for first in tasks:
        if first.part:
            continue
        parts = [one.file for one in tasks if one[:3] == first[:3] and one.file.exists()]
        share = len(parts) * _AT_ONCE / _n_wanted(STUDIES[first.study])
        if not parts or share < min(published.share(first.what), _ENOUGH):
            rows.intervals.extend(map(judged, published.intervals.get(first.what, [])))
            rows.tests.extend(published.tests.get(first.what, []))
            rows.halves.extend(published.halves.get(first.what, []))
            continue
        found = Replicates.together([pickle.loads(one.read_bytes()) for one in parts])  # noqa: S301 - our own files
        program = first.file.parent.name
        rows.intervals.extend((*line.cells(), program) for line in lines(found))
        rows.halves.extend((*cells, program) for cells in halves_cells(found))
        if found.tests:
            rows.tests.append((*test_cells(found), program))
    return rows


def _program_hash() -> str:
    """A name for the program that is measured: its sources, and the draws."""
    sources = sorted((_ROOT / "src").rglob("*.py"))
    digest = hashlib.sha256()
    for source in [*sources, Path(release_draws.__file__)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:8]


def _measure(task: Task, end: float) -> None:
    """Measure and keep some replicates, unless the time is up."""
    seconds = end - time.monotonic()
    if seconds < 0:
        return
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    study = STUDIES[task.study]
    found = replicate(study, task.purpose, task.epsilon, _AT_ONCE, seconds=seconds)
    if len(found.clips) == _AT_ONCE:
        task.file.write_bytes(pickle.dumps(found))


def page(rows: Rows, minutes: float) -> str:
    """The page."""
    return _PAGE.format(
        minutes=f"{minutes:.0f}",
        n_lines=len(rows.intervals),
        n_sound=sum(not row[HEADER.index("not as wanted")] for row in rows.intervals),
        coverage=_ends(rows.intervals, "coverage"),
        ratio=_ends(rows.intervals, "SE/SD"),
        predicted=_ends(rows.intervals, "predicted"),
        table=_table(HEADER, rows.intervals),
        tests=_table(TESTS_HEADER, rows.tests),
        halves=_table(HALVES_HEADER, rows.halves),
    )


def _ends(rows: list[Row], name: str) -> str:
    """The least and the largest number of a column."""
    cells = [cell for row in rows if (cell := row[HEADER.index(name)])]
    numbers = [float(cell.rstrip("%")) for cell in cells]
    return " to ".join(cells[numbers.index(end)] for end in (min(numbers), max(numbers)))


def _table(header: tuple[str, ...], found: list[Row]) -> str:
    rows = [header, ("---",) * len(header), *found]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_PAGE = """# Do intervals of whole releases cover?

Written by `make bench-coverage`; not edited by hand. Each line is a design whose outcomes do not
depend on the arm, so that every effect is zero. In each replicate the table is drawn again, planned
with a right baseline, released and estimated by the functions that people call. Next to it is
what true outcomes give in the same tables. A run stops after {minutes} minutes, and the next one
goes on, with what is known least first; *replicates* says how many each line had. *program* names
the version that measured a line, by a hash of its sources; a line without one was measured before
this was recorded. A line stays until a later version has as many replicates, or 500 of them (2,000
tests). A coverage of 95% over 2,000 effects has a Monte Carlo standard error of 0.5 points, and a
ratio of standard errors one of 1.6%.

- *SE/SD* is the mean standard error over the standard deviation of estimates, with its 5th and 95th
  percentile; *length* that of intervals over those of a known standard deviation; *of privacy* what
  privacy adds in squares, as reported; *predicted* the planned standard error over the standard
  deviation.
- *not as wanted* names what is outside its range by more than two Monte Carlo standard errors:
  *coverage* of 93.5 to 98%; *mean* SE/SD of 0.95 to 1.10; *spread* of its percentiles within ±15%,
  or 1.15 times as wide as without privacy; *predicted* 0.9 to 1.15.

{n_sound} of {n_lines} lines are as wanted in everything. Over all lines coverage is {coverage},
mean SE/SD {ratio}, and predicted over realized {predicted}.

Standard errors vary most where groups were assigned as a whole. Their variance is that between
groups, and each group is known with noise only. What noise adds is known and subtracted, and what
is left varies with it: of 80 groups, noise adds 3.5 times that variance if planned for everything
at ε = 1, 0.7 times at ε = 2 or planned for overall at ε = 1. Percentiles are then about ±37, 22 and
22% of the mean. Who knew everything but one variance that all groups share would have ±37, 20 and
22% (the bound of Cramér and Rao, for normal noise), and ±18% is wanted: only more of ε for totals
of groups would help. A plan for overall has the share of ε for them that makes intervals shortest.
Of 80 groups planned for overall at ε = 2, and of 30 planned for everything at ε = 2, that bound is
as wanted (±17 and ±26%), and the estimate is just above. It does not take groups of any size to
vary equally, since intervals would be too short where large groups vary more. Degrees of freedom
allow for all of this.

In 79 schools planned for overall, standard errors are 3 to 8% too large. Rows have too little of ε
to show how schools differ, so that this is left in the variance: an upper bound.

Where outcomes may be missing, an effect is a ratio. Noise that makes the share observed look
smaller makes its error larger by as much, and the standard error follows. In a tenth at ε = 1 this
is nearly all that standard errors vary by: the last table shows that both their halves are right.

{table}

## Do tests of homogeneity keep their level?
How often they reject at 5% where effects are the same.

{tests}

## Do standard errors that vary follow the errors of estimates?
Of lines whose standard errors vary more than is wanted: the half of replicates with the smaller
ones, next to that with the larger ones. Where outcomes may be missing both halves are right:
estimates vary as much as is stated, and standard errors that varied less would be worse. Where
groups were assigned, the smaller half is too small and the larger one too large, as an estimated
variance is: intervals have Student's t for that.

{halves}
"""


def main(names: list[str]) -> None:
    """Measure the named designs, or all, and write the page."""
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    chosen = [one for one in STUDIES if not names or any(name in one.name for name in names)]
    rows = rows_of(measure(chosen, MINUTES))
    for row in (*rows.intervals, *rows.tests, *rows.halves):
        print(*row, sep="  ")
    write_study("release_coverage", page(rows, MINUTES))


if __name__ == "__main__":
    main(sys.argv[1:])
