"""What an owner declares of a table: roles of columns, outcomes, the budget.

A draft holds what was typed while the app runs, so that nothing is lost, and makes options of it as
commands do.
"""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.app.pages import FORM, Form
from clusterdp.outcomes.declaration import parse_space
from clusterdp.owner.drafting import PublicColumns, draft_experiment
from clusterdp.owner.keywords import EXPERIMENT
from clusterdp.sources.opening import declared_columns
from clusterdp.sources.source import NamedSource
from clusterdp.spec.fields import DECLARED
from clusterdp.spec.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from clusterdp.app.jobs import Job
    from clusterdp.spec.request import Request

# What a column can be, with the words of the choice.
ROLES = (
    ("", "left out"),
    ("unit", "id, one row per unit"),
    ("arm", "treatment arm"),
    ("cluster", "cluster: arms are compared within it"),
    ("passthrough", "public, published unchanged"),
    ("breakdown", "public, analysts will segment by it"),
    ("randomization_unit", "group that was assigned to an arm as a whole"),
    ("outcome", "outcome: protected"),
)
_ONE = ("unit", "arm", "randomization_unit")
# What an outcome can be, with what is typed of each.
KINDS = (
    ("", "choose"),
    ("binary", "binary: 0 or 1"),
    ("count", "count: 0 to a largest"),
    ("number", "number in a range"),
    ("labels", "two labels"),
    ("values", "some values"),
    ("bins", "bins between edges"),
)
_EXAMPLES = {
    "count": "the largest count, such as 5",
    "number": "the least and the largest value, such as 0, 200",
    "labels": "the two labels, such as no, yes",
    "values": "every allowed value, such as 0, 9.99, 19.99",
    "bins": "the edges, such as 0, 10, 100",
}
# Fields of the whole declaration that are options of one text, and of one text in each line.
_TEXTS = ("control", "unit_name", "primary", "optimize_for")
_LINES = ("constraint", "metric")
# What is published with a folder and cannot be added later, in the order of a form.
ABOUT = ("title", "description", "collected", "contact", "licence", "approved_by", "reason")
# Options that are typed when a release is checked.
PLACED = ("out", "ledger", "population", "ledger_key_file")
_PATHS = ("out", "ledger", "ledger_key_file")


class TableColumn(NamedTuple):
    """A column of the owner's table, of which the name and the type are known.

    Attributes:
        place: Its number, which names its fields.
        name: Its name.
        kind: Its declared type, in words.
        role: The role that is offered first.
        outcome: The kind of outcome that is offered first.
    """

    place: int
    name: str
    kind: str
    role: str
    outcome: str


