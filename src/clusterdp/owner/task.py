"""A release to be made: the table, the options, the mechanism, and who runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp.errors import ParameterError
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.owner.budget import Caller, python_caller
from clusterdp.owner.options import DECIDED, Options
from clusterdp.owner.parsing import parse_options
from clusterdp.owner.plan import engine_for, table_name, with_plan
from clusterdp.planning.choose import choose
from clusterdp.releasing.prepare import prepare

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from contextlib import ExitStack

    from clusterdp.engines.base import Engine
    from clusterdp.experiment.layout import Layout
    from clusterdp.owner.plan import Plan
    from clusterdp.releasing.prepare import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A release to be made.

    Attributes:
        source: The table: a frame, or a name.
        options: What was asked for.
        mechanism: A mechanism made by hand; None if the options choose it.
        caller: Who runs it.
    """

    source: Any
    options: Options
    mechanism: Mechanism | None = None
    caller: Caller

    def open_engine(self, stack: ExitStack) -> Engine:
        """What reads the table; `stack` closes what it opens."""
        return engine_for(self.source, self.options, stack, self.caller.notify)

    def prepare(self, engine: Engine, out: str | None, source: Any = None) -> Prepared:
        """The table, with its public columns read.

        Args:
            engine: What reads it.
            out: Where it is going to be published; None if it is not.
            source: Read this in place of the task's table.
        """
        options = self.options
        return prepare(
            self.source if source is None else source,
            columns=options.columns,
            space=options.space,
            control=options.control,
            min_cell_size=options.min_cell_size,
            clip=bool(options.clip),
            keep_order=bool(options.keep_order),
            verbose=bool(options.verbose),
            engine=engine,
            out=out,
        )

    def choose_mechanism(self, layout: Layout) -> Mechanism:
        """The mechanism made by hand, or the best that the options allow."""
        return self.mechanism or choose(self.options.request, layout, self.options.expected)


def python_task(
    source: Any, plan: Plan | str | os.PathLike[str] | None, given: Mapping[str, Any]
) -> Task:
    """The task of a call in Python."""
    ledger, mechanism = given.get("ledger"), given.get("mechanism")
    caller = python_caller(ledger)
    asked = {**given, "input": table_name(source)}
    if ledger is not None:
        asked["ledger"] = str(ledger)
    if not isinstance(mechanism, Mechanism):
        return Task(source=source, options=with_plan(asked, plan), caller=caller)
    if plan is not None:
        raise ParameterError("give a plan, which decides the mechanism, or a mechanism; not both")
    del asked["mechanism"]
    clash = [name for name in DECIDED if asked.get(name) is not None]
    if clash:
        raise ParameterError(
            f"{clash[0]} belongs to a mechanism by name; this one was made with its own: leave out "
            f"{clash[0]}"
        )
    options = parse_options(asked)
    return Task(source=source, options=options, mechanism=mechanism, caller=caller)
