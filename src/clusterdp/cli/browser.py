"""`clusterdp app`: both halves in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterdp.cli.console import print_text, reported_errors
from clusterdp.errors import ParameterError


@reported_errors()
def app_command(
    *,
    port: Annotated[
        int, typer.Option(help="The port of this machine to listen on; 0 for any that is free.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
) -> None:
    """Do all of this in a browser, on this machine only.

    clusterdp app --port 8000
    """
    try:
        from clusterdp.app.server import run_app
    except ImportError:
        raise ParameterError("the app needs starlette and uvicorn: pip install '.[app]'") from None
    run_app(port, opens=not no_browser, say=print_text)
