"""`clusterdp inspect`, `verify`, `errata` and `calibrate`, which writes rows for other tools."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from clusterdp.cli.console import (
    REFUSED,
    AsJson,
    Folder,
    Verbose,
    check_place,
    print_failure,
    print_json,
    print_line,
    print_next,
    print_note,
    print_screen,
    print_text,
    reported_errors,
)
from clusterdp.document.model import Facts, Items, Section, Table
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.errors import OutputError, ParameterError
from clusterdp.estimation.calibrated_rows import calibrated_rows
from clusterdp.estimation.cluster_gain import GAIN_HEADER, cluster_gains
from clusterdp.published.contents import FolderView
from clusterdp.published.folder import add_erratum, read_errata, read_files, read_manifest
from clusterdp.published.overview import overview, owners_words, particulars
from clusterdp.published.rows import released_row_errors
from clusterdp.published.signature import (
    read_private_key,
    read_public_key,
    read_signature,
    sign,
    write_new_key,
)
from clusterdp.published.verification import APART, BOUND, verify_binding, verify_folder
from clusterdp.storage.folder import ERRATA, MANIFEST
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.channels.base import Check
    from clusterdp.document.model import Part

from clusterdp.estimation.cluster_gain import ClusterGain

_UNSEALED = "Erratum (not sealed)"


@reported_errors()
def inspect_command(folder: Folder, *, verbose: Verbose = False, as_json: AsJson = False) -> None:
    """Describe a release: privacy, columns, detectable effects.

    clusterdp inspect published/
    """
    files = open_folder(folder)
    release, manifest = read_files(files)
    channels, errata = [one.channel for one in release.questions], read_errata(files)
    view, signed = FolderView.from_parts(manifest, release.layout, channels), read_signature(files)
    if as_json:
        about: dict[str, Any] = {"assumed": view.assumed, "visible": view.visible()}
        gains = [one.to_dict() for one in cluster_gains(release)]
        about |= {"privacy": str(manifest.terms.guarantee), "notes": view.notes}
        about |= {"variance_reduction": gains, "errata": errata}
        about["signed_with"] = signed.fingerprint if signed else None
        print_json({**msgspec.to_builtins(manifest), **about})
        return
    shown: list[Part | Section] = [
        *overview(view),
        *([Facts([(_UNSEALED, line) for line in errata])] if errata else []),
        *([Facts([("Signed", f"with key {signed.fingerprint}")])] if signed else []),
    ]
    if verbose:
        shown += [*particulars(view), *_gain_tables(cluster_gains(release))]
    print_screen(to_screen(shown, terminal_width()))
    is_answer = manifest.answers is not None
    print_text(f"\nNext: clusterdp estimate {'RELEASE --answer ' * is_answer}{folder}")


@reported_errors()
def verify_command(
    folder: Folder,
    *,
    continues: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="Check too that no unit is in this folder, which the release continues. Name all.",
        ),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Check too that the answer is about this release."),
    ] = None,
    signed_by: Annotated[
        Path | None,
        typer.Option(metavar="KEY.pub", help="Check too that the owner of this key signed it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a release or an answer: files, guarantee, consistency.

    clusterdp verify published/
    """
    key = None if signed_by is None else read_public_key(signed_by)
    checks = verify_folder(folder, continues or (), key)
    if release is not None and all(check.problem is None for check in checks):
        checks.append(verify_binding(folder, release))
    sound = all(check.problem is None for check in checks)
    said = owners_words(read_manifest(folder)) if sound else []
    if continues:
        said = [one for one in said if one != "continues"]
    if as_json:
        listed = [check._asdict() for check in checks]
        print_json({"sound": sound, "checks": listed, "owners_words": said})
    else:
        if sound:
            print_screen(f"{folder} is sound: it passed all {len(checks)} checks.\n")
        for check in checks:
            if check.problem is None:
                print_line(f"ok   {check.name}")
            else:
                print_failure(f"{check.name}: {check.problem}")
        if not sound:
            _print_remedy(folder, checks[-1])
        if said:
            print_note("No check can confirm these statements of the owner:")
            # Texts each in a line; names, which are those of the manifest's entries, together.
            texts = [one for one in said if " " in one]
            names = ", ".join(one for one in said if " " not in one)
            items = Items([*texts, f"entries of the manifest: {names}"])
            print_text(to_screen([items], terminal_width()))
    if not sound:
        raise typer.Exit(REFUSED)


