"""The app's server: it listens on the loopback address, opens a browser, and stops cleanly."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import traceback
import webbrowser
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clusterdp.app import analyst, ledgers, owner
from clusterdp.app.guard import BrowserAccess, Guard
from clusterdp.app.pages import asset, show
from clusterdp.app.places import list_names
from clusterdp.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

# Seconds between looks at whether the server answers.
_PAUSE = 0.02


def start_page(request: Request) -> Response:
    """Where both halves begin."""
    return show(request, "start.html")


def names(request: Request) -> Response:
    """The names in a folder of this machine, for choosing one."""
    return JSONResponse(list_names(request.query_params.get("under", "")))


def assets(request: Request) -> Response:
    """A file that pages load."""
    found = asset(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    return found


def _not_found(request: Request, _: Exception) -> Response:
    return show(request, "missing.html", 404)


def _broken(request: Request, error: Exception) -> Response:
    """The page of a mistake of ours; where it happened is printed, and no value."""
    where = "".join(traceback.format_tb(error.__traceback__))
    print(f"{where}{type(error).__name__}")  # noqa: T201 - on the terminal of the person
    return show(request, "broken.html", 500, where=type(error).__name__)


def make_app(access: BrowserAccess, stop: Callable[[], None]) -> ASGIApp:
    """The app, behind its guard.

    Args:
        access: Who is let in.
        stop: Stops the server.
    """

    def stop_page(request: Request) -> Response:
        answer = show(request, "stopped.html")
        stop()
        return answer

    routes = [
        Route("/", start_page),
        Route("/estimate", analyst.estimate_page),
        Route("/estimate/{name}", analyst.save_estimate),
        Route("/folder", analyst.folder_page),
        Route("/ask", analyst.ask_page),
        Route("/ask", analyst.write_question, methods=["POST"]),
        Route("/publish", owner.publish_page),
        Route("/publish", owner.open_table, methods=["POST"]),
        Route("/publish/{key}", owner.columns_page),
        Route("/publish/{key}", owner.declare, methods=["POST"]),
        Route("/publish/{key}/plan", owner.budget_page),
        Route("/publish/{key}/plan", owner.choose_budget, methods=["POST"]),
        Route("/publish/{key}/check", owner.check_page),
        Route("/publish/{key}/check", owner.check, methods=["POST"]),
        Route("/publish/{key}/release", owner.release_page),
        Route("/publish/{key}/release", owner.publish, methods=["POST"]),
        Route("/publish/{key}/state/{what}", owner.draft_state),
        Route("/ledger", ledgers.ledger_page),
        Route("/ledger", ledgers.act_on_ledger, methods=["POST"]),
        Route("/ledger/run", ledgers.run_page),
        Route("/ledger/state", ledgers.run_state),
        Route("/answer", ledgers.answer_page),
        Route("/answer", ledgers.answer, methods=["POST"]),
        Route("/errata", ledgers.errata_page),
        Route("/errata", ledgers.add_correction, methods=["POST"]),
        Route("/names", names),
        Route("/static/{name}", assets),
        Route("/stop", stop_page, methods=["POST"]),
    ]
    handlers = {404: _not_found, 405: _not_found, Exception: _broken}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), access)


class RunningApp:
    """The app on a port of the loopback address.

    Attributes:
        access: Who is let in.
    """

    def __init__(self, port: int = 0) -> None:
        """Take a port.

        Args:
            port: The port; 0 for any that is free.

        Raises:
            OutputError: If another program has it.
        """
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            self._socket.close()
            raise OutputError(
                f"Port {port} cannot be used. Fix: choose another, or leave out --port."
            ) from None
        self.access = BrowserAccess(self._socket.getsockname()[1])
        config = uvicorn.Config(
            make_app(self.access, self.stop),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)

    def stop(self) -> None:
        """Stop, once open answers were sent."""
        self._server.should_exit = True

    def run(self, on_start: Callable[[], None]) -> None:
        """Answer requests until it is stopped, from a page or from the terminal."""

        def wait() -> None:
            while not (self._server.started or self._server.should_exit):
                time.sleep(_PAUSE)
            on_start()

        threading.Thread(target=wait, daemon=True).start()
        # uvicorn raises a signal once more after it stopped: ours end nothing then.
        if threading.current_thread() is threading.main_thread():
            for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(asked, lambda *_: self.stop())
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()


def run_app(port: int, *, opens: bool, say: Callable[[str], None]) -> None:
    """Run the app until the person stops it.

    Args:
        port: The port; 0 for any that is free.
        opens: Whether to open a browser.
        say: Shows a line on the terminal.
    """
    app = RunningApp(port)
    say(f"Open this address in a browser on this machine:\n  {app.access.address}")
    say("It works in one browser. Stop the app with Ctrl-C.")

    def open_browser() -> None:
        if opens:
            webbrowser.open(app.access.address)

    app.run(open_browser)
    running = [*owner.running_jobs(), *ledgers.running_jobs_of_ledgers()]
    if running:
        say("A release is being written, and the app stops after it. Ctrl-C interrupts it.")
        for asked in (signal.SIGINT, signal.SIGTERM):
            # As if killed: a ledger knows how to resume it.
            signal.signal(asked, lambda *_: os._exit(130))
        for job in running:
            job.wait()
    say("Stopped.")
