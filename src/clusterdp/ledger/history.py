"""A ledger's history: the releases that its entries record, and whether entries were changed."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from clusterdp.errors import ClusterDPError, LedgerError, ParameterError
from clusterdp.ledger._encryption import is_described
from clusterdp.ledger._store import (
    DRAWN_EVENTS,
    ENDED,
    FIRST_PREVIOUS,
    RANDOMIZING,
    UNFINISHED,
    WITHDRAWN,
)
from clusterdp.privacy.accounting import Guarantee
from clusterdp.spec.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.ledger._encryption import Encryption
    from clusterdp.ledger._store import Entry

FORMAT_VERSION = 4
# Letters of an id that people see; JSON has all.
ID_SHOWN = 8
# What the reservation of a release has as text.
_TEXTS = ("population", "key_sha256", "claim")
# What later entries of a release add to its record.
_RECORDED = {*(f"{event}_sha256" for event in DRAWN_EVENTS), "manifest_sha256", "folder"}
# The manifests of the batches that a batch continues.
_Manifests = Annotated[list[str], msgspec.Meta(min_length=1)]
# A larger ε protects nobody.
_LARGEST_CAP = 100
# Which events one release may have, in which order, until now. Each is followed by a space. Of a
# release that is cancelled nothing is left: it drew nothing, or its only run removed its rows.
_ORDER = re.compile(
    r"reserved ((randomizing )?cancelled |(labelled )?(looked )?(randomizing )*"
    r"(closed |drawn (randomizing )*(closed |committed (withdrawn )?)?)?)"
)


@dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """A release as the ledger records it.

    Attributes:
        release_id: Its id.
        population: The people it is about.
        status: Its last event: "committed", or one of `UNFINISHED` and `ENDED`. A release that is
            withdrawn stays committed: its budget is spent, and copies of it may exist.
        n_attempts: How many runs began to randomize rows, each with a key of its own.
        at: When it was reserved, in UTC.
        who: The user who reserved it.
        content: Its parameters and options, from its reservation.
        labelled_sha256: The checksum of its counts of given labels, as it is stored; None before.
        looked_sha256: The checksum of its pilot, as it is stored; None before.
        drawn_sha256: The checksum of what it drew, as it is stored; None before.
        manifest_sha256: The checksum of the published manifest; None before.
        folder: Where it was published; None before.
        ended: When it was closed, cancelled or withdrawn, by whom and why; None otherwise.
    """

    release_id: str
    population: str
    status: str
    at: str
    who: str
    content: dict[str, Any]
    n_attempts: int = 0
    labelled_sha256: str | None = None
    looked_sha256: str | None = None
    drawn_sha256: str | None = None
    manifest_sha256: str | None = None
    folder: str | None = None
    ended: dict[str, Any] | None = None

    @property
    def is_unfinished(self) -> bool:
        """Whether it is neither published nor given up."""
        return self.status in UNFINISHED

    @property
    def is_withdrawn(self) -> bool:
        """Whether it was published, and withdrawn later."""
        return self.status == "committed" and self.ended is not None

    @property
    def has_drawn(self) -> bool:
        """Whether something may exist that depends on outcomes."""
        return self.status != "reserved"

    @property
    def continues(self) -> tuple[str, ...]:
        """The batches that it continues, by the checksums of their manifests; empty if none."""
        return tuple(self.content.get("continues", ()))

    @property
    def answers(self) -> str | None:
        """The release whose follow-up it answers, by the checksum of its manifest; None if none."""
        return self.content.get("answers")

    @property
    def followup(self) -> str | None:
        """The follow-up that it answers, by its checksum; None if none."""
        return self.content.get("followup")

    @cached_property
    def guarantee(self) -> Guarantee:
        """What it costs in (ε, δ)."""
        return self.terms.guarantee

    @cached_property
    def terms(self) -> Terms:
        """What it publishes and what that costs."""
        return msgspec.convert(self.content, Terms)


def named_release(known: Sequence[ReleaseRecord], release_id: str) -> ReleaseRecord | None:
    """A release by its id, or by as much of it as people see, if no other begins so."""
    begun = [one for one in known if one.release_id.startswith(release_id)]
    is_enough = len(begun) == 1 and len(release_id) >= ID_SHOWN
    return next((one for one in begun if is_enough or one.release_id == release_id), None)


def read_releases(entries: Sequence[Entry]) -> list[ReleaseRecord]:
    """The releases that entries record, in the order of reservation."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.event == "reserved":
            found[entry.release_id] = {
                "release_id": entry.release_id,
                "population": entry.content["population"],
                "at": entry.at,
                "who": entry.who,
                "content": entry.content,
                "n_attempts": 0,
            }
        if entry.release_id in found:
            one = found[entry.release_id]
            one |= {name: told for name, told in entry.content.items() if name in _RECORDED}
            one["status"] = one["status"] if entry.event == WITHDRAWN else entry.event
            one["n_attempts"] += entry.event == RANDOMIZING
            if entry.event in (*ENDED, WITHDRAWN):
                one["ended"] = {"at": entry.at, "who": entry.who, **entry.content}
    return [ReleaseRecord(**one) for one in found.values()]


class AnsweredError(LedgerError):
    """A follow-up is answered, or about to be: another draw would cost again.

    Attributes:
        record: The answer.
    """

    def __init__(self, record: ReleaseRecord) -> None:
        super().__init__(
            f"this follow-up is answered by release {record.release_id}. Nothing was spent"
        )
        self.record = record


