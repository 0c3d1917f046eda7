"""Where a release comes from, in the owner's words, and what is on record of its beginning."""

from __future__ import annotations

import math
from datetime import date  # noqa: TC003 - msgspec resolves hints
from typing import Annotated

from msgspec import Meta, Struct

from clusterdp._text import counted, is_plain, plural
from clusterdp.errors import ParameterError
from clusterdp.privacy.statement import rounded_up

# How many characters each text may have.
LONGEST = {
    "unit_name": 60,
    "title": 200,
    "description": 2000,
    "collected": 200,
    "contact": 200,
    "licence": 200,
    "approved_by": 200,
    "reason": 2000,
}
# Letters of a checksum in texts, and how many of them a text lists.
_SHOWN, _MOST_SUMS = 8, 4
# What readers ask for first.
_ASKED_FOR = ("title", "description", "contact", "licence")


class Spent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was spent on a population, by basic composition."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf or not 0 <= self.delta <= 1:
            raise ParameterError(
                "spent_before must have a finite epsilon of at least 0 and a delta between 0 and "
                f"1, got {self.epsilon!r} and {self.delta!r}; state what the ledger states"
            )


# The SHA-256 of a manifest's file.
ManifestSum = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Provenance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a release comes from; None where nothing was said or recorded.

    Attributes:
        unit_name: What a unit is called: user, patient, household.
        title: What the release is called.
        description: What the experiment was.
        collected: When outcomes were collected.
        contact: Whom to ask.
        licence: What others may do with it.
        approved_by: Who decided to publish it.
        reason: Why its ε is what it is.
        released_on: The day on which the release began, in UTC: its budget was reserved, or there
            was no ledger to record it and it ran then.
        spent_before: What people in it may have lost by other releases about its population when
            its budget was reserved.
        continues: The earlier batches of its experiment, none of whose units it has, by the
            checksums of their manifests, in the order of publication.
    """

    unit_name: str | None = None
    title: str | None = None
    description: str | None = None
    collected: str | None = None
    contact: str | None = None
    licence: str | None = None
    approved_by: str | None = None
    reason: str | None = None
    released_on: date | None = None
    spent_before: Spent | None = None
    continues: Annotated[tuple[ManifestSum, ...], Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        for name, longest in LONGEST.items():
            text = getattr(self, name)
            if text is not None:
                check_line(name, text, longest)
        if len(set(self.continues or ())) < len(self.continues or ()):
            raise ParameterError("continues must name each batch once, got one twice")

    @property
    def unit(self) -> str:
        """What texts call a unit."""
        return self.unit_name or "unit"

    @property
    def units(self) -> str:
        """What texts call units."""
        return plural(self.unit)

    @property
    def unsaid(self) -> list[str]:
        """What readers ask for first, and the owner did not state."""
        return [name for name in _ASKED_FOR if getattr(self, name) is None]


def provenance_pairs(known: Provenance) -> list[tuple[str, str]]:
    """Where a release comes from, for people: what is known, then what was not stated."""
    budget = f"no ledger: earlier releases about these {known.units} are unknown"
    if known.spent_before is not None:
        spent = known.spent_before
        budget = f"no earlier release about these {known.units} is in the owner's ledger"
        if spent.epsilon or spent.delta:
            budget = (
                f"earlier releases about these {known.units} spent ε = {rounded_up(spent.epsilon)}"
            )
            budget += f", δ = {rounded_up(spent.delta)}" if spent.delta else ""
    said = {
        "description": known.description,
        "dates": known.collected,
        "contact": known.contact,
        "license": known.licence,
        "approver": known.approved_by,
        "reason for ε": known.reason,
    }
    unsaid = ", ".join(name for name, text in said.items() if text is None)
    ask = ". License not stated: ask before sharing." if known.licence is None else ""
    published = [] if known.released_on is None else [("Published", str(known.released_on))]
    earlier = [("Continues", batches_in_words(known))] if known.continues else []
    return [
        *((name.capitalize(), text) for name, text in said.items() if text is not None),
        *published,
        *earlier,
        ("Budget", budget),
        *([("Not stated", f"{unsaid}{ask}")] if unsaid else []),
    ]


def unsaid_pairs(names: list[str]) -> list[tuple[str, str]]:
    """That an owner did not state what readers ask for first; nothing if nothing is left."""
    words = ", ".join(names).replace("licence", "license")
    return [("Not stated", f"{words} (cannot be added later; see [about])")] if words else []


def batches_in_words(known: Provenance) -> str:
    """The batches that a release continues, by the beginnings of their manifests' checksums."""
    sums = known.continues or ()
    listed = ", ".join(one[:_SHOWN] for one in sums[:_MOST_SUMS])
    more = f" and {len(sums) - _MOST_SUMS} more" if len(sums) > _MOST_SUMS else ""
    return f"{counted(len(sums), 'earlier folder')} with other {known.units} ({listed}{more})"


def check_line(name: str, text: str, longest: int) -> None:
    """Raise a ParameterError unless a text is one plain line that is not too long."""
    if not text.strip():
        raise ParameterError(
            f"{name} must not be empty, got {text!r}; say something, or leave it out"
        )
    if len(text) > longest:
        raise ParameterError(
            f"{name} must have at most {longest} characters, got {len(text)}; shorten it"
        )
    refused = [letter for letter in text if not is_plain(letter)]
    if refused:
        raise ParameterError(
            f"{name} must be one line without control characters, got U+{ord(refused[0]):04X}; "
            "remove it"
        )
