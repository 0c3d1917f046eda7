"""A follow-up: labels of units by id, which an analyst sends to the owner to ask for noisy totals.

followup.json     which release it is about, what is asked for, why, and a key
labels.parquet    the ids of a release with a label in each dimension
README.md         what it is, in plain words

The owner sees all of it. An answer has names and sizes of groups, and a keyed checksum of the
labels. Who has the follow-up has the key, so the labels of an estimate can be compared with those
of its answer.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from clusterdp._named import column, columns, unnamed
from clusterdp._text import counted, held_texts, is_plain
from clusterdp.document.markup import to_markdown
from clusterdp.document.model import Code, Document, Facts, Paragraph, Section, code
from clusterdp.errors import FormatError, OutputError
from clusterdp.published.folder import held_table
from clusterdp.published.manifest import software_name
from clusterdp.rows.column_types import holds_ids
from clusterdp.rows.value_codes import n_unplain
from clusterdp.spec.answers import NOT_ASKED, answered_spaces
from clusterdp.storage.folder import FOLLOWUP, LABELS, MOST_OF_TEXT, README, has_scheme
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.document.model import Part
    from clusterdp.published.release import Release
    from clusterdp.storage.reading import Files

_FORMAT, _FORMAT_VERSION = "clusterdp follow-up", 1
_KEY_BYTES = 32
# More units than one machine joins labels of.
_MOST_LABELS = 2**32
# What a label of several crossed columns is joined by, as crossed clusters are.
CROSSED = " | "
LONGEST_REASON = 500
# The owner and readers of an answer see labels, and names of their columns.
LONGEST_LABEL = 500


class FollowUp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an analyst asks the owner of a release for.

    Attributes:
        format: Always the same.
        format_version: Which version of the format.
        software: What wrote it.
        release: The release, by the checksum of its manifest.
        dimensions: The columns of each dimension; several are crossed.
        metrics: The metrics that are asked for; None for all.
        found_in_fold: The fold in which segments were found, whose units have no labels; None if
            they were not found in released rows.
        reason: Why, in a line; empty if nothing was said.
        key: What checksums of labels are made with, as hexadecimal digits.
        labels_sha256: The checksum of the file of labels.
        sha256: A checksum of all of the above.
    """

    format: str = _FORMAT
    format_version: int = _FORMAT_VERSION
    software: str
    release: str
    dimensions: tuple[tuple[str, ...], ...]
    metrics: tuple[str, ...] | None
    found_in_fold: int | None
    reason: str
    key: str
    labels_sha256: str
    sha256: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of labels: one for each dimension."""
        return tuple(map(dimension_name, self.dimensions))

    def checksums(self, labels: pl.DataFrame) -> tuple[str, ...]:
        """A keyed checksum of the labels of each dimension."""
        ids = labels.columns[0]
        return tuple(
            _keyed_checksum(labels.select(columns([ids, name])), bytes.fromhex(self.key))
            for name in self.names
        )


def dimension_name(dimension: tuple[str, ...]) -> str:
    """What the column of its labels is called."""
    return ",".join(dimension)


def _keyed_checksum(labels: pl.DataFrame, key: bytes) -> str:
    """HMAC-SHA256 over ids and labels in the order of ids, each text with its length before it."""
    import polars as pl

    unit, name = labels.columns
    held = labels.drop_nulls(columns([name])).sort(column(unit))
    texts = [pl.nth(place).cast(pl.String) for place in range(2)]
    lengths = [one.str.len_bytes().cast(pl.String) for one in texts]
    each = pl.concat_str(lengths[0], texts[0], lengths[1], texts[1], separator=":")
    listed = held.select(each.str.join(",")).item() or ""
    return hmac.new(key, f"{name}\n{listed}".encode(), "sha256").hexdigest()


def write_followup(
    out: str | os.PathLike[str], asked: FollowUp, labels: pl.DataFrame, unit: str
) -> FollowUp:
    """Write a follow-up into a new folder, `followup.json` last; the same with its checksums.

    Args:
        out: The folder, on this machine.
        asked: What is asked for.
        labels: Ids, then the labels of each dimension.
        unit: What a unit is called.

    Raises:
        OutputError: If the folder exists, or cannot be written.
    """
    folder = Path(out)
    if has_scheme(os.fspath(out)):
        raise OutputError(f"{out} is no folder on this machine. Fix: write it here, then copy it.")
    try:
        folder.mkdir(parents=True)
        labels.write_parquet(folder / LABELS, compression="zstd", statistics=False)
        checksum = hashlib.sha256((folder / LABELS).read_bytes()).hexdigest()
        sealed = msgspec.structs.replace(asked, labels_sha256=checksum)
        text = to_markdown(_document(sealed, labels, unit))
        (folder / README).write_text(text, encoding="utf-8")
        (folder / FOLLOWUP).write_bytes(_with_checksum(sealed))
    except FileExistsError:
        raise OutputError(f"{folder} exists already. Fix: choose another folder.") from None
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror}") from None
    return sealed


def new_followup(
    release: str,
    dimensions: tuple[tuple[str, ...], ...],
    *,
    metrics: tuple[str, ...] | None,
    found_in_fold: int | None,
    reason: str,
) -> FollowUp:
    """A follow-up with a key of its own, whose labels are not written yet."""
    return FollowUp(
        software=software_name(),
        release=release,
        dimensions=dimensions,
        metrics=metrics,
        found_in_fold=found_in_fold,
        reason=reason,
        key=secrets.token_hex(_KEY_BYTES),
        labels_sha256="",
    )


def _with_checksum(asked: FollowUp) -> bytes:
    """The bytes of a follow-up with the checksum of the same without one."""
    unsigned = msgspec.json.encode(msgspec.structs.replace(asked, sha256=""))
    signed = msgspec.structs.replace(asked, sha256=hashlib.sha256(unsigned).hexdigest())
    return msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"


def _document(asked: FollowUp, labels: pl.DataFrame, unit: str) -> Document:
    """README.md of a follow-up."""
    metrics = "all of the release" if asked.metrics is None else ", ".join(asked.metrics)
    fold = asked.found_in_fold
    pairs = [
        ("Release", f"the one whose {code('manifest.json')} has SHA-256 {code(asked.release)}"),
        ("Labels", f"{code(', '.join(asked.names))} of {counted(len(labels), unit)}"),
        ("Metrics", metrics),
        *([] if fold is None else [("Found in", f"fold {fold}; its units have no labels here")]),
        *([("Reason", asked.reason)] if asked.reason else []),
    ]
    asked_for = Facts(pairs)
    lead = (
        f"This folder asks the owner of a release for noisy totals of groups of its {unit}s. The "
        f"owner sees these labels: {code(LABELS)} has an id and a label in each row. Send it only "
        "if you may share them. It holds no outcomes."
    )
    owner = (
        "The owner answers it with a part of the privacy budget. The answer has totals of groups "
        "and arms with noise, names and sizes of groups, and a keyed checksum of the labels."
    )
    analyst = (
        f"Keep this folder: with its key, {code('clusterdp estimate')} checks that your labels are "
        "those that were answered."
    )
    by = "".join(f" --by {shlex.quote(','.join(one))}" for one in asked.dimensions)
    steps: list[Part | Section] = [
        Paragraph(owner),
        Code("The owner", "clusterdp answer . --epsilon 0.2 --ledger budget.db --out answer", "sh"),
        Paragraph(analyst),
        Code("The analyst", f"clusterdp estimate published --answer answer{by}", "sh"),
    ]
    return Document(
        "A follow-up to a release",
        [Section("", [Paragraph(lead), asked_for]), Section("How to answer", steps)],
        f"{asked.software} wrote this.",
    )


def read_followup(place: str | os.PathLike[str]) -> tuple[FollowUp, str]:
    """A follow-up, and the checksum by which an answer names it.

    Raises:
        FormatError: If there is no follow-up, or it has another format or was edited.
    """
    folder = open_folder(place)
    content = folder.read(FOLLOWUP, MOST_OF_TEXT) if folder.exists() else None
    if content is None:
        if not folder.exists():
            raise FormatError(f"there is no folder {folder}. Fix: check its name.")
        raise FormatError(
            f"{folder} is not a follow-up: it has no {FOLLOWUP}. Fix: give the folder that "
            "clusterdp ask wrote."
        )
    try:
        asked = msgspec.json.decode(content, type=FollowUp)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FormatError(f"{folder}/{FOLLOWUP} is not a follow-up, or is damaged") from None
    if (asked.format, asked.format_version) != (_FORMAT, _FORMAT_VERSION):
        raise FormatError(f"{folder}/{FOLLOWUP} has another format; read it with its version")
    texts = held_texts(msgspec.to_builtins(asked))
    names, key = asked.names, asked.key
    sound = _with_checksum(asked) == content and len(key) == 2 * _KEY_BYTES
    sound = sound and set(key) <= set("0123456789abcdef")
    sound = sound and all(all(one) for one in asked.dimensions) and 0 < len(names) == len({*names})
    sound = sound and max(map(len, names)) <= LONGEST_LABEL
    sound = sound and asked.metrics != () and len(asked.reason) <= LONGEST_REASON
    if not sound or not all(is_plain(letter) for text in texts for letter in text):
        raise FormatError(f"{folder}/{FOLLOWUP} was edited after it was written")
    return asked, hashlib.sha256(content).hexdigest()


def has_labels(place: str | os.PathLike[str], asked: FollowUp) -> bool:
    """Whether a folder has the labels that its follow-up was written with."""
    folder = open_folder(place)
    return folder.size(LABELS) is not None and folder.sum(LABELS).sha256 == asked.labels_sha256


def read_labels_of(place: str | os.PathLike[str], asked: FollowUp) -> pl.DataFrame:
    """The labels of a follow-up, ids first.

    Raises:
        FormatError: If they are not those that were asked about, or hold what no label can be.
    """
    import polars as pl

    folder: Files = open_folder(place)
    if not has_labels(place, asked):
        raise FormatError(
            f"{folder}/{LABELS} is not what the follow-up was written with. Fix: get the folder "
            "again from the analyst, unchanged."
        )
    try:
        labels = held_table(folder, LABELS, _MOST_LABELS)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise FormatError(f"{folder}/{LABELS} cannot be read: {type(error).__name__}") from None
    unit, *names = labels.columns
    kinds = labels.dtypes
    if tuple(names) != asked.names or not holds_ids(kinds[0]) or set(kinds[1:]) != {pl.String()}:
        raise FormatError(f"{folder}/{LABELS} does not have ids and the labels that are asked for")
    ids = unnamed(labels[unit])
    if not len(ids) or ids.null_count() or ids.n_unique() < len(ids):
        raise FormatError(f"{folder}/{LABELS} has no ids, lacks some or repeats one")
    texts = [labels[name] for name in labels.columns]
    unusable = [(one == NOT_ASKED) | (one.str.len_chars() > LONGEST_LABEL) for one in texts[1:]]
    if any(map(n_unplain, texts)) or any(one.any() for one in unusable):
        raise FormatError(f"{folder}/{LABELS} has labels that cannot be shown")
    return labels


def unbound(answer: Release, release: Release) -> str | None:
    """Why an answer cannot be used with a release; None if it is about it."""
    about, ours, theirs = answer.answers, release.layout, answer.layout
    if about is None:
        return "the folder is a release, not an answer"
    if about.release != release.manifest_sha256:
        return (
            f"it is about another release, whose manifest has SHA-256 {about.release[:16]}…; that "
            f"of this one has {(release.manifest_sha256 or '')[:16]}…"
        )
    same = ours.sizes.shape == theirs.sizes.shape and bool((ours.sizes == theirs.sizes).all())
    cells = [(one.clusters, one.arms, one.folds) for one in (ours, theirs)]
    if not same or cells[0] != cells[1]:
        return "its cells are not those of the release"
    asked = answered_spaces([one.space for one in release.questions], about.metrics)
    if [one.space.record() for one in answer.questions] != [one.record() for _, one in asked]:
        return "its outcomes are not those of the release"
    return None
