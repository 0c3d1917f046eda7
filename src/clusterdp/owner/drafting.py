"""Draft an experiment file from the names and declared types of a table's columns.

No value of a column is read that the owner did not name as public, nor what files and databases
know of values: least and largest ones, how many are missing, how many differ. A draft is the same,
byte by byte, for any outcomes. What only people can know, allowed values, baselines and ε, it
leaves open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp._text import counted, plain_text
from clusterdp.errors import missing_column
from clusterdp.privacy.statement import PrivacyStatement
from clusterdp.sources.opening import declared_columns, public_columns
from clusterdp.spec._experiment_text import OPEN, to_key, to_value
from clusterdp.spec.experiment import relative_to

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import polars as pl

    from clusterdp.sources.opening import DeclaredColumns
    from clusterdp.sources.source import NamedSource

_HEADER = f"""\
# One experiment, declared once. Edit it before you look at outcomes.
# `clusterdp init` drafted it from column names and types, and read no outcome.
# Fill in each "{OPEN}", and each [] of an outcome. Delete outcomes that you do not publish.
"""
_TYPES = [
    '# types: "binary"; "count", max = 5; "number", range = [0, 200]; "labels", values = ["no",',
    '#   "yes"]; "values", values = [0, 9.99]; "bins", edges = [0, 10, 100]',
    "# range: what is possible. Values outside count as its ends: with refunds, start below 0",
    "# missing = true if some units have no value",
    "# baseline = 0.3 or { mean = 3, sd = 12 }: for planning; published; never from this table",
]
_MOST_ARMS = 8
# What an outcome may be whose type says little: an integer, or a column of a text file.
_CHOICES = {False: "binary, count or number?", True: "binary, count, number or labels?"}
# Words in names of columns that are no outcomes.
_IDS = {"id", "ids", "uuid", "guid", "key"}
_ARMS = {"arm", "arms", "treatment", "treated", "variant", "group", "assignment"}
_PERSONAL = {
    *("email", "mail", "name", "firstname", "lastname", "surname", "phone", "telephone"),
    *("address", "street", "ip", "date", "timestamp", "datetime", "birthday", "dob"),
}
# What control arms are called.
_CONTROLS = {"control", "placebo"}


class PublicColumns(NamedTuple):
    """The columns that the owner named as public; None where they named none."""

    unit: str | None = None
    arm: str | None = None
    cluster: str | None = None

    @property
    def named(self) -> list[str]:
        """Those that were named."""
        return [name for name in self if name is not None]


class DraftedFile(NamedTuple):
    """The draft of an experiment file.

    Attributes:
        text: What to write.
        found: What was read of the table, in words.
        likely: The columns that seem to have ids and arms, by their names.
    """

    text: str
    found: list[str]
    likely: PublicColumns


def draft_experiment(source: NamedSource, public: PublicColumns, out: Path) -> DraftedFile:
    """The draft of an experiment file for a table.

    Args:
        source: The table.
        public: The columns whose values may be read.
        out: Where the file is going to be: paths in it are relative to its folder.

    Raises:
        DataError: If the table cannot be read, or lacks a column.
    """
    declared = declared_columns(source)
    for part, name in public._asdict().items():
        if name is not None and name not in declared.types:
            raise missing_column(name, part, declared.types)
    values = public_columns(source, public.named) if public.named else None
    likely = PublicColumns(_first_of(declared.types, _IDS), _first_of(declared.types, _ARMS))
    lines = [
        _HEADER,
        *_table_lines(source, public, likely, values, out),
        "",
        *_outcome_lines(declared, public),
        "",
        *_ANALYSIS,
        "",
        *_PRIVACY,
        "",
        *_ABOUT,
    ]
    return DraftedFile("\n".join(lines) + "\n", _found(declared, public, values), likely)


def _table_lines(
    source: NamedSource,
    public: PublicColumns,
    likely: PublicColumns,
    values: pl.DataFrame | None,
    out: Path,
) -> list[str]:
    lines = ["[table]", f"source = {to_value(relative_to(source.name, out.parent))}"]
    if source.query is not None:
        lines.append(f"query = {to_value(source.query)}")
    if source.delimiter is not None:
        lines.append(f"delimiter = {to_value(source.delimiter)}")
    arms = None
    if public.arm is not None and values is not None:
        arms = values[public.arm].unique().drop_nulls().sort().to_list()
    lines += [
        _named_line("unit", public.unit, likely.unit, "ids, one row per unit"),
        '# unit_name = "user"  # what texts call a unit',
        _named_line("arm", public.arm, likely.arm, "treatment arms"),
        _control_line(arms),
        _shares_line(arms),
        f"cluster = {to_value(public.cluster)}  # arms are compared within clusters. Published."
        if public.cluster
        else '# cluster = "market"  # optional: arms are compared within clusters. Published.',
        '# passthrough = ["device"]  # other columns to publish unchanged; none by default',
        '# randomization_unit = "school"  # if whole groups were assigned to an arm',
    ]
    return lines


def _named_line(key: str, name: str | None, likely: str | None, what: str) -> str:
    """A public column; what it may be is a question that the owner answers."""
    guess = f"{to_value(likely)}? " if name is None and likely is not None else ""
    return f"{key} = {to_value(name or OPEN)}  # {guess}{what}. Published."


def _control_line(arms: list[Any] | None) -> str:
    """The control arm; open where its name does not say which one it is."""
    if arms is None:
        return '# control = "A"  # needed unless arms are 0 and 1'
    if {str(arm) for arm in arms} == {"0", "1"}:
        return "control = 0"
    likely = [arm for arm in arms if str(arm).casefold() in _CONTROLS]
    control = to_value(str(likely[0])) if len(likely) == 1 else f'"{OPEN}"'
    listed = ", ".join(plain_text(str(arm)) for arm in arms[:_MOST_ARMS])
    return f"control = {control}  # one of {listed}{', ...' if len(arms) > _MOST_ARMS else ''}"


def _shares_line(arms: list[Any] | None) -> str:
    """The planned shares of the arms, which only people know."""
    shown = [0, 1] if arms is None or not 2 <= len(arms) <= _MOST_ARMS else arms
    share = round(1 / len(shown), 2)
    first = round(1 - share * (len(shown) - 1), 2)
    shares = {str(arm): first if place == 0 else share for place, arm in enumerate(shown)}
    return f"# shares = {to_value(shares)}  # planned shares of arms, for the SRM check. Published."


def _outcome_lines(declared: DeclaredColumns, public: PublicColumns) -> list[str]:
    lines = ["[outcomes]  # protected. Declare what is possible, not what you see in the data."]
    left_out, likely_arm = [], _first_of(declared.types, _ARMS)
    for name, kind in declared.types.items():
        if name in public.named:
            continue
        if _is_no_outcome(name) or (public.arm is None and name == likely_arm):
            left_out.append(to_key(name))
        else:
            lines.append(_outcome_line(name, kind))
    if left_out:
        why = "# left out: their names look like ids, arms, names, contacts or dates"
        lines += [why, f"#   {', '.join(left_out)}"]
    return [*lines, *_TYPES]


def _first_of(names: Iterable[str], words: set[str]) -> str | None:
    """The first column whose name has one of some words."""
    return next((name for name in names if _words(name) & words), None)


def _is_no_outcome(name: str) -> bool:
    """Whether a column is of ids, or about a person or a time, as far as its name says."""
    return bool(_words(name) & (_IDS | _PERSONAL)) or name.casefold().endswith("_at")


def _words(name: str) -> set[str]:
    """The words of a name: `userId`, `user_id` and `user id` have two."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return {word.casefold() for word in re.findall(r"[^\W_]+", parted)}


