"""Outcomes that are written as text: each is read by itself, and what is no number is refused.

Every engine has the same rules. A text is missing, a number, or neither; neither is never taken
for missing. Which kind of trouble it is, is looked for after a table was refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clusterdp._named import column
from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Collection

    import polars as pl

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


class Shape(NamedTuple):
    """A kind of text that is no number.

    Attributes:
        pattern: What it looks like.
        named: What it is called.
        remedy: What to do about it.
    """

    pattern: str
    named: str
    remedy: str


# In the order in which they are named: the first one that a column has.
SHAPES = (
    Shape(
        r"^[+-]?[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]*)?$",
        "points between thousands, as in 1.000,5",
        "declare them: thousands='.', decimal=',' (--thousands . --decimal ,)",
    ),
    Shape(
        "^[+-]?[0-9]{1,3}(?:[ \u00a0\u202f][0-9]{3})+(?:[.,][0-9]*)?$",
        "spaces between thousands, as in 1 000",
        "declare them: thousands=' ' (--thousands ' ')",
    ),
    Shape(
        "^[+-]?[0-9]{1,3}(?:['\u2019][0-9]{3})+(?:[.,][0-9]*)?$",
        "apostrophes between thousands, as in 1'000",
        'declare them: thousands="\'" (--thousands "\'")',
    ),
    Shape(
        r"^[+-]?[0-9]*,(?:[0-9]{1,2}|[0-9]{4,})$",
        "decimal commas, as in 0,5",
        "declare them: decimal=',' (--decimal ,)",
    ),
    Shape(
        r"^[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?$",
        "commas before three digits, as in 1,000",
        "declare what they separate: thousands=',' (--thousands ,) or decimal=',' (--decimal ,)",
    ),
    Shape(
        r"^[+-]?[0-9]*\.[0-9]*$",
        "decimal points, as in 0.5",
        "declare them: decimal='.' (--decimal .)",
    ),
    Shape("^.*[0-9] ?%$", "percent signs", "remove them from the column"),
    Shape(
        r"^(?:[^0-9]*\p{Sc}.*|.*\p{Sc}[^0-9]*"
        r"|\p{L}{1,4} ?[+-]?[0-9][^\p{L}]*|[^\p{L}]*[0-9] ?\p{L}{1,4}\.?)$",
        "a currency sign or a unit beside the number",
        "remove it from the column",
    ),
)
_OTHER = Shape(
    "",
    "values that are no numbers",
    "leave a field empty where the outcome is missing, or declare its two labels: {name}=no,yes",
)
# How many kinds there are.
N_SHAPES = len(SHAPES) + 1


class FoundShape(NamedTuple):
    """What is wrong with a column of text.

    Attributes:
        named: What it is called.
        remedy: What to do about it.
        n_rows: How many rows have it; for an owner who asked to be shown.
    """

    named: str
    remedy: str
    n_rows: int


def to_number(text: pl.Expr, notation: Notation) -> pl.Expr:
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
    number = pl.when(read.is_finite()).then(read).otherwise(_word_number(plain))
    return pl.when(~_is_missing(plain)).then(number).name.keep()


def texts_as_numbers(
    rows: pl.LazyFrame, names: Collection[str], notation: Notation
) -> pl.LazyFrame:
    """The same rows, with numbers in place of text in some columns."""
    return rows.with_columns(
        to_number(column(name), notation) for name in text_columns(rows, names)
    )


def text_columns(rows: pl.LazyFrame, names: Collection[str]) -> list[str]:
    """Those of some columns that hold text."""
    import polars as pl

    schema = rows.collect_schema()
    return [name for name in names if schema.get(name) == pl.String]


def count_shapes(names: Collection[str], notation: Notation) -> list[pl.Expr]:
    """How many rows of each column have each shape, and how many are neither; one list each."""
    import polars as pl

    return [
        pl.concat_list(
            _shape_of(column(name), notation).eq(place).sum().cast(pl.Int64)
            for place in range(N_SHAPES)
        ).alias(name)
        for name in names
    ]


def found_shape(name: str, counts: Collection[int]) -> FoundShape | None:
    """The first shape that a column has, from how many rows have each; None if it has none."""
    for shape, n_rows in zip((*SHAPES, _OTHER), counts, strict=True):
        if n_rows:
            return FoundShape(shape.named, shape.remedy.format(name=name), n_rows)
    return None


def _shape_of(text: pl.Expr, notation: Notation) -> pl.Expr:
    """The place of each text's shape, after the last one if it has none; null if it is a number."""
    import polars as pl

    plain, place = text.str.strip_chars(), pl.lit(len(SHAPES))
    for number, shape in reversed(list(enumerate(SHAPES))):
        place = pl.when(plain.str.contains(shape.pattern)).then(number).otherwise(place)
    return pl.when(to_number(text, notation) == NO_NUMBER).then(place)


def _word_number(plain: pl.Expr) -> pl.Expr:
    """The number of a truth that is written as a word."""
    import polars as pl

    return plain.str.to_lowercase().replace_strict(
        {"true": 1.0, "false": 0.0}, default=NO_NUMBER, return_dtype=pl.Float64
    )


def _is_missing(plain: pl.Expr) -> pl.Expr:
    return plain.is_null() | plain.str.to_lowercase().is_in(MISSING_WORDS)
