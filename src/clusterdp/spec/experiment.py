"""An experiment file, `experiment.toml`, and the lock that a plan writes next to it.

The file is what people declare, once. The lock is what a plan decided from it, with the file's
checksum: a release publishes exactly the lock, and stops if the file changed. Paths in the file are
relative to its folder. Errors name its lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from clusterdp.errors import (
    ClusterDPError,
    DataError,
    LedgerError,
    OutputError,
    ParameterError,
    raise_alone,
)
from clusterdp.outcomes.categories import TooManyCategoriesError
from clusterdp.spec._experiment_text import (
    OUTCOMES,
    EntryError,
    named_options,
    open_entries,
    to_toml,
)
from clusterdp.spec.fields import DECLARED, OF_ONE_RUN, SECTIONS, Options
from clusterdp.spec.file_terms import in_file_terms, without_options
from clusterdp.spec.parse import parse_options, refuse_unknown
from clusterdp.storage.folder import MOST_OF_TEXT, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

SUFFIX, LOCK_SUFFIX = ".toml", ".lock"
# Where a table, its budget and its folder are.
_PLACED = ("input", "ledger", "population", "continues", "out")
# Options that are paths.
_PATHS = ("input", "ledger", "labels_from", "continues", "out")
_HEADER = "# experiment.toml: one experiment, declared once. Paths are relative to this file.\n\n"
_WORD = re.compile(r"'([^']+)'|\b(\w+)\b")
_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*[.=]""")


def is_experiment(source: Any) -> bool:
    """Whether what was given in place of a table is the path of an experiment file."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).endswith(SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentFile:
    """An experiment file that was read.

    Attributes:
        path: Where it is.
        checksum: Its SHA-256.
        options: What it declares.
        lines: The line of every entry, by option or outcome.
    """

    path: Path
    checksum: str
    options: Options
    lines: Mapping[str, int]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ExperimentFile:
        """The experiment of a file.

        Raises:
            ParameterError: If it is no such file, or something in it is wrong or left open.
        """
        place = Path(path)
        text = _read_text(place)
        content = _parse_toml(place, text)
        lines = _find_lines(text)
        _refuse_open(place, content, lines)
        try:
            named = _located(named_options(content), place.parent)
        except EntryError as error:
            where = lines.get((error.section, error.key or ""))
            raise ParameterError(f"{_at(place, where)}: {error}") from None
        by_name = {
            name: line
            for (section, key), line in lines.items()
            if (name := key if section == OUTCOMES else SECTIONS.get(section, {}).get(key))
        }
        with _locating(place, by_name):
            options = parse_options(named)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        return cls(path=place, checksum=checksum, options=options, lines=by_name)

    @property
    def lock(self) -> Path:
        """Where its lock is."""
        return self.path.with_suffix(LOCK_SUFFIX)

    @property
    def places(self) -> dict[str, Any]:
        """Where it says that things are."""
        given = {name: getattr(self.options, name) for name in _PLACED}
        return {name: value for name, value in given.items() if value is not None}

    def locating(self) -> AbstractContextManager[None]:
        """Add the line of the file to errors about options and outcomes that it has."""
        return _locating(self.path, self.lines)


@contextmanager
def _locating(path: Path, lines: Mapping[str, int]) -> Iterator[None]:
    """Put errors into the terms of the file, and add the line of what they are about.

    Errors about folders and ledgers have a line only if they say what of the file they are about.
    """
    try:
        yield
    except _LOCATED as error:
        kind = ParameterError if isinstance(error, TooManyCategoriesError) else type(error)
        if kind not in _LOCATED:
            raise
        of_the_file = isinstance(error, DataError | ParameterError)
        line = _line_of(error, lines, by_words=of_the_file)
        if line is None and not of_the_file:
            raise
        raise_alone(kind(f"{_at(path, line)}: {in_file_terms(str(error))}"))


# The errors that a file can cause, and no others that are derived from them.
_LOCATED = (DataError, ParameterError, LedgerError, OutputError)


def _line_of(error: ClusterDPError, lines: Mapping[str, int], *, by_words: bool) -> int | None:
    """The line of what an error is about; of the first option or outcome that it names, if any."""
    words = iter(error.about or ())
    if error.about is None and by_words:
        found = re.finditer(_WORD, without_options(str(error)))
        words = (word[1] or word[2] for word in found)
    return next((lines[word] for word in words if word in lines), None)


def write_experiment(options: Options, path: Path) -> None:
    """Write an experiment file that gives these options again; there must be none.

    Raises:
        OutputError: If there is a file, or it cannot be written.
    """
    relative = {
        name: _each(value, lambda one: relative_to(one, path.parent))
        for name in _PATHS
        if (value := getattr(options, name)) is not None
    }
    write_new(path, _HEADER + to_toml(msgspec.structs.replace(options, **relative)))


def write_new(path: Path, text: str) -> None:
    """Write an experiment file that is not there yet.

    Raises:
        OutputError: If it is there, or cannot be written.
    """
    refuse_existing(path)
    _write(path, text)


def refuse_existing(path: Path) -> None:
    """Raise an OutputError if there is an experiment file, which people have edited."""
    if path.exists():
        raise OutputError(f"{path} exists, and was left as it is; choose another name with --out")


def read_lock(path: Path) -> Options:
    """The options of a lock."""
    content = _parse_toml(path, _read_text(path))
    refuse_unknown(content, [name for name in DECLARED if name not in OF_ONE_RUN], f" in {path}")
    return parse_options(content, f" in {path}")


def write_lock(options: Options, path: Path, remarks: list[str]) -> None:
    """Write options as a lock, below remarks for its reader."""
    # JSON strings, numbers and lists are TOML.
    lines = [f"# {remark}" for remark in remarks]
    lines += [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in options.to_dict().items()
    ]
    _write(path, "\n".join(lines) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def _read_text(path: Path) -> str:
    try:
        return read_regular(path, MOST_OF_TEXT).decode()
    except FileNotFoundError:
        raise ParameterError(
            f"there is no file {path}; check its name, or draft one: clusterdp init TABLE"
        ) from None
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"cannot read {path}: it is not text in UTF-8") from None


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said, _, line = str(error).removesuffix(")").partition(" (at line ")
        where = _at(path, int(line.partition(",")[0]) if line else None)
        raise ParameterError(
            f"{where}: this is not TOML: {said[:1].lower()}{said[1:]}. No data was read. Fix: put "
            "texts in quotes, and close every bracket."
        ) from None
    except (RecursionError, ValueError):  # nested without end; a number of 5000 digits
        raise ParameterError(f"{path} is not TOML that can be read") from None


def _find_lines(text: str) -> dict[tuple[str, str], int]:
    """The first line of every section, with an empty key, and of every key in it."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        table, key = _TABLE.match(line), _KEY.match(line)
        if table:
            section, _, inner = table[1].partition(".")
            found.setdefault((section, inner.strip("\"' ")), number)
        elif key:
            found.setdefault((section, key[1] or key[2] or key[3]), number)
    return found


