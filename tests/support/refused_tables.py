"""Tables that every engine must refuse, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from conformance_cases import SEVERAL, SPACE, with_groups, with_visits

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.outcomes.categories import Categories


class Refusal(NamedTuple):
    """A table that cannot be released, and a part of what is said of it."""

    change: Callable[[pl.DataFrame], pl.DataFrame]
    message: str
    space: Categories = SPACE
    breakdowns: tuple[tuple[str, ...], ...] = ()
    kept: tuple[str, ...] = ()


def some(column: str, value: Any) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A change of three rows."""
    chosen = pl.when(pl.col("user").is_in([4, 44, 444])).then(pl.lit(value)).otherwise(column)
    return lambda table: table.with_columns(chosen.alias(column))


REFUSALS = {
    "no id": Refusal(some("user", None), "'user' (unit) has 3 missing values"),
    "no arm": Refusal(some("treated", None), "'treated' (arm) has 3 missing values"),
    "no cluster": Refusal(some("market", None), "'market' (cluster) has 3 missing values"),
    "no outcome": Refusal(some("clicks", None), "'clicks' (outcome) has missing values;"),
    "not a number": Refusal(
        lambda t: some("clicks", float("nan"))(t.with_columns(pl.col("clicks").cast(float))),
        "'clicks' (outcome) has missing values;",
    ),
    "decimal commas": Refusal(
        lambda t: some("clicks", "4,321")(t.with_columns(pl.col("clicks").cast(str))),
        "'clicks' (outcome) is text and has commas before three digits",
    ),
    "a text that is no number": Refusal(
        lambda t: some("clicks", "about 4321")(t.with_columns(pl.col("clicks").cast(str))),
        "'clicks' (outcome) is text and has values that are not numbers",
    ),
    "outside": Refusal(some("clicks", 4321), "has values outside the allowed values"),
    "repeated": Refusal(some("user", 4321), "has duplicate ids in 2 rows"),
    "repeated text": Refusal(
        lambda t: some("user", "4321")(t).with_columns(pl.col("user").cast(str)),
        "has duplicate ids in 2 rows",
    ),
    "no column": Refusal(
        lambda t: t.drop("market", "secret"), "There is no column 'market' to use as cluster"
    ),
    "ids of another type": Refusal(
        lambda t: t.with_columns(pl.col("user").cast(float)), "ids must be integers or strings"
    ),
    "outcomes of another type": Refusal(
        lambda t: t.with_columns(pl.col("clicks").cast(pl.Decimal(10, 2))), "not numbers"
    ),
    "labels of another type": Refusal(
        lambda t: t.with_columns(market=pl.datetime(2024, 1, 1, time_zone="UTC")),
        "labels must be text",
    ),
    "a kept value that cannot be shown": Refusal(
        lambda t: some("secret", "a\x1b[2J")(t.with_columns(pl.col("secret").cast(str))),
        "column 'secret' (passthrough) has text with control characters",
        kept=("secret",),
    ),
    "a cluster that cannot be shown": Refusal(
        lambda t: some("market", "a\u202eb")(t.with_columns(pl.col("market").cast(str))),
        "column 'market' (cluster) has text with control characters",
    ),
    "an id that cannot be shown": Refusal(
        lambda t: t.with_columns(user=pl.format("{}\u200b", "user")),
        "column 'user' (unit) has text with control characters",
    ),
    "a sale without a visit": Refusal(
        lambda t: some("visit", 0)(with_visits(t).with_columns(sale=1)),
        "combinations that the constraints rule out",
        SEVERAL,
    ),
    "spend without a sale": Refusal(
        lambda t: some("spend", 4321.0)(with_visits(t).with_columns(sale=0)),
        "combinations that the constraints rule out",
        SEVERAL,
    ),
    "a number is missing": Refusal(
        lambda t: some("spend", None)(with_visits(t)),
        "one or more of the outcomes 'visit', 'sale', 'spend' has missing values;",
        SEVERAL,
    ),
    "no rows": Refusal(lambda t: t.head(0), "the table has no rows"),
    "one arm in each cluster": Refusal(
        lambda t: t.filter(pl.col("market") % 2 == pl.col("treated")),
        "whole clusters were assigned",
    ),
    "no group": Refusal(
        lambda t: some("region", None)(with_groups(t)),
        "'region' (breakdown) has 3 missing values",
        breakdowns=(("region",),),
    ),
    "fractional groups": Refusal(lambda t: t, "groups must be text", breakdowns=(("secret",),)),
    "too many groups": Refusal(
        lambda t: t.with_columns(page=pl.col("user") // 2, place=pl.col("user")),
        "has 180,000 groups, at most 10,000",
        breakdowns=(("page", "place"),),
    ),
    "a breakdown that is not there": Refusal(
        lambda t: t, "There is no column 'region' to use as breakdown", breakdowns=(("region",),)
    ),
}
