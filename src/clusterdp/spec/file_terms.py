"""Messages in the terms of an experiment file.

Messages name options as Python and the command line do: `decimal=',' (--decimal ,)`. An owner who
works with an experiment file has neither: there it is `decimal = ","` under `[table]`.
"""

from __future__ import annotations

import re
from ast import literal_eval
from contextlib import suppress

from clusterdp.outcomes.metric import OBSERVED
from clusterdp.spec._experiment_text import structured_value, to_value
from clusterdp.spec.fields import DECLARED, SECTIONS, flag_of

# Where the file has each option: its section and its key.
_KEYS = {name: (section, key) for section, keys in SECTIONS.items() for key, name in keys.items()}
# What is said of one outcome, in its own table.
_OF_OUTCOMES = {"missing": "missing = true", "baseline": "baseline", "outcomes": "a column"}
_OPTIONS = {flag_of(name): name for name in DECLARED}
_LEFT_OPEN = "..."
# Options whose names no text has as a word, and which have another key.
_RENAMED = re.compile(
    "|".join(rf"\b{name}\b" for name, (_, key) in _KEYS.items() if "_" in name and key != name)
    + r"|\blicence\b"
)

_VALUE = r"""(?:'[^']*'|"[^"]*"|\[[^\]]*\]|\{[^}]*\}|\.\.\.|[\w.]*\w)"""
_GIVEN = rf"\w+={_VALUE}"
_FLAG = r"--[a-z][a-z-]*(?: (?!--)[^\s()]+)?"
_FLAGS = rf"{_FLAG}(?:(?:,| and|, and)? {_FLAG})*"
_BOTH = re.compile(
    # thousands='.', decimal=',' (--thousands . --decimal ,)
    rf"(?P<first>{_GIVEN}(?:(?:,| and|, and) {_GIVEN})*) \((?P<flags>{_FLAGS})\)"
    # (aggregate='sum', --aggregate sum)
    rf"|\((?P<inner>{_GIVEN}), (?P<inner_flags>{_FLAGS})\)"
    # or a name with its flag alone: min_cell_size, then its flag in parentheses
    r"|\b(?P<name>\w+) \((?P<flag>--[a-z-]+)\)"
)
# A flag by itself: (--engine spark), --pilot 0.05, --min-cell-size.
_ALONE = re.compile(r"(?P<flag>--[a-z][a-z-]*)(?: (?P<value>\d[\d.]*\b|[^\s()]+(?=\))))?")
# with segments (--segments FILE)
_WITH = re.compile(r"\bwith \w+ \((--[a-z-]+(?: [^\s()]+)?)\)")
# What Python does with a ledger, before the command that does the same.
_CREATE = re.compile(r"clusterdp\.Ledger[.\w]*\([^)]*\), or: ")
# What fits the ledger.
_LESS = re.compile(r"(set epsilon = \S+ or less(?: and delta = 0)?)")
# as number:0..500
_NUMBER = re.compile(r"number:(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")
# its two labels: member=no,yes
_LABELS = re.compile(r"(?<=labels: ).+=no,yes")
# how often an outcome is observed: baseline={'score_observed': 0.8} (--baseline ...)
_SEEN = re.compile(rf"baseline={{'(\w+){OBSERVED}': ([\d.]+)}} \(--baseline [^)]*\)")
_PAIR = re.compile(rf"(\w+)=({_VALUE})")
_WITH_VALUE = re.compile(r"(--[a-z][a-z-]*)(?: ((?!--)[^\s()]+))?")


def in_file_terms(text: str) -> str:
    """A message with options as an experiment file has them; those that it cannot have stay."""
    text = _LESS.sub(r"\1 under [privacy], then plan again", text)
    text = _NUMBER.sub(r'type = "number", range = [\1, \2]', text)
    text = _SEEN.sub(r"observed = \2 of \1 under [outcomes]", text)
    text = _LABELS.sub('type = "labels", values = ["no", "yes"]', text)
    replaced = _RENAMED.sub(lambda found: _place(found[0], None) or "", _BOTH.sub(_in_file, text))
    replaced = replaced.replace(f" ({_place('outcomes', None)})", "")  # which its name shows
    # A command is to be typed as it is.
    return replaced if "clusterdp " in replaced else _ALONE.sub(_flag_in_file, replaced)


def in_command_terms(text: str) -> str:
    """A message with options as the command line has them, and not as Python has them."""
    return _CREATE.sub("", _WITH.sub(r"with \1", _BOTH.sub(_in_command, text)))


def without_options(text: str) -> str:
    """A message without the options of its remedy, which are not what it is about."""
    return _BOTH.sub("", text)


def _in_file(found: re.Match[str]) -> str:
    if found["name"] is not None:
        option = _OPTIONS.get(found["flag"][2:], "")
        return found[0] if option != found["name"] else _place(option, None) or found[0]
    given = found["first"] or found["inner"]
    by_flag = {
        _OPTIONS.get(flag[2:]): value
        for flag, value in _WITH_VALUE.findall(found["flags"] or found["inner_flags"])
    }
    replaced = given
    for name, value in _PAIR.findall(given):
        shown = _place(name, _toml(name, value, by_flag.get(name, "")))
        if shown is None:
            return found[0]
        replaced = replaced.replace(f"{name}={value}", shown)
    return replaced if found["first"] else f"({replaced})"


def _in_command(found: re.Match[str]) -> str:
    return found[0] if found["name"] else found["flags"] or f"({found['inner_flags']})"


def _flag_in_file(found: re.Match[str]) -> str:
    name = _OPTIONS.get(found["flag"][2:], "")
    value = found["value"]
    quoted = value if value is None or value[0].isdigit() else to_value(value)
    return _place(name, quoted) or found[0]


def _place(name: str, value: str | None) -> str | None:
    """Where the file has an option; None if it has none."""
    if name in _OF_OUTCOMES:
        return f"{_OF_OUTCOMES[name]} under [outcomes]"
    if name not in _KEYS:
        return None
    section, key = _KEYS[name]
    return f"{key} under [{section}]" if value is None else f"{key} = {value} under [{section}]"


def _toml(name: str, value: str, on_command_line: str) -> str | None:
    """A value as the file has it; None where it is left open."""
    if value == _LEFT_OPEN:
        if "=" in on_command_line:
            with suppress(ValueError):  # a place for numbers, such as A=...
                return to_value(structured_value(name, [on_command_line]))
        return None
    try:
        return to_value(literal_eval(value))
    except (ValueError, SyntaxError, TypeError):  # a word, or a list that is left open
        return value
