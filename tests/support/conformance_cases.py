"""Tables that every engine must release alike: of every type and option, from one small table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

import clusterdp as cdp
from categories import one_outcome
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.spec.clusters import Clusters, PrivateClusters, PublicClusters
from clusterdp.spec.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Callable

SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
COLUMNS = Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",))
CLUSTER_DP = cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5)


class Case(NamedTuple):
    """A table to release, from the small table of all tests, and how."""

    change: Callable[[pl.DataFrame], pl.DataFrame] = lambda table: table
    mechanism: cdp.Mechanism = CLUSTER_DP
    space: Categories = SPACE
    kept: tuple[str, ...] = ()
    clip: bool = False
    cluster: str | None = "market"
    breakdowns: tuple[tuple[str, ...], ...] = ()
    folds: int = 1
    aggregates: dict[str, str] | None = None
    clusters: Clusters = PublicClusters()

    def columns(self) -> Columns:
        """The parts that columns play."""
        return Columns(
            unit="user",
            arm="treated",
            cluster=self.cluster,
            outcomes=self.space.declared.names,
            missing=self.space.declared.missing,
            kept=self.kept,
            breakdowns=self.breakdowns,
            folds=self.folds,
            private_cluster=self.clusters.response is not None,
        )


def with_visits(table: pl.DataFrame) -> pl.DataFrame:
    """Three outcomes: a visit, a sale after a visit, and spend, a number."""
    clicks = pl.col("clicks")
    return table.with_columns(
        visit=(clicks > 0).cast(pl.Int64),
        sale=clicks > 1,
        spend=pl.when(clicks > 1).then(pl.col("secret").abs() * 20).otherwise(0.0),
    )


def with_missing(table: pl.DataFrame) -> pl.DataFrame:
    """The same, where some sales and some numbers are missing: null, or NaN."""
    user = pl.col("user")
    spend = pl.when(user % 7 == 0).then(None).otherwise(pl.col("spend"))
    return with_visits(table).with_columns(
        sale=pl.when(user % 5 == 0).then(None).otherwise(pl.col("sale")),
        spend=pl.when(user % 11 == 0).then(float("nan")).otherwise(spend),
    )


def with_groups(table: pl.DataFrame) -> pl.DataFrame:
    """Public columns of every type that groups can be of, beside three outcomes."""
    user = pl.col("user")
    return with_visits(table).with_columns(
        half=user % 2,
        region=pl.format("région {}", user % 3),
        new=user % 5 == 0,
        since=pl.date(2024, 1, 1) + pl.duration(days=user % 4),
        size=(user % 2).cast(pl.Int16),
    )


def shares_of(*breakdowns: tuple[str, ...]) -> cdp.SumShares:
    """A little of ε for totals, and for each of some breakdowns."""
    return cdp.SumShares(totals=0.1, breakdowns=tuple((by, 0.1) for by in breakdowns))


EVERY_TYPE = (("region",), ("new", "since"), ("size",))
SPEND = cdp.Number(0, 40)
SEVERAL = Categories(
    declared=declare(
        {"visit": "0,1", "sale": "0,1", "spend": SPEND},
        constraints=["sale -> visit", "spend>0 -> sale"],
        metrics=["visit*spend"],
    ),
    grids=(Grid(number=SPEND, points=(0, 1, SPEND.n_steps // 4, SPEND.n_steps)),),
)

WITH_MISSING = Categories(
    declared=declare(
        {"visit": "0,1", "sale": "0,1", "spend": SPEND},
        constraints=["sale -> visit", "spend>0 -> sale"],
        missing=["sale", "spend"],
    ),
    grids=(Grid(number=SPEND, points=(0, 1, SPEND.n_steps // 4, SPEND.n_steps)),),
)

FAR = Categories(
    declared=declare({"spend": cdp.Number(0, 100_000)}),
    grids=(Grid(number=cdp.Number(0, 100_000), points=(0, cdp.Number(0, 100_000).n_steps)),),
)

MARKETS = PrivateClusters(
    response=ClusterResponse.for_epsilon([str(market) for market in range(5)], 1.0),
    shares=(1.0,) * 5,
)
# A label that nobody has is given, too.
RARE = replace(
    MARKETS, response=ClusterResponse.for_epsilon([*MARKETS.response.labels, "none"], 6.0)
)
ASSIGNED = replace(MARKETS, assignment=dict.fromkeys(MARKETS.response.labels, "0.5"))
LABELLED = one_outcome("clicks", cdp.OutcomeSpace.labels("no", "Yes"))


def with_labels(table: pl.DataFrame) -> pl.DataFrame:
    """Clicks as labels, with capitals and spaces as people write them."""
    texts = pl.Series(["no", "NO ", " yes", "Yes"])
    return table.with_columns(clicks=texts.gather(table["clicks"]))


CASES = {
    "private clusters": Case(kept=("secret",), folds=2, clusters=MARKETS),
    "private clusters that are pooled": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("half",))),
        breakdowns=(("half",),),
        clusters=replace(RARE, shares=(1.0,) * 6, min_cell_size=20),
    ),
    "private clusters with probabilities of arms": Case(
        lambda t: t.with_columns(user=pl.format("né {}", pl.col("user") ** 5)),
        cdp.optimal(epsilon=2, sums=shares_of()),
        folds=2,
        clusters=ASSIGNED,
    ),
    "missing outcomes": Case(
        with_missing,
        cdp.optimal(epsilon=4, noise_scale=2, sums=shares_of()._replace(clusters=0.1)),
        WITH_MISSING,
        folds=2,
    ),
    "several outcomes": Case(with_visits, cdp.optimal(epsilon=2), SEVERAL),
    "several outcomes, sums and counts": Case(
        with_visits,
        cdp.optimal(epsilon=4, noise_scale=2, sums=cdp.SumShares(clusters=0.2)),
        SEVERAL,
    ),
    "several outcomes redrawn": Case(
        with_visits, cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5), SEVERAL
    ),
    "totals": Case(mechanism=cdp.optimal(epsilon=2, sums=shares_of())),
    "breakdowns and folds": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(*EVERY_TYPE)),
        breakdowns=EVERY_TYPE,
        folds=2,
    ),
    "breakdowns of several outcomes": Case(
        lambda t: with_groups(t).with_columns(user=pl.format("né {}", pl.col("user") ** 5)),
        cdp.optimal(epsilon=4, noise_scale=2, sums=shares_of(*EVERY_TYPE)._replace(clusters=0.1)),
        SEVERAL,
        breakdowns=EVERY_TYPE,
        folds=3,
    ),
    "clusters as a breakdown": Case(
        lambda t: t.with_columns(treated=pl.col("treated").cast(pl.Boolean)),
        cdp.uniform_prior_dp(epsilon=2, sums=shares_of(("market",))),
        breakdowns=(("market",),),
        folds=2,
    ),
    "no clusters": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("region",))),
        SEVERAL,
        cluster=None,
        breakdowns=(("region",),),
        folds=2,
    ),
    "crossed clusters": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("half",))),
        cluster="market,half",
        breakdowns=(("half",),),
        folds=2,
    ),
    "crossed clusters that are pooled": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("half", "region"))),
        cluster="market,half",
        breakdowns=(("half", "region"),),
        clusters=PublicClusters(min_cell_size=30),
    ),
    "a pilot, pooled clusters and breakdowns": Case(
        with_groups,
        cdp.optimal(epsilon=8, pilot=0.6, sums=shares_of(("half", "region"))),
        FAR,
        cluster="market,half",
        breakdowns=(("half", "region"),),
        clusters=PublicClusters(min_cell_size=30),
        folds=2,
    ),
    "64-bit ids": Case(lambda t: t.with_columns(user=pl.col("user") * 2**53 - 2**62)),
    "ids, arms and clusters as text": Case(
        lambda t: t.with_columns(
            user=pl.format("né {}", pl.col("user") ** 5),
            market="market " + pl.col("market").cast(pl.String),
            treated=pl.col("treated").cast(pl.Boolean),
        )
    ),
    "small types": Case(
        lambda t: t.with_columns(
            pl.col("user").cast(pl.Int32), pl.col("treated").cast(pl.Int8), pl.col("clicks") / 1
        )
    ),
    "one prior for all": Case(mechanism=cdp.uniform_prior_dp(epsilon=1)),
    "an optimal channel": Case(mechanism=cdp.optimal(epsilon=2)),
    "aggregates alone": Case(mechanism=cdp.noisy_histogram(epsilon=1)),
    "kept columns": Case(
        lambda t: t.with_columns(
            day=pl.date(2024, 1, 1) + pl.duration(days=pl.col("user") % 7),
            at=pl.datetime(2024, 1, 1, time_zone="UTC") + pl.duration(minutes=pl.col("user")),
        ),
        kept=("secret", "day", "at"),
    ),
    "bins": Case(
        lambda t: t.with_columns(clicks=pl.col("clicks") * 7.5),
        space=one_outcome("clicks", cdp.OutcomeSpace.bins([0, 1, 10, 20, 30])),
    ),
    "several rows of a unit": Case(
        lambda t: pl.concat([with_visits(t), with_visits(t).filter(pl.col("user") % 3 > 0)]),
        cdp.optimal(epsilon=2),
        SEVERAL,
        aggregates={"visit": "any", "sale": "max", "spend": "mean"},
    ),
    "clipping": Case(lambda t: t.with_columns(clicks=pl.col("clicks") * 2 - 1), clip=True),
    "pooling": Case(
        lambda t: t.with_columns(
            market=pl.when(pl.int_range(pl.len()) < 16)
            .then(pl.int_range(pl.len()) // 4 + 10)
            .otherwise("market")
        ),
        clusters=PublicClusters(min_cell_size=3),
    ),
    "skewed clusters": Case(
        lambda t: t.with_columns(
            market=pl.when(pl.int_range(pl.len()) < 40).then("market").otherwise(0)
        )
    ),
    "labels": Case(with_labels, space=LABELLED),
    "labels of several rows": Case(
        lambda t: pl.concat([with_labels(t), with_labels(t).filter(pl.col("user") % 3 > 0)]),
        space=LABELLED,
        aggregates={"clicks": "any"},
    ),
    "booleans as labels": Case(
        lambda t: t.with_columns(clicks=pl.col("clicks") > 1),
        space=one_outcome("clicks", cdp.OutcomeSpace.labels("FALSE", "TRUE")),
    ),
    "odd names": Case(
        lambda t: t.with_columns(pl.col("secret").alias('a.b "c"'), Market="secret"),
        kept=('a.b "c"', "Market"),
    ),
}
