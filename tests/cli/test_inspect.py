"""What `inspect` and the README of a folder show: what can be seen, and how good clusters were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import release, release_declared, run
from clusterdp.errors import FormatError
from clusterdp.published.manifest import unseal
from clusterdp.published.verification import verify_folder

if TYPE_CHECKING:
    from pathlib import Path

NAMES: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
}
SHARES = ("50%", "25%", "10%", "5%", "1%")


def shown(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(run("inspect", folder, "--json").stdout)
    return content


def test_a_plan_and_its_folder_expect_the_same(source: Path, tmp_path: Path) -> None:
    asked = {**NAMES, "epsilon": 2, "baseline": "clicks=0.4,0.3,0.2,0.1", "within_share": 0.9}
    plan = cdp.plan(source, **asked, breakdown=["market"])
    folder = tmp_path / "out"
    cdp.publish(source, plan, out=folder)
    found, planned = shown(folder), plan.to_dict()["visible"]
    assert list(found["visible"]) == list(planned)
    for name, metrics in planned.items():
        assert found["visible"][name]["clicks"] == pytest.approx(metrics["clicks"], rel=1e-6), name
    assert "the owner's baselines: clicks 1." in found["assumed"]
    assert len(found["variance_reduction"]) == 2


def test_tables_for_people(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert release(source, folder, "--breakdown", "market").exit_code == 0
    inspected, readme = (
        run("inspect", folder, "-v", width=80).output,
        (folder / "README.md").read_text(),
    )
    tables = inspected[inspected.index("Outcome ") : inspected.index("Next: ")]
    written = readme[readme.index("## What you can detect") : readme.index("## Use it")]
    for text in (tables, written):
        said = " ".join(text.split())
        assert "No baseline was declared, so all values are assumed equally likely." in said
        names = ["all units", *(f"market={number}" for number in range(5))]
        for name in [*names, *(f"{share} segment" for share in SHARES)]:
            assert f" {name} " in text
        assert max(map(len, text.splitlines())) <= 80
    assert "Variance reduction from stratification: clicks" in tables
    assert unseal((folder / "manifest.json").read_bytes()).expected == (None,)


def test_no_channel_is_designed_again(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes minutes where there are several outcomes."""

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("clusterdp.channels.optimal._remembered_design", refuse)
    for command in ("inspect", "verify"):
        assert run(command, published).exit_code == 0


def test_without_rows_everyone_alone_is_seen(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert release_declared(source, folder, mechanism="noisy-histogram").exit_code == 0
    found = shown(folder)
    assert list(found["visible"]) == ["all units"]
    assert found["variance_reduction"] == []
    assert "Variance reduction from stratification" not in run("inspect", folder, "-v").output
    assert not [one for one in verify_folder(folder) if one.problem]


def test_clusters_that_lack_an_arm_are_left_out(table: pl.DataFrame, tmp_path: Path) -> None:
    one_armed = table.filter((pl.col("market") < 4) | (pl.col("treated") == 1))
    for number, mechanism in enumerate(
        [cdp.cluster_dp(noise_scale=4, prior_floor=0.05, epsilon=2), cdp.optimal(epsilon=2)]
    ):
        folder = tmp_path / str(number)
        cdp.publish(one_armed, out=folder, mechanism=mechanism, **NAMES)
        assert not [one for one in verify_folder(folder) if one.problem]
        assert shown(folder)["visible"]["all units"]["clicks"]["std_error"] > 0


def test_a_mechanism_by_hand_with_a_baseline(source: Path, tmp_path: Path) -> None:
    given = {**NAMES, "mechanism": cdp.uniform_prior_dp(epsilon=2)}
    cdp.publish(source, out=tmp_path / "out", baseline="clicks=0.4,0.3,0.2,0.1", **given)
    ((expected,),) = shown(tmp_path / "out")["expected"]
    assert expected == pytest.approx([0.4, 0.3, 0.2, 0.1], abs=1e-6)


def test_a_resumed_release_expects_what_it_began_with(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    ledger = tmp_path / "l.db"
    monkeypatch.setenv("CLUSTERDP_PASSPHRASE", "long enough to be one")
    assert run("ledger", "init", ledger, "--cap-epsilon", 9).exit_code == 0
    asked: dict[str, Any] = {**NAMES, "epsilon": 2, "baseline": "0.1,0.4,0.3,0.2"}
    whose: dict[str, Any] = {"ledger": ledger, "population": "us", "new_population": True}
    cdp.publish(source, out=tmp_path / "whole", **asked)
    with monkeypatch.context() as patch:
        patch.setattr("clusterdp.releasing.targets.write_readme", stop)
        with pytest.raises(KeyboardInterrupt):
            cdp.publish(source, out=tmp_path / "out", **asked, **whose)
    held = json.loads(run("ledger", "show", ledger, "--json").stdout)
    (entry,) = held["populations"][0]["releases"]
    cdp.resume(entry["release_id"], ledger=ledger)
    whole, resumed = shown(tmp_path / "whole"), shown(tmp_path / "out")
    assert resumed["expected"] == whole["expected"] != [None]
    assert resumed["visible"] == whole["visible"]


@pytest.mark.parametrize(
    "expected", [(), ((),), (((0.5, 0.5),),), (((0.5,) * 4,),), (((1.5, -0.5, 0.0, 0.0),),)]
)
def test_expectations_that_are_no_distributions(
    expected: tuple[tuple[tuple[float, ...], ...], ...], published: Path
) -> None:
    manifest = unseal((published / "manifest.json").read_bytes())
    forged = msgspec.structs.replace(manifest, expected=expected)
    with pytest.raises(FormatError, match="see 'expected'"):
        unseal(forged.sealed(manifest.files))


def test_another_expectation_needs_another_readme(published: Path) -> None:
    manifest = unseal((published / "manifest.json").read_bytes())
    forged = msgspec.structs.replace(manifest, expected=(((0.7, 0.1, 0.1, 0.1),),))
    (published / "manifest.json").write_bytes(forged.sealed(manifest.files))
    problems = [check.name for check in verify_folder(published) if check.problem]
    texts = ["the README matches the manifest", "index.html matches the manifest"]
    assert problems == texts