def _refuse_open(
    path: Path, content: Mapping[str, Any], lines: Mapping[tuple[str, str], int]
) -> None:
    """Raise a ParameterError if the owner has left something open."""
    left = open_entries(content)
    if not left:
        return
    section, key, what = left[0]
    others = [f"{one[1]} (line {lines[one[:2]]})" for one in left[1:] if one[:2] in lines]
    more = f" Also open: {', '.join(dict.fromkeys(others))}." if others else ""
    raise ParameterError(
        f"{_at(path, lines.get((section, key)))}: fill in {what}. No data was read.{more}"
    )


def _at(path: Path, line: int | None) -> str:
    return str(path) if line is None else f"{path}, line {line}"


def _located(named: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Options with paths that mean the same from the working directory."""

    def located(path: Any) -> Any:
        moves = isinstance(path, str) and _moves(path) and folder != Path()
        return str(folder / path) if moves else path

    return named | {name: _each(named[name], located) for name in _PATHS if name in named}


def _each(given: Any, change: Callable[[Any], Any]) -> Any:
    """A path, or each of a list of them, changed."""
    return [change(one) for one in given] if isinstance(given, list) else change(given)


def relative_to(path: str, folder: Path) -> str:
    """A path as a file in some folder has it; a URL or an absolute path as it is."""
    return os.path.relpath(path, folder) if _moves(path) else path


def _moves(path: str) -> bool:
    """Whether what a path means depends on the folder it is read in."""
    return "://" not in path and not Path(path).is_absolute()
