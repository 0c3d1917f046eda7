"""Errors a user can act on. Messages echo parameters and public labels, never outcomes or ids."""

from __future__ import annotations

import inspect
import warnings
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from clusterdp._text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable


class ClusterDPError(ValueError):
    """Base of every error this package raises on purpose; its message is safe to show."""

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
    """Something only the data owner may know, such as that outcomes were clipped.

    It is shown once and stored nowhere, because it is a function of the sensitive outcomes.
    """


def notify_owner(message: str) -> None:
    """Show something to the owner, whatever warnings are set to.

    A warning that is turned into an error would decide, by true outcomes, whether a release is
    made.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", OwnerNotice)
        # Whatever goes wrong with showing it, such as a closed terminal, must not decide either.
        with suppress(Exception, SystemExit):
            warnings.warn(f"Owner only: {message}", OwnerNotice, stacklevel=_level_outside())


def _level_outside() -> int:
    """How many calls up the first caller outside this package is, counted from `notify_owner`."""
    caller, level = inspect.currentframe(), 0
    while caller is not None and str(caller.f_globals.get("__name__")).startswith("clusterdp."):
        caller, level = caller.f_back, level + 1
    return level


def raise_alone(error: ClusterDPError) -> NoReturn:
    """Raise an error that does not carry the one behind it: libraries quote values in theirs."""
    try:
        raise error from None
    finally:
        error.__context__ = None


class OutputError(ClusterDPError):
    """A folder cannot be written where it was asked for."""


class FormatError(ClusterDPError):
    """A folder is not a release, was damaged or edited, or is of a newer format."""


class LedgerError(ClusterDPError):
    """A budget does not allow it, or its ledger cannot be read or was edited."""


# Parts of columns whose parameter has another name.
_PARAMETERS = {"private cluster": "cluster"}


def missing_column(name: str, part: str, names: Iterable[str], use: str = "to use") -> DataError:
    """The error that names the parameter, the column most like it, and all columns.

    Args:
        name: The column that was asked for.
        part: The part it was to play: unit, arm, cluster, outcome, passthrough or size.
        names: The columns of the table.
        use: What it was for.
    """
    known, words = list(names), _PARAMETERS.get(part, part)
    option = f"{words.replace(' ', '_')}=..., --{words.replace(' ', '-')}"
    return DataError(
        f"There is no column {name!r} {use} as {part} ({option}).{did_you_mean(name, known)} "
        f"The table has {', '.join(map(repr, known)) or 'no columns'}."
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the nearest known name, after a space; empty if none is near."""
    near = nearest_name(name, known)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, whatever the case of its letters; None if none is."""
    folded = {other.casefold(): other for other in known}
    near = get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None
