"""The list of options: the name, the type, the rule and the meaning of each.

Python functions, commands, TOML files and plans all take their options from this list. Types of
options hold the rule for their values in words.
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


class OptionField(NamedTuple):
    """One option of the list.

    Attributes:
        rule: What its value must be, in words, for errors.
        metavar: What the command line shows in place of a value; None for the type.
        flag: Its name on the command line, where that is another.
        types: The types that its value can have.
        text: Its meaning.
        panel: The heading that help lists it under; None if it has no flag.
    """

    rule: str
    metavar: str | None = None
    flag: str | None = None
    types: tuple[type, ...] = ()
    text: str = ""
    panel: str | None = None


Text = Annotated[str | None, OptionField("text")]
Remark = Annotated[str | None, OptionField("one line of text", "TEXT")]
Column = Annotated[str | None, OptionField("the name of a column")]
Crossed = Annotated[str | None, OptionField("the name of a column, or a list to be crossed")]
Names = Annotated[str | list[str] | None, OptionField("names of columns", "COL,...")]
Breakdowns = Annotated[
    list[str] | None,
    OptionField("columns to segment by, such as ['region', 'gender,age']", "COL,..."),
]
ByLabel = Annotated[
    list[str] | None, OptionField("numbers by label, such as {'north': 0.2}", "LABEL=NUMBER")
]
Rules = Annotated[
    list[str] | None, OptionField("a rule, or one for each outcome: {'spend': 'sum'}", "NAME=RULE")
]
Number = Annotated[float | None, OptionField("a number")]
Share = Annotated[float | None, OptionField("a number", "SHARE")]
Whole = Annotated[int | None, OptionField("a whole number")]
Switch = Annotated[bool | None, OptionField("true or false")]
Label = Annotated[str | bool | int | float | None, OptionField("the label of an arm")]
Numbers = Annotated[
    str | list[float] | None,
    OptionField("numbers separated by commas, or a list of them", "P,P,..."),
]
Spaces = Annotated[
    list[str] | None,
    OptionField(
        "outcomes by name, each with its allowed values: {'visit': '0,1', 'rounds': "
        "'number:0..493'}",
        "NAME=VALUES",
        "outcome",
    ),
]
Conditions = Annotated[
    list[str] | None, OptionField("constraints such as 'conversion -> visit'", "'A -> B'")
]
Named = Annotated[list[str] | None, OptionField("names of outcomes, such as ['spend']", "NAME")]
Covariates = Annotated[
    list[str] | None,
    OptionField(
        "columns by outcome, such as {'spend': {'column': 'spend_before', 'range': [0, 500]}}",
        "NAME=COLUMN",
    ),
]
Metrics = Annotated[list[str] | None, OptionField("metrics such as 'rounds>=10'", "METRIC")]
Weights = Annotated[
    list[str] | None, OptionField("weights by metric, such as {'rounds': 2}", "METRIC=NUMBER")
]
Margins = Annotated[
    list[str] | None,
    OptionField(
        "what is expected of outcomes by name, such as {'visit': 0.15}",
        "NAME=...",
    ),
]
Grids = Annotated[
    list[str] | None, OptionField("the grid of each number, such as 'rounds=0,5,493'")
]
Questions = Annotated[
    list[str] | None,
    OptionField("outcomes that are asked together, such as ['visit,sale', 'rounds']", "NAME,..."),
]
Folders = Annotated[
    list[str] | None, OptionField("published folders, such as ['week1', 'week2']", "FOLDER")
]
Effect = Annotated[
    str | float | None,
    OptionField("a number, or one for a metric such as {'visit': 0.01}", "EFFECT"),
]
MechanismName = Annotated[str | None, OptionField(f"one of {', '.join(MECHANISM_NAMES)}")]
PurposeName = Annotated[
    str | None,
    OptionField("balanced, overall, breakdowns, segments or segments:0.05", "GOAL"),
]
EngineName = Annotated[str | None, OptionField("local or spark", "local|spark")]


class Options(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every option of plans and releases; None if it was not given."""

    input: Annotated[
        Text,
        "An experiment file, or a table: a file, a folder, s3://..., or a database with --query.",
    ] = None
    query: Annotated[
        Text,
        "The query whose rows are the table, for a database: 'select ...'. Passwords come from "
        "PGPASSWORD or ~/.pgpass.",
    ] = None
    delimiter: Annotated[
        Text,
        "Delimiter of a CSV file, such as ';'. By default it is found from the header.",
    ] = None
    decimal: Annotated[
        Text,
        "Decimal mark of outcomes that are text: '.' (default) or ','.",
    ] = None
    thousands: Annotated[
        Text,
        "Thousands separator of outcomes that are text: ',', '.', a space or an apostrophe. None "
        "by default.",
    ] = None
    unit: Annotated[
        Column,
        "Column of ids. Published.",
    ] = None
    unit_name: Annotated[
        Remark, "What a unit is called in texts: user, patient, household. Published."
    ] = None
    arm: Annotated[
        Column,
        "Column of treatment arms. Published.",
    ] = None
    cluster: Annotated[
        Crossed,
        "Public column to stratify by; several are crossed: region,device.",
    ] = None
    private_cluster: Annotated[
        Number,
        "Part of epsilon for private clusters: 0.5 of 2 leaves 1.5 for outcomes. Each unit's "
        "cluster is published as a noisy cluster, and the guarantee covers cluster and outcomes "
        "together.",
    ] = None
    labels: Annotated[
        Names,
        "Every private cluster that a unit can be in: north,south,east,west. Declared, never read "
        "from the table.",
    ] = None
    labels_from: Annotated[Text, "File with the labels of private clusters, one per line."] = None
    label_shares: Annotated[
        ByLabel,
        "Expected shares of units in private clusters, for planning only: north=0.4,south=0.6. "
        "Equal by default.",
    ] = None
    assignment: Annotated[
        ByLabel,
        "Probability of treatment in each private cluster, if it differs between them: "
        "north=0.2,south=0.5. With several arms north=email:0.3/letter:0.2; control has the rest. "
        "Published.",
    ] = None
    breakdown: Annotated[
        Breakdowns,
        "Public columns analysts will segment by. Each uses part of epsilon.",
    ] = None
    randomization_unit: Annotated[
        Column,
        "Column of groups that were assigned to arms as a whole, such as schools or days. "
        "Standard errors then come from how these groups differ.",
    ] = None
    group_correlation: Annotated[
        Share,
        "Expected share of the variance of outcomes between randomization units (intra-class "
        "correlation), 0 to 1; 0.1 by default. For planning. Published.",
    ] = None
    outcomes: Annotated[
        Spaces,
        "Allowed values of an outcome: visit=0,1, clicks=0..5, member=no,yes, "
        "spend=number:0..200, age=bins:18,30,90.",
    ] = None
    constraint: Annotated[
        Conditions,
        "What always holds in your system, such as 'conversion -> visit' or 'spend>0 -> "
        "conversion'. Reduces noise.",
    ] = None
    covariate: Annotated[
        Covariates,
        "A column from before the experiment that predicts an outcome, its range, and the "
        "correlation you expect: spend=spend_before:0..500 correlation 0.7. Its values are not "
        "published; overall effects get more precise.",
    ] = None
    missing: Annotated[
        Named,
        "Outcomes that may be missing: null or NaN; in text also an empty field, NA, N/A or None. "
        "Whether one is missing is then protected too. Effects are on units with an observed "
        "outcome, and on the response rate.",
    ] = None
    metric: Annotated[
        Metrics,
        "A threshold or product to make precise, at no extra epsilon: rounds>=10, visit*spend or "
        "visit*(spend>0).",
    ] = None
    primary: Annotated[
        Text, "The metric that the experiment is judged by; the first outcome by default."
    ] = None
    weight: Annotated[
        Weights, "Weight of a metric when noise is divided among metrics: rounds=2. 1 by default."
    ] = None
    question: Annotated[
        Questions,
        "Outcomes to randomize together, so they can be combined in metrics: visit,sale. Each "
        "unit answers one question, chosen by a public hash; visit,sale=2 asks it twice as often. "
        "By default the plan decides.",
    ] = None
    control: Annotated[
        Label,
        "Control arm. Needed unless arms are 0 and 1.",
    ] = None
    arm_shares: Annotated[
        ByLabel,
        "Planned shares of arms, for the SRM check: control=0.5,email=0.25,letter=0.25. Published.",
    ] = None
    passthrough: Annotated[
        Names, "Public columns to publish unchanged, next to ids, arms and clusters."
    ] = None
    clip: Annotated[Switch, "Clip outcomes to their declared range."] = None
    min_cell_size: Annotated[
        Whole, "Pool clusters that expect fewer units than this in some arm."
    ] = None
    folds: Annotated[
        Whole,
        "Number of public folds, by a hash of ids; 2 by default. Analysts can choose segments in "
        "one fold and estimate in the other.",
    ] = None
    aggregate: Annotated[
        Rules,
        "How several rows of a unit become one: sum, mean, max or any, for all outcomes or for "
        "each (spend=sum). Include units without events, because ids are public.",
    ] = None
    keep_order: Annotated[
        Switch,
        "Publish rows in their original order, instead of sorted by id. The order must not depend "
        "on outcomes.",
    ] = None
    size: Annotated[
        Column, "Column of cell sizes, for a table with one row per cluster and arm."
    ] = None
    experiment: Annotated[Text, "SHA-256 of the experiment file that a plan was made from."] = None
    n_units: Annotated[Whole, "Units that a plan was made for."] = None
    n_clusters: Annotated[Whole, "Clusters that a plan was made for."] = None
    grids: Annotated[Grids, "Points that a plan rounds each number to, at random."] = None

    epsilon: Annotated[
        Number,
        "Privacy budget of the whole release.",
    ] = None
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
    pilot: Annotated[
        Share,
        "Share of epsilon for a pilot histogram that finds the range of numbers, such as 0.05. "
        "Published.",
    ] = None
    counts_share: Annotated[
        Share,
        "Share of epsilon for noisy counts of outcomes, from which each cell's randomizer is "
        "optimized.",
    ] = None
    totals_share: Annotated[Share, "Share of epsilon for noisy totals of arms."] = None
    sums_share: Annotated[Share, "Share of epsilon for noisy sums of every cluster and arm."] = None
    breakdown_share: Annotated[
        Share, "Share of epsilon for noisy totals of all breakdowns, divided equally."
    ] = None
    covariate_share: Annotated[
        Share, "Share of epsilon for how covariates and outcomes vary together."
    ] = None
    prior: Annotated[
        Numbers,
        "Public prior that the randomizer is optimized for, one number per outcome combination. "
        "Costs no epsilon.",
    ] = None
    baseline: Annotated[
        Margins,
        "Expected mean or distribution, for planning: visit=0.3 or spend=mean:3,std:12. Published; "
        "never take it from this table.",
    ] = None
    within_share: Annotated[
        Share,
        "Share of the first outcome's variance that you expect within clusters; 1 if clusters do "
        "not differ.",
    ] = None
    optimize_for: Annotated[
        PurposeName,
        "Goal of the plan: balanced (default), overall, breakdowns, segments (with 10% of the "
        "units) or segments:0.05.",
    ] = None

    ledger: Annotated[
        Text,
        "Budget ledger to spend from: a file, or postgresql://user@host/database.",
    ] = None
    population: Annotated[
        Text,
        "Population whose budget is spent. Privacy losses of releases about the same units add up.",
    ] = None
    new_population: Annotated[
        Switch,
        "Confirm that the population is new, and shares no unit with those in the ledger.",
    ] = None
    continues: Annotated[
        Folders,
        "Folder of an earlier batch of the experiment, none of whose units is in this one. Name "
        "all of them: a batch spends what its own units have left. Needs a ledger.",
    ] = None
    ledger_key_file: Annotated[Text, "Key file of the ledger, if it was made with one."] = None

    title: Annotated[
        Remark,
        "Title of the release. Published in the folder's manifest, README and index.html.",
    ] = None
    description: Annotated[Remark, "What the experiment was, in a few sentences."] = None
    collected: Annotated[Remark, "When outcomes were collected, such as 'March 2008, 14 days'."] = (
        None
    )
    contact: Annotated[Remark, "Whom to ask about the release."] = None
    licence: Annotated[Remark, "What others may do with the release, such as CC BY 4.0."] = None
    approved_by: Annotated[Remark, "Who approved publishing."] = None
    reason: Annotated[Remark, "Why this epsilon was chosen."] = None

    engine: Annotated[EngineName, "local (default) or spark."] = None
    master: Annotated[
        Text, "Where Spark runs, such as local[2] or yarn. By default all cores of this machine."
    ] = None
    allow_unencrypted_spark: Annotated[
        Switch,
        "Use a Spark session that does not encrypt what it stores and sends. Anyone who reads "
        "its disks or network can learn the key, and with it every outcome.",
    ] = None

    out: Annotated[
        Text,
        "New folder to publish, on disk or in object storage (s3://...).",
    ] = None
    show_row_counts: Annotated[
        Switch,
        "Report how many rows an error or a warning is about. For the owner only: these numbers "
        "depend on true outcomes, and several of them add up to a histogram.",
    ] = None

    def to_dict(self) -> dict[str, Any]:
        """The options that were given, by name, as plans and ledgers hold them."""
        given: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in given.items() if name not in OF_ONE_RUN}

    def require(self, *names: str, otherwise: str = "") -> None:
        """Raise a ParameterError unless these options were given; it may end with a hint."""
        left = [name for name in names if getattr(self, name) is None]
        if left:
            listed = ", ".join(f"{name}=... (--{flag_of(name)})" for name in left)
            raise ParameterError(f"missing: {listed}{otherwise}")


