"""What the columns of a table may hold, part by part, and outcomes that are text as numbers.

Outcomes may be two labels, which count as 0 and 1, or numbers that are written as text. Each value
is read by itself: it is missing, a number, or neither, and neither is never taken for missing.
Every engine has the same rules. Which kind of trouble it is, is looked for after a table was
refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp._named import column
from clusterdp.errors import DataError, ParameterError, missing_column
from clusterdp.outcomes.finite import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    import numpy.typing as npt
    import polars as pl

    from clusterdp.spec.columns import Columns


def check_types(schema: dict[str, Any], columns: Columns) -> None:
    """Raise a DataError unless every column is there and of a usable type."""
    for name, part in columns.parts.items():
        if name not in schema:
            raise missing_column(name, part, schema)
    for name, part in columns.parts.items():
        check_type(name, part, schema[name])


def check_unread(schema: Mapping[str, pl.DataType], names: Iterable[str], labels: Labels) -> None:
    """Raise a DataError if a column of outcomes that nobody has read yet cannot hold them.

    Text may hold numbers, and a column without a type may be filled later.
    """
    import polars as pl

    for name in names:
        kind = schema.get(name, pl.Null())
        if name in labels:
            check_holds_labels(name, labels[name], kind)
        elif not isinstance(kind, pl.String | pl.Null):
            check_type(name, "outcome", kind)


def check_type(name: str, part: str, kind: pl.DataType) -> None:
    """Raise a DataError unless a column can play a part; arms and clusters are labels."""
    is_usable, rule = _RULES.get(part, _OF_LABELS)
    if not is_usable(kind):
        # By its name alone: the parameters of a type can depend on the values in a column.
        found = f"column {name!r} ({part}) holds {kind.base_type()}"
        raise DataError(found + rule.format(name=name))


def is_publishable(kind: pl.DataType) -> bool:
    """Whether a column of a type can be published as it is.

    How lists and structs are stored in a file depends on how the table was cut into batches, and
    that can depend on outcomes.
    """
    import polars as pl

    plain = (pl.Float32, pl.Float64, pl.Boolean, pl.String, pl.Categorical, pl.Enum, pl.Decimal)
    return _is_integer(kind) or kind.is_temporal() or isinstance(kind, plain)


def holds_ids(kind: pl.DataType) -> bool:
    """Whether a column of a type can identify units."""
    import polars as pl

    return _is_integer(kind) or isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def holds_outcomes(kind: pl.DataType) -> bool:
    """Whether a column of a type can hold outcomes."""
    import polars as pl

    return kind.is_float() or _is_integer(kind) or kind == pl.Boolean


def holds_labels(kind: pl.DataType) -> bool:
    """Whether a column of a type can name arms or clusters."""
    import polars as pl

    plain = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Float32, pl.Float64)
    return _is_integer(kind) or isinstance(kind, plain)


def holds_groups(kind: pl.DataType) -> bool:
    """Whether a column of a type can name the groups of a breakdown."""
    return holds_labels(kind) and not kind.is_float()


# What the column of a part may hold, and what is said of one that holds something else.
_RULES: dict[str, tuple[Callable[[pl.DataType], bool], str]] = {
    "unit": (holds_ids, "; ids must be integers or strings"),
    "outcome": (
        holds_outcomes,
        (
            ", not numbers; convert it to a number per unit, such as 0 and 1, or declare its two "
            "labels: {name}=no,yes"
        ),
    ),
    "covariate": (holds_outcomes, ", not numbers; convert it to a number per unit"),
    "passthrough": (
        is_publishable,
        (
            "; only numbers of up to 64 bits, text, booleans, dates and times can be published "
            "unchanged: convert it"
        ),
    ),
    "breakdown": (
        holds_groups,
        "; groups must be text, integers, dates or booleans: group numbers with decimals first",
    ),
}
_OF_LABELS = (holds_labels, "; labels must be text, integers, dates or booleans")


def _is_integer(dtype: pl.DataType) -> bool:
    """Whether a column holds integers of at most 64 bits."""
    import polars as pl

    return dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)


def plain_type(kind: pl.DataType) -> pl.DataType:
    """The type that a column is published with."""
    import polars as pl

    return pl.String() if isinstance(kind, pl.Categorical | pl.Enum) else kind


def outcome_array(column: pl.Series) -> npt.NDArray[Any]:
    """A column of outcomes as an array, NaN where one is missing.

    Floats keep their precision, since 0.1 is then what 0.1 is written as.
    """
    import polars as pl

    has_nan = column.dtype.is_float() or not column.null_count()
    return (column if has_nan else column.cast(pl.Float64)).to_numpy()


# What stands for a missing value, in letters of any case, with or without spaces around it.
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none")
# What a text that is no number counts as. It is in no space, and stays so when rows are added up.
NO_NUMBER = math.inf
# A text that is read as that, for values of which even the text is not to be shown.
NO_NUMBER_TEXT = "?"
# What may separate thousands, and how it is written: a space, say, may be one that does not break.
_THOUSANDS = {",": ",", ".": ".", " ": " \u00a0\u202f", "'": "'\u2019"}
_SPACE = "[\\s\u00a0\u202f]"
# What may be around a word, as a pattern.
EDGES = f"^{_SPACE}+|{_SPACE}+$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How numbers are written in text.

    Attributes:
        decimal: What separates decimals.
        thousands: What may separate thousands; None if nothing does.
    """

    decimal: str = "."
    thousands: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in {".", ","}:
            raise ParameterError(
                f"decimal (--decimal) is what separates decimals, '.' or ',', got {self.decimal!r}"
            )
        if self.thousands is not None and self.thousands not in _THOUSANDS:
            raise ParameterError(
                "thousands (--thousands) is what separates thousands: ',', '.', a space or an "
                f"apostrophe, got {self.thousands!r}"
            )
        if self.thousands == self.decimal:
            raise ParameterError(
                f"decimal and thousands are both {self.decimal!r}; give decimal=',' (--decimal ,) "
                "or another thousands (--thousands)"
            )

    @property
    def separators(self) -> str:
        """What is left out of a number before it is read, as a pattern."""
        return f"[\\s\u00a0\u202f{_THOUSANDS.get(self.thousands or '', '')}]"

    @property
    def pattern(self) -> str:
        """What a number looks like; in the syntax that Polars and Spark share."""
        whole, point = "[0-9]+", re.escape(self.decimal)
        if self.thousands is not None:
            mark = f"[{_THOUSANDS[self.thousands]}]"
            whole = f"(?:[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+|[0-9]+)"
        number = f"[+-]?(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        return f"^{_SPACE}*{number}{_SPACE}*$"