def _outcome_line(name: str, kind: pl.DataType | None) -> str:
    """An outcome as far as its declared type says what it is."""
    import polars as pl

    entry: dict[str, Any] = {"type": OPEN}
    if kind is None or kind.is_integer():
        return f"{to_key(name)} = {to_value(entry)}  # {_CHOICES[kind is None]}"
    if kind == pl.Boolean:
        entry = {"type": "binary"}
    elif kind.is_float() or kind.is_decimal():
        entry = {"type": "number", "range": []}
    elif isinstance(kind, pl.String | pl.Categorical | pl.Enum):
        entry = {"type": "labels", "values": []}
    else:
        return f"# {to_key(name)} is a {type(kind).__name__.lower()}, which cannot be an outcome"
    return f"{to_key(name)} = {to_value(entry)}"


_ANALYSIS = [
    "[analysis]",
    '# primary = "visit"  # the metric the experiment is judged by',
    'constraints = []  # always true in your system, such as "order -> visit"; less noise',
    "# clip = true  # a value that is not allowed counts as the nearest; numbers always do",
    "breakdowns = []  # public columns analysts will segment by; each uses part of epsilon",
    'metrics = []  # thresholds and products to make exact, such as "spend >= 50"',
    'optimize_for = "balanced"  # or "overall", "breakdowns", "segments:0.05"',
]
_ABOUT = [
    "[about]  # published with the folder; cannot be added later",
    'title = ""',
    'contact = ""  # whom to ask; also description, collected, license, approved_by, reason',
    "",
    "[output]",
    'folder = "published"',
]


_PRIVACY = [
    "[privacy]",
    *(f"# {epsilon}: {PrivacyStatement(epsilon=epsilon).short}" for epsilon in (1, 2, 4)),
    f'epsilon = "{OPEN}"',
    '# ledger = "budget.db"  # counts this release against the budget of these units',
    '# population = "shop-users"',
]


def _found(
    declared: DeclaredColumns, public: PublicColumns, values: pl.DataFrame | None
) -> list[str]:
    """What was read of a table, in words."""
    found = [counted(len(declared.types), "column")]
    if declared.n_rows is not None:
        found.append(counted(declared.n_rows, "row"))
    if values is not None and public.arm is not None:
        found.append(counted(values[public.arm].n_unique(), "arm"))
    if values is not None and public.cluster is not None:
        found.append(counted(values[public.cluster].n_unique(), "cluster"))
    if values is not None and public.unit is not None:
        several = values[public.unit].is_duplicated().any()
        found.append("duplicate ids (see aggregate)" if several else "no duplicate ids")
    return found