def refuse_answered(releases: Sequence[ReleaseRecord], release: str, followup: str | None) -> None:
    """Raise an AnsweredError if a follow-up has an answer that is published or unfinished.

    Args:
        releases: Every release of a ledger.
        release: The release that the follow-up is about, by the checksum of its manifest.
        followup: The follow-up, by its checksum; None matches nothing.
    """
    for one in releases:
        is_same = (one.answers, one.followup) == (release, followup)
        if followup and is_same and one.status not in ENDED:
            raise AnsweredError(one)


def find_problems(entries: Sequence[Entry]) -> list[str]:
    """Everything that is wrong with a history."""
    if not entries or entries[0].event != "opened":
        return ["the first entry is missing"]
    problems = []
    previous, events = FIRST_PREVIOUS, defaultdict[str, str](str)
    known = format_problem(entries) is None
    for number, entry in enumerate(entries):
        events[entry.release_id] += f"{entry.event} "
        if entry.number != number:
            problems.append(f"entry {number} is missing")
            break
        if entry.hash != entry.expected_hash():
            problems.append(f"entry {number} was changed")
        elif entry.previous != previous:
            problems.append(f"entry {number} does not follow the one before")
        elif known and number and not _ORDER.fullmatch(events[entry.release_id]):
            problems.append(f"entry {number} has an event that is not allowed there")
        elif known and not _is_valid(entry):
            problems.append(f"entry {number} has invalid content")
        previous = entry.hash
    return problems or _chain_problems(entries)


def _chain_problems(entries: Sequence[Entry]) -> list[str]:
    """The batches that do not continue what they had to: all earlier ones of one chain, once.

    Two batches of which neither continues the other could share people, and would not add up.
    """
    problems = []
    for number, entry in enumerate(entries):
        continues = entry.content.get("continues") if entry.event == "reserved" else None
        if continues is None:
            continue
        before = [
            one
            for one in read_releases(entries[:number])
            if one.population == entry.content["population"] and one.status != "cancelled"
        ]
        chain = [
            one
            for one in before
            if one.answers is None and continues[0] in (one.manifest_sha256, *one.continues[:1])
        ]
        listed = [one.manifest_sha256 for one in chain if one.status == "committed"]
        # The first one continues nothing, or it is not where the chain begins.
        begins = bool(chain) and not chain[0].continues
        if not begins or continues != listed or any(one.is_unfinished for one in chain):
            problems.append(f"entry {number} does not continue all earlier batches of its chain")
    return problems


def format_problem(entries: Sequence[Entry]) -> str | None:
    """Why a ledger of another format cannot be used; None if it has this version's format."""
    version = entries[0].content.get("format_version")
    if type(version) is not int or version == FORMAT_VERSION:
        return None
    return (
        f"has format {version}, and this version of clusterdp reads format {FORMAT_VERSION}; use "
        "the version that made it"
    )


def describe_opening(cap: Guarantee, encryption: Encryption, *, tight: bool) -> dict[str, Any]:
    """The content of the first entry of a new ledger.

    Raises:
        ParameterError: If the cap is out of range, or has no δ for tight composition.
    """
    if not (isinstance(cap.epsilon, Real) and 0 < cap.epsilon <= _LARGEST_CAP):
        raise ParameterError(
            f"cap_epsilon must be a number above 0 and at most {_LARGEST_CAP}, got {cap.epsilon!r}"
        )
    if not (isinstance(cap.delta, Real) and _is_cap(cap)):
        raise ParameterError(f"cap_delta must be a number in [0, 1), got {cap.delta!r}")
    if tight and not cap.delta:
        raise ParameterError("tight composition needs a cap_delta above 0, got 0")
    return {
        "format_version": FORMAT_VERSION,
        "cap_epsilon": float(cap.epsilon),
        "cap_delta": float(cap.delta),
        "composition": "tight" if tight else "basic",
        "encryption": encryption.describe(),
    }


def _is_cap(cap: Guarantee) -> bool:
    return 0 < cap.epsilon < math.inf and 0 <= cap.delta < 1


def _is_valid(entry: Entry) -> bool:
    """Whether an entry's content is complete, and a release costs what its parameters cost."""
    content = entry.content
    try:
        if entry.event == "opened":
            cap = Guarantee(epsilon=content["cap_epsilon"], delta=content["cap_delta"])
            known = content["format_version"] == FORMAT_VERSION
            named = content["composition"] in ("tight", "basic")
            return _is_cap(cap) and known and named and is_described(content["encryption"])
        if entry.event == "reserved":
            msgspec.convert(content, Terms).check()
            texts = [content[name] for name in _TEXTS]
            texts += [content[name] for name in ("answers", "followup") if name in content]
            if "continues" in content:
                texts += msgspec.convert(content["continues"], _Manifests)
            return all(isinstance(one, str) for one in texts)
        if entry.event in (*ENDED, WITHDRAWN):
            return all(isinstance(value, str) for value in content.values())
    except (ClusterDPError, msgspec.ValidationError, LookupError, TypeError, ValueError):
        return False
    return True


def populations_of(releases: Sequence[ReleaseRecord]) -> list[str]:
    """The populations that releases are about, each once."""
    return list(dict.fromkeys(one.population for one in releases))