# As programs write numbers.
PLAIN = Notation()


class TextKind(NamedTuple):
    """A kind of text that is no number.

    Attributes:
        pattern: What it looks like.
        named: What it is called.
        remedy: What to do about it; None if separators are to be declared.
        decimal: What separates decimals in it; None if nothing does.
        thousands: What separates thousands in it; None if nothing does.
    """

    pattern: str
    named: str
    remedy: str | None = None
    decimal: str | None = None
    thousands: str | None = None

    def advice(self, name: str, notation: Notation) -> str:
        """What to do about it in a column, where numbers were declared to be written some way."""
        if self.remedy is not None:
            return self.remedy.format(name=name)
        declared, dropped = [], []
        if self.thousands not in {None, notation.thousands}:
            declared.append(_option("thousands", self.thousands))
        elif self.thousands is None and self.decimal == notation.thousands:
            dropped.append(_option("thousands", notation.thousands))
        if self.decimal not in {None, notation.decimal}:
            plain = self.decimal == PLAIN.decimal
            (dropped if plain else declared).append(
                _option("decimal", notation.decimal if plain else self.decimal)
            )
        parts = (("declare them: ", declared), ("leave out ", dropped))
        return "; ".join(verb + " and ".join(options) for verb, options in parts if options)


def _option(name: str, mark: str | None) -> str:
    """An option that declares a separator, in Python and on the command line."""
    return f"{name}={mark!r} (--{name} {mark if mark in {',', '.'} else repr(mark)})"


