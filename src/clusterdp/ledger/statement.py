"""The balances of a ledger for people: text, HTML and plain values."""

from __future__ import annotations

import csv
import io
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from clusterdp.document.markup import to_html
from clusterdp.document.model import Code, Paragraph, Section, Table
from clusterdp.document.text import terminal_width, to_lines
from clusterdp.ledger.balance import budget_in_short, shown_below
from clusterdp.privacy.accounting import rounded_up
from clusterdp.sources.source import FRAME

if TYPE_CHECKING:
    from clusterdp.ledger.balance import Balance
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.privacy.accounting import Guarantee

_BAR_WIDTH = 32
_HEADER = ("release", "when (UTC)", "who", "outcomes", "mechanism", "epsilon", "delta", "status")

# What an owner says of a release, and the columns of an audit.
_SAID = ("title", "contact", "approved_by", "reason")
_AUDITED = (
    *("population", "release_id", "status", "at", "who", "outcomes", "mechanism"),
    *("epsilon", "delta", "n_units", *_SAID, "folder", "manifest_sha256"),
    *("ended_at", "ended_who", "ended_reason"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Statement:
    """What was spent on each population, by which releases, and what is left.

    Attributes:
        ledger: Where the ledger is, without a password.
        cap: What may be spent on each population.
        tight: Whether tight composition decides; basic composition otherwise.
        balances: The balance of each population.
        head: The hash of the last entry.
    """

    ledger: str
    cap: Guarantee
    tight: bool
    balances: tuple[Balance, ...]
    head: str

    def __repr__(self) -> str:
        return "\n".join(to_lines(self._parts(), terminal_width()))

    def _repr_html_(self) -> str:
        return to_html(*self._parts())

    def _parts(self) -> list[Paragraph | Section]:
        """All of it, for people."""
        about = f"{budget_in_short(self.cap)} for each population: {self.cap.in_odds()}"
        parts: list[Paragraph | Section] = [Paragraph(f"{self.ledger}: {about}")]
        parts += [] if self.balances else [Paragraph("nothing was spent yet")]
        for balance in self.balances:
            table = Table("", [_HEADER, *map(_cells, balance.releases)])
            totals = Code("", "\n".join(self._totals(balance)))
            parts.append(Section(balance.population, [table, totals]))
        return [*parts, Section("", [Paragraph(f"last entry {self.head}")])]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, as `clusterdp ledger show --json` prints them."""
        return {
            "head": self.head,
            "decides": "tight" if self.tight else "basic",
            "populations": [_describe(balance) for balance in self.balances],
        }

    def to_csv(self) -> str:
        """Every release in a row, with who approved it, why, and how it ended: for an audit."""
        text = io.StringIO()
        writer = csv.DictWriter(text, _AUDITED, lineterminator="\n")
        writer.writeheader()
        for balance in self.balances:
            writer.writerows(map(_audited, balance.releases))
        return text.getvalue()

    def _totals(self, balance: Balance) -> list[str]:
        """What is spent and left of one population, and how to finish what is unfinished."""
        basic, tight = ("", ": this decides") if self.tight else (": this decides", "")
        lines = [f"{_bar(balance.basic.epsilon, self.cap.epsilon)}  basic composition{basic}"]
        epsilon = balance.tight_epsilon()
        if epsilon is not None:
            at_delta = f"tight composition at delta {rounded_up(self.cap.delta)}"
            lines.append(f"{_bar(epsilon, self.cap.epsilon)}  {at_delta}{tight}")
        lines.append(f"left for one more release: epsilon {shown_below(balance.remaining)}")
        for one in balance.releases:
            if one.is_unfinished:
                lines += _next_steps(one, self.ledger)
        return lines


def resume_in_python(release_id: str, ledger: str) -> str:
    """How to finish a release of a frame, which only Python can give again."""
    return f"clusterdp.resume({release_id!r}, frame, ledger={ledger!r})"


def resume_command(release_id: str, ledger: str) -> str:
    """How to finish a release on the command line."""
    return f"clusterdp release --resume {release_id} --ledger {shlex.quote(ledger)}"


def ending_command(verb: Literal["cancel", "close"], release_id: str, ledger: str) -> str:
    """How to give up a release on the command line."""
    return f"clusterdp ledger {verb} {shlex.quote(ledger)} {release_id}"


def _next_steps(one: ReleaseRecord, ledger: str) -> list[str]:
    """What the owner can do about an unfinished release."""
    options, release_id = one.content.get("options"), one.release_id
    is_frame = isinstance(options, dict) and options.get("input") == FRAME
    resume = (resume_in_python if is_frame else resume_command)(release_id, ledger)
    steps = [f"{release_id} is unfinished: {resume}"]
    if not one.has_drawn:
        cancel = ending_command("cancel", release_id, ledger)
        steps.append(f"  it drew nothing; to get its budget back: {cancel}")
    close = ending_command("close", release_id, ledger)
    return [*steps, f"  to give it up, its budget spent: {close}"]


def _cells(one: ReleaseRecord) -> tuple[str, ...]:
    return (
        one.release_id,
        one.at[:16].replace("T", " "),
        one.who,
        ", ".join(one.outcomes),
        one.terms.mechanism_names,
        rounded_up(one.guarantee.epsilon),
        rounded_up(one.guarantee.delta),
        "unfinished" if one.is_unfinished else one.status,
    )


def _audited(one: ReleaseRecord) -> dict[str, Any]:
    """A release as a row of an audit; what was not said is empty."""
    options, ended = one.content.get("options") or {}, one.ended or {}
    said = {name: options.get(name) for name in _SAID}
    ending = {f"ended_{name}": ended.get(name) for name in ("at", "who", "reason")}
    about = {**_describe_release(one), "population": one.population, **said, **ending}
    cells = {name: about.get(name) for name in _AUDITED}
    return cells | {"outcomes": ", ".join(one.outcomes)}


def _bar(spent: float, cap: float) -> str:
    """A bar that shows how much of a cap is spent."""
    filled = round(_BAR_WIDTH * min(1.0, spent / cap)) if math.isfinite(spent) else _BAR_WIDTH
    return (
        "█" * filled + "░" * (_BAR_WIDTH - filled) + f"  {rounded_up(spent)} of {rounded_up(cap)}"
    )


def _describe(balance: Balance) -> dict[str, Any]:
    return {
        "population": balance.population,
        "cap_epsilon": balance.cap.epsilon,
        "cap_delta": balance.cap.delta,
        "basic_epsilon": balance.basic.epsilon,
        "basic_delta": balance.basic.delta,
        "tight_epsilon": balance.tight_epsilon(),
        "remaining_epsilon": balance.remaining,
        "releases": [_describe_release(one) for one in balance.releases],
    }


def _describe_release(one: ReleaseRecord) -> dict[str, Any]:
    return {
        "release_id": one.release_id,
        "status": one.status,
        "at": one.at,
        "who": one.who,
        "outcomes": list(one.outcomes),
        "mechanism": one.terms.mechanism_names,
        "epsilon": one.guarantee.epsilon,
        "delta": one.guarantee.delta,
        "n_units": one.content.get("n_units"),
        "folder": one.folder,
        "manifest_sha256": one.manifest_sha256,
        "ended": one.ended,
    }
