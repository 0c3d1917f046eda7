"""The list of options: the name, the type, the rule and the meaning of each.

Python functions, commands, TOML files and plans all take their options from this list.

The types that options have, each with the rule for its value in words.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Struct

from clusterdp.errors import ParameterError

# The mechanisms that a release can name.
MECHANISM_NAMES = (
    "optimal",
    "cluster-dp",
    "cluster-free-dp",
    "uniform-prior-dp",
    "noisy-horvitz-thompson",
    "noisy-histogram",
)
# Shares of ε for the levels of sums.
SUM_SHARES = ("totals_share", "sums_share", "breakdown_share")


class OptionRule(NamedTuple):
    """What the value of an option must be.

    Attributes:
        text: The rule in words, for errors.
        metavar: What the command line shows in place of a value; None for the type.
        flag: Its name on the command line, where that is another.
    """

    text: str
    metavar: str | None = None
    flag: str | None = None


Text = Annotated[str | None, OptionRule("text")]
Remark = Annotated[str | None, OptionRule("one line of text", "TEXT")]
Column = Annotated[str | None, OptionRule("the name of a column")]
Crossed = Annotated[str | None, OptionRule("the name of a column, or a list to be crossed")]
Names = Annotated[str | list[str] | None, OptionRule("names of columns", "COL,...")]
Breakdowns = Annotated[
    list[str] | None, OptionRule("columns to cut by, such as ['region', 'gender,age']", "COL,...")
]
ByLabel = Annotated[
    list[str] | None, OptionRule("numbers by label, such as {'north': 0.2}", "LABEL=NUMBER")
]
Rules = Annotated[
    list[str] | None, OptionRule("a rule, or one for each outcome: {'spend': 'sum'}", "NAME=RULE")
]
Number = Annotated[float | None, OptionRule("a number")]
Share = Annotated[float | None, OptionRule("a number", "SHARE")]
Whole = Annotated[int | None, OptionRule("a whole number")]
Switch = Annotated[bool | None, OptionRule("true or false")]
Label = Annotated[str | bool | int | float | None, OptionRule("the label of an arm")]
Numbers = Annotated[
    str | list[float] | None,
    OptionRule("numbers separated by commas, or a list of them", "P,P,..."),
]
Spaces = Annotated[
    list[str] | None,
    OptionRule(
        "outcomes by name, each with its space: {'visit': '0,1', 'rounds': 'number:0..493'}",
        "NAME=SPACE",
        "outcome",
    ),
]
Conditions = Annotated[
    list[str] | None, OptionRule("implications such as 'conversion -> visit'", "'A -> B'")
]
Named = Annotated[list[str] | None, OptionRule("names of outcomes, such as ['spend']", "NAME")]
Metrics = Annotated[list[str] | None, OptionRule("metrics such as 'rounds>=10'", "METRIC")]
Weights = Annotated[
    list[str] | None, OptionRule("weights by metric, such as {'rounds': 2}", "METRIC=NUMBER")
]
Margins = Annotated[
    list[str] | None,
    OptionRule(
        "what is expected of outcomes by name, such as {'visit': 0.15}",
        "NAME=...",
    ),
]
Grids = Annotated[list[str] | None, OptionRule("the grid of each number, such as 'rounds=0,5,493'")]
Questions = Annotated[
    list[str] | None,
    OptionRule("outcomes that are asked together, such as ['visit,sale', 'rounds']", "NAME,..."),
]
Effect = Annotated[
    str | float | None,
    OptionRule("a number, or one for a metric such as {'visit': 0.01}", "EFFECT"),
]
MechanismName = Annotated[str | None, OptionRule(f"one of {', '.join(MECHANISM_NAMES)}")]
PurposeName = Annotated[
    str | None,
    OptionRule("overall, breakdowns, segments or segments:0.05", "PURPOSE", "for"),
]
EngineName = Annotated[str | None, OptionRule("local or spark", "local|spark")]


class Options(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every option of plans and releases; None if it was not given."""

    input: Annotated[
        Text,
        "A Parquet, CSV, NDJSON or Arrow file, a folder or a glob of them, on a disk or in a "
        "store (s3://bucket/folder); or a database, "
        "postgresql://user@host/name, sqlite:///file.db or duckdb:///file.db, with --query. With "
        "Spark also s3a://... or hdfs://...",
    ] = None
    query: Annotated[
        Text,
        "The query whose rows are the table, where it is in a database: 'select ...'. A password "
        "is taken from PGPASSWORD or ~/.pgpass.",
    ] = None
    delimiter: Annotated[
        Text,
        "What separates the fields of a CSV file, such as ';'. By default what its header tells.",
    ] = None
    decimal: Annotated[
        Text,
        "What separates decimals in outcomes that are text: '.', which is the default, or ','.",
    ] = None
    thousands: Annotated[
        Text,
        "What may separate thousands in outcomes that are text: ',', '.', a space or an "
        "apostrophe. By default nothing.",
    ] = None
    unit: Annotated[Column, "Column of ids: integers or strings."] = None
    arm: Annotated[Column, "Column of treatment arms."] = None
    cluster: Annotated[
        Crossed,
        "Column of public clusters that arms are compared within. Several columns are crossed: "
        "region,channel. Without it, arms are compared among all units.",
    ] = None
    private_cluster: Annotated[
        Number,
        "What clusters that are sensitive themselves take of epsilon: 0.5 of 2 leaves 1.5 for "
        "outcomes. Each unit's cluster is published as a noisy label, and the guarantee is for "
        "cluster and outcomes together.",
    ] = None
    labels: Annotated[
        Names,
        "Every private cluster that a unit can be in: north,south,east,west. It is declared, and "
        "never read from the table.",
    ] = None
    labels_from: Annotated[Text, "File with the labels of private clusters, one in a line."] = None
    label_shares: Annotated[
        ByLabel,
        "Share of the units that you expect in each private cluster, for plans alone: "
        "north=0.4,south=0.6. Their ratios count. By default all have as many.",
    ] = None
    assignment: Annotated[
        ByLabel,
        "Probability of treatment in each private cluster, where they differ: north=0.2,south=0.5; "
        "of several arms north=email:0.3/letter:0.2, control having the rest. It is published. "
        "Without it, arms are taken to have the same probabilities in all of them.",
    ] = None
    breakdown: Annotated[
        Breakdowns,
        "Public columns that people will cut by, such as region or gender,age. Their groups have "
        "noisy totals of their own, so that effects there are nearly as precise as without "
        "privacy. They are published as kept ones are.",
    ] = None
    assigned_by: Annotated[
        Column,
        "Column of the groups that were assigned to arms as a whole, such as schools or days. "
        "Effects are then as uncertain as these groups differ.",
    ] = None
    group_correlation: Annotated[
        Share,
        "Share of the variance of outcomes that you expect between the groups of assigned_by "
        "(intra-class correlation), 0 to 1; 0.1 by default. Predictions and choices follow from "
        "it. It is published.",
    ] = None
    outcomes: Annotated[
        Spaces,
        "A column of sensitive outcomes and the values it can take: values 0,1,5; integers 0..5; "
        "two labels, no,yes, of which the first counts as 0; a number clipped to a range, "
        "number:0..493; or bins:0,1,10 as 0,4. Several outcomes share one budget.",
    ] = None
    implies: Annotated[
        Conditions,
        "Combinations that exist: where the left side holds, the right side does, as in "
        "'conversion -> visit' or 'spend>0 -> conversion'.",
    ] = None
    missing: Annotated[
        Named,
        "Outcomes that may be missing: null or NaN; in text also an empty field, NA, N/A or None. "
        "Who has an outcome is then private, too. "
        "Effects are of those observed, and the share observed is an outcome beside them.",
    ] = None
    metric: Annotated[
        Metrics,
        "A further function of the outcomes to measure, at no budget of its own: rounds>=10, "
        "visit*spend or visit*(spend>0).",
    ] = None
    weight: Annotated[
        Weights, "How much more a metric counts than by default when the noise is shared out."
    ] = None
    question: Annotated[
        Questions,
        "Outcomes that a unit is asked about together, as in visit,sale; with how often, compared "
        "with other questions, visit,sale=2. Each unit is asked one question, chosen by a public "
        "hash, and every outcome is in one. Without it, outcomes are put into questions as is most "
        "precise.",
    ] = None
    control: Annotated[Label, "Control arm. Needed unless the arms are 0 and 1."] = None
    arm_shares: Annotated[
        ByLabel,
        "Share of the units that each arm was planned to have: control=0.5,email=0.25,letter=0.25. "
        "Their ratios count. It is published, and the sizes of arms are compared with it.",
    ] = None
    keep: Annotated[
        Names, "Public columns to publish as they are, beside ids, arms and clusters."
    ] = None
    clip: Annotated[Switch, "Move outcomes beyond the ends of the space to the nearest end."] = None
    min_cell_size: Annotated[
        Whole, "Pool clusters that expect fewer units than this in some arm into one cluster."
    ] = None
    folds: Annotated[
        Whole,
        "Public folds that units are put in by a hash of their ids, 2 by default, so that an "
        "analyst can choose segments in one and estimate in the other.",
    ] = None
    aggregate: Annotated[
        Rules,
        "Where a unit has several rows: how they become one, sum, mean, max or any, for all "
        "outcomes or for each (spend=sum). Sums beyond the declared space are clipped or refused "
        "as other outcomes are. Who is in the table is public: it must hold units without events, "
        "too.",
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
    grids: Annotated[Grids, "Points that a plan rounds each number to, at random."] = None

    epsilon: Annotated[Number, "Budget of the whole release."] = None
    mde: Annotated[
        Effect,
        "Instead of epsilon: find the smallest epsilon that can detect an effect of this size on "
        "the first outcome, or on a metric: visit=0.01.",
    ] = None
    delta: Annotated[Number, "Failure probability of the guarantee; 0 by default."] = None
    mechanism: Annotated[
        MechanismName,
        f"One of {', '.join(MECHANISM_NAMES)}. By default the best that releases rows.",
    ] = None
    noise_scale: Annotated[Number, "Scale of the noise on counts."] = None
    prior_floor: Annotated[Number, "Least prior probability of an outcome."] = None
    resample_prob: Annotated[
        Number, "Probability that a row is redrawn. Give it instead of epsilon."
    ] = None
    look: Annotated[
        Share,
        "Share of epsilon for a look, such as 0.05: a noisy histogram of everyone, drawn before "
        "anything else and published. Where numbers are clipped, inside the declared range, their "
        "grids and the prior of the channel follow from it.",
    ] = None
    counts_share: Annotated[
        Share,
        "Share of epsilon for noisy counts of outcomes, which the optimal channel of each cell is "
        "then designed for.",
    ] = None
    totals_share: Annotated[
        Share, "Share of epsilon for noisy totals of arms, which estimates then use."
    ] = None
    sums_share: Annotated[
        Share, "Share of epsilon for noisy sums of every cluster's arms, which estimates then use."
    ] = None
    breakdown_share: Annotated[
        Share, "Share of epsilon for noisy totals of all breakdowns together; each gets as much."
    ] = None
    prior: Annotated[
        Numbers,
        "Public prior that the optimal channel is designed for, one number per category. It costs "
        "nothing.",
    ] = None
    reference: Annotated[
        Margins,
        "What you expect of an outcome: visit=0.15, clicks=0.5,0.3,0.2 or spend=mean:1,std:15. "
        "Predictions and choices follow from it; bias does not. It is published as it is, so it "
        "must not come from outcomes of these people: use what is public, or estimates from an "
        "earlier release.",
    ] = None
    within_share: Annotated[
        Share,
        "Share of the first outcome's variance that you expect within clusters; 1 if clusters are "
        "alike.",
    ] = None
    purpose: Annotated[
        PurposeName,
        "What the release is for: overall, breakdowns, segments (with 10% of the units) or "
        "segments:0.05. By default all of them alike.",
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

    title: Annotated[
        Remark,
        "What the release is called. This and what follows is published in the folder's manifest, "
        "README and index.html.",
    ] = None
    description: Annotated[Remark, "What the experiment was, in a few sentences."] = None
    collected: Annotated[Remark, "When outcomes were collected, such as 'March 2008, 14 days'."] = (
        None
    )
    contact: Annotated[Remark, "Whom to ask about the release."] = None
    licence: Annotated[Remark, "What others may do with it, such as CC BY 4.0."] = None
    approved_by: Annotated[Remark, "Who decided that it may be published."] = None
    reason: Annotated[Remark, "Why epsilon is what it is."] = None

    engine: Annotated[
        EngineName, "What reads the table: this process, which is the default, or Spark."
    ] = None
    master: Annotated[
        Text, "Where Spark runs, such as local[2] or yarn. By default on all cores of this machine."
    ] = None
    allow_unencrypted_spark: Annotated[
        Switch,
        "Use a Spark session that does not encrypt what it stores and sends. Whoever reads its "
        "disks or network can learn the key, and with it every outcome.",
    ] = None

    out: Annotated[
        Text,
        "Folder to publish, on a disk or in a store (s3://bucket/folder); it must not exist. With "
        "Spark also s3a://... or hdfs://...",
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
                raise ParameterError(f"missing: {name}; give {name}=... (--{flag_of(name)})")


# The headings of help, each by the first option below it.
_PANELS = {
    "input": "The table",
    "epsilon": "Privacy",
    "ledger": "Budget",
    "title": "Provenance",
    "engine": "Engine",
    "out": "Output",
}
# What is declared about outcomes.
DECLARATION = (
    "outcomes",
    "implies",
    "missing",
    "metric",
    "weight",
    "reference",
    "grids",
    "question",
)
# What a mechanism is chosen by.
REQUESTED = (
    "epsilon",
    "delta",
    "mechanism",
    "noise_scale",
    "prior_floor",
    "resample_prob",
    "counts_share",
    "look",
    *SUM_SHARES,
    "prior",
)
# What a plan decides.
DECIDED = (*REQUESTED, "grids", "question")
# What holds for one run, and is never written into a plan or a ledger.
OF_ONE_RUN = ("size", "mde", "new_population", "ledger_key_file", "verbose")


class OptionField(NamedTuple):
    """One option of the list.

    Attributes:
        types: The types that its value can have.
        rule: What its value must be.
        text: Its meaning.
        panel: The heading that help lists it under.
    """

    types: tuple[type, ...]
    rule: OptionRule
    text: str
    panel: str


def flag_of(name: str) -> str:
    """The name of an option on the command line."""
    return DECLARED[name].rule.flag or name.replace("_", "-")


def _declared() -> dict[str, OptionField]:
    """The options of the list, by name."""
    declared, panel = {}, ""
    for name, hint in get_type_hints(Options, include_extras=True).items():
        panel = _PANELS.get(name, panel)
        rule, text = hint.__metadata__
        declared[name] = OptionField(get_args(hint.__origin__), rule, text, panel)
    return declared


DECLARED = _declared()
