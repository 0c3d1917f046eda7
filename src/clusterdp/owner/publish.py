"""Publish a table as a folder, once; finish what was interrupted; look before anything is spent."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.channels.draw import check_exact
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.owner.budget import open_budget, reopen_budget
from clusterdp.owner.how import How, how_to_run
from clusterdp.owner.options import MechanismOptions, Options
from clusterdp.owner.plan import engine_for, with_plan
from clusterdp.owner.preview import choose_mechanism, describe
from clusterdp.published.folder import read_release
from clusterdp.releasing.prepare import named, prepare
from clusterdp.releasing.to_folder import write_release
from clusterdp.rows.frames import without_outcomes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clusterdp.engines.base import Engine
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.ledger.ledger import Ledger
    from clusterdp.ledger.paid_release import Budget
    from clusterdp.owner.plan import Plan
    from clusterdp.owner.preview import Preview
    from clusterdp.published.release import Release
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.releasing.to_folder import Progress
    from clusterdp.storage.folder import Destination

# What a ledger writes down as the input of a release whose table had no name.
_FRAME = "frame://python"
# What of a call says how to run, and not what to release.
_HOW = ("source", "plan", "ledger_key_file", "new_population", "verbose", "progress", "mechanism")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A folder that was published. It can be used wherever a path can.

    Attributes:
        folder: Where it is.
        release_id: Its id in the ledger; None without one.
    """

    folder: str
    release_id: str | None = None

    def __fspath__(self) -> str:
        return self.folder

    def read(self) -> Release:
        """The release, with its rows as a query over the folder."""
        return read_release(self.folder)


def publish(  # noqa: PLR0913 - the parts of a table and the owner's choices, all by name
    source: Any,
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str],
    outcomes: OutcomeSpace | str | Sequence[float] | Mapping[str, Any] | None = None,
    unit: str | None = None,
    arm: str | None = None,
    cluster: str | Sequence[str] | None = None,
    outcome: str | None = None,
    control: Any = None,
    keep: str | Sequence[str] | None = None,
    clip: bool | None = None,
    min_cell_size: int | None = None,
    keep_order: bool | None = None,
    mechanism: Mechanism | str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_scale: float | None = None,
    prior_floor: float | None = None,
    resample_prob: float | None = None,
    calibrate: float | None = None,
    prior: str | Sequence[float] | None = None,
    reference: str | Sequence[float] | None = None,
    within_share: float | None = None,
    segment_share: float | None = None,
    ledger: str | os.PathLike[str] | Ledger | None = None,
    population: str | None = None,
    new_population: bool = False,
    ledger_key_file: str | os.PathLike[str] | None = None,
    engine: str | None = None,
    master: str | None = None,
    allow_unencrypted_spark: bool | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
) -> Published:
    """Privatize every outcome of an experiment's table into a new folder.

    Each call spends the stated guarantee anew. With a ledger the losses of releases about the same
    people are added up, and a release that would exceed the cap is refused before an outcome is
    read.

    Args:
        source: A table with one row per unit: a frame, or the name of a file, a folder, a glob or a
            query, as in `plan`.
        plan: A `Plan`, or the path of a plan file. What it says need not be said again.
        out: The folder to publish; it must not exist.
        outcomes: The values outcomes can take, as in `plan`.
        unit: The column of ids, integers or strings.
        arm: The column of treatment arms.
        cluster: The column of public clusters; a list of columns is crossed.
        outcome: The column of sensitive outcomes.
        control: The control arm. Needed unless the arms are 0 and 1.
        keep: Public columns to publish as they are.
        clip: Move outcomes beyond the ends of the space to the nearest end, instead of an error.
        min_cell_size: Pool clusters with fewer units than this in some arm into one cluster.
        keep_order: Publish rows in the order of the table, which is then public, instead of the
            order of their ids.
        mechanism: A name such as "optimal", or a `Mechanism`; by default the best that releases
            rows. What a name leaves open is chosen, as `plan` does.
        epsilon: The budget of the whole release.
        delta: Failure probability.
        noise_scale: Scale of the noise on counts.
        prior_floor: Least prior probability of an outcome.
        resample_prob: Probability that a row is redrawn, instead of epsilon.
        calibrate: Share of epsilon for noisy cell sums.
        prior: Public prior that the optimal channel is designed for.
        reference: What outcomes are thought to be like, as in `plan`.
        within_share: As in `plan`.
        segment_share: As in `plan`.
        ledger: The ledger to spend from: a file, `postgresql://user@host/database`, or a `Ledger`.
        population: Whose budget: losses of releases about the same people add up.
        new_population: Confirm that the ledger does not know the population yet.
        ledger_key_file: Key file of the ledger, if it was made with one.
        engine: "local" or "spark".
        master: Where Spark runs.
        allow_unencrypted_spark: Use a Spark cluster that does not encrypt what it stores and sends:
            who reads its disks or network can learn the key, and with it every outcome.
        verbose: Say how many rows an error or a notice is about. For the owner's eyes alone.
        progress: Where a long run reports to.

    Raises:
        ClusterDPError: If the table, a parameter, the place or the budget is wrong. There is then
            no folder.
    """
    given = locals()
    return run_publish(source, wanted_by(given, plan), how_to_run(given), progress=progress)


