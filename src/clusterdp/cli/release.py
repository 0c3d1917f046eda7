"""`clusterdp release`: what is shown before, what is done, what is shown after."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from clusterdp.channels.draw import check_exact
from clusterdp.cli import options_file as specs
from clusterdp.cli.console import Bars, owner_notices, print_json, say, say_aside
from clusterdp.cli.engines import TableOptions, open_engine
from clusterdp.cli.preview import choose_mechanism, describe_plan, planned_for, show_plan
from clusterdp.errors import ParameterError
from clusterdp.releasing.in_memory import lay_out
from clusterdp.releasing.to_folder import Prepared, write_release
from clusterdp.rows.encoding import Columns

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.cli.engines import Engine
    from clusterdp.ledger.paid_release import Budget
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.journal import Journal
    from clusterdp.storage.folder import Destination

NO_LEDGER = (
    "note: nothing will remember this release, so repeated releases about the same people are not "
    "added up; keep a ledger: --ledger"
)


def run_release_command(  # noqa: PLR0913 - the ways to say what to release
    spec_path: Path | None,
    plan_path: Path | None,
    given: dict[str, Any],
    *,
    key_file: Path | None,
    new_population: bool,
    dry_run: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Plan from public columns, show it, and unless it is a dry run, release."""
    spec = _read_options(spec_path, plan_path, given)
    out = None if dry_run else _out(spec)
    with ExitStack() as stack:
        engine = open_engine(spec, stack)
        target = None if out is None else engine.place(out)
        if target is not None:
            target.check_free()
        budget = _open_budget(spec, key_file, new_population=new_population)
        if budget is not None and target is not None:
            budget.check_population()
        prepared = prepare(spec, engine, out, verbose=verbose)
        layout = prepared.layout
        mechanism, prediction = choose_mechanism(spec, layout)
        check_exact(layout, mechanism)
        plan = describe_plan(prepared, mechanism, prediction, planned_for(spec, layout))
        if budget is not None:
            plan["budget"] = budget.describe(mechanism, layout.space, str(spec["outcome"]))
            plan["notes"] += plan["budget"]["notes"]
        if not as_json:
            show_plan(plan)
        if target is None:
            if as_json:
                print_json({"plan": plan})
            return
        if budget is None:
            say_aside(NO_LEDGER)
            finished = _write(prepared, mechanism, target)
        else:
            finished = budget.release(prepared, mechanism, target, spec, _write)
    _show_finished({"plan": plan, **finished}, as_json=as_json)


def run_resume_command(
    release: str,
    given: dict[str, Any],
    *,
    key_file: Path | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Finish a release that was interrupted; it spends nothing more."""
    from clusterdp.cli.budget import open_ledger
    from clusterdp.ledger.paid_release import Budget, resumed_options

    if given["ledger"] is None:
        raise ParameterError("--resume needs --ledger, where the release is written down")
    budget = Budget(open_ledger(given["ledger"], key_file), None, say=say_aside)
    reservation = budget.ledger.resume(release)
    spec = resumed_options(reservation, given)
    with ExitStack() as stack:
        engine = open_engine(spec, stack)
        target = engine.place(_out(spec))
        finished = budget.finish_published(reservation, target)
        if finished is None:
            target.check_free()
            prepared = prepare(spec, engine, _out(spec), verbose=verbose)
            finished = budget.finish(reservation, prepared, target, _write)
    _show_finished(finished, as_json=as_json)


def _read_options(
    spec_path: Path | None, plan_path: Path | None, given: dict[str, Any]
) -> dict[str, Any]:
    if plan_path is None:
        return specs.read_spec(spec_path, given)
    if spec_path is not None:
        raise ParameterError("give --plan or --spec, and not both")
    return specs.read_plan(plan_path, given)


def _open_budget(
    spec: dict[str, Any], key_file: Path | None, *, new_population: bool
) -> Budget | None:
    ledger, population = spec.get("ledger"), spec.get("population")
    if ledger is None:
        if population is not None or key_file is not None or new_population:
            raise ParameterError(
                "--population, --new-population and --ledger-key-file belong to a --ledger"
            )
        return None
    if not population:
        raise ParameterError("a --ledger needs a --population: whose budget is it?")
    from clusterdp.cli.budget import open_ledger
    from clusterdp.ledger.paid_release import Budget

    opened = open_ledger(ledger, key_file)
    return Budget(opened, population, confirmed_new=new_population, say=say_aside)


def prepare(
    spec: dict[str, Any], engine: Engine, out: str | None, *, verbose: bool = False
) -> Prepared:
    """The table, with its public columns read."""
    space = specs.parse_outcomes(spec["outcomes"])
    columns = Columns(
        unit=spec["unit"],
        arm=spec["arm"],
        cluster=spec["cluster"],
        outcome=spec["outcome"],
        kept=specs.parse_names(spec.get("keep")),
    )
    asked = TableOptions(
        columns=columns,
        space=space,
        clip=bool(spec.get("clip")),
        keep_order=bool(spec.get("keep_order")),
        verbose=verbose,
    )
    table = engine.table(str(spec["input"]), asked, out)
    layout, encoder, notes = lay_out(table, spec.get("control"), spec.get("min_cell_size"))
    return Prepared(table=table, layout=layout, encoder=encoder, notes=notes)


def _out(spec: dict[str, Any]) -> str:
    if spec.get("out") is None:
        raise ParameterError("missing: --out, the folder to publish (or --dry-run)")
    return str(spec["out"])


def _write(
    prepared: Prepared,
    mechanism: Mechanism,
    target: Destination,
    journal: Journal | None = None,
) -> dict[str, Any]:
    with owner_notices(), Bars() as bars:
        write_release(prepared, mechanism, target, bars, journal)
    return {"folder": str(target)}


def _show_finished(finished: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(finished)
        return
    target = finished["folder"]
    look = "" if "://" in target else f"; look at it with: clusterdp inspect {target}"
    say(f"published {target}{look}")
