"""`clusterdp audit`: a second opinion on ε."""

from __future__ import annotations

import typer

from clusterdp.auditing.folder import audit
from clusterdp.cli.console import (
    REFUSED,
    AsJson,
    Folder,
    print_json,
    print_screen,
    print_text,
    reported_errors,
)
from clusterdp.document.text import terminal_width, to_screen


@reported_errors()
def audit_command(folder: Folder, *, as_json: AsJson = False) -> None:
    """Recompute ε of a folder from its integers, by other code.

    clusterdp audit published/
    """
    found = audit(folder)
    if as_json:
        print_json(found.to_dict())
    else:
        print_screen(to_screen(found.sections(), terminal_width()))
        print_text(f"\nNext: clusterdp {'inspect' if found.holds else 'verify'} {folder}")
    if not found.holds:
        raise typer.Exit(REFUSED)
