from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import add_exact_noise, simulated_noise
from runs import run_release

if TYPE_CHECKING:
    from collections.abc import Callable

SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
PARTS: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
COLUMNS = Columns(**PARTS, outcomes=("clicks",))
CLUSTER_DP = cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5)
MECHANISMS = {
    "cluster": CLUSTER_DP,
    "cluster-free": cdp.cluster_free_dp(noise_scale=5, prior_floor=0.05, epsilon=2),
    "uniform": cdp.uniform_prior_dp(epsilon=1),
    "horvitz-thompson": cdp.noisy_horvitz_thompson(epsilon=1),
    "histogram": cdp.noisy_histogram(epsilon=1),
}


def release(frame: Any, mechanism: cdp.Mechanism = CLUSTER_DP, **options: Any) -> cdp.Release:
    asked = {"outcomes": {"clicks": "0..3"}, **PARTS, **options}
    return cdp.release(frame, mechanism=mechanism, **asked)


def keyed_release(frame: Any, key: bytes = b"k" * 32, seed: int = 0, **options: Any) -> cdp.Release:
    """A release with both sources of randomness fixed: the tests' own door."""
    settings: dict[str, Any] = {"control": None, "clip": False, **options}
    return run_release(
        frame,
        mechanism=CLUSTER_DP,
        space=SPACE,
        columns=COLUMNS,
        key=ReleaseKey(key),
        add_noise=simulated_noise(np.random.default_rng(seed)),
        **settings,
    )


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_a_release_holds_what_it_says_and_nothing_else(
    mechanism: cdp.Mechanism, table: pl.DataFrame
) -> None:
    released = release(table, mechanism)
    assert released.guarantee == mechanism.guarantee(SPACE)
    assert len(released.cells) == 10
    assert released.cells["size"].sum() == len(table)
    if mechanism.releases_rows:
        assert released.units.columns == [
            "user",
            "treated",
            "market",
            "fold",
            "response",
            "clicks_debiased",
        ]
        public = ["user", "treated", "market"]
        assert released.units.select(public).equals(table.select(public).sort("user"))
        joined = released.units.join(released.cells, on=["treated", "market"])
        decoded = joined["decode"].list.first().list.get(joined["response"])
        assert decoded.equals(joined["clicks_debiased"], check_names=False)
        np.testing.assert_allclose(released.cells["prior"].list.sum(), 1)
    else:
        assert released.units is None


def test_several_outcomes_share_one_response(table: pl.DataFrame) -> None:
    """Each debiased column follows from the response and the cell's decode values of its metric."""
    given = table.with_columns(bought=pl.col("clicks") > 1, spend=pl.col("secret").abs())
    outcomes = {"clicks": "0..3", "bought": "0,1", "spend": cdp.Number(0, 3)}
    released = release(given, cdp.uniform_prior_dp(epsilon=2), outcomes=outcomes)
    public = ["user", "treated", "market", "fold", "response"]
    assert released.units.columns == [*public, *(f"{name}_debiased" for name in outcomes)]
    joined = released.units.join(released.cells, on=["treated", "market"])
    for metric, name in enumerate(outcomes):
        decoded = joined["decode"].list.get(metric).list.get(joined["response"])
        assert decoded.equals(joined[f"{name}_debiased"], check_names=False)
        assert decoded.n_unique() > 1


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame,
        lambda frame: frame.lazy(),
        lambda frame: frame.to_pandas(),
        lambda frame: frame.to_pandas().set_index("secret"),
        lambda frame: frame.to_arrow(),
        lambda frame: duckdb.from_arrow(frame.to_arrow()),
    ],
    ids=["polars", "lazy", "pandas", "pandas index", "pyarrow", "duckdb"],
)
def test_any_frame_in_the_same_kind_out(convert: Any, table: pl.DataFrame) -> None:
    given = convert(table)
    released = keyed_release(given)
    kind = pl.DataFrame if isinstance(given, pl.LazyFrame) else type(given)
    assert isinstance(released.units, kind)
    assert isinstance(released.cells, kind)
    as_polars = nw.from_native(released.units).lazy().collect("polars").to_native()
    # pandas has no columns of lists, DuckDB relations have no order of their own
    expected = keyed_release(table).units
    assert as_polars.sort("user").equals(expected.sort("user"))


def test_strings_and_integers_make_one_release_each(table: pl.DataFrame) -> None:
    text = table.with_columns(
        pl.col("user").cast(pl.String), market=pl.format("m{}", "market").cast(pl.Categorical)
    )
    first, second = keyed_release(text), keyed_release(text)
    assert first.units.equals(second.units)
    assert set(first.cells["market"]) == {f"m{index}" for index in range(5)}


