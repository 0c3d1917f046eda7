"""Options of releases and plans, and the panels that help shows them in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TABLE, PRIVACY, BUDGET = "The table", "Privacy", "Budget"
ENGINE, OUTPUT = "Engine", "Output"


def _text(text: str, panel: str, metavar: str | None = None) -> object:
    """The description of an option."""
    return typer.Option(help=text, rich_help_panel=panel, metavar=metavar)


def _switch(name: str, text: str, panel: str) -> object:
    """The description of an option that takes no value."""
    return typer.Option(name, help=text, rich_help_panel=panel)


Input = Annotated[
    str | None,
    typer.Argument(
        metavar="INPUT",
        help="A Parquet, CSV or Arrow file, a folder or a glob of them, or "
        "'duckdb:warehouse.db?select ...'; with Spark also s3a://... or hdfs://...",
    ),
]
Unit = Annotated[str | None, _text("Column of ids.", TABLE)]
Arm = Annotated[str | None, _text("Column of treatment arms.", TABLE)]
Cluster = Annotated[
    str | None, _text("Column of public clusters; several are crossed: region,channel.", TABLE)
]
Outcome = Annotated[str | None, _text("Column of sensitive outcomes.", TABLE)]
Outcomes = Annotated[
    str | None,
    _text("The values outcomes can take: 0,1,5 or 0..5 or bins:0,1,10,100 or binary.", TABLE),
]
Control = Annotated[str | None, _text("The control arm; needed unless arms are 0 and 1.", TABLE)]
Keep = Annotated[
    list[str] | None,
    _text("Public columns to publish as they are; nothing else of the table is.", TABLE, "COL,..."),
]
Clip = Annotated[
    bool | None, _switch("--clip", "Move outcomes beyond the ends to the nearest end.", TABLE)
]
MinCellSize = Annotated[
    int | None, _text("Pool clusters with fewer units than this in some arm.", TABLE)
]
KeepOrder = Annotated[
    bool | None,
    _switch(
        "--keep-order",
        "Publish rows in the order of the table, which is then public, instead of the order of "
        "ids.",
        TABLE,
    ),
]
Epsilon = Annotated[float | None, _text("Budget of the whole release.", PRIVACY)]
Delta = Annotated[float | None, _text("Failure probability.", PRIVACY)]
MechanismName = Annotated[
    str | None,
    _text(
        "optimal, cluster-dp, cluster-free-dp, uniform-prior-dp, noisy-horvitz-thompson or "
        "noisy-histogram; the best that releases rows by default.",
        PRIVACY,
    ),
]
NoiseScale = Annotated[float | None, _text("Scale of the noise on counts.", PRIVACY)]
PriorFloor = Annotated[float | None, _text("Least prior probability of an outcome.", PRIVACY)]
ResampleProb = Annotated[
    float | None, _text("Probability that a row is redrawn, instead of --epsilon.", PRIVACY)
]
SumsShare = Annotated[
    float | None,
    _text("Share of --epsilon for noisy cell sums, which estimates then use.", PRIVACY, "SHARE"),
]
Prior = Annotated[
    str | None,
    _text(
        "Public prior that the optimal channel is designed for; costs nothing.", PRIVACY, "P,P,..."
    ),
]
ReferenceText = Annotated[
    str | None,
    _text(
        "What outcomes are thought to be like: a histogram, or mean:2,std:1. To predict and choose "
        "by; it affects nothing else.",
        PRIVACY,
        "P,P,...",
    ),
]
WithinShare = Annotated[
    float | None,
    _text(
        "Share of the outcomes' variance thought to lie within clusters; 1 if they are alike.",
        PRIVACY,
        "SHARE",
    ),
]
SegmentShare = Annotated[
    float | None,
    _text(
        "Choose for effects in segments of this share, instead of the overall effect.",
        PRIVACY,
        "SHARE",
    ),
]
Spec = Annotated[
    Path | None, typer.Option(help="Options in a TOML file; the command line overrides it.")
]
LedgerPlace = Annotated[
    str | None,
    _text("Budget ledger to spend from: a file, or postgresql://user@host/database.", BUDGET),
]
Population = Annotated[
    str | None,
    _text("Whose budget: losses of releases about the same people add up.", BUDGET),
]
NewPopulation = Annotated[
    bool,
    _switch(
        "--new-population",
        "Confirm that the ledger does not know the --population yet, and that it shares nobody "
        "with those it knows.",
        BUDGET,
    ),
]
LedgerKeyFile = Annotated[
    Path | None, _text("Key file of the ledger, if it was made with one.", BUDGET)
]
Resume = Annotated[
    str | None,
    _text("Finish an interrupted release of a --ledger; it spends nothing more.", BUDGET, "ID"),
]
EngineName = Annotated[
    str | None,
    _text("What reads the table: this process (the default), or Spark.", ENGINE, "local|spark"),
]
Master = Annotated[
    str | None,
    _text("Where Spark runs, such as local[2] or yarn; by default on all cores here.", ENGINE),
]
AllowUnencrypted = Annotated[
    bool | None,
    _switch(
        "--allow-unencrypted-spark",
        "Use a Spark cluster that does not encrypt what it stores and sends: who reads its disks "
        "or network can learn the key, and with it every outcome.",
        ENGINE,
    ),
]
DryRun = Annotated[
    bool,
    _switch(
        "--dry-run",
        "Show what would be released, from public columns; publish nothing.",
        OUTPUT,
    ),
]
Verbose = Annotated[
    bool,
    _switch(
        "--verbose",
        "Say how many rows an error or a warning is about. For your eyes only: such numbers "
        "depend on true outcomes, and several of them add up to a histogram.",
        OUTPUT,
    ),
]
AsJson = Annotated[bool, _switch("--json", "Print JSON.", OUTPUT)]
