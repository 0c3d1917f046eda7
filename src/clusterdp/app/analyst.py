"""The analyst's pages: open a folder, estimate, save what was found, ask a later question.

What to estimate is in the address of the page, so that going back, and a second tab, work as on any
site. The numbers are those of `clusterdp.estimate`, called with what was typed.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from clusterdp._lists import parse_names
from clusterdp._text import plain_text
from clusterdp.app.pages import FORM, Form, Same, download, go_to, show
from clusterdp.errors import ClusterDPError
from clusterdp.estimation.asking import Asked, ask
from clusterdp.estimation.estimate import estimate
from clusterdp.estimation.report.document import report_document
from clusterdp.estimation.report.forest import filter_tables
from clusterdp.estimation.report.results import Estimate
from clusterdp.published.contents import FolderView
from clusterdp.published.document import folder_document
from clusterdp.published.folder import read_errata, read_files
from clusterdp.published.verification import verify_folder
from clusterdp.sources.opening import declared_columns
from clusterdp.sources.source import NamedSource
from clusterdp.spec.columns import FOLD
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from clusterdp.published.manifest import Manifest
    from clusterdp.published.release import Release

# How many estimates are kept, for what is saved of them.
_MOST_KEPT = 4
# What is asked for and has one value, and the flag of each on the command line.
_TEXTS = {
    name: f"--{name}"
    for name in ("segments", "on", "differences", "exposure", "control", "fold", "level", "look")
}
# The same of what is listed.
_LISTS = {"metrics": "--metric", "answers": "--answer", "margins": "--margin"} | {
    name: f"--{name}" for name in ("by", "adjust", "equivalence")
}
# What a later question takes from it.
_ASKED = ("release", "segments", "on", "by")
_FIELDS = ("release", *_TEXTS, *_LISTS)
# The files that can be saved: the words of each link, and its type.
_SAVED = {
    "report.html": ("Save the report", "text/html"),
    "effects.csv": ("Save the numbers (CSV)", "text/csv"),
    "forest.svg": ("Save the figure", "image/svg+xml"),
    "estimate.ipynb": ("Save a notebook", "application/x-ipynb+json"),
    "estimate.py": ("Save a script", "text/x-python"),
}


class OpenedFolder(NamedTuple):
    """What a form offers of a folder, and of the analyst's own table.

    Attributes:
        metrics: The declared metrics.
        columns: The published columns to segment by.
        askable: Those that a later question can be about.
        own: The columns of the analyst's table.
        folds: How many folds there are.
        facts: What the folder is.
    """

    metrics: list[str]
    columns: list[str]
    askable: list[str]
    own: list[str]
    folds: int
    facts: list[tuple[str, str]]


class Asking(NamedTuple):
    """What to estimate.

    Attributes:
        folders: The published folders.
        given: The arguments of `estimate`.
    """

    folders: tuple[str, ...]
    given: dict[str, Any]

    @property
    def release(self) -> str | list[str]:
        """The first argument of `estimate`."""
        return self.folders[0] if len(self.folders) == 1 else list(self.folders)

    def command(self) -> str:
        """The command that estimates the same."""
        lines = [shlex.join(["clusterdp", "estimate", *self.folders])]
        for name, value in self.given.items():
            flag = (_TEXTS | _LISTS)[name]
            each = [",".join(value)] if name == "adjust" else value
            for one in each if isinstance(each, list) else [each]:
                text = ",".join(one) if isinstance(one, list) else str(one)
                lines.append(f"    {flag} {shlex.quote(text)}")
        return " \\\n".join(lines)

    def python(self) -> str:
        """The call that estimates the same."""
        words = [json.dumps(self.release, ensure_ascii=False)]
        words += [f"{name}={value!r}" for name, value in self.given.items()]
        listed = "".join(f"    {word},\n" for word in words)
        return f"import clusterdp as cdp\n\nestimate = cdp.estimate(\n{listed})\nprint(estimate)\n"

    def notebook(self) -> str:
        """A notebook that estimates the same."""
        source = self.python().replace("print(estimate)\n", "estimate")
        cell: dict[str, Any] = {
            "cell_type": "code",
            "id": "estimate",
            "execution_count": None,
            "outputs": [],
        }
        held = {
            "cells": [{**cell, "metadata": {}, "source": source}],
            "metadata": {"language_info": {"name": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        return json.dumps(held, indent=1, ensure_ascii=False)


class Estimates:
    """The last estimates, so that saving one does not compute it again."""

    def __init__(self) -> None:
        self._kept: dict[str, Estimate] = {}

    def make(self, asked: Asking) -> Estimate:
        """Estimate, and keep what was found."""
        found = estimate(asked.release, **asked.given)
        made = replace(found, origin=replace(found.origin, made_by=asked.command()))
        self._kept[str(asked)] = made
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return made

    def find(self, asked: Asking) -> Estimate:
        """An estimate that was made before, or is made now."""
        return self._kept.get(str(asked)) or self.make(asked)


_ESTIMATES = Estimates()


def estimate_page(request: Request) -> Response:
    """The form, and what was found."""
    form = Form.from_query(request)
    folder = None if not form.every("release") else _opened(form)
    asked, found = read_asking(form), None
    if folder is not None and form.one("go") and not form.wrong:
        with form.about(*_FIELDS):
            found = _ESTIMATES.make(asked)
    document = None if found is None else report_document(found)
    return show(
        request,
        "estimate.html",
        form=form,
        folder=folder,
        document=document,
        filters=[] if found is None else [part for part, _ in filter_tables(found)],
        same=() if found is None else _same(asked),
        saved=_SAVED,
        query=request.scope["query_string"].decode("latin-1"),
        ask_query=urlencode([(name, one) for name in _ASKED for one in form.every(name)]),
        sheets=["filter.css"],
        scripts=["filter.js"],
    )


def save_estimate(request: Request) -> Response:
    """A file of what was found."""
    name = request.path_params["name"]
    form = Form.from_query(request)
    asked = read_asking(form)
    if name not in _SAVED or not asked.folders or form.wrong:
        return go_to(request, "/estimate")
    try:
        content = _content(name, asked)
    except ClusterDPError as error:
        form.wrong[FORM] = str(error)
        return show(request, "problem.html", form=form)
    return download(name, content, _SAVED[name][1])


def _content(name: str, asked: Asking) -> bytes:
    if name == "estimate.py":
        return asked.python().encode()
    if name == "estimate.ipynb":
        return asked.notebook().encode()
    found = _ESTIMATES.find(asked)
    if name == "report.html":
        return found.to_html().encode()
    if name == "effects.csv":
        return _as_csv(found).encode()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / name
        found.plot(place)
        return place.read_bytes()


def _as_csv(found: Estimate) -> str:
    import polars as pl

    texts = pl.selectors.string().map_elements(plain_text, return_dtype=pl.String)
    return found.to_polars().with_columns(texts).rename(plain_text).write_csv()


def read_asking(form: Form) -> Asking:
    """What a form asks for; what cannot be read is wrong in the form."""
    given: dict[str, Any] = {}
    for name in _TEXTS:
        value: Any = form.one(name)
        if name == "fold":
            value = form.whole(name)
        elif name == "level":
            value = form.number(name, "a confidence level")
        if value not in ("", None):
            given[name] = value
    for name in _LISTS:
        listed = form.every(name)
        if name == "by":
            several = [parse_names([one]) for one in form.every("by_crossed")]
            every = [*listed, *(list(one) if len(one) > 1 else one[0] for one in several if one)]
            listed = every  # type: ignore[assignment]  # crossed columns are lists
        elif name == "metrics":
            listed += [text for one in form.every("metric_texts") for text in _parts(one)]
        elif name != "answers":
            listed = [text for one in listed for text in _parts(one)]
        if listed:
            given[name] = listed
    return Asking(tuple(map(_home, form.every("release"))), given)


def _home(path: str) -> str:
    """A path as it is written, but for the home folder."""
    return path if "://" in path else os.path.expanduser(path)  # noqa: PTH111 - stays as written


def _parts(text: str) -> list[str]:
    """Texts that are separated by spaces around commas, or by semicolons."""
    return [part for one in text.replace(";", ",").split(",") if (part := one.strip())]


def _same(asked: Asking) -> list[Same]:
    return [
        Same("The same as a command", asked.command()),
        Same("The same in Python", asked.python().rstrip()),
    ]


def _opened(form: Form) -> OpenedFolder | None:
    """What a form offers, of the first folder and of the analyst's table."""
    with form.about(otherwise="release"):
        release, manifest = read_files(open_folder(_home(form.every("release")[0])))
        return OpenedFolder(
            metrics=_metrics(release),
            columns=_segment_columns(release),
            askable=list(release.columns.kept),
            own=_own_columns(form, release.columns.unit),
            folds=release.layout.folds,
            facts=_facts(manifest),
        )
    return None


