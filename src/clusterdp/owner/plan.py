"""Plan a release before any outcome is read: compare mechanisms, recommend one, write it down."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp._words import counted
from clusterdp.channels.disclosure import disclosure_notes
from clusterdp.engines.base import CellOptions
from clusterdp.errors import ParameterError
from clusterdp.estimation.formatting import aligned
from clusterdp.mechanisms.parts import NoisyCounts
from clusterdp.owner.options import MechanismOptions, Options
from clusterdp.planning.figure import trade_off_plot
from clusterdp.planning.plan import compare, smallest_epsilon, to_options
from clusterdp.releasing.prepare import named, open_engine, read_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.figure import Figure

    from clusterdp.engines.base import Engine
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.choose import Prediction
    from clusterdp.planning.plan import Comparison, Option

# A comparison as people read it.
_LEGEND = (
    "standard errors of the overall effect and in a segment, of the least certain arm; detectable "
    "by a two-sided\n5% test with 80% power. Each mechanism is at its best, noisy sums included; "
    "the noisy-* release no rows."
)


def plan(  # noqa: PLR0913 - the parts of a table and the owner's choices, all by name
    source: Any,
    *,
    outcomes: OutcomeSpace | str | Sequence[float] | Mapping[str, Any],
    arm: str,
    cluster: str | Sequence[str],
    unit: str | None = None,
    outcome: str | None = None,
    control: Any = None,
    epsilon: float | None = None,
    mde: float | None = None,
    delta: float | None = None,
    mechanism: str | None = None,
    reference: str | Sequence[float] | None = None,
    within_share: float | None = None,
    segment_share: float | None = None,
    min_cell_size: int | None = None,
    keep: str | Sequence[str] | None = None,
    size: str | None = None,
    engine: str | None = None,
    master: str | None = None,
    allow_unencrypted_spark: bool | None = None,
) -> Plan:
    """Compare every mechanism and recommend one, before any outcome is read.

    Args:
        source: A table with one row per unit: a pandas, Polars, PyArrow, DuckDB or Spark frame, or
            the name of a file, a folder, a glob or a query (`duckdb:warehouse.db?select ...`). Only
            its arms and clusters are read.
        outcomes: The values outcomes can take, such as "0..5", "0,1,5", "bins:0,1,10,100" or
            "binary"; or `{"clicks": "0..5"}`, which names the outcome as well.
        arm: The column of treatment arms.
        cluster: The column of public clusters; a list of columns is crossed.
        unit: The column of ids. Planning does not need it; publishing does.
        outcome: The column of outcomes. Planning does not need it; publishing does.
        control: The control arm. Needed unless the arms are 0 and 1.
        epsilon: The budget of the whole release.
        mde: Instead of epsilon: find the smallest that can see an effect of this size.
        delta: Failure probability.
        mechanism: Compare only this one.
        reference: What outcomes are thought to be like: a histogram, or "mean:2,std:1". It decides
            efficiency, and nothing else.
        within_share: Share of the outcomes' variance thought to lie within clusters.
        segment_share: Plan for effects in segments of this share, instead of the overall effect.
        min_cell_size: Pool clusters with fewer units than this in some arm.
        keep: Public columns to publish as they are.
        size: The column of cell sizes, for a table with one row per cluster and arm.
        engine: "local" or "spark".
        master: Where Spark runs.
        allow_unencrypted_spark: Use a Spark cluster that does not encrypt what it stores and sends.

    Raises:
        ParameterError: If a parameter is wrong.
        DataError: If the table breaks a rule.
    """
    given = locals()
    asked = {name: given[name] for name in given if name not in {"source", "mde", "size"}}
    if isinstance(named(source), str):
        asked["input"] = source
    return make_plan(source, Options.of(asked), mde=mde, size=size)


def make_plan(
    source: Any, options: Options, *, mde: float | None = None, size: str | None = None
) -> Plan:
    """As `plan`, with its options checked already."""
    options.require("arm", "cluster", "outcomes")
    if (options.mechanism.epsilon is None) == (mde is None):
        raise ParameterError(
            "give epsilon, the budget (--epsilon), or mde, the effect to find (--mde); not both"
        )
    layout, notes = _read_cells(source, options, size)
    reference, request = options.reference(layout.space), options.request
    if mde is not None:
        request = replace(request, epsilon=smallest_epsilon(request, mde, layout, reference))
    comparison = compare(request, layout, reference)
    decided = dict.fromkeys(MechanismOptions.__struct_fields__) | to_options(comparison)
    kept = options.to_dict() | decided | {"out": None, "ledger": None, "population": None}
    if size is not None:
        kept["input"] = None  # what is released has other rows
    kept |= {"n_units": layout.n_units, "n_clusters": len(layout.clusters)}
    return Plan(options=Options.of(kept), comparison=comparison, notes=notes)


def _read_cells(source: Any, options: Options, size: str | None) -> tuple[Layout, tuple[str, ...]]:
    table = options.table
    asked = CellOptions(table.cluster or "", table.arm or "", options.space, table.control, size)
    with ExitStack() as stack:
        return read_cells(source, asked, table.min_cell_size, engine_for(source, options, stack))


def engine_for(
    source: Any, options: Options, stack: ExitStack, on_message: Callable[[str], None] | None = None
) -> Engine:
    """What reads a source, as the options ask; `stack` closes what it opens."""
    run = options.run
    return open_engine(
        source,
        stack,
        engine=run.engine,
        master=run.master,
        allow_unencrypted=bool(run.allow_unencrypted_spark),
        on_message=on_message,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Plan:
    """What to release and how, decided before any outcome is read.

    Attributes:
        options: Everything that was given or decided, as it is written into a plan file.
        comparison: What was compared; None for a plan that was read from a file.
        notes: What is to be said of the table.
    """

    options: Options
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """A plan that was saved."""
        if not isinstance(path, str | os.PathLike):
            kind = type(path).__name__
            raise ParameterError(f"plan must be a Plan or the path of a plan file, got {kind}")
        options = Options.read(Path(path))
        if options.mechanism.mechanism is None or options.mechanism.epsilon is None:
            raise ParameterError(f"{path} is not a plan: it names no mechanism and epsilon")
        return cls(options=options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as TOML, to be reviewed and kept."""
        self.options.write(Path(path), self._remarks())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Standard errors against ε for every mechanism; written to a file if one is given."""
        return trade_off_plot(self._compared(), None if path is None else Path(path))

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        compared = self._compared()
        layout, choice = compared.layout, compared.choice
        return {
            "epsilon": compared.epsilon,
            "segment_share": compared.segment_share,
            "shown_share": compared.shown_share,
            "n_units": layout.n_units,
            "n_clusters": len(layout.clusters),
            "recommended": compared.chosen,
            "reason": compared.reason,
            "guarantee": choice.mechanism.guarantee(layout.space).in_short(),
            "notes": list(disclosure_notes(choice.mechanism, layout.space)),
            "options": [
                {
                    "mechanism": option.name,
                    "parameters": describe_parameters(option.mechanism, layout.space),
                    "overall": _prediction(option.overall),
                    "segment": None if option.segment is None else _prediction(option.segment),
                }
                for option in compared.options
            ],
        }

    def __repr__(self) -> str:
        if self.comparison is None:
            held = self.options.to_dict().items()
            return "\n".join(["a plan", *(f"  {name}: {value}" for name, value in held)])
        table = "\n".join(aligned(self._table()))
        first, *last = self._around(self.comparison)
        return "\n".join([first, "", table, "", _LEGEND, "", *last])

    def _repr_html_(self) -> str:
        if self.comparison is None:
            return f"<pre>{escape(repr(self))}</pre>"
        header, *rows = self._table()
        cells = "".join(f"<th>{escape(name)}</th>" for name in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        first, *last = self._around(self.comparison)
        paragraphs = "".join(f"<p>{escape(line)}</p>" for line in (_LEGEND, *last))
        return (
            f"<p>{escape(first)}</p><table><thead><tr>{cells}</tr></thead>"
            f"<tbody>{body}</tbody></table>{paragraphs}"
        )

    def _compared(self) -> Comparison:
        if self.comparison is None:
            raise ParameterError("a plan that was read from a file has no comparison; plan again")
        return self.comparison

    def _table(self) -> list[tuple[str, ...]]:
        compared = self._compared()
        segment = f"{compared.shown_share:.0%} segment"
        return [
            ("", "std error", "sampling", "privacy", "detectable", segment, "detectable"),
            *(_row(option, chosen=option.name == compared.chosen) for option in compared.options),
        ]

    def _around(self, compared: Comparison) -> list[str]:
        """What is said above the table, and what below."""
        layout, choice = compared.layout, compared.choice
        numbers = describe_parameters(choice.mechanism, layout.space)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        lines = [
            (
                f"{counted(layout.n_units, 'unit')}, {counted(len(layout.clusters), 'cluster')}, "
                f"{counted(len(layout.arms), 'arm')}; epsilon {compared.epsilon:g}; no outcome was "
                "read"
            ),
            f"recommended: {choice.name}" + (f" ({shown})" if shown else ""),
            f"because: {compared.reason}",
            f"guarantee: {choice.mechanism.guarantee(layout.space).in_short()}",
        ]
        notes = (*self.notes, *disclosure_notes(choice.mechanism, layout.space))
        lines += [f"note: {note}" for note in notes]
        if compared.segment_share == 1 and choice.mechanism.sums is not None:
            lines.append(
                "for small segments rather than the overall effect, plan with segment_share "
                "(--segment-share)"
            )
        return lines

    def _remarks(self) -> list[str]:
        compared = self.comparison
        if compared is None:
            return []
        layout, (_, _, overall, segment) = compared.layout, compared.choice
        table = f"{counted(layout.n_units, 'unit')} in {counted(len(layout.clusters), 'cluster')}"
        remarks = [
            f"A plan for {table}: {compared.reason}.",
            f"Expected standard error of the overall effect: {overall.std_error:.4g}",
        ]
        if segment is not None:
            share = f"{compared.shown_share:.0%}"
            remarks.append(f"and in a segment of {share}: {segment.std_error:.4g}.")
        return remarks


def with_plan(given: Mapping[str, Any], plan: Plan | str | os.PathLike[str] | None) -> Options:
    """The options of a release: those of a plan, with those of the table and the output.

    Raises:
        ParameterError: If an option was given that the plan decides.
    """
    if plan is None:
        return Options.of(given)
    planned = plan if isinstance(plan, Plan) else Plan.load(plan)
    for name in MechanismOptions.__struct_fields__:
        if given.get(name) is not None:
            raise ParameterError(
                f"{name} is decided by the plan; change the plan, or release without it"
            )
    return planned.options.changed(given)


def describe_parameters(mechanism: Mechanism, space: OutcomeSpace) -> dict[str, float]:
    """The numbers of a mechanism, by name."""
    parameters: dict[str, float] = {}
    if isinstance(mechanism.summary, NoisyCounts):
        parameters["noise_scale"] = mechanism.summary.noise_scale
    if mechanism.sums is not None:
        parameters["epsilon of sums"] = mechanism.sums.epsilon
    if mechanism.designs_rows:
        parameters["epsilon of rows"] = mechanism.designed_response().epsilon
    elif mechanism.releases_rows:
        response = mechanism.response(space)
        if mechanism.prior_floor is not None:
            parameters["prior_floor"] = float(response.prior_floor)
        parameters["resample_prob"] = response.resample_prob
    return parameters


def _row(option: Option, *, chosen: bool) -> tuple[str, ...]:
    segment = option.segment
    return (
        ("* " if chosen else "") + option.name,
        *(f"{number:.4g}" for number in (*option.overall, option.overall.detectable_effect)),
        "no rows" if segment is None else f"{segment.std_error:.4g}",
        "" if segment is None else f"{segment.detectable_effect:.4g}",
    )


def _prediction(prediction: Prediction) -> dict[str, float]:
    return {**prediction._asdict(), "detectable_effect": prediction.detectable_effect}
