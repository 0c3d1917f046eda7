"""The app on a port of this machine, and a browser that opens it."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.app.server import RunningApp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from playwright.sync_api import Browser, Page, Request


class Answer(NamedTuple):
    """An answer of the app."""

    status: int
    headers: Mapping[str, str]
    body: str


class Client:
    """Another program on this machine, which sends the headers that it likes."""

    def __init__(self, app: RunningApp) -> None:
        self.app, self.cookie = app, ""

    @property
    def at(self) -> str:
        return self.app.access.prefix

    def sign_in(self) -> Answer:
        """Open the address that was printed."""
        path = self.app.access.address.partition(self.app.access.host)[2]
        answer = self.ask(path)
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> Answer:
        """Ask for a path; `_` in the name of a header stands for `-`."""
        given = {"Host": self.app.access.host, "Cookie": self.cookie}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(
            "127.0.0.1", int(self.app.access.host.rpartition(":")[2]), timeout=20
        )
        connection.request(method, path, body, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)


@contextmanager
def running_app() -> Iterator[RunningApp]:
    """The app, until the end of the block."""
    app, ready = RunningApp(), threading.Event()
    thread = threading.Thread(target=app.run, args=(ready.set,))
    thread.start()
    assert ready.wait(20)
    try:
        yield app
    finally:
        app.stop()
        thread.join(20)
        assert not thread.is_alive()


class Visit(NamedTuple):
    """A page of the app in a browser.

    Attributes:
        page: The page.
        bodies: Every text that the app answered with.
    """

    page: Page
    bodies: list[str]


@contextmanager
def visited(browser: Browser, app: RunningApp, width: int = 1400) -> Iterator[Visit]:
    """The start page; fails at the end if anything else was asked for, or a page complained."""
    context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(10_000)
    asked: list[str] = []
    complaints: list[str] = []
    bodies: list[str] = []
    context.on("request", lambda one: asked.append(one.url))
    page.on("console", lambda one: complaints.append(one.text))
    page.on("pageerror", lambda one: complaints.append(str(one)))
    page.on("requestfinished", lambda one: bodies.append(_body(one)))
    page.goto(app.access.address)
    page.get_by_role("heading", name="What do you have?").wait_for()
    yield Visit(page, bodies)
    context.close()
    own = f"http://{app.access.host}{app.access.prefix}/"
    assert [url for url in asked if not url.startswith((own, "data:"))] == []
    assert complaints == []


def _body(request: Request) -> str:
    try:
        answer = request.response()
        return "" if answer is None else answer.text()
    except Exception:  # noqa: BLE001 - a redirect or a saved file has none
        return ""
