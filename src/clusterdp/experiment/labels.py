"""Outcomes that are one of two labels, such as no and yes, which count as 0 and 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST = 40
_MARKS = frozenset(" -_./+")
# Labels that are usually meant to count as 1.
AFFIRMATIVE = frozenset({"true", "t", "yes", "y", "on"})
# What begins the text of another space.
_OTHER_FORMS = ("bins:", "number:")


def labels_of(given: str | Sequence[object]) -> tuple[str, str] | None:
    """The two labels that a space was given by; None if it was given by something else.

    `no,yes` are labels. `0,1` are numbers, and what begins as a number is meant to be one: `0,l`
    is a slip.

    Raises:
        ParameterError: If these are labels, but not two that can be told apart and shown.
    """
    if isinstance(given, str) and (given.startswith(_OTHER_FORMS) or ".." in given):
        return None
    texts = given.split(",") if isinstance(given, str) else given
    labels = [text.strip() for text in texts if isinstance(text, str)]
    if len(labels) < max(2, len(texts)) or any(map(_looks_numeric, labels)):
        return None
    if len(labels) > 2:
        raise ParameterError(
            f"an outcome of labels has two, as in visited=no,yes; got {len(labels)}: for more, "
            "hold their numbers in the column, and declare 0,1,2"
        )
    first, second = labels
    check_labels((first, second))
    return first, second


def check_labels(labels: tuple[str, str]) -> None:
    """Raise a ParameterError unless two labels can be told apart, and shown anywhere."""
    for label in labels:
        plain = label == label.strip() and all(_is_plain(letter) for letter in label)
        if not plain or not 0 < len(label) <= _LONGEST:
            raise ParameterError(
                f"a label has letters, digits, spaces or - _ . / +, at most {_LONGEST}; got "
                f"{label[:_LONGEST]!r}: rename it in the table"
            )
    if folded(labels[0]) == folded(labels[1]):
        raise ParameterError(
            f"labels must differ by more than capitals, got {labels[0]!r} and {labels[1]!r}"
        )


def folded(label: str) -> str:
    """A label as it is compared: TRUE, True and true are one."""
    return label.strip().lower()


def _is_plain(letter: str) -> bool:
    return letter.isalnum() or letter in _MARKS


def _looks_numeric(label: str) -> bool:
    return not label or label[0] in "0123456789.+-" or label.lower() in {"nan", "inf", "infinity"}