def _print_remedy(folder: str, last: Check) -> None:
    """What to do with a folder that failed a check; what is no release needs no more advice."""
    if last.problem is not None and last.name in {APART, BOUND}:
        print_next(
            "check the folders that you gave with it. If they are the right ones, do not use this "
            "one, and ask the owner."
        )
    elif open_folder(folder).size(MANIFEST) is not None:
        print_next("do not use this folder. Get it again from the owner, and verify it.")


@reported_errors()
def sign_command(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="FOLDER", help="The published folder, on disk or in a store."),
    ] = None,
    *,
    key: Annotated[Path | None, typer.Option(help="Your private key (Ed25519, PEM).")] = None,
    new_key: Annotated[
        Path | None, typer.Option(metavar="NAME", help="Make a key pair: NAME and NAME.pub.")
    ] = None,
) -> None:
    """Sign a published folder, so that readers know it is yours.

    clusterdp sign published/ --key owner.pem
    """
    if (new_key is None) == (key is None or folder is None):
        raise ParameterError("give FOLDER and --key to sign it, or --new-key to make a key pair")
    if new_key is not None:
        mark = write_new_key(new_key)
        print_screen(f"Wrote {new_key}, which you keep, and {new_key}.pub, which you give away.")
        print_text(f"Key {mark}\n\nNext: clusterdp sign FOLDER --key {new_key}")
        return
    place, path = cast("str", folder), cast("Path", key)
    private = read_private_key(path, lambda: getpass(f"passphrase of {path}: "))
    made = sign(open_folder(place), private)
    print_screen(f"Signed {place} with key {made.fingerprint}.")
    print_text(f"\nNext: clusterdp verify {place} --signed-by {path}.pub")


@reported_errors()
def errata_command(
    folder: Folder,
    text: Annotated[str, typer.Argument(help="The correction, in one line.")],
) -> None:
    """Add a dated correction to a folder.

    clusterdp errata published/ "12 units were assigned twice; they are in no arm's count"

    Corrections are in errata.md. The release stays sealed: no checksum covers that file.
    """
    read_manifest(folder)
    add_erratum(open_folder(folder), text, datetime.now(tz=UTC).date())
    print_line(f"Added to {folder.rstrip('/')}/{ERRATA}")


def _gain_tables(gains: list[ClusterGain]) -> Iterator[Section]:
    """How much stratification reduced sampling variances, metric by metric."""
    for metric, found in itertools.groupby(gains, key=lambda one: one.metric):
        title = f"Variance reduction from stratification: {metric} (± SE; more is better)"
        yield Section(title, [Table("", [GAIN_HEADER, *(one.row() for one in found)])])


_CSV_SUFFIX, _PARQUET = ".csv", ".parquet"


@reported_errors()
def calibrate_command(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The file to write: .parquet or .csv.")],
    fold: Annotated[int | None, typer.Option(metavar="FOLD", help="Rows of one fold only.")] = None,
) -> None:
    """Write rows calibrated to published totals, for other tools.

    clusterdp calibrate published/ --out rows.parquet
    """
    if out.suffix not in {_CSV_SUFFIX, _PARQUET}:
        raise ParameterError(f"out must end in {_PARQUET} or {_CSV_SUFFIX}, got {out.name!r}")
    if out.resolve().is_relative_to(Path(folder).resolve()):
        raise OutputError(f"{out} is inside the published folder. Fix: choose another path.")
    check_place(out)
    rows = calibrated_rows(folder, fold=fold)
    with released_row_errors():
        (rows.sink_csv if out.suffix == _CSV_SUFFIX else rows.sink_parquet)(out)
    print_line(f"Wrote {out}")