# The headings of help, and the options below each. What is in none has no flag: it is a key of an
# experiment file, or of its lock.
PANELS = {
    "Most people need": (
        *("input", "unit", "arm", "control", "cluster", "outcomes", "baseline", "breakdown"),
        *("epsilon", "ledger", "out"),
    ),
    "Outcomes": (
        *("constraint", "missing", "metric", "primary", "aggregate", "clip", "weight", "question"),
        *("covariate", "decimal", "thousands"),
    ),
    "Design": (
        *("randomization_unit", "group_correlation", "arm_shares", "passthrough", "unit_name"),
        *("min_cell_size", "folds", "keep_order", "size", "query", "delimiter"),
    ),
    "Planning": ("mde", "optimize_for", "pilot", "within_share"),
    "Budget and recovery": (
        *("population", "new_population", "continues", "ledger_key_file", "show_row_counts"),
    ),
    "Spark": ("engine", "master", "allow_unencrypted_spark"),
}


def _as_options(*names: str, **renamed: str) -> dict[str, str]:
    """Keys and the options they are; most have the same name."""
    return {**dict(zip(names, names, strict=True)), **renamed}


# The sections of an experiment file: their keys, and the options these are. The keys of `outcomes`
# are names of columns.
SECTIONS: dict[str, dict[str, str]] = {
    "table": {
        **_as_options("query", "delimiter", "decimal", "thousands", source="input"),
        **_as_options("unit", "unit_name", "arm", "control", "cluster", shares="arm_shares"),
        **_as_options("min_cell_size", "passthrough", "randomization_unit", "group_correlation"),
        **_as_options("aggregate", "folds", "keep_order"),
        **_as_options("engine", "master", "allow_unencrypted_spark"),
    },
    "outcomes": {},
    "analysis": {
        **_as_options("primary", questions="question", constraints="constraint"),
        **_as_options(breakdowns="breakdown", metrics="metric", weights="weight"),
        **_as_options("optimize_for", "within_share", "clip", covariates="covariate"),
    },
    "privacy": _as_options("epsilon", "pilot", "ledger", "population", "continues"),
    "about": _as_options(
        *("title", "description", "collected", "contact", "approved_by", "reason"),
        license="licence",
    ),
    "output": _as_options(folder="out"),
    "private_clusters": _as_options(
        *("labels", "labels_from", "assignment"), epsilon="private_cluster", shares="label_shares"
    ),
    "expert": _as_options(
        *("mechanism", "delta", "prior", "noise_scale", "prior_floor", "resample_prob"),
        *("counts_share", "totals_share", "sums_share", "breakdown_share", "covariate_share"),
    ),
}
# What is declared about outcomes.
DECLARATION = (
    *("outcomes", "constraint", "missing", "metric", "covariate", "weight", "baseline"),
    *("grids", "question"),
)
# What a mechanism is chosen by.
REQUESTED = (
    *("epsilon", "delta", "mechanism", "noise_scale", "prior_floor", "resample_prob"),
    *("counts_share", "pilot", *SUM_SHARES, "covariate_share", "prior"),
)
# What a plan decides.
DECIDED = (*REQUESTED, "grids", "question")
# Where things are and who reads them, which a release may decide after its plan.
PLACES = (
    *("input", "query", "delimiter", "out", "ledger", "population", "new_population"),
    *("continues", "ledger_key_file", "engine", "master", "allow_unencrypted_spark"),
    "show_row_counts",
)
# What holds for one run, and is never written into a plan or a ledger.
OF_ONE_RUN = ("size", "mde", "new_population", "ledger_key_file", "show_row_counts")


def flag_of(name: str) -> str:
    """The name of an option on the command line."""
    return DECLARED[name].flag or name.replace("_", "-")


def _declared() -> dict[str, OptionField]:
    """The options of the list, by name."""
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    declared = {}
    for name, hint in get_type_hints(Options, include_extras=True).items():
        rule, text = hint.__metadata__
        types = get_args(hint.__origin__)
        declared[name] = rule._replace(types=types, text=text, panel=panels.get(name))
    return declared


DECLARED = _declared()
