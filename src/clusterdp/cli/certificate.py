"""`clusterdp certificate`: what an approver needs to know of a release, to sign and to register."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from clusterdp.auditing.folder import audit
from clusterdp.cli.console import REFUSED, Folder, print_failure, print_screen, reported_errors
from clusterdp.document.markup import to_markdown, to_page
from clusterdp.published._registry import registry_entry
from clusterdp.published.certificate import certificate
from clusterdp.published.contents import FolderView
from clusterdp.published.folder import read_files
from clusterdp.storage.folder import MANIFEST, MOST_OF_MANIFEST, LocalFolder
from clusterdp.storage.reading import open_folder


@reported_errors()
def certificate_command(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("certificate"),
) -> None:
    """Write a certificate of a release, to sign and to register.

    clusterdp certificate published/ --out certificate/
    """
    files = open_folder(folder)
    release, manifest = read_files(files)
    found = audit(folder)
    if not found.holds:
        print_failure(str(found))
        raise typer.Exit(REFUSED)
    channels = [one.channel for one in release.questions]
    view = FolderView.from_parts(manifest, release.layout, channels)
    sealed = hashlib.sha256(files.read(MANIFEST, MOST_OF_MANIFEST) or b"").hexdigest()
    document = certificate(view, sealed, str(found))
    with LocalFolder(out).staged("") as (target, _):
        (target / "certificate.md").write_text(to_markdown(document), encoding="utf-8")
        (target / "certificate.html").write_text(to_page(document), encoding="utf-8")
        (target / "registry.yaml").write_text(registry_entry(view), encoding="utf-8")
    print_screen(f"Wrote {out}/certificate.html, certificate.md and registry.yaml.\n\n{found}")