def _grouped(thousands: str, named: str) -> tuple[TextKind, ...]:
    """Numbers with separated thousands, by what separates their decimals."""
    whole = f"^[+-]?[0-9]{{1,3}}(?:[{_THOUSANDS[thousands]}][0-9]{{3}})+"
    return (
        TextKind(rf"{whole},[0-9]*$", named, decimal=",", thousands=thousands),
        TextKind(rf"{whole}\.[0-9]*$", named, decimal=".", thousands=thousands),
        TextKind(rf"{whole}$", named, thousands=thousands),
    )


# In the order in which they are named: the first one that a column has.
TEXT_KINDS = (
    TextKind(
        r"^[+-]?[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]*)?$",
        "points between thousands, as in 1.000,5",
        decimal=",",
        thousands=".",
    ),
    *_grouped(" ", "spaces between thousands, as in 1 000"),
    *_grouped("'", "apostrophes between thousands, as in 1'000"),
    TextKind(r"^[+-]?[0-9]*,(?:[0-9]{1,2}|[0-9]{4,})$", "decimal commas, as in 0,5", decimal=","),
    TextKind(
        r"^[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*|,[0-9]{3})$",
        "commas between thousands, as in 1,000.5",
        decimal=".",
        thousands=",",
    ),
    TextKind(
        r"^[+-]?[0-9]{1,3},[0-9]{3}$",
        "commas before three digits, as in 1,000",
        "declare what they separate: thousands=',' (--thousands ,) or decimal=',' (--decimal ,)",
    ),
    TextKind(r"^[+-]?[0-9]*\.[0-9]*$", "decimal points, as in 0.5", decimal="."),
    TextKind("^.*[0-9] ?%$", "percent signs", "remove them from the column"),
    TextKind(
        r"^(?:[^0-9]*\p{Sc}.*|.*\p{Sc}[^0-9]*"
        r"|\p{L}{1,4} ?[+-]?[0-9][^\p{L}]*|[^\p{L}]*[0-9] ?\p{L}{1,4}\.?)$",
        "a currency sign or a unit next to the number",
        "remove it from the column",
    ),
    TextKind(
        "",  # anything else that is not a number
        "values that are not numbers",
        "leave a field empty where the outcome is missing, or declare its two labels: "
        "{name}=no,yes",
    ),
)


def text_to_number(text: pl.Expr, notation: Notation) -> pl.Expr:
    """Each text as a number; missing where it is missing, and `NO_NUMBER` where it is neither."""
    import polars as pl

    plain = text.str.strip_chars()
    if notation == PLAIN:
        read = plain.cast(pl.Float64, strict=False)
    else:
        bare = text.str.replace_all(notation.separators, "")
        bare = bare.str.replace(notation.decimal, ".", literal=True)
        read = pl.when(text.str.contains(notation.pattern)).then(
            bare.cast(pl.Float64, strict=False)
        )
    word = plain.str.to_lowercase()
    truth = word.replace_strict(
        {"true": 1.0, "false": 0.0}, default=NO_NUMBER, return_dtype=pl.Float64
    )
    number = pl.when(read.is_finite()).then(read).otherwise(truth)
    is_missing = plain.is_null() | word.is_in(MISSING_WORDS)
    return pl.when(~is_missing).then(number).name.keep()


def texts_as_numbers(
    rows: pl.LazyFrame, names: Collection[str], notation: Notation
) -> pl.LazyFrame:
    """The same rows, with numbers in place of text in some columns."""
    return rows.with_columns(
        text_to_number(column(name), notation) for name in text_columns(rows, names)
    )


