"""Options that several commands share, and the panels that help shows them in."""

from __future__ import annotations

import typer

TABLE, PRIVACY, BUDGET = "The table", "Privacy", "Budget"
ENGINE, OUTPUT = "Engine", "Output"

# Options that planning and releasing share.
ARM = typer.Option(help="Column of treatment arms.", rich_help_panel=TABLE)
CLUSTER = typer.Option(
    help="Column of public clusters; several are crossed: region,channel.", rich_help_panel=TABLE
)
OUTCOMES = typer.Option(
    help="The values outcomes can take: 0,1,5 or 0..5 or bins:0,1,10,100 or binary.",
    rich_help_panel=TABLE,
)
CONTROL = typer.Option(
    help="The control arm; needed unless arms are 0 and 1.", rich_help_panel=TABLE
)
MIN_CELL_SIZE = typer.Option(
    help="Pool clusters with fewer units than this in some arm.", rich_help_panel=TABLE
)
EPSILON = typer.Option(help="Budget of the whole release.", rich_help_panel=PRIVACY)
DELTA = typer.Option(help="Failure probability.", rich_help_panel=PRIVACY)
REFERENCE = typer.Option(
    metavar="P,P,...",
    help="What outcomes are thought to be like: a histogram, or mean:2,std:1. To predict and "
    "choose by; it affects nothing else.",
    rich_help_panel=PRIVACY,
)
WITHIN_SHARE = typer.Option(
    metavar="SHARE",
    help="Share of the outcomes' variance thought to lie within clusters; 1 if they are alike.",
    rich_help_panel=PRIVACY,
)
SEGMENT_SHARE = typer.Option(
    metavar="SHARE",
    help="What it is for: effects in segments of this share, instead of the overall effect.",
    rich_help_panel=PRIVACY,
)
LEDGER_KEY_FILE = typer.Option(
    help="Key file of the ledger, if it was made with one.", rich_help_panel=BUDGET
)
NEW_POPULATION = typer.Option(
    "--new-population",
    help="Confirm that the ledger does not know the --population yet, and that it shares nobody "
    "with those it knows.",
    rich_help_panel=BUDGET,
)
