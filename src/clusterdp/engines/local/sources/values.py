"""Outcomes that are written as text, each read by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def to_number(text: pl.Expr) -> pl.Expr:
    """Each text as a number; not a number where it is none, and missing where it is missing."""
    import polars as pl

    plain = text.str.strip_chars()
    truth = plain.str.to_lowercase().replace_strict(
        {"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64
    )
    number = pl.coalesce(truth, plain.cast(pl.Float64, strict=False))
    return pl.when(text.is_not_null()).then(number.fill_null(float("nan"))).name.keep()
