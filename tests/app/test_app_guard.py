"""Only the person's own browser is let in, only from our own pages, and only to our own pages."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from listening import listening_addresses
from running_app import Client, running_app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATHS = ("/", "/estimate", "/names", "/static/app.js", "/nothing")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with running_app() as app:
        found = Client(app)
        found.sign_in()
        yield found


def own(client: Client) -> dict[str, str]:
    """The headers of a form of our own."""
    return {"Origin": f"http://{client.app.access.host}", "Sec_Fetch_Site": "same-origin"}


def test_the_person_is_let_in(client: Client) -> None:
    """The control of what follows."""
    assert [client.ask(client.at + path).status for path in PATHS] == [200] * 4 + [404]
    answer = client.ask(f"{client.at}/ask", "POST", "by=", **own(client))
    assert "Fill in the path of a published folder." in answer.body


def test_a_browser_without_the_cookie_gets_nothing(client: Client) -> None:
    stranger = Client(client.app)
    for cookie in ("", "clusterdp=", "clusterdp=" + "a" * 43, 'clusterdp="; x', "other=1"):
        stranger.cookie = cookie
        for path in PATHS:
            answer = stranger.ask(client.at + path)
            assert answer.status == 403
            assert answer.body == "Open the address that clusterdp app printed.\n"
    # Nor without the random part of the path, which is not shown to it.
    for path in PATHS:
        answer = client.ask(path)
        assert answer.status == 403
        assert client.at not in answer.body + str(answer.headers)


def test_the_address_is_good_for_one_browser() -> None:
    with running_app() as app:
        address = app.access.address.partition(app.access.host)[2]
        stranger, person = Client(app), Client(app)
        assert stranger.ask(f"{app.access.prefix}/?token=guessed").status == 403
        assert person.ask(address, Sec_Fetch_Site="cross-site").status == 200
        again = stranger.ask(address)
        assert again.status == 403
        assert "was used before" in again.body
        assert "set-cookie" not in again.headers


def test_the_cookie_is_kept_from_scripts_and_other_sites() -> None:
    with running_app() as app:
        given = Client(app).sign_in().headers["set-cookie"].lower()
        assert {"httponly", "samesite=strict", f"path={app.access.prefix}/".lower()} <= set(
            given.split("; ")
        )
        assert "domain" not in given


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "localhost:1"},
    ],
)
def test_another_page_cannot_make_the_app_act(client: Client, headers: dict[str, str]) -> None:
    answer = client.ask(f"{client.at}/stop", "POST", "x=1", **(own(client) | headers))
    assert answer.status == 403
    assert client.ask(f"{client.at}/").status == 200


def test_another_port_cannot_make_the_app_act(client: Client) -> None:
    """A server of another user has the same site, as cookies know no ports."""
    for origin in ("http://127.0.0.1:1", "http://127.0.0.1", f"https://{client.app.access.host}"):
        answer = client.ask(
            f"{client.at}/stop", "POST", "x=1", **(own(client) | {"Origin": origin})
        )
        assert answer.status == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost", "[::1]"])
def test_names_of_other_hosts_are_rejected(client: Client, host: str) -> None:
    """A page of a host that is made to resolve to the loopback address has its own name."""
    port = client.app.access.host.rpartition(":")[2]
    assert client.ask(f"{client.at}/", Host=f"{host}:{port}0").status == 403
    assert client.ask(f"{client.at}/", Host=host).status == 403


def test_reading_from_another_page_is_rejected(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        for path in PATHS:
            assert client.ask(client.at + path, Sec_Fetch_Site=site).status == 403
    assert client.ask(f"{client.at}/", Sec_Fetch_Site="none").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../guard.py",
        "/static/..%2fguard.py",
        "/static/%2e%2e/guard.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/estimate/..%2f..%2fetc%2fpasswd",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/app.css%00",
    ],
)
def test_no_other_file_is_served(client: Client, path: str) -> None:
    answer = client.ask(client.at + path)
    assert answer.status in {303, 403, 404}
    assert "root:" not in answer.body
    assert "compare_digest" not in answer.body


def test_names_alone_are_listed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "table.csv").write_text("user,visit\n1,1\n")
    (tmp_path / ".hidden").write_text("")
    answer = client.ask(f"{client.at}/names?under={tmp_path}/table.csv")
    assert '"folders":["inner"],"files":["table.csv"]' in answer.body
    assert "hidden" not in answer.body
    assert "visit" not in answer.body


def test_what_a_browser_may_do_is_little(client: Client) -> None:
    for path in ("/", "/static/app.js", "/nothing"):
        headers = client.ask(client.at + path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"
        assert "server" not in headers


def test_large_and_strange_requests_are_rejected(client: Client) -> None:
    large = client.ask(f"{client.at}/ask", "POST", "x" * (2**20 + 1), **own(client))
    assert large.status == 413
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert client.ask(f"{client.at}/", method).status == 403


def test_the_command_listens_here_only_and_stops(tmp_path: Path) -> None:
    """Asked to stop, it ends by itself; it leaves nothing on the disk."""
    command = [sys.executable, "-c", "from clusterdp.cli.app import app; app()", "app"]
    running = subprocess.Popen(  # noqa: S603 - our own command
        [*command, "--no-browser"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    try:
        said = running.stdout.readline() + running.stdout.readline()
        assert "http://127.0.0.1:" in said
        deadline = time.monotonic() + 20
        while not (heard := listening_addresses(running.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert {str(one) for one in heard} == {"127.0.0.1"}
    finally:
        running.terminate()
        rest, _ = running.communicate(timeout=20)
    assert running.returncode == 0, rest
    assert rest.splitlines()[-1] == "Stopped."
    assert list(tmp_path.iterdir()) == []
