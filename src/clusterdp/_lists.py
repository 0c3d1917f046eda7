"""Lists as people write them: numbers or names, separated by commas; and NAME=VALUE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def parse_numbers(listed: str | Sequence[float]) -> list[float]:
    """Numbers separated by commas, or a list of them."""
    try:
        return [
            float(number) for number in (listed.split(",") if isinstance(listed, str) else listed)
        ]
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(f"expected numbers separated by commas, got {listed!r}") from None


def parse_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names separated by commas, or a list of such."""
    if names is None:
        return ()
    listed = [names] if isinstance(names, str) else names
    if not all(isinstance(name, str) for name in listed):
        raise ParameterError(f"expected names of columns, got {listed!r}")
    return tuple(name.strip() for entry in listed for name in entry.split(",") if name.strip())


def parse_named(text: str, form: str) -> tuple[str, str]:
    """A name and what is said of it, from `visit=0,1`; `form` says how it should read."""
    name, found, value = text.partition("=")
    if not found:
        raise ParameterError(form.format(text))
    return name.strip(), value.strip()


def in_parts(numbers: Sequence[float], sizes: Sequence[int]) -> Iterator[tuple[float, ...]]:
    """A list in parts of some sizes, one after another; the last one takes all that is left."""
    first = 0
    for size in sizes[:-1]:
        yield tuple(numbers[first : first + size])
        first += size
    yield tuple(numbers[first:])
