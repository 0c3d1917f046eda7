"""A ledger's history: what its entries say, and whether anybody changed them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp.ledger.encryption import is_described
from clusterdp.ledger.store import FIRST_PREVIOUS
from clusterdp.privacy.accounting import Guarantee
from clusterdp.published import manifest as manifests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.ledger.store import Entry
    from clusterdp.privacy.accounting import ReleaseLoss

FORMAT_VERSION = 2
# What may follow what, in the life of a release.
_STEPS = {
    (None, "reserved"),
    ("reserved", "drawn"),
    ("reserved", "cancelled"),
    ("reserved", "closed"),
    ("drawn", "committed"),
    ("drawn", "closed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """One release, as the ledger has it.

    Attributes:
        release: Its id.
        population: Whom it is about.
        status: "reserved", "drawn", "committed", "cancelled" or "closed": the last that happened
            to it.
        at: When it was reserved.
        who: Who did.
        content: What was said of it when it was reserved.
        drawn_sha256: The checksum of what it drew, as it is stored; None before.
        manifest_sha256: The checksum of what was published; None before.
        folder: Where it was published; None before.
        ended: When it was closed or cancelled, by whom, and what was said then; None otherwise.
    """

    release: str
    population: str
    status: str
    at: str
    who: str
    content: dict[str, Any]
    drawn_sha256: str | None = None
    manifest_sha256: str | None = None
    folder: str | None = None
    ended: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be resumed."""
        return self.status in ("reserved", "drawn")

    @property
    def guarantee(self) -> Guarantee:
        """What it costs."""
        stated = self.content["guarantee"]
        return Guarantee(epsilon=stated["epsilon"], delta=stated["delta"])

    @property
    def loss(self) -> ReleaseLoss:
        """What it can tell, from its parameters."""
        space = manifests.read_space(self.content)
        return manifests.read_mechanism(self.content).loss(space)


def read_spendings(entries: Sequence[Entry]) -> list[Spending]:
    """The releases that entries tell of, in the order of reservation."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.event == "reserved":
            found[entry.release] = {
                "release": entry.release,
                "population": entry.content["population"],
                "at": entry.at,
                "who": entry.who,
                "content": entry.content,
            }
        if entry.release in found:
            one = found[entry.release]
            one["status"] = entry.event
            for name in ("drawn_sha256", "manifest_sha256", "folder"):
                if name in entry.content:
                    one[name] = entry.content[name]
            if entry.event in ("cancelled", "closed"):
                one["ended"] = {"at": entry.at, "who": entry.who, **entry.content}
    return [Spending(**one) for one in found.values()]


def chain_problems(entries: Sequence[Entry]) -> list[str]:
    """What is wrong with a chain of entries."""
    if not entries or entries[0].event != "opened":
        return ["the first entry is missing"]
    problems = []
    previous, status = FIRST_PREVIOUS, dict[str, str]()
    known = other_format(entries) is None
    for place, entry in enumerate(entries):
        if entry.number != place:
            problems.append(f"entry {place} is missing")
            break
        if entry.hash != entry.expected_hash():
            problems.append(f"entry {place} was changed")
        elif entry.previous != previous:
            problems.append(f"entry {place} does not follow the one before")
        elif known and place and (status.get(entry.release), entry.event) not in _STEPS:
            problems.append(f"entry {place} is out of turn")
        elif known and not _says_what_it_should(entry):
            problems.append(f"entry {place} does not say what it should")
        previous, status[entry.release] = entry.hash, entry.event
    return problems


def other_format(entries: Sequence[Entry]) -> int | None:
    """The format of a ledger that another version of this software made; None if it is this one."""
    version = entries[0].content.get("format_version")
    return version if type(version) is int and version != FORMAT_VERSION else None


def is_cap(cap: Guarantee) -> bool:
    """Whether something can be a cap."""
    return 0 < cap.epsilon < math.inf and 0 <= cap.delta < 1


def _says_what_it_should(entry: Entry) -> bool:
    """Whether an entry's content can be counted with: a cap, or a release at its true cost."""
    content = entry.content
    try:
        if entry.event == "opened":
            cap = Guarantee(epsilon=content["cap_epsilon"], delta=content["cap_delta"])
            known = content["format_version"] == FORMAT_VERSION
            named = content["composition"] in ("tight", "basic")
            return is_cap(cap) and known and named and is_described(content["vault"])
        if entry.event == "reserved":
            manifests.read_guarantee(content)
            names = (
                content["population"],
                content["outcome"]["name"],
                content["mechanism"]["name"],
            )
            return all(isinstance(name, str) for name in names)
        if entry.event in ("cancelled", "closed"):
            return all(isinstance(said, str) for said in content.values())
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return True