def preview(
    source: Any, plan: Plan | str | os.PathLike[str] | None = None, **choices: Any
) -> Preview:
    """What `publish` would do, from public columns alone; nothing is published or spent.

    Takes what `publish` takes, without `out`.
    """
    wanted = wanted_by({"source": source, **choices}, plan)
    with readied(source, wanted, how_to_run(choices), out=None) as ready:
        return ready.preview


def resume(  # noqa: PLR0913 - where things are, all by name
    release_id: str,
    source: Any = None,
    *,
    ledger: str | os.PathLike[str] | Ledger,
    out: str | os.PathLike[str] | None = None,
    ledger_key_file: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
) -> Published:
    """Finish a release that was interrupted; it spends nothing more.

    Args:
        release_id: Its id in the ledger.
        source: The table, if it was a frame or has another name now; it must be the same.
        ledger: The ledger that it is written down in.
        out: The folder to publish, if it is to be another.
        ledger_key_file: Key file of the ledger, if it was made with one.
        verbose: As in `publish`.
        progress: As in `publish`.

    Raises:
        LedgerError: If there is no such release, or it is finished.
        DataError: If the table is another.
    """
    how = how_to_run(locals())
    given = {"ledger": str(ledger), "out": named(out), "input": None}
    return run_resume(release_id, source, given, how, progress=progress)


class Wanted(NamedTuple):
    """What to release.

    Attributes:
        options: What was asked for.
        mechanism: A mechanism made by hand; None if it is to be chosen.
    """

    options: Options
    mechanism: Mechanism | None = None


class Ready(NamedTuple):
    """A release that only has to be written.

    Attributes:
        prepared: The table.
        mechanism: What to publish.
        preview: What to tell the owner before.
        budget: What it spends; None without a ledger.
        target: Where it goes; None if it is only looked at.
    """

    prepared: Prepared
    mechanism: Mechanism
    preview: Preview
    budget: Budget | None
    target: Destination | None


@contextmanager
def readied(source: Any, wanted: Wanted, how: How, out: str | None) -> Iterator[Ready]:
    """Open everything and choose the mechanism; nothing is spent, no outcome is read."""
    options = wanted.options
    with ExitStack() as stack:
        engine = engine_for(source, options, stack, how.on_message)
        target = None if out is None else engine.place(out)
        if target is not None:
            target.check_free()
        budget = open_budget(options.run, how)
        if budget is not None and target is not None:
            budget.check_population()
        looked_at = source if out is not None else without_outcomes(source, options.columns.outcome)
        prepared = prepare_options(looked_at, options, engine, out, verbose=how.verbose)
        mechanism = wanted.mechanism or choose_mechanism(options, prepared.layout)
        check_exact(prepared.layout, mechanism)
        told = None
        if budget is not None:
            told = budget.describe(mechanism, prepared.layout.space, prepared.table.columns.outcome)
        shown = describe(prepared, mechanism, options, told)
        yield Ready(prepared, mechanism, shown, budget, target)


