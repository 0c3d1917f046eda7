"""Signatures of folders: whose they are, and what a signature covers."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cli_runs import assert_refused, run
from forging import forge

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "owner.pem"
    assert run("sign", "--new-key", path).exit_code == 0
    return path


@pytest.fixture
def signed(published: Path, key: Path) -> Path:
    result = run("sign", published, "--key", key)
    assert result.exit_code == 0, result.output
    return published


def test_a_signed_folder_is_sound_and_says_by_whom(signed: Path, key: Path) -> None:
    result = run("verify", signed, "--signed-by", f"{key}.pub")
    assert result.exit_code == 0, result.output
    mark = json.loads(run("inspect", signed, "--json").output)["signed_with"]
    assert f"ok   signed with key {mark}\n" in result.output
    assert f"with key {mark}" in run("inspect", signed).output
    # Without the owner's key, nothing says whose it is.
    assert f"{mark}, which nothing else here confirms" in run("verify", signed).output


def test_an_unsigned_folder_is_sound_unless_a_signature_is_asked_for(
    published: Path, key: Path
) -> None:
    assert run("verify", published).exit_code == 0
    assert "Signed" not in run("inspect", published).output
    result = run("verify", published, "--signed-by", f"{key}.pub")
    assert result.exit_code == 2
    assert "is not signed" in result.output


def test_a_folder_that_is_sealed_again_loses_its_signature(signed: Path, key: Path) -> None:
    forge(signed, lambda manifest: manifest["provenance"].update(title="Another"))
    for more in ((), ("--signed-by", f"{key}.pub")):
        result = run("verify", signed, *more)
        assert result.exit_code == 2
        assert "is not a signature of this manifest.json" in result.output


def test_another_key_is_named(signed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    run("sign", "--new-key", other)
    result = run("verify", signed, "--signed-by", f"{other}.pub")
    assert result.exit_code == 2
    assert "another one" in result.output


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"public_key": "00", "signature": "00"}', "x" * 70_000],
)
def test_what_is_no_signature_is_rejected(signed: Path, content: str) -> None:
    (signed / "signature.json").write_text(content)
    result = run("verify", signed)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_signature_hides_nothing(signed: Path) -> None:
    path = signed / "signature.json"
    path.write_text(path.read_text().replace("\n", " \n", 1))
    assert run("verify", signed).exit_code == 2


def test_openssl_agrees(signed: Path, key: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")
    raw = tmp_path / "raw"
    raw.write_bytes(bytes.fromhex(json.loads((signed / "signature.json").read_text())["signature"]))
    command = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", f"{key}.pub"]
    command += ["-in", str(signed / "manifest.json"), "-sigfile", str(raw)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command


def test_keys_are_private_and_never_overwritten(key: Path, published: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    assert_refused(run("sign", "--new-key", key), "exists")
    run("sign", published, "--key", key)
    assert_refused(run("sign", published, "--key", key), "signed already")


def test_keys_of_another_kind_are_refused(published: Path, key: Path, tmp_path: Path) -> None:
    other = tmp_path / "ec.pem"
    made = ec.generate_private_key(ec.SECP256R1())
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    other.write_bytes(made.private_bytes(serialization.Encoding.PEM, *form))
    assert_refused(run("sign", published, "--key", other), "another kind")
    assert_refused(run("sign", published, "--key", f"{key}.pub"), "no private key")
    assert_refused(run("sign", published, "--key", tmp_path / "none"), "no file")
    assert_refused(run("verify", published, "--signed-by", key), "no public Ed25519 key")
    assert_refused(run("sign", published), "--new-key")
