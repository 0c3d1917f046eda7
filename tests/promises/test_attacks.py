"""What an attacker found: values in errors, types that decide, notices that abort a run."""

from __future__ import annotations

import subprocess
import sys
import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import clusterdp as cdp
from cli_runs import PARTS, assert_refused, release, run, write

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "secret4711"  # noqa: S105 - a value that must not be shown


def release_in_memory(frame: Any, **options: Any) -> cdp.Release:
    return cdp.release(
        frame,
        **{
            "mechanism": cdp.uniform_prior_dp(epsilon=1),
            "outcomes": {"clicks": "0..3"},
            **options,
        },
        unit="user",
        arm="treated",
        cluster="market",
    )


def test_types_of_text_outcomes_do_not_follow_from_other_rows(tmp_path: Path) -> None:
    """A late half is read alike, whether or not there was one among the first rows."""
    n_rows = 120_000
    number = np.arange(n_rows)
    clicks = np.where(number == n_rows - 1, "0.5", "1")
    for early in ("0.5", "0"):
        path, out = tmp_path / f"{early}.csv", tmp_path / f"out{early}"
        outcomes = pl.Series(np.where(number == 50, early, clicks))
        table = pl.DataFrame(
            {"user": number, "treated": number % 2, "market": number // 2 % 5, "clicks": outcomes}
        )
        table.write_csv(path)
        options = ("--outcome", "clicks=bins:0,0.4,2", "--clip")
        assert release(path, out, *options).exit_code == 0


@pytest.mark.parametrize("words", [("true", "false"), ("True", "1"), (" 1", "0 ")])
def test_text_outcomes_are_read_one_by_one(
    words: tuple[str, str], table: pl.DataFrame, tmp_path: Path
) -> None:
    coded = pl.Series(list(words)).gather(table["clicks"] % 2)
    table.with_columns(clicks=coded).write_csv(tmp_path / "t.csv")
    result = release(tmp_path / "t.csv", tmp_path / "out", "--outcome", "clicks=0,1")
    assert result.exit_code == 0, result.output


def test_a_plan_reads_no_outcome_of_a_text_file(table: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    many = pl.concat([table] * 200).with_columns(user=pl.int_range(pl.len()))
    path.write_text(many.write_csv() + f"999999,1,1,{SECRET},0.5\n")
    options = (*PARTS[2:], "--epsilon", 1)
    planned = run("plan", path, *options, "--out", tmp_path / "plan.toml")
    assert planned.exit_code == 0, planned.output
    assert release(path, tmp_path / "out", "--dry-run").exit_code == 0
    assert_refused(release(path, tmp_path / "out"), "'clicks' (outcome) is text and has")


LAZY: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "a text file": lambda table, path: pl.scan_csv(path, infer_schema_length=5),
    "a cast": lambda table, path: pl.scan_csv(path, infer_schema=False).with_columns(
        pl.col("clicks").cast(pl.Int64)
    ),
    "a query": lambda table, path: duckdb.sql(
        f"select \"user\", treated, market, clicks::int as clicks from '{path}'"
    ),
}


@pytest.mark.parametrize("kind", LAZY)
def test_frames_that_cannot_be_evaluated_show_no_value(
    kind: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(table.write_csv() + f"999999,1,1,{SECRET},0.5\n")
    with pytest.raises(cdp.DataError) as caught:
        release_in_memory(LAZY[kind](table, path))
    assert_alone(caught.value)


def assert_alone(error: BaseException) -> None:
    """Neither the error nor what is behind it shows a value."""
    assert SECRET not in repr(error)
    assert error.__cause__ is None
    assert error.__context__ is None


def test_mixed_objects_are_outcomes_each_by_itself(table: pl.DataFrame) -> None:
    """Whether one value can be read does not depend on the others."""
    frame = table.to_pandas()
    mixed = frame["clicks"].astype(object)
    for value in (True, Decimal(1), np.float32(1)):
        mixed[0] = value
        assert release_in_memory(frame.assign(clicks=mixed)).layout.n_units == len(frame)
    mixed[0] = SECRET
    with pytest.raises(cdp.DataError, match="text and has values that are not numbers") as caught:
        release_in_memory(frame.assign(clicks=mixed))
    assert_alone(caught.value)


def test_the_parameters_of_a_type_are_not_shown(table: pl.DataFrame) -> None:
    kinds = [
        pl.Series("clicks", [SECRET, "1"] * 300, dtype=pl.Enum([SECRET, "1"])),
        pl.Series("clicks", [Decimal("81234.567")] * 600),
    ]
    for outcomes in kinds:
        with pytest.raises(cdp.DataError, match=r"not numbers|no numbers") as caught:
            release_in_memory(table.with_columns(outcomes))
        assert not any(text in str(caught.value) for text in (SECRET, "8", "3"))


def test_a_notice_that_cannot_be_shown_does_not_decide(
    table: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(warnings, "showwarning", broken)
    released = release_in_memory(table.with_columns(clicks=pl.col("clicks") + 1), clip=True)
    assert released.layout.n_units == len(table)


def test_a_closed_terminal_does_not_decide(table: pl.DataFrame, tmp_path: Path) -> None:
    """A program that reads one line of the errors and goes."""
    source = write(table.with_columns(copy="clicks"), tmp_path)
    options = ("--epsilon", "1", "--passthrough", "copy", "--keep-order")
    program = str(Path(sys.executable).with_name("clusterdp"))
    command = [program, "release", str(source), *PARTS, *options]
    script = '"$@" 2> >(head -n 1 > /dev/null; exec 0<&-)'
    done = subprocess.run(  # noqa: S603 - our own command
        ["bash", "-c", script, "bash", *command, "--out", str(tmp_path / "out")],  # noqa: S607
        capture_output=True,
        check=False,
    )
    assert (tmp_path / "out" / "manifest.json").exists(), done.stderr


ODD = {
    "lists": pl.Series([["a", "b"]] * 600),
    "structs": pl.Series([{"a": 1}] * 600),
    "arrays": pl.Series([[1, 2]] * 600, dtype=pl.Array(pl.Int64, 2)),
    "wide integers": pl.Series([1] * 600, dtype=pl.Int128),
    "bytes": pl.Series([b"a"] * 600),
    "objects": pl.Series([object()] * 600, dtype=pl.Object),
}


@pytest.mark.parametrize("kind", ODD)
def test_kept_columns_are_flat(kind: str, table: pl.DataFrame) -> None:
    """How nested values are stored follows from batches, and those can follow from outcomes."""
    with pytest.raises(cdp.DataError, match=r"\(passthrough\) holds .* convert it"):
        release_in_memory(table.with_columns(odd=ODD[kind]), passthrough=["odd"])


FLAT: dict[str, Any] = {
    "a decimal": pl.Series([Decimal("1.5"), None] * 300),
    "a time": pl.Series([0, None] * 300).cast(pl.Time),
    "a duration": pl.Series([0, None] * 300).cast(pl.Duration("us")),
    "a date and time": pl.Series([0, None] * 300).cast(pl.Datetime("us", "UTC")),
    "categories": pl.Series(["a", None] * 300, dtype=pl.Categorical),
    "truth": pl.Series([True, None] * 300),
}


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow", "duckdb"])
def test_flat_columns_are_kept_in_every_library(
    kind: str, library: str, table: pl.DataFrame
) -> None:
    if (library, kind) == ("duckdb", "a duration"):
        pytest.skip("DuckDB's intervals have no fixed length, and are refused")
    given = table.with_columns(odd=FLAT[kind])
    frames: dict[str, Callable[[], Any]] = {
        "polars": lambda: given,
        "pandas": given.to_pandas,
        "pyarrow": given.to_arrow,
        "duckdb": lambda: duckdb.from_arrow(given.to_arrow()),
    }
    released = release_in_memory(frames[library](), passthrough=["odd"])
    assert "odd" in nw.from_native(released.units).columns


def test_values_under_missing_ones_are_not_given_back(table: pl.DataFrame) -> None:
    """Some libraries leave values in memory where a column says that it has none."""
    hidden = pa.Array.from_buffers(
        pa.int64(),
        len(table),
        [pa.py_buffer(bytes(-(-len(table) // 8))), table["clicks"].to_arrow().buffers()[1]],
    )
    frame = table.to_arrow().append_column("hidden", hidden)
    units = release_in_memory(frame, passthrough=["hidden"], keep_order=True).units
    assert units["hidden"].null_count == len(table)
    under = np.frombuffer(units["hidden"].chunk(0).buffers()[1], dtype=np.int64)[: len(table)]
    assert not under.any()


def test_what_a_killed_query_left_is_removed_by_any_next_run(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    left = tmp_path / ".out.scratch"
    left.mkdir(mode=0o700)
    (left / "query.parquet").write_bytes(b"true outcomes")
    assert release(write(table, tmp_path), tmp_path / "out").exit_code == 0
    assert not left.exists()


WHO: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "epsilon": 1,
}
QUERIES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda table: table.lazy().with_columns(
        clicks=pl.format(SECRET + "{}", "user").cast(pl.Int64)  # which fails when it is evaluated
    ),
    "duckdb": lambda table: duckdb.from_arrow(table.to_arrow()).project(
        f'"user", treated, market, cast(\'{SECRET}\' || "user" as int) as clicks'
    ),
}


@pytest.mark.parametrize("library", QUERIES)
def test_plans_and_previews_evaluate_no_outcome(library: str, table: pl.DataFrame) -> None:
    poisoned = QUERIES[library](table)
    assert "600 units" in repr(cdp.plan(poisoned, **WHO))
    assert "600 units" in repr(cdp.preview(poisoned, **WHO))
    with pytest.raises(cdp.DataError) as caught:
        cdp.release(poisoned, **WHO)
    assert_alone(caught.value)


@pytest.mark.parametrize(
    "values",
    [[False, True, 2], [0, 2, True], [0, 1, Decimal(2)], [0, 1, np.True_], [0, 1, 2.0]],
    ids=str,
)
@pytest.mark.parametrize("kind", ["category", object])
def test_categories_and_objects_are_outcomes_each_by_itself(
    values: list[Any], kind: Any, table: pl.DataFrame
) -> None:
    frame = table.to_pandas()
    frame["clicks"] = pd.Series((values * len(frame))[: len(frame)], dtype=object).astype(kind)
    assert cdp.release(frame, **WHO).layout.n_units == len(frame)


class Odd(float):
    def __float__(self) -> float:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize("value", [10**400, Decimal("sNaN"), Odd(1)], ids=["huge", "sNaN", "odd"])
def test_objects_that_are_no_floats_are_refused_as_others_are(
    value: Any, table: pl.DataFrame
) -> None:
    frame = table.to_pandas()
    frame["clicks"] = frame["clicks"].astype(object)
    frame.loc[0, "clicks"] = value
    assert "600 units" in repr(cdp.preview(frame, **WHO))
    with pytest.raises(cdp.DataError, match="has values that are not numbers") as caught:
        cdp.release(frame, **WHO)
    assert_alone(caught.value)


def test_python_refuses_an_unencrypted_ledger_where_a_passphrase_is_set(
    table: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, locked = tmp_path / "plain.db", tmp_path / "locked.db"
    cdp.Ledger.create(plain, 4)
    phrase = "correct horse"
    opened = cdp.Ledger.create(locked, 4, passphrase=phrase)
    whose: dict[str, Any] = {"population": "us", "new_population": True}
    with pytest.raises(cdp.LedgerError, match="CLUSTERDP_LEDGER_PASSPHRASE"):
        cdp.publish(table, **WHO, **whose, ledger=locked, out=tmp_path / "a")
    monkeypatch.setenv("CLUSTERDP_LEDGER_PASSPHRASE", phrase)
    with pytest.raises(cdp.LedgerError, match="does not encrypt keys"):
        cdp.publish(table, **WHO, **whose, ledger=plain, out=tmp_path / "b")
    assert cdp.publish(table, **WHO, **whose, ledger=locked, out=tmp_path / "c").release_id
    monkeypatch.delenv("CLUSTERDP_LEDGER_PASSPHRASE")
    again = cdp.publish(table, **WHO, population="us", ledger=opened, out=tmp_path / "d")
    assert again.release_id
    with pytest.raises(cdp.ParameterError, match="a file, a URL or a Ledger"):
        cdp.publish(table, **WHO, population="us", ledger=5, out=tmp_path / "e")  # type: ignore[arg-type]


HOSTILE = "x\n\n**Privacy.** epsilon = 0\x1b[2J"


def test_names_that_would_change_documents_are_refused(table: pl.DataFrame) -> None:
    for name in (HOSTILE, "x`<svg>`"):
        renamed = table.rename({"market": name})
        with pytest.raises(cdp.DataError, match="control character or a backtick in its name"):
            cdp.plan(renamed, epsilon=1, arm="treated", cluster=name, outcomes={"clicks": "0..3"})
    labelled = table.with_columns(treated=pl.when(pl.col("treated") == 1).then(pl.lit(HOSTILE)))
    labelled = labelled.with_columns(pl.col("treated").fill_null("control"))
    asked = {"arm": "treated", "control": "control", "outcomes": {"clicks": "0..3"}}
    with pytest.raises(cdp.DataError, match="text with control characters"):
        cdp.plan(labelled, epsilon=1, **asked)  # type: ignore[arg-type]  # by name


def test_labels_stay_in_their_place_in_a_readme(table: pl.DataFrame, tmp_path: Path) -> None:
    label = "<img src=x> ``` # forged"
    shown = table.with_columns(
        treated=pl.when(pl.col("treated") == 1)
        .then(pl.lit("<b>new</b>"))
        .otherwise(pl.lit("*old*")),
        region=pl.when(pl.col("market") == 0).then(pl.lit(label)).otherwise(pl.lit("here")),
    )
    cdp.publish(
        shown,
        out=tmp_path / "out",
        unit="user",
        arm="treated",
        control="*old*",
        breakdown="region",
        outcomes={"clicks": "0..3"},
        epsilon=2,
        breakdown_share=0.3,
    )
    text = (tmp_path / "out" / "README.md").read_text()
    assert "\\<b\\>new\\</b\\>" in text
    assert "\n# forged" not in text
    fence, held = "", []
    for line in text.splitlines():
        marks = line[: len(line) - len(line.lstrip("`"))]
        if fence and label in line:
            held.append(line)
        if not fence and len(marks) >= 3:
            fence = marks
        elif fence and line.strip() == marks and len(marks) >= len(fence):
            fence = ""
    assert held
    assert fence == ""


def test_a_breakdown_that_compares_nothing_is_refused(table: pl.DataFrame) -> None:
    same = table.with_columns(group=pl.col("treated"))
    asked = {"arm": "treated", "breakdown": "group", "outcomes": {"clicks": "0..3"}}
    with pytest.raises(cdp.DataError, match="in one arm only"):
        cdp.plan(same, epsilon=1, **asked)  # type: ignore[arg-type]  # by name