@dataclass(slots=True)
class OwnerDraft:
    """A table that is being declared.

    Attributes:
        key: What its pages are named by.
        source: The table.
        columns: Its columns.
        found: What was read of the table, in words.
        form: What was typed.
        planning: The run that plans; None before.
        publishing: The run that publishes; None before.
        written: The path and the text of the experiment file that it wrote; None before.
    """

    key: str
    source: NamedSource
    columns: list[TableColumn]
    found: list[str]
    form: Form = field(default_factory=lambda: Form({}))
    planning: Job | None = None
    publishing: Job | None = None
    written: tuple[str, str] | None = None

    @classmethod
    def open(cls, source: NamedSource) -> OwnerDraft:
        """A draft of a table, of which names and declared types are read, and nothing else.

        Raises:
            DataError: If there is no such table.
        """
        drafted = draft_experiment(source, PublicColumns(), Path(EXPERIMENT))
        likely = {drafted.likely.unit: "unit", drafted.likely.arm: "arm"}
        columns = [
            TableColumn(place, name, _in_words(kind), likely.get(name, ""), _likely_kind(kind))
            for place, (name, kind) in enumerate(declared_columns(source).types.items())
        ]
        return cls(secrets.token_urlsafe(6), source, columns, drafted.found)

    def keep(self, typed: Form) -> None:
        """Take in what was typed on one page; what was typed on others stays."""
        every = {**self.form.typed, **typed.typed}
        # A box that is not checked sends nothing.
        if "roles" in typed.typed:
            every = {
                name: value
                for name, value in every.items()
                if not name.startswith("missing-") or name in typed.typed
            }
        elif "placed" in typed.typed and "new_population" not in typed.typed:
            every.pop("new_population", None)
        self.form = Form(every)

    def request(self, *, placed: bool = False) -> Request | None:
        """What was declared; None if something is wrong, which the form then says.

        Args:
            placed: Whether to take in where it is published, and by whom.
        """
        self.form.wrong.clear()
        given = self._options()
        if placed:
            given |= self._places()
        if self.form.wrong:
            return None
        with self.locating():
            return parse(given)
        return None

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Show an error next to the field that it is about."""
        wrong = self.form.wrong
        fields = self._field_names()
        with self.form.about(*_TEXTS, *_LINES, *ABOUT, *PLACED, "epsilon", also=fields):
            yield
        for one in self.columns:
            text = wrong.get(f"values-{one.place}", "")
            if re.search(r"\b(baseline|mean)\b", text):
                wrong[f"mean-{one.place}"] = wrong.pop(f"values-{one.place}")

    def _field_names(self) -> dict[str, str]:
        """The field of each column that errors can name."""
        is_outcome = {one.place for one in self.columns if self.role(one) == "outcome"}
        return {
            one.name: f"{'values' if one.place in is_outcome else 'role'}-{one.place}"
            for one in self.columns
        }

    def role(self, column: TableColumn) -> str:
        """What a column was chosen to be."""
        return self.form.one(f"role-{column.place}", column.role)

    def _options(self) -> dict[str, Any]:
        """What was declared, as options; what is wrong is in the form."""
        form, by_role = self.form, self._by_role()
        given: dict[str, Any] = {"input": self.source.name, "query": self.source.query}
        given["delimiter"] = self.source.delimiter
        for role, names in by_role.items():
            if role in _ONE:
                given[role] = names[0].name
                for other in names[1:]:
                    form.wrong[f"role-{other.place}"] = f"Only one column can be {role}."
            elif role != "outcome":
                given[role] = [one.name for one in names]
        for role, what in (("unit", "ids"), ("arm", "arms"), ("outcome", "outcomes")):
            if role not in by_role:
                form.wrong[FORM] = f"Choose the column of {what}."
        outcomes = by_role.get("outcome", [])
        given["outcomes"] = {one.name: self._space(one) for one in outcomes}
        baselines = {one.name: self._baseline(one) for one in outcomes}
        given["baseline"] = {name: text for name, text in baselines.items() if text}
        given["missing"] = [one.name for one in outcomes if form.one(f"missing-{one.place}")]
        given |= {name: form.one(name) for name in _TEXTS if form.one(name)}
        given |= {name: form.one(name).splitlines() for name in _LINES if form.one(name)}
        given["epsilon"] = form.number("epsilon")
        form.needs("epsilon", "a number, such as 1")
        return {name: value for name, value in given.items() if value not in ([], {}, None)}

    def _by_role(self) -> dict[str, list[TableColumn]]:
        found: dict[str, list[TableColumn]] = {}
        for one in self.columns:
            if role := self.role(one):
                found.setdefault(role, []).append(one)
        return found

    def _space(self, column: TableColumn) -> str:
        """The allowed values of an outcome as options have them."""
        form, name = self.form, f"values-{column.place}"
        kind = form.one(f"kind-{column.place}", column.outcome)
        if not kind:
            form.wrong[f"kind-{column.place}"] = f"Choose what {column.name} can be."
            return ""
        if kind == "binary" or not form.needs(name, _EXAMPLES.get(kind, "")):
            return "0,1"
        parts = [part.strip() for part in form.one(name).replace("..", ",").split(",")]
        text = ",".join(parts)
        if kind in {"count", "number"}:
            ends = parts if len(parts) > 1 else ["0", *parts]
            text = ("number:" if kind == "number" else "") + "..".join(ends)
        elif kind == "bins":
            text = f"bins:{text}"
        with form.about(otherwise=name):
            parse_space(text)
        return text

    def _baseline(self, column: TableColumn) -> str:
        """What is expected of an outcome as options have it."""
        form, place = self.form, column.place
        mean, spread = form.number(f"mean-{place}"), form.number(f"sd-{place}")
        kind = form.one(f"kind-{place}", column.outcome)
        if mean is None:
            if spread is not None:
                form.wrong[f"mean-{place}"] = "Fill in the mean, too."
            return ""
        if kind in {"binary", "labels"}:
            return f"{mean!r}"
        return f"mean:{mean!r}" + ("" if spread is None else f",std:{spread!r}")

    def _places(self) -> dict[str, Any]:
        """Where it is published, from which budget, and what is said of it."""
        form = self.form
        given: dict[str, Any] = {name: form.one(name) for name in (*ABOUT, *PLACED)}
        given |= {name: expanded(given[name]) for name in _PATHS if given[name]}
        given["new_population"] = True if form.one("new_population") else None
        form.needs("out", "the folder to publish, which must not exist yet")
        return {name: value for name, value in given.items() if value}


def help_of(name: str) -> str:
    """What the list of options says of one."""
    return DECLARED[name].text


def expanded(path: str) -> str:
    """A path with the home folder in place of `~`; addresses stay."""
    return path if "://" in path else str(Path(path).expanduser())


def _in_words(kind: pl.DataType | None) -> str:
    return "type not declared" if kind is None else str(kind).lower()


def _likely_kind(kind: pl.DataType | None) -> str:
    """The kind of outcome that a declared type can only be."""
    import polars as pl

    if kind == pl.Boolean:
        return "binary"
    if kind is not None and (kind.is_float() or kind.is_decimal()):
        return "number"
    return "labels" if isinstance(kind, pl.String | pl.Categorical | pl.Enum) else ""


def epsilon_meanings(values: Sequence[float] = (1, 2, 4)) -> list[str]:
    """What some budgets mean for a reader."""
    from clusterdp.privacy.statement import PrivacyStatement

    return [f"ε = {one:g}: {PrivacyStatement(epsilon=one).short}" for one in values]
