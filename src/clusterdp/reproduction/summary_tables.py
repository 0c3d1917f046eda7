"""The report's tables of numbers: the median over draws, with the range."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.reproduction.draws import by_draw, describe, points, select

if TYPE_CHECKING:
    from clusterdp.reproduction.claims import Rows, Tables

READINGS = {
    "boundary": "counts once, if exactly one end is inside",
    "pairwise": "counts for every other cluster it reaches",
}


class Shown(NamedTuple):
    """What the report shows of a table.

    Attributes:
        table: Its name.
        title: What the numbers are.
        by: The columns that tell lines apart.
        axis: The column along which numbers vary, and its symbol.
        values: The columns of numbers, and what they are called.
    """

    table: str
    title: str
    by: tuple[str, ...]
    axis: tuple[str, str]
    values: dict[str, str]


_VARIANCE = {"variance": ""}
_MECHANISMS = ("accounting", "mechanism")
SHOWN = {
    1: (
        Shown("against_floor", "Variance", _MECHANISMS, ("floor_share", "Kγ"), _VARIANCE),
        Shown("tradeoff", "Variance, optimised", _MECHANISMS, ("epsilon", "ε"), _VARIANCE),
    ),
    2: (Shown("ratio", "Ratio of variances", ("resample_prob",), ("between", "β"), {"ratio": ""}),),
    3: (Shown("tradeoff", "Variance", _MECHANISMS, ("epsilon", "ε"), _VARIANCE),),
    5: (
        Shown(
            "bound",
            "Variance",
            (),
            ("between", "β"),
            {
                "gap": "gap",
                "simulated_gap": "gap, simulated",
                "first_term": "first term of the bound",
                "bound": "bound",
            },
        ),
    ),
    6: (Shown("bias", "Mean \\|bias\\|", _MECHANISMS, ("epsilon", "ε"), {"bias": ""}),),
}
# What a line's values of `by` are called.
_WORDS = {"paper": "paper's accounting", "valid": "valid", 0.5: "λ = 0.5", 0.8: "λ = 0.8"}


def summary_tables(number: int, tables: Tables) -> list[str]:
    """An experiment's tables in Markdown: every line at both ends of the axis and between."""
    lines: list[str] = []
    for shown in SHOWN.get(number, ()):
        lines += [*_table(shown, tables[shown.table]), ""]
    return lines


def _table(shown: Shown, rows: Rows) -> list[str]:
    axis, symbol = shown.axis
    places = sorted({row[axis] for row in rows})
    places = [places[0], places[len(places) // 2], places[-1]]
    heads = " | ".join(f"{symbol} = {place:.3g}" for place in places)
    groups = dict.fromkeys(tuple(row[name] for name in shown.by) for row in rows)
    body = []
    for group in groups:
        line = select(rows, **dict(zip(shown.by, group, strict=True)))
        for value, called in shown.values.items():
            words = [*(_WORDS.get(word, str(word)) for word in group), called]
            cells = (describe(by_draw(line, value, **{axis: at})[:, 0]) for at in places)
            body.append(f"| {', '.join(filter(None, words))} | {' | '.join(cells)} |")
    return [f"| {shown.title} | {heads} |", "|---|" + "---:|" * len(places), *body]


def readings_table(rows: Rows) -> list[str]:
    """What the two readings of YouTube's links change, in Markdown."""
    head = (
        "| a link to another cluster | largest change of a standardized feature | variance, "
        "Cluster-DP over Cluster-Free-DP, ε = 1, valid |"
    )
    body = (
        f"| {words} | {points(rows, 'largest_change_of_a_feature', reading=reading)[0]:.3f} | "
        f"{describe(by_draw(rows, 'ratio_of_variances', reading=reading)[:, 0])} |"
        for reading, words in READINGS.items()
    )
    return [head, "|---|---|---|", *body, ""]
