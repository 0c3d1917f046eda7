"""The reproduction: `--quick` reaches the verdicts of the full size, and its inputs are right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli_runs import assert_refused, run
from clusterdp.studies.populations import features_from_snap, shipped_features

ROOT = Path(__file__).parents[2]
SNAP = ROOT.parent / "shared" / "data" / "youtube"


@pytest.mark.slow
def test_quick_reaches_the_committed_verdicts(tmp_path: Path) -> None:
    result = run("reproduce", "all", "--quick", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    quick = json.loads((tmp_path / "out" / "verdicts.json").read_text())
    full = json.loads((ROOT / "docs" / "studies" / "reproduction" / "verdicts.json").read_text())
    assert {claim["name"]: claim["verdict"] for claim in quick} == {
        claim["name"]: claim["verdict"] for claim in full
    }
    report = (tmp_path / "out" / "REPORT.md").read_text()
    for claim in quick:
        assert claim["sentence"] in report
    for number in range(1, 8):
        assert list((tmp_path / "out").glob(f"experiment-{number}*.svg"))
        assert list((tmp_path / "out").glob(f"experiment-{number}*.png"))
        assert list((tmp_path / "out").glob(f"experiment-{number}*.csv"))


def test_committed_figures_are_small() -> None:
    figures = list((ROOT / "docs" / "studies" / "reproduction").glob("*.svg"))
    assert len(figures) == 8
    assert all(figure.stat().st_size < 200_000 for figure in figures)


def test_features_from_files_of_snaps_form(tmp_path: Path) -> None:
    """Fifty communities of one pair each; user 0 is in the first two."""
    lines = ["0\t1\t2", "0\t3\t4"] + [f"{10 * k}\t{10 * k + 1}" for k in range(1, 49)]
    (tmp_path / "cmty.txt").write_text("\n".join(lines) + "\n")
    edges = "# a comment\n0\t1\n0\t3\n1\t3\n2\t10\n5\t0\n"
    (tmp_path / "edges.txt").write_text(edges)
    boundary = features_from_snap(tmp_path / "cmty.txt", tmp_path / "edges.txt")
    np.testing.assert_array_equal(boundary.n_nodes[:3], [3, 3, 2])
    np.testing.assert_array_equal(boundary.edges_inside[:2], [1, 1])
    # First community: 0-3, 1-3 and 2-10 cross; the link to 5, who is in no community, does not.
    np.testing.assert_array_equal(boundary.edges_outside[:2], [3, 2])
    pairwise = features_from_snap(tmp_path / "cmty.txt", tmp_path / "edges.txt", "pairwise")
    # 0-1 counts too, for either: 0 is in both communities. 2-10 reaches the third from the first.
    np.testing.assert_array_equal(pairwise.edges_outside[:2], [4, 3])


@pytest.mark.skipif(not SNAP.exists(), reason="SNAP's files are not on this machine")
@pytest.mark.parametrize("reading", ["boundary", "pairwise"])
def test_the_shipped_table_is_snaps(reading: str) -> None:
    made = features_from_snap(
        SNAP / "com-youtube.top5000.cmty.txt",
        SNAP / "youtube_edges_top50.csv",
        reading,  # type: ignore[arg-type]
    )
    shipped = shipped_features(reading)  # type: ignore[arg-type]
    np.testing.assert_array_equal(made.n_nodes, shipped.n_nodes)
    np.testing.assert_array_equal(made.edges_inside, shipped.edges_inside)
    np.testing.assert_array_equal(made.edges_outside, shipped.edges_outside)
    assert shipped.n_nodes.sum() == 22_179
    assert shipped.n_nodes.min() == 199


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("8",), "experiments are 1 to 7"),
        (("two",), "experiments are 1 to 7"),
        (("1", "--snap-edges", "none.txt"), "give both"),
        (("1", "--snap-edges", "no.txt", "--snap-communities", "no.txt"), "list of communities"),
    ],
)
def test_requests_that_make_no_sense(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert_refused(run("reproduce", *arguments, "--out", tmp_path / "out"), message)
