"""The types that options have, each with the rule for its value in words."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from clusterdp.planning.choose import MECHANISMS


class Rule(NamedTuple):
    """What the value of an option must be.

    Attributes:
        text: The rule in words, for errors.
        metavar: What the command line shows in place of a value; None for the type.
        flag: Its name on the command line, where that is another.
    """

    text: str
    metavar: str | None = None
    flag: str | None = None


Text = Annotated[str | None, Rule("text")]
Remark = Annotated[str | None, Rule("one line of text", "TEXT")]
Column = Annotated[str | None, Rule("the name of a column")]
Crossed = Annotated[str | None, Rule("the name of a column, or a list to be crossed")]
Names = Annotated[str | list[str] | None, Rule("names of columns", "COL,...")]
Breakdowns = Annotated[
    list[str] | None, Rule("columns to cut by, such as ['region', 'gender,age']", "COL,...")
]
ByLabel = Annotated[
    list[str] | None, Rule("numbers by label, such as {'north': 0.2}", "LABEL=NUMBER")
]
Rules = Annotated[
    list[str] | None, Rule("a rule, or one for each outcome: {'spend': 'sum'}", "NAME=RULE")
]
Number = Annotated[float | None, Rule("a number")]
Share = Annotated[float | None, Rule("a number", "SHARE")]
Whole = Annotated[int | None, Rule("a whole number")]
Switch = Annotated[bool | None, Rule("true or false")]
Label = Annotated[str | bool | int | float | None, Rule("the label of an arm")]
Numbers = Annotated[
    str | list[float] | None, Rule("numbers separated by commas, or a list of them", "P,P,...")
]
Spaces = Annotated[
    list[str] | None,
    Rule(
        "outcomes by name, each with its space: {'visit': '0,1', 'rounds': 'number:0..493'}",
        "NAME=SPACE",
        "outcome",
    ),
]
Conditions = Annotated[
    list[str] | None, Rule("implications such as 'conversion -> visit'", "'A -> B'")
]
Named = Annotated[list[str] | None, Rule("names of outcomes, such as ['spend']", "NAME")]
Metrics = Annotated[list[str] | None, Rule("metrics such as 'rounds>=10'", "METRIC")]
Weights = Annotated[
    list[str] | None, Rule("weights by metric, such as {'rounds': 2}", "METRIC=NUMBER")
]
Margins = Annotated[
    list[str] | None,
    Rule(
        "what is expected of outcomes by name, such as {'visit': 0.15}",
        "NAME=...",
    ),
]
Grids = Annotated[list[str] | None, Rule("the grid of each number, such as 'rounds=0,5,493'")]
Blocks = Annotated[
    list[str] | None,
    Rule("outcomes that share a channel, such as ['visit,sale', 'rounds']", "NAME,..."),
]
Effect = Annotated[
    str | float | None, Rule("a number, or one for a metric such as {'visit': 0.01}", "EFFECT")
]
MechanismName = Annotated[str | None, Rule(f"one of {', '.join(MECHANISMS)}")]
PurposeName = Annotated[
    str | None,
    Rule("overall, breakdowns, segments or segments:0.05", "PURPOSE", "for"),
]
EngineName = Annotated[str | None, Rule("local or spark", "local|spark")]
