"""The commands that make a plan and carry it out, to be copied. They name none of your files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from clusterdp.experiment.decimals import shown
from clusterdp.owner.keywords import PlanKeywords
from clusterdp.owner.option_list import DECLARED, flag_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterdp.owner.options import Options

# What stands for the owner's tables, and for options that only a file can give.
TABLE, QUERY, OPTIONS_FILE = "TABLE", "QUERY", "OPTIONS_FILE"
# The headings of options that say what a plan is for; others say where it is made.
_PANELS = (DECLARED["input"].panel, DECLARED["epsilon"].panel)
# Options that a plan notes by itself, or that a command names elsewhere.
_LEFT_OUT = ("input", "unit", "n_units", "n_clusters", "grids", "epsilon", "mde")
_PLANNED = [
    name for name, one in DECLARED.items() if one.panel in _PANELS and name not in _LEFT_OUT
]
_WIDTH, _INDENT = 76, "    "


def plan_command(given: Options, epsilon: float) -> str:
    """The command that plans the same at some ε."""
    words = ["clusterdp plan", TABLE]
    options = [name for name in _PLANNED if getattr(given, name) is not None]
    for name in options:
        if name in PlanKeywords.__annotations__:
            words += _option(name, getattr(given, name))
    if not PlanKeywords.__annotations__.keys() >= set(options):
        words.append(f"--spec {OPTIONS_FILE}")
    return in_lines([*words, f"--epsilon {shown(epsilon)}", "--out plan.toml"])


def release_command(given: Options) -> str:
    """The command that carries a plan out."""
    unit = "ID_COLUMN" if given.unit is None else shlex.quote(given.unit)
    words = ["clusterdp release", TABLE, "--plan plan.toml", f"--unit {unit}"]
    return in_lines([*words, *later_options(given), "--out published"])


def later_options(given: Options) -> list[str]:
    """What cannot be added after a release and was not given, for the owner to fill in."""
    unsaid = [f"--{name} ..." for name in given.unsaid]
    return [*unsaid, "--ledger ...", "--population ..."]


def _option(name: str, value: Any) -> list[str]:
    """An option as a command line gives it."""
    flag = f"--{flag_of(name)}"
    kind = DECLARED[name].types[0]
    if name == "query":  # which names files and tables
        return [f"{flag} {QUERY}"]
    if kind is bool:
        return [flag] if value else []
    if kind == list[str]:
        return [f"{flag} {shlex.quote(one)}" for one in value]
    return [f"{flag} {shlex.quote(_as_word(value))}"]


def _as_word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_as_word, value))
    return shown(value) if isinstance(value, float) else str(value)


def in_lines(words: Iterable[str]) -> str:
    """Words in lines that fit, which a shell reads as one."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append((_INDENT if lines else "") + word)
    return " \\\n".join(lines)
