"""The list of options: the name, the type, the rule and the meaning of each.

Python functions, commands, TOML files and plans all take their options from this list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Struct

from clusterdp.errors import ParameterError
from clusterdp.experiment.lists import parse_names, parse_numbers
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.planning.assumptions import REMEDY, UNIFORM, Scenario, parse_reference
from clusterdp.planning.choose import MECHANISMS, Request
from clusterdp.rows.encoding import Columns

if TYPE_CHECKING:
    from clusterdp.experiment.layout import Layout


class Rule(NamedTuple):
    """What the value of an option must be.

    Attributes:
        text: The rule in words, for errors.
        metavar: What the command line shows in place of a value; None for the type.
    """

    text: str
    metavar: str | None = None


Text = Annotated[str | None, Rule("text")]
Column = Annotated[str | None, Rule("the name of a column")]
Crossed = Annotated[str | None, Rule("the name of a column, or a list to be crossed")]
Names = Annotated[str | list[str] | None, Rule("names of columns", "COL,...")]
Number = Annotated[float | None, Rule("a number")]
Share = Annotated[float | None, Rule("a number", "SHARE")]
Whole = Annotated[int | None, Rule("a whole number")]
Switch = Annotated[bool | None, Rule("true or false")]
Label = Annotated[str | bool | int | float | None, Rule("the label of an arm")]
Numbers = Annotated[
    str | list[float] | None, Rule("numbers separated by commas, or a list of them", "P,P,...")
]
Space = Annotated[
    str | list[float] | None,
    Rule("an outcome space such as '0..5', '0,1,5', 'bins:0,1,10' or 'binary'"),
]
MechanismName = Annotated[str | None, Rule(f"one of {', '.join(MECHANISMS)}")]
EngineName = Annotated[str | None, Rule("local or spark", "local|spark")]


class Options(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every option of plans and releases; None if it was not given."""

    input: Annotated[
        Text,
        "A Parquet, CSV or Arrow file, a folder or a glob of them, or "
        "'duckdb:warehouse.db?select ...'. With Spark also s3a://... or hdfs://...",
    ] = None
    unit: Annotated[Column, "Column of ids: integers or strings."] = None
    arm: Annotated[Column, "Column of treatment arms."] = None
    cluster: Annotated[
        Crossed, "Column of public clusters. Several columns are crossed: region,channel."
    ] = None
    outcome: Annotated[Column, "Column of sensitive outcomes."] = None
    outcomes: Annotated[
        Space, "Values that outcomes can take: 0,1,5 or 0..5 or bins:0,1,10,100 or binary."
    ] = None
    control: Annotated[Label, "Control arm. Needed unless the arms are 0 and 1."] = None
    keep: Annotated[
        Names, "Public columns to publish as they are, beside ids, arms and clusters."
    ] = None
    clip: Annotated[Switch, "Move outcomes beyond the ends of the space to the nearest end."] = None
    min_cell_size: Annotated[
        Whole, "Pool clusters with fewer units than this in some arm into one cluster."
    ] = None
    keep_order: Annotated[
        Switch,
        "Publish rows in the order of the table, instead of the order of ids. The order is "
        "then public, and must not depend on outcomes.",
    ] = None
    size: Annotated[
        Column, "Column of cell sizes, for a table with one row per cluster and arm."
    ] = None
    n_units: Annotated[Whole, "Units that a plan was made for."] = None
    n_clusters: Annotated[Whole, "Clusters that a plan was made for."] = None

    epsilon: Annotated[Number, "Budget of the whole release."] = None
    mde: Annotated[
        Number,
        "Instead of epsilon: find the smallest epsilon that can detect an effect of this size.",
    ] = None
    delta: Annotated[Number, "Failure probability of the guarantee; 0 by default."] = None
    mechanism: Annotated[
        MechanismName, f"One of {', '.join(MECHANISMS)}. By default the best that releases rows."
    ] = None
    noise_scale: Annotated[Number, "Scale of the noise on counts."] = None
    prior_floor: Annotated[Number, "Least prior probability of an outcome."] = None
    resample_prob: Annotated[
        Number, "Probability that a row is redrawn. Give it instead of epsilon."
    ] = None
    sums_share: Annotated[
        Share, "Share of epsilon for noisy cell sums, which estimates then use."
    ] = None
    prior: Annotated[
        Numbers, "Public prior that the optimal channel is designed for. It costs nothing."
    ] = None
    reference: Annotated[
        Numbers,
        "Distribution that you expect of outcomes: a histogram, or mean:2,std:1. Predictions "
        "and choices follow from it; privacy and bias do not depend on it.",
    ] = None
    within_share: Annotated[
        Share,
        "Share of the outcomes' variance that you expect within clusters; 1 if clusters are alike.",
    ] = None
    segment_share: Annotated[
        Share,
        "Choose for effects in segments with this share of the units, instead of the overall "
        "effect.",
    ] = None

    ledger: Annotated[
        Text, "Budget ledger to spend from: a file, or postgresql://user@host/database."
    ] = None
    population: Annotated[
        Text, "Population whose budget is spent. Losses of releases about the same people add up."
    ] = None
    new_population: Annotated[
        Switch,
        "Confirm that the ledger does not know the population yet, and that it shares nobody "
        "with those it knows.",
    ] = None
    ledger_key_file: Annotated[Text, "Key file of the ledger, if it was made with one."] = None

    engine: Annotated[
        EngineName, "What reads the table: this process, which is the default, or Spark."
    ] = None
    master: Annotated[
        Text, "Where Spark runs, such as local[2] or yarn. By default on all cores of this machine."
    ] = None
    allow_unencrypted_spark: Annotated[
        Switch,
        "Use a Spark cluster that does not encrypt what it stores and sends. Whoever reads its "
        "disks or network can learn the key, and with it every outcome.",
    ] = None

    out: Annotated[
        Text, "Folder to publish; it must not exist. With Spark also s3a://... or hdfs://..."
    ] = None
    verbose: Annotated[
        Switch,
        "Report how many rows an error or a warning is about. For your eyes only: such numbers "
        "depend on true outcomes, and several of them add up to a histogram.",
    ] = None

    def to_dict(self) -> dict[str, Any]:
        """The options that were given, by name, as plans and ledgers hold them."""
        given: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in given.items() if name not in OF_ONE_RUN}

    def require(self, *names: str) -> None:
        """Raise a ParameterError unless these options were given."""
        for name in names:
            if getattr(self, name) is None:
                flag = name.replace("_", "-")
                raise ParameterError(f"missing: {name}; give {name}=... (--{flag})")

    @property
    def space(self) -> OutcomeSpace:
        """The declared outcome space."""
        self.require("outcomes")
        return OutcomeSpace.parse(self.outcomes or "")

    @property
    def columns(self) -> Columns:
        """Which column plays which part."""
        self.require("unit", "arm", "cluster", "outcome")
        return Columns(
            unit=self.unit or "",
            arm=self.arm or "",
            cluster=self.cluster or "",
            outcome=self.outcome or "",
            kept=parse_names(self.keep),
        )

    @property
    def request(self) -> Request:
        """The mechanism that is wanted, with the parameters that were given."""
        given = {name: getattr(self, name) for name in DECIDED}
        given["delta"] = self.delta or 0.0
        if self.prior is not None:
            given["prior"] = tuple(parse_numbers(self.prior))
        share = self.segment_share
        return Request(**given, segment_share=1.0 if share is None else share)

    def scenario(self, layout: Layout) -> Scenario:
        """All that a plan is made from; outcomes are expected as the reference or the prior is."""
        given, space = self.prior if self.reference is None else self.reference, self.space
        return Scenario(layout, space, parse_reference(given, space, self.within_share))

    def assumption(self, layout: Layout) -> str:
        """What a plan or a prediction assumes of outcomes, and why."""
        mean, std = self.scenario(layout).moments()
        why = "as the reference" if self.reference is not None else "as the prior"
        if self.reference is None and self.prior is None:
            why = f"{UNIFORM}; {REMEDY}"
        return f"outcomes with mean {mean:.4g} and standard deviation {std:.4g}: {why}"


# The headings of help, each by the first option below it.
_PANELS = {
    "input": "The table",
    "epsilon": "Privacy",
    "ledger": "Budget",
    "engine": "Engine",
    "out": "Output",
}
# What a plan decides.
DECIDED = (
    "epsilon",
    "delta",
    "mechanism",
    "noise_scale",
    "prior_floor",
    "resample_prob",
    "sums_share",
    "prior",
)
# What holds for one run, and is never written into a plan or a ledger.
OF_ONE_RUN = ("size", "mde", "new_population", "ledger_key_file", "verbose")


class Declared(NamedTuple):
    """One option of the list.

    Attributes:
        types: The types that its value can have.
        rule: What its value must be.
        text: Its meaning.
        panel: The heading that help lists it under.
    """

    types: tuple[type, ...]
    rule: Rule
    text: str
    panel: str


def _declared() -> dict[str, Declared]:
    """The options of the list, by name."""
    declared, panel = {}, ""
    for name, hint in get_type_hints(Options, include_extras=True).items():
        panel = _PANELS.get(name, panel)
        rule, text = hint.__metadata__
        declared[name] = Declared(get_args(hint.__origin__), rule, text, panel)
    return declared


DECLARED = _declared()