def test_the_same_key_gives_the_same_release_in_any_order(table: pl.DataFrame) -> None:
    first = keyed_release(table)
    again = keyed_release(table.sample(fraction=1.0, shuffle=True))
    assert first.units.sort("user").equals(again.units.sort("user"))
    other = keyed_release(table, key=b"another key of thirty-two bytes!")
    assert not first.units.equals(other.units)


def test_no_key_enters_a_real_release(table: pl.DataFrame) -> None:
    """The public function takes none, and two releases of the same table differ."""
    with pytest.raises(cdp.ParameterError, match="no option 'key'"):
        release(table, key=ReleaseKey(b"k" * 32))
    assert not release(table).units.equals(release(table).units)


def test_a_release_does_not_hold_true_outcomes(table: pl.DataFrame) -> None:
    """With rows almost never kept, nothing in the release tells two tables apart but noise."""
    mechanism = cdp.uniform_prior_dp(resample_prob=1 - 2**-50)
    settings: dict[str, Any] = {
        "mechanism": mechanism,
        "space": SPACE,
        "columns": COLUMNS,
        "control": None,
        "clip": False,
        "key": ReleaseKey(b"k" * 32),
        "add_noise": add_exact_noise,
    }
    ours = run_release(table, **settings)
    theirs = run_release(table.with_columns(clicks=3 - pl.col("clicks")), **settings)
    for field in dataclasses.fields(cdp.Release):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(one, pl.DataFrame):
            assert one.equals(other)
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
        else:
            assert repr(one) == repr(other)


def without_clicks(table: pl.DataFrame, gap: float | None) -> pl.DataFrame:
    clicks = pl.when(pl.col("user") < 7).then(gap).otherwise(pl.col("clicks").cast(pl.Float64))
    return table.with_columns(clicks=clicks)


# Bad input, the options it comes with, and what the message must say.
BROKEN: dict[str, tuple[Callable[[pl.DataFrame], Any], dict[str, Any], str]] = {
    "unknown column": (
        lambda table: table,
        {"outcomes": {"visits": "0..3"}},
        "no column 'visits' to use as outcome",
    ),
    "one column twice": (lambda table: table, {"arm": "market"}, "must all differ"),
    "not a frame": (lambda _: [1, 2, 3], {}, "got list"),
    "no rows": (lambda table: table.head(0), {}, "no rows"),
    "duplicate unit": (
        lambda table: pl.concat([table, table.head(3)]),
        {},
        r"'user' \(unit\) has duplicate ids in 3 rows",
    ),
    "missing outcome": (
        lambda table: without_clicks(table, None),
        {},
        r"'clicks' \(outcome\) has missing values;",
    ),
    "missing as NaN": (
        lambda table: without_clicks(table, float("nan")),
        {},
        r"'clicks' \(outcome\) has missing values;",
    ),
    "missing arm": (
        lambda table: table.with_columns(treated=pl.col("treated").replace(1, None)),
        {},
        r"'treated' \(arm\) has 300 missing values",
    ),
    "outside the space": (
        lambda table: without_clicks(table, 77),
        {},
        r"'clicks' \(outcome\) has values outside the allowed values;",
    ),
    "between the values, clipped": (
        lambda table: without_clicks(table, 1.77),
        {"clip": True},
        "has values outside",
    ),
    "text outcome": (
        lambda table: table.with_columns(pl.format("x{}", "clicks").alias("clicks")),
        {},
        "is text and has a currency sign or a unit next to the number",
    ),
    "float ids": (
        lambda table: table.with_columns(pl.col("user") + 0.77),
        {},
        "integers or strings",
    ),
    "clusters assigned as a whole": (
        lambda table: table.filter(pl.col("market") % 2 == pl.col("treated")),
        {},
        "5 of 5 clusters have units in one arm only: whole clusters were assigned",
    ),
    "one arm": (
        lambda table: table.with_columns(treated=pl.lit("on")),
        {"control": "on"},
        "at least 2 arms",
    ),
    "no named control": (
        lambda table: table.with_columns(treated=pl.format("arm {}", "treated")),
        {},
        "missing: which arm is control",
    ),
    "wrong control": (lambda table: table, {"control": "B"}, "control 'B' is not an arm"),
    "name that the release gives": (
        lambda table: table.rename({"market": "prior"}),
        {"cluster": "prior"},
        "'prior' has a name that the release gives",
    ),
    "mixed types": (
        lambda table: table.to_pandas().astype({"clicks": object}).replace({"clicks": {3: "x77"}}),
        {},
        r"'clicks' \(outcome\) is text and has a currency sign or a unit next to the number",
    ),
    "pool of nothing": (
        lambda table: table,
        {"min_cell_size": 0},
        "min_cell_size must be at",
    ),
}


