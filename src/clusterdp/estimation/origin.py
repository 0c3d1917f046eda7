"""What an estimate was made from, and how to make it again: names of files, never their paths."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.experiment.layout import units_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clusterdp.experiment.layout import Layout

# A call that is longer than a line of this width has a line for each argument.
_WIDTH = 80
# What can be written into a call as it is.
_PLAIN = (str, int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an estimate was made from.

    Attributes:
        data: The title of the release, or the name of its folder; None if it has neither.
        n_clusters: How many clusters there are; 0 where none were given.
        arm_sizes: Every arm with its units.
        shares: The metrics that are shares of units.
        made_by: The call or the command that makes it again.
    """

    data: str | None
    n_clusters: int
    arm_sizes: tuple[tuple[Any, int], ...]
    shares: tuple[str, ...]
    made_by: str

    @classmethod
    def of(cls, data: str | None, layout: Layout, shares: list[str], made_by: str) -> Origin:
        """The origin of an estimate, from the name and the layout of its release."""
        sizes = layout.sizes.sum(axis=0).tolist()
        return cls(
            data=data,
            n_clusters=layout.n_clusters,
            arm_sizes=tuple(zip(layout.arms, sizes, strict=True)),
            shares=tuple(shares),
            made_by=made_by,
        )

    @property
    def n_units(self) -> int:
        """How many units there are."""
        return sum(size for _, size in self.arm_sizes)

    def in_short(self) -> str:
        """For people: "published: 64,000 units in 7 clusters"."""
        name = "" if self.data is None else f"{self.data}: "
        return name + units_in_words(self.n_units, self.n_clusters)


def file_name(source: Any) -> str | None:
    """The name of a file or folder, without where it is; None if it is neither."""
    return Path(source).resolve().name if isinstance(source, str | os.PathLike) else None


def call_text(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """A call of a function, as someone would write it to repeat it.

    The first argument is named if it is the path of a file or folder. Tables and other objects
    stand as their parameter.

    Args:
        function: What was called.
        given: Its arguments by parameter.
    """
    parameters = inspect.signature(function).parameters
    first, *others = parameters
    words = [repr(file_name(given[first]) or first)] if file_name(given[first]) else [first]
    words += [
        f"{name}={_written(name, given[name])}"
        for name in others
        if given[name] is not parameters[name].default
    ]
    name = f"clusterdp.{function.__name__}"
    if len(line := f"{name}({', '.join(words)})") <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), ")"])


def _written(name: str, value: Any) -> str:
    """A value as code; the name of its parameter if it is no plain value."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(name, one) for one in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_written(name, key)}: {_written(name, one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    return name
