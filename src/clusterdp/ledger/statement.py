"""The balances of a ledger for people: text, HTML and plain values."""

from __future__ import annotations

import csv
import io
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from clusterdp._text import counted
from clusterdp.document.markup import to_html
from clusterdp.document.model import Code, KeyNumbers, Paragraph, Section, Table
from clusterdp.document.text import terminal_width, to_lines
from clusterdp.ledger.balance import budget_in_short, shown_below
from clusterdp.ledger.history import ID_SHOWN
from clusterdp.privacy.statement import rounded_up
from clusterdp.sources.source import FRAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clusterdp.ledger.balance import Balance
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.privacy.accounting import Guarantee

_BAR_WIDTH = 24
# Letters of the names of outcomes in the table.
_LONGEST = 20
_HEADER = ("date (UTC)", "release", "outcomes", "ε", "δ", "status", "by")
# What the last events of releases are called.
_STATUS = {"committed": "published", "closed": "abandoned", "cancelled": "cancelled"}

# What an owner says of a release, and the columns of an audit.
_SAID = ("title", "contact", "approved_by", "reason")
_AUDITED = (
    *("population", "release_id", "status", "at", "who", "outcomes", "mechanism"),
    *("epsilon", "delta", "n_units", *_SAID, "folder", "manifest_sha256"),
    *("ended_at", "ended_who", "ended_reason"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Statement:
    """What was spent on each population, by which releases, and what remains.

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
        return "\n".join(to_lines(self._parts(), terminal_width())).lstrip("\n")

    def _repr_html_(self) -> str:
        return to_html(*self.parts())

    def parts(self) -> list[Paragraph | Section]:
        """All of it, for notebooks and pages."""
        return self._parts(as_text=False)

    def _parts(self, *, as_text: bool = True) -> list[Paragraph | Section]:
        """All of it, for people; a notebook has large numbers in place of bars."""
        parts: list[Paragraph | Section] = []
        if not self.balances:
            cap = f"Budget cap of each population: {budget_in_short(self.cap)}."
            parts.append(Paragraph(f"{self.ledger}: nothing was spent yet. {cap}"))
        width = max((len(balance.population) for balance in self.balances), default=0)
        for balance in self.balances:
            spent = [*map(Paragraph, self._bars(balance, width))] if as_text else self._key(balance)
            parts.append(Section("", [*spent, self._table(balance), *self._unfinished(balance)]))
        about = [self._meaning(balance) for balance in self.balances]
        about += [text for balance in self.balances for text in self._of_batches(balance)]
        about += [
            f"Release {one.release_id[:ID_SHOWN]} {withdrawn_in_words(one)}. Copies of it may "
            "exist, so its budget stays spent."
            for balance in self.balances
            for one in balance.releases
            if one.is_withdrawn
        ]
        ends = [Paragraph(text) for text in dict.fromkeys(about)]
        return [*parts, Section("", ends)] if ends else parts

    def _meaning(self, balance: Balance) -> str:
        """What everything that was spent on a population means for a reader."""
        spent = balance.basic.statement().short
        name = f"{balance.population}: " if len(self.balances) > 1 else ""
        most = self.cap.statement().at_most
        return f"{name}{spent[:1].upper()}{spent[1:]}" + (f" (cap: {most})" if most else "")

    def _of_batches(self, balance: Balance) -> list[str]:
        """Why batches do not add up, where there are any."""
        n_batches = sum(bool(one.continues) for one in balance.spent)
        if not n_batches:
            return []
        name = f"{balance.population}: " if len(self.balances) > 1 else ""
        have = "has" if n_batches == 1 else "have"
        text = (
            f"{name}{counted(n_batches, 'release')} {have} new units only. Ids were compared with "
            "those of the batches that are continued. No unit is in two batches of a chain, so "
            "only one batch counts for it, with its answers. Everything outside the chain adds "
            "to that. The balance is the largest such sum."
        )
        return [text]

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
        writer = csv.DictWriter(text, _AUDITED, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for balance in self.balances:
            writer.writerows(map(_audited, balance.releases))
        return text.getvalue()

    def _bars(self, balance: Balance, width: int) -> list[str]:
        """What is spent of the cap of one population, and what remains."""
        epsilon, remaining = balance.tight_epsilon(), shown_below(balance.remaining)
        name = f"{balance.population:{width}}"
        spent = [(name, balance.basic.epsilon, "", not self.tight)]
        if epsilon is not None:
            at_delta = f" by tight composition at δ = {rounded_up(self.cap.delta)}"
            spent.append((" " * width, epsilon, at_delta, self.tight))
        return [
            f"{label}   {_bar(used, self.cap.epsilon)} spent{how}"
            + (f", {remaining} remaining" if decides else "")
            for label, used, how, decides in spent
        ]

    def _key(self, balance: Balance) -> list[Paragraph | KeyNumbers]:
        """The same as `_bars`, for notebooks."""
        spent = balance.tight_epsilon() if self.tight else None
        left, cap = shown_below(balance.remaining), budget_in_short(self.cap)
        pairs = [
            ("spent", f"ε = {rounded_up(balance.basic.epsilon if spent is None else spent)}"),
            ("remaining", f"ε = {left}"),
            ("budget cap", cap),
        ]
        return [Paragraph(balance.population, "lead"), KeyNumbers(pairs)]

    def _table(self, balance: Balance) -> Table:
        """Its releases; δ only where there is any."""
        hidden = None if balance.basic.delta else _HEADER.index("δ")
        known = {one.manifest_sha256: one.release_id for one in balance.releases}
        rows = [_HEADER, *(_cells(one, known.get(one.answers)) for one in balance.releases)]
        return Table(
            "", [tuple(cell for place, cell in enumerate(row) if place != hidden) for row in rows]
        )

    def _unfinished(self, balance: Balance) -> list[Code]:
        """How to finish or end releases that were interrupted."""
        steps = [
            step
            for one in balance.releases
            if one.is_unfinished
            for step in _next_steps(one, self.ledger)
        ]
        return [Code("", "\n".join(steps))] if steps else []


def resume_in_python(release_id: str, ledger: str) -> str:
    """How to finish a release of a frame, which only Python can give again."""
    return f"clusterdp.resume({release_id!r}, frame, ledger={ledger!r})"


def resume_command(release_id: str, ledger: str) -> str:
    """How to finish a release on the command line."""
    return f"clusterdp release --resume {release_id} --ledger {shlex.quote(ledger)}"


def ending_command(verb: Literal["cancel", "close"], release_id: str, ledger: str) -> str:
    """How to give up a release on the command line."""
    return f"clusterdp ledger {verb} {shlex.quote(ledger)} {release_id}"


def withdrawn_in_words(one: ReleaseRecord) -> str:
    """When a published release was withdrawn, by whom and why."""
    ended = one.ended or {}
    why = f": {ended['reason']}" if "reason" in ended else ""
    return f"was withdrawn by {ended['who']} on {ended['at'][:10]}{why}"


def folder_problem(manifest: str, releases: Iterable[ReleaseRecord]) -> str | None:
    """Why a folder is not to be used, by its manifest's checksum: it is unknown, or withdrawn."""
    for one in releases:
        if one.manifest_sha256 == manifest:
            return f"it {withdrawn_in_words(one)}" if one.is_withdrawn else None
    return "no release has the manifest of this folder"


def status_of(one: ReleaseRecord) -> str:
    """What its last event is called."""
    return "withdrawn" if one.is_withdrawn else _STATUS.get(one.status, one.status)


def _next_steps(one: ReleaseRecord, ledger: str) -> list[str]:
    """What the owner can do about an unfinished release."""
    options, release_id = one.content.get("options"), one.release_id
    is_frame = isinstance(options, dict) and options.get("input") == FRAME
    resume = (resume_in_python if is_frame else resume_command)(release_id, ledger)
    steps = [f"{release_id} is unfinished. Resume with:", f"  {resume}"]
    if not one.has_drawn:
        cancel = ending_command("cancel", release_id, ledger)
        steps += ["It drew nothing. Get its budget back with:", f"  {cancel}"]
    close = ending_command("close", release_id, ledger)
    return [*steps, "Abandon it, its budget spent, with:", f"  {close}"]


def _cells(one: ReleaseRecord, answered: str | None) -> tuple[str, ...]:
    """The cells of a release; of an answer, with the id of the release that it is about."""
    about = f" (answers {answered[:ID_SHOWN]})" if one.answers and answered else ""
    return (
        one.at[:16].replace("T", " "),
        one.release_id[:ID_SHOWN],
        _in_short(one.terms.outcome_names) + about,
        rounded_up(one.guarantee.epsilon),
        rounded_up(one.guarantee.delta),
        "unfinished" if one.is_unfinished else status_of(one),
        one.who,
    )


def _in_short(names: Sequence[str]) -> str:
    """Names of outcomes for a table; where they are long, how many there are."""
    listed = ", ".join(names)
    is_short = len(names) == 1 or len(listed) <= _LONGEST
    return listed if is_short else counted(len(names), "outcome")


def _audited(one: ReleaseRecord) -> dict[str, Any]:
    """A release as a row of an audit; what was not said is empty."""
    options, ended = one.content.get("options") or {}, one.ended or {}
    said = {name: options.get(name) for name in _SAID}
    ending = {f"ended_{name}": ended.get(name) for name in ("at", "who", "reason")}
    known = {"population": one.population, "outcomes": ", ".join(one.terms.outcome_names)}
    return {**_describe_release(one), **known, **said, **ending}


def _bar(spent: float, cap: float) -> str:
    """A bar that shows how much of a cap is spent."""
    filled = round(_BAR_WIDTH * min(1.0, spent / cap)) if math.isfinite(spent) else _BAR_WIDTH
    return (
        "█" * filled + "░" * (_BAR_WIDTH - filled) + f"   {rounded_up(spent)} of {rounded_up(cap)}"
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
        "status": status_of(one),
        "at": one.at,
        "who": one.who,
        "outcomes": list(one.terms.outcome_names),
        "mechanism": one.terms.mechanism_names,
        "epsilon": one.guarantee.epsilon,
        "delta": one.guarantee.delta,
        "n_units": one.content.get("n_units"),
        "folder": one.folder,
        "manifest_sha256": one.manifest_sha256,
        "continues": list(one.continues),
        "answers": one.answers,
        "followup": one.followup,
        "ended": one.ended,
    }