@pytest.mark.parametrize(("spoil", "options", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_bad_input_is_explained_without_showing_data(
    spoil: Callable[[pl.DataFrame], Any],
    options: dict[str, Any],
    message: str,
    table: pl.DataFrame,
) -> None:
    with pytest.raises(cdp.ClusterDPError, match=message) as caught:
        release(spoil(table), **options)
    errors: list[BaseException] = [caught.value]
    while errors[-1].__cause__ is not None:
        errors.append(errors[-1].__cause__)
    assert not any("77" in str(error) for error in errors)


@pytest.mark.parametrize("by", [["market"], ["market", "treated"], ["user"]])
def test_the_order_of_the_table_is_kept_where_it_is_declared_public(
    by: list[str], table: pl.DataFrame
) -> None:
    ordered = table.sort(by)
    assert release(ordered).units["user"].equals(table["user"].sort())
    assert release(ordered, keep_order=True).units["user"].equals(ordered["user"])


def test_an_index_and_metadata_are_not_published(table: pl.DataFrame) -> None:
    indexed = table.to_pandas().set_index("clicks", drop=False)
    indexed.attrs["mean"] = 1.5
    units = release(indexed).units
    assert units.index.equals(pd.RangeIndex(len(table)))
    assert not units.attrs
    noted = table.to_arrow().replace_schema_metadata({"mean": "1.5"})
    assert not release(noted).units.schema.metadata


def test_that_clipping_was_declared_is_public_and_whether_it_was_needed_is_not(
    table: pl.DataFrame,
) -> None:
    wild = table.with_columns(clicks=pl.when(pl.col("user") < 5).then(77).otherwise(1))
    with pytest.warns(
        cdp.OwnerNotice, match="'clicks' were outside its allowed values, and were clipped"
    ) as caught:
        released = release(wild, clip=True)
    assert caught[0].filename == __file__
    note = "clicks is clipped to 0–3."
    assert note in released.notes
    assert note in str(cdp.estimate(released))
    assert note in release(table, clip=True).notes
    assert note not in release(table).notes
    with pytest.warns(cdp.OwnerNotice, match="in 5 rows were outside its allowed values"):
        release(wild, clip=True, show_row_counts=True)


def test_small_clusters_are_pooled_when_asked(table: pl.DataFrame) -> None:
    alone = table.with_columns(
        market=pl.when(pl.int_range(pl.len()) < 10).then(pl.col("user") + 100).otherwise("market")
    )
    assert "because some lack an arm" in release(alone).notes[0]
    released = release(alone, min_cell_size=2)
    note, disclosed = released.notes
    assert "At this ε rows reveal a lot" in disclosed
    assert note == (
        "10 clusters of at most 1 unit were pooled into 'pooled' (10 units), because they expect "
        "fewer than 2 units in some arm."
    )
    assert set(released.units["market"]) == {"0", "1", "2", "3", "4", "pooled"}
    assert note in " ".join(str(cdp.estimate(released)).split())  # lines are wrapped
    assert release(table, min_cell_size=2).notes == (disclosed,)


def test_pandas_strings_and_nullable_columns() -> None:
    frame = pd.DataFrame(
        {
            "user": pd.array(["a", "b", "c", "d"], dtype="string"),
            "treated": pd.array([True, False, True, False], dtype="boolean"),
            "market": pd.Categorical(["x", "x", "y", "y"]),
            "clicks": pd.array([0, 1, 2, 3], dtype="Int64"),
        }
    )
    assert len(release(frame).units) == 4
    frame.loc[0, "clicks"] = pd.NA
    with pytest.raises(cdp.DataError, match="has missing values;"):
        release(frame)
    with pytest.raises(cdp.DataError, match="missing values in 1 row;"):
        release(frame, show_row_counts=True)


def test_arrow_ids_beyond_32_bits() -> None:
    frame = pa.table(
        {
            "user": pa.array([2**63, 2**63 + 1, 1, 2], pa.uint64()),
            "treated": [0, 1, 0, 1],
            "market": [2**40, 2**40, -5, -5],
            "clicks": [0.0, 1.0, 2.0, 3.0],
        }
    )
    assert release(frame).cells["market"].to_pylist() == [-5, -5, 2**40, 2**40]