def text_columns(rows: pl.LazyFrame, names: Collection[str]) -> list[str]:
    """Those of some columns that hold text."""
    import polars as pl

    schema = rows.collect_schema()
    return [name for name in names if schema.get(name) == pl.String]


def count_text_kinds(names: Collection[str], notation: Notation) -> list[pl.Expr]:
    """How many rows of each column have each of `TEXT_KINDS`; one list each."""
    import polars as pl

    return [
        pl.concat_list(
            _text_kind(column(name), notation).eq(place).sum().cast(pl.Int64)
            for place in range(len(TEXT_KINDS))
        ).alias(name)
        for name in names
    ]


# What a whole number with points between thousands looks like. So does one with three decimals.
_GROUPED = r"^[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+$"
# Fewer such numbers may have three decimals by chance.
_MANY_GROUPED = 20


def may_be_grouped(names: Collection[str]) -> list[pl.Expr]:
    """Whether points in a column of text may separate thousands, though they are read as decimals.

    All numbers with a point are then as 1.234, and those without one are below 1000.
    """
    import polars as pl

    found = []
    for name in names:
        plain = column(name).str.strip_chars()
        pointed, grouped = plain.str.contains(".", literal=True), plain.str.contains(_GROUPED)
        without = plain.filter(~pointed).cast(pl.Float64, strict=False).abs()
        is_grouped = (pointed == grouped).all() & (grouped.sum() >= _MANY_GROUPED)
        found.append((is_grouped & (without.max() < 1000)).fill_null(value=False).alias(name))
    return found


def _text_kind(text: pl.Expr, notation: Notation) -> pl.Expr:
    """The place of each text's kind; null if it is a number."""
    import polars as pl

    *patterns, _ = (kind.pattern for kind in TEXT_KINDS)
    plain, place = text.str.strip_chars(), pl.lit(len(patterns))
    for number, pattern in reversed(list(enumerate(patterns))):
        place = pl.when(plain.str.contains(pattern)).then(number).otherwise(place)
    return pl.when(text_to_number(text, notation) == NO_NUMBER).then(place)


if TYPE_CHECKING:
    Labels = Mapping[str, tuple[str, str]]


def numbers_of(labels: tuple[str, str]) -> dict[str, float]:
    """The number of each label, as labels are compared."""
    return {folded(label): float(number) for number, label in enumerate(labels)}


def with_numbers(rows: pl.LazyFrame, labels: Labels) -> pl.LazyFrame:
    """The same rows, with numbers in place of labels.

    Raises:
        DataError: If a column of labels holds something other than text or booleans.
    """
    there = {name: kind for name, kind in rows.collect_schema().items() if name in labels}
    for name, kind in there.items():
        check_holds_labels(name, labels[name], kind)
    return rows.with_columns(_number(name, labels[name]) for name in there)


def check_holds_labels(name: str, labels: tuple[str, str], kind: pl.DataType) -> None:
    """Raise a DataError unless a column of a type can hold labels."""
    import polars as pl

    if not isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Boolean | pl.Null):
        raise DataError(
            f"column {name!r} (outcome) holds {kind.base_type()}, and is declared by the labels "
            f"{','.join(labels)}; declare the values that it holds, such as {name}=0,1"
        )


def _number(name: str, labels: tuple[str, str]) -> pl.Expr:
    """Each label as its number; missing where it is missing, unless that word is a label."""
    import polars as pl

    text = column(name).cast(pl.String)
    known: dict[str, float | None] = {**dict.fromkeys(MISSING_WORDS), **numbers_of(labels)}
    number = (
        text.str.strip_chars()
        .str.to_lowercase()
        .replace_strict(known, default=NO_NUMBER, return_dtype=pl.Float64)
    )
    return pl.when(text.is_not_null()).then(number).alias(name)
