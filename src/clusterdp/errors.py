"""Errors a user can act on. Messages echo parameters and public labels, never outcomes or ids."""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, NoReturn

from clusterdp._text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ClusterDPError(ValueError):
    """Base of every error this package raises on purpose; its message is safe to show.

    Attributes:
        about: The options or outcomes that are wrong, the first one that is known first; empty if
            none may be named; None if the message names them.
    """

    about: tuple[str, ...] | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(plain_text(message, "\n"))


class ParameterError(ClusterDPError):
    """A parameter is out of its range, or parameters contradict each other."""


class DataError(ClusterDPError):
    """The table breaks a rule; the message names the column and the rule."""


class TableChangedError(DataError):
    """The table is not the same in two passes over it."""

    def __init__(self) -> None:
        super().__init__("the table changed while it was being read; nothing was published")


class OwnerNotice(UserWarning):
    """An owner-only warning, such as that outcomes were clipped.

    It is shown once and never stored, because it depends on true outcomes.
    """


def notify_owner(message: str) -> None:
    """Show something to the owner, with any setting of warnings.

    A warning that is turned into an error would decide, by true outcomes, whether a release is
    made.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", OwnerNotice)
        # A failure to show it, such as a closed terminal, must not decide either.
        with suppress(Exception, SystemExit):
            warnings.warn(f"Owner only: {message}", OwnerNotice, stacklevel=_level_outside())


def _level_outside() -> int:
    """How many calls up the first caller outside this package is, counted from `notify_owner`."""
    caller, level = inspect.currentframe(), 0
    while caller is not None and _is_within(str(caller.f_globals.get("__name__"))):
        caller, level = caller.f_back, level + 1
    return level


def _is_within(module: str) -> bool:
    """Whether code is this package's, or runs a part of it."""
    return module.startswith("clusterdp.") or module == "contextlib"


@contextmanager
def errors_about(*names: str) -> Iterator[None]:
    """Note which options or outcomes errors are about, for the lines of an experiment file."""
    try:
        yield
    except ClusterDPError as error:
        if error.about is None:
            error.about = names
        raise


def raise_alone(error: ClusterDPError) -> NoReturn:
    """Raise an error that does not carry the one behind it: libraries quote values in theirs."""
    try:
        raise error from None
    finally:
        error.__context__ = None


class OutputError(ClusterDPError):
    """A folder or file cannot be written."""


class FormatError(ClusterDPError):
    """A folder is not a release, was damaged or edited, or has a newer format."""


class LedgerError(ClusterDPError):
    """The budget does not allow a release, or the ledger cannot be read or was edited."""


# Parts of columns whose parameter and flag have other names.
_PARAMETERS = {"private cluster": ("cluster", "cluster"), "outcome": ("outcomes", "outcome")}


def missing_column(name: str, part: str, names: Iterable[str], use: str = "to use") -> DataError:
    """The error that names the parameter, the column most like it, and all columns.

    Args:
        name: The column that was asked for.
        part: The part it was to play: unit, arm, cluster, outcome, passthrough or size.
        names: The columns of the table.
        use: What it was for.
    """
    name_of, flag = _PARAMETERS.get(part, (part.replace(" ", "_"), part.replace(" ", "-")))
    known, option = list(names), f"{name_of}=..., --{flag}"
    return DataError(
        f"There is no column {name!r} {use} as {part} ({option}).{did_you_mean(name, known)} "
        f"The table has {', '.join(map(repr, known)) or 'no columns'}."
    )


# How many columns a message lists.
_MOST_NAMES = 12


def nearest_first(name: str, known: Iterable[str]) -> str:
    """Known names for a message, those most like this one first; the last of many are counted."""

    def likeness(other: str) -> float:
        return SequenceMatcher(None, name.casefold(), other.casefold()).ratio()

    names = sorted(known, key=likeness, reverse=True)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the nearest known name, after a space; empty if none is near."""
    near = nearest_name(name, known)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, in any case of letters; None if none is."""
    folded = {other.casefold(): other for other in known}
    near = get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None
