"""`clusterdp certificate`: a page to sign, and an entry for the registry, from the folder alone."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import clusterdp as cdp
from cli_runs import run
from forging import seal
from frozen_releases import RELEASES, experiment

if TYPE_CHECKING:
    from pathlib import Path

OWNER = "Only the owner can answer this."
# The fields of the registry's entries, and what those allow that allow few texts.
FIELDS: dict[str, Any] = {
    "status": ("Draft",),
    "tier": (1, 2, 3),
    "deployment": {
        "basic": {
            "name": str,
            "data_curators": [{"data_curator_name": str}],
            "intended_use": str,
            "data_product_type": ("Dataset", "Summary statistics"),
            "data_product_region": str,
            "description": str,
            "publication_date": str,
        },
        "dp_variant": {
            "variant_name": ("Pure DP", "Approximate DP"),
            "data_domain": str,
            "unprotected_quantities": str,
        },
        "privacy_loss": {
            "privacy_unit": str,
            "privacy_unit_details": str,
            "privacy_parameters": {"epsilon": float, "delta": float},
            "privacy_parameters_details": str,
        },
        "deployment_model": {
            "model_name": ("Central",),
            "model_name_details": str,
            "actors": str,
            "release_type": ("One release", "Many releases"),
            "release_type_details": str,
            "data_source_type": ("Static", "Dynamic"),
            "access_type": ("Non-interactive",),
            "access_type_details": str,
        },
        "accounting": {"post_processing": str, "composition": str},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": str,
            "mechanisms": str,
            "justification": str,
        },
        "administrative": {"sources": str, "registry_authors": [str]},
    },
}
# Where δ is 0 there is none.
OPTIONAL = {"delta"}


def problems(entry: Any, fields: Any, place: str = "") -> list[str]:
    """What of an entry the registry does not allow, or misses."""
    if isinstance(fields, dict):
        wrong = [f"{place}/{name}: unknown" for name in entry.keys() - fields.keys()]
        wrong += [f"{place}/{name}: missing" for name in fields.keys() - entry.keys() - OPTIONAL]
        known = fields.keys() & entry.keys()
        return wrong + [
            one for name in known for one in problems(entry[name], fields[name], f"{place}/{name}")
        ]
    if isinstance(fields, list):
        return [one for each in entry for one in problems(each, fields[0], place)]
    if isinstance(fields, tuple):
        return [] if entry in fields else [f"{place}: {entry!r}"]
    return [] if isinstance(entry, fields) and entry != "" else [f"{place}: {entry!r}"]


def certified(name: str, tmp_path: Path, **words: Any) -> Path:
    folder = tmp_path / "published"
    frozen = RELEASES[name]
    cdp.publish(experiment(), out=folder, **frozen.options, **{**frozen.words, **words})
    result = run("certificate", folder, "--out", tmp_path / "certificate")
    assert result.exit_code == 0, result.output
    return tmp_path / "certificate"


@pytest.mark.parametrize("name", ["two questions", "private clusters and a pilot", "delta"])
def test_the_entry_has_the_fields_of_the_registry(name: str, tmp_path: Path) -> None:
    hostile = 'Shop: "A", #1\u2026 {x} - yes'
    written = certified(name, tmp_path, title=hostile, reason="no", contact="- a: b")
    entry = yaml.safe_load((written / "registry.yaml").read_text(encoding="utf-8"))
    assert problems(entry, FIELDS) == []
    deployment = entry["deployment"]
    assert deployment["basic"]["name"] == hostile
    assert deployment["administrative"]["sources"] == "- a: b"
    assert deployment["implementation"]["justification"] == "no"
    manifest = json.loads((tmp_path / "published" / "manifest.json").read_bytes())
    stated = deployment["privacy_loss"]["privacy_parameters"]
    assert stated["epsilon"] == manifest["guarantee"]["epsilon"]
    assert stated.get("delta", 0) == manifest["guarantee"]["delta"]


def test_a_field_that_is_missing_or_unknown_is_a_problem() -> None:
    assert problems({"epsilon": 1.0, "rho": 1.0}, {"epsilon": float, "delta": float}) == [
        "/rho: unknown"
    ]
    assert problems({}, {"name": str}) == ["/name: missing"]
    assert problems({"name": ""}, {"name": str}) == ["/name: ''"]


def test_a_certificate_says_who_answers_what(tmp_path: Path) -> None:
    written = certified("missing outcome", tmp_path, unit_name="patient")
    text = (written / "certificate.md").read_text(encoding="utf-8")
    for said in ("at most 89% sure", "other patients", "Fact:", "By design of clusterdp", OWNER):
        assert said in " ".join(text.split())
    page = (written / "certificate.html").read_text(encoding="utf-8")
    assert "Data owner: ____" in page
    assert "<script" not in page


def test_a_folder_that_states_too_little_gets_no_certificate(tmp_path: Path) -> None:
    certified("groups", tmp_path)
    forged = tmp_path / "forged"
    shutil.copytree(tmp_path / "published", forged)
    content = json.loads((forged / "manifest.json").read_bytes())
    content["guarantee"]["epsilon"] = 0.5
    content["questions"][0]["epsilon"] = 0.5
    seal(forged, content)
    result = run("certificate", forged, "--out", tmp_path / "other")
    assert result.exit_code == 2
    assert not (tmp_path / "other").exists()