def _metrics(release: Release) -> list[str]:
    return [str(one) for question in release.questions for one in question.space.declared.metrics]


def _segment_columns(release: Release) -> list[str]:
    columns = release.columns
    left_out = {columns.unit, columns.arm}
    names = [name for name in columns.public if name not in left_out]
    if columns.true_cluster is not None:
        names = [columns.true_cluster if name == columns.cluster else name for name in names]
    return [*names, *([FOLD] if release.layout.folds > 1 else [])]


def _own_columns(form: Form, unit: str) -> list[str]:
    """The names of the columns of the analyst's table, without that of ids."""
    if not form.one("segments"):
        return []
    with form.about(otherwise="segments"):
        source, ids = NamedSource(name=_home(form.one("segments"))), form.one("on") or unit
        return [name for name in declared_columns(source).types if name != ids]
    return []


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    about = manifest.provenance
    stated = manifest.guarantee.statement(about.unit)
    return [
        ("Release", about.title or "no title given"),
        (about.units.capitalize(), f"{manifest.n_units:,} in {len(manifest.arms)} arms"),
        ("Privacy", str(stated)),
    ]


def folder_page(request: Request) -> Response:
    """What a folder says of itself, and whether it is sound."""
    form = Form.from_query(request)
    document, checks, errata = None, [], []
    if form.needs("release", "the path of a published folder"):
        with form.about(otherwise="release"):
            place = _home(form.one("release"))
            folder = open_folder(place)
            release, manifest = read_files(folder)
            channels = [one.channel for one in release.questions]
            view = FolderView.from_parts(manifest, release.layout, channels)
            document, errata = folder_document(view), read_errata(folder)
            checks = verify_folder(place) if form.one("verify") else []
    place = _home(form.one("release"))
    same = [
        Same("The same as a command", f"clusterdp inspect {shlex.quote(place)}"),
        Same("Check it", f"clusterdp verify {shlex.quote(place)}"),
    ]
    return show(
        request,
        "folder.html",
        form=form,
        document=document,
        checks=checks,
        errata=errata,
        folder_query=urlencode({"release": form.one("release")}),
        same=same if document else (),
    )