def run_publish(
    source: Any,
    wanted: Wanted,
    how: How,
    *,
    show: Callable[[Ready], None] | None = None,
    progress: Progress | None = None,
) -> Published:
    """As `publish`, with its options checked already; `show` is called before anything is spent."""
    options = wanted.options
    options.require("out")
    out = options.run.out or ""
    with readied(source, wanted, how, out) as ready:
        if show is not None:
            show(ready)
        prepared, mechanism, _, budget, target = ready
        assert target is not None  # noqa: S101 - there is a place
        write = _writer(progress)
        if budget is None:
            return _published(write(prepared, mechanism, target))
        source = named(source)
        kept = {**options.to_dict(), "input": source if isinstance(source, str) else _FRAME}
        return _published(budget.release(prepared, mechanism, target, kept, write))


def run_resume(
    release_id: str,
    source: Any,
    given: dict[str, Any],
    how: How,
    *,
    progress: Progress | None = None,
) -> Published:
    """As `resume`; `given` holds every option that was given, most of which are refused."""
    source = named(source)
    if isinstance(source, str):
        given = {**given, "input": source}
    budget, reservation, kept = reopen_budget(release_id, given, how)
    options = Options.of(kept)
    if source is None:
        source = options.table.input
    if isinstance(source, str) and source == _FRAME:
        raise ParameterError(
            "the release was of a frame, which the ledger does not hold: finish it in Python with "
            f"clusterdp.resume({release_id!r}, frame, ledger=...)"
        )
    with ExitStack() as stack:
        engine = engine_for(source, options, stack, how.on_message)
        out = options.run.out or ""
        target = engine.place(out)
        finished = budget.finish_published(reservation, target)
        if finished is None:
            target.check_free()
            prepared = prepare_options(source, options, engine, out, verbose=how.verbose)
            finished = budget.finish(reservation, prepared, target, _writer(progress))
    return _published(finished)


def prepare_options(
    source: Any, options: Options, engine: Engine, out: str | None, *, verbose: bool
) -> Prepared:
    """The table that options describe, with its public columns read."""
    table = options.table
    return prepare(
        source,
        columns=options.columns,
        space=options.space,
        control=table.control,
        min_cell_size=table.min_cell_size,
        clip=bool(table.clip),
        keep_order=bool(table.keep_order),
        verbose=verbose,
        engine=engine,
        out=out,
    )


def wanted_by(given: Mapping[str, Any], plan: Plan | str | os.PathLike[str] | None) -> Wanted:
    """What a call asks for."""
    mechanism = given.get("mechanism")
    asked = {name: given[name] for name in given if name not in _HOW}
    source = named(given["source"])
    asked["input"] = source if isinstance(source, str) else None
    if asked.get("ledger") is not None:
        asked["ledger"] = str(asked["ledger"])
    if not isinstance(mechanism, Mechanism):
        return Wanted(with_plan({**asked, "mechanism": mechanism}, plan))
    if plan is not None:
        raise ParameterError("give a plan, which decides the mechanism, or a mechanism; not both")
    clash = [name for name in MechanismOptions.__struct_fields__ if asked.get(name) is not None]
    if clash:
        raise ParameterError(
            f"{clash[0]} belongs to a mechanism by name; this one was made with its own: leave out "
            f"{clash[0]}"
        )
    return Wanted(Options.of(asked), mechanism)


def _writer(progress: Progress | None) -> Callable[..., dict[str, Any]]:
    def write(
        prepared: Prepared,
        mechanism: Mechanism,
        target: Destination,
        journal: Journal | None = None,
    ) -> dict[str, Any]:
        write_release(prepared, mechanism, target, progress, journal)
        return {"folder": str(target)}

    return write


def _published(finished: Mapping[str, Any]) -> Published:
    return Published(folder=finished["folder"], release_id=finished.get("release_id"))