def ask_page(request: Request) -> Response:
    """The form of a later question."""
    return _shown_question(request, Form.from_query(request))


async def write_question(request: Request) -> Response:
    """Write a follow-up where the person asks for it."""
    from starlette.concurrency import run_in_threadpool

    form = await Form.from_body(request)
    return await run_in_threadpool(_write_question, request, form)


def _write_question(request: Request, form: Form) -> Response:
    form.needs("release", "the path of a published folder")
    form.needs("by", "the column of the segments that you ask about")
    form.needs("out", "the folder to write, such as followup")
    fold = form.whole("found_in_fold")
    if form.wrong:
        return _shown_question(request, form)
    given: dict[str, Any] = {"by": form.every("by"), "out": _home(form.one("out"))}
    for name in ("segments", "on", "reason"):
        if form.one(name):
            given[name] = _home(form.one(name)) if name == "segments" else form.one(name)
    if form.every("metrics"):
        given["metrics"] = form.every("metrics")
    if fold is not None:
        given["found_in_fold"] = fold
    asked = None
    with form.about("release", *given, "found_in_fold"):
        asked = ask(_home(form.one("release")), **given)
    return _shown_question(request, form, asked, given)


def _shown_question(
    request: Request, form: Form, asked: Asked | None = None, given: dict[str, Any] | None = None
) -> Response:
    folder = None if not form.every("release") else _opened(form)
    same = []
    if asked is not None and given is not None:
        flags = {"by": "by", "metrics": "metric", "found_in_fold": "found-in-fold"}
        words = ["clusterdp", "ask", _home(form.one("release"))]
        for name, value in given.items():
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{flags.get(name, name)}", str(one)]
        call = ", ".join(f"{name}={value!r}" for name, value in given.items())
        python = f"clusterdp.ask({_home(form.one('release'))!r}, {call})"
        same = [
            Same("The same as a command", shlex.join(words)),
            Same("The same in Python", python),
        ]
    return show(
        request,
        "ask.html",
        form=form,
        folder=folder,
        asked=asked,
        same=same,
    )
