"""The keys of an experiment file, and how options are written there and read back.

`named_options(tomllib.loads(to_toml(options)))` gives the same request again. Options are texts,
such as `spend=number:0..200`; the file has a table for each outcome, which people read more easily:
`spend = { type = "number", range = [0, 200] }`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, get_origin

from clusterdp._lists import parse_named, parse_names, parse_numbers
from clusterdp._text import shortest_decimal
from clusterdp.errors import ParameterError, nearest_name
from clusterdp.outcomes.declaration import parse_question, parse_space
from clusterdp.outcomes.metric import OBSERVED
from clusterdp.outcomes.number import Number
from clusterdp.spec.fields import DECLARED, SECTIONS
from clusterdp.statistics.covariates import Covariate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from clusterdp.outcomes.number import Space
    from clusterdp.spec.fields import Options

# What stands where the owner has to decide.
OPEN = "?"
OUTCOMES = "outcomes"
# Options that can be lists; an empty one says nothing.
_LISTS = {
    name
    for name, option in DECLARED.items()
    if any(get_origin(one) is list for one in option.types)
}
# Sections whose empty texts say nothing; elsewhere an empty text is one to fill in.
_MAY_BE_EMPTY = ("about",)
# The keys that each type of outcome needs, and those that it can have.
_NEEDED = {
    "binary": (),
    "count": ("max",),
    "labels": ("values",),
    "values": ("values",),
    "number": ("range",),
    "bins": ("edges",),
}
# What a type of outcome needs, as people write it.
_EXAMPLES = {
    "count": "max, as in max = 5",
    "labels": 'values, as in values = ["no", "yes"]',
    "values": "values, as in values = [0, 9.99, 19.99]",
    "number": "range, as in range = [0, 200]",
    "bins": "edges, as in edges = [0, 10, 100]",
}
_OPTIONAL = {"count": ("min",), "number": ("step",), "bins": ("values",)}
_OF_ALL = ("type", "baseline", "missing", "observed")
_BASELINE = "a number, a list of shares, or { mean = 3, sd = 12 }"


class EntryError(ParameterError):
    """An entry of an experiment file is wrong.

    Attributes:
        section: The section it is in.
        key: Its key; None if the section itself is wrong.
    """

    def __init__(self, section: str, key: str | None, message: str) -> None:
        super().__init__(message)
        self.section, self.key = section, key


def open_entries(content: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The section and key of every entry that the owner has to fill in, and what is open there."""
    found = []
    for section, entries in content.items():
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if section == OUTCOMES and isinstance(value, dict):
                inner = [name for name, one in value.items() if one in (OPEN, "", [])]
                found += [(section, key, f"{name} of '{key}'") for name in inner]
            elif value == OPEN or (value == "" and section not in _MAY_BE_EMPTY):
                found.append((section, key, key))
    return found


def named_options(content: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, as Python gives them, from the sections of an experiment file.

    Raises:
        EntryError: If a section or a key is unknown, or an outcome is not declared soundly.
    """
    found: dict[str, Any] = {}
    for section, entries in content.items():
        _check_key(section, SECTIONS, section, None, "section")
        if not isinstance(entries, dict):
            raise EntryError(section, None, f"{section} must be a section: [{section}]")
        if section == OUTCOMES:
            found |= _named_outcomes(entries)
            continue
        for key, value in entries.items():
            _check_key(key, SECTIONS[section], section, key, "key")
            name = SECTIONS[section][key]
            if value != "" and not (value == [] and name in _LISTS):
                found[name] = value
    return found


def _check_key(
    key: str, known: Collection[str], section: str, place: str | None, noun: str
) -> None:
    if key not in known:
        near = nearest_name(key, known)
        where = "" if noun == "section" else f" in [{section}]"
        meant = f"Did you mean {near}?" if near else f"Known are: {', '.join(known)}."
        raise EntryError(section, place, f"there is no {noun} '{key}'{where}. {meant}")


def _named_outcomes(entries: Mapping[str, Any]) -> dict[str, Any]:
    """What is declared of outcomes, as options."""
    found: dict[str, Any] = {"outcomes": {}, "baseline": {}, "missing": []}
    for name, entry in entries.items():
        if not isinstance(entry, dict) or "type" not in entry:
            raise EntryError(
                OUTCOMES, name, f"'{name}' needs a type, as in {name} = {{ type = \"binary\" }}"
            )
        kind = entry["type"]
        _check_outcome(name, kind, entry)
        found["outcomes"][name] = text = _space_text(name, kind, entry)
        try:
            parse_space(text)
        except ParameterError as error:
            raise EntryError(OUTCOMES, name, f"allowed values of '{name}': {error}") from None
        if "baseline" in entry:
            found["baseline"][name] = _margin_text(name, entry["baseline"])
        if entry.get("missing", False):
            found["missing"].append(name)
        if "observed" in entry:
            found["baseline"][name + OBSERVED] = entry["observed"]
    return {key: value for key, value in found.items() if value}


def _check_outcome(name: str, kind: Any, entry: Mapping[str, Any]) -> None:
    """Raise an EntryError unless an outcome has the keys of its type."""
    if kind not in _NEEDED:
        raise EntryError(
            OUTCOMES, name, f"type of '{name}' must be one of {', '.join(_NEEDED)}; got {kind!r}"
        )
    known = (*_OF_ALL, *_NEEDED[kind], *_OPTIONAL.get(kind, ()))
    for key in entry:
        if key not in known:
            near = nearest_name(key, known)
            meant = f"Did you mean {near}?" if near else f"It can have {', '.join(known)}."
            raise EntryError(OUTCOMES, name, f"'{name}' of type {kind} has no key '{key}'. {meant}")
    for key in _NEEDED[kind]:
        if key not in entry:
            raise EntryError(OUTCOMES, name, f"'{name}' of type {kind} needs {_EXAMPLES[kind]}")
    if not isinstance(entry.get("missing", False), bool):
        raise EntryError(OUTCOMES, name, f"missing of '{name}' must be true or false")


def _space_text(name: str, kind: str, entry: Mapping[str, Any]) -> str:
    """The allowed values of an outcome as options have them."""
    if kind == "binary":
        return "0,1"
    if kind == "count":
        low, high = entry.get("min", 0), entry["max"]
        if not all(isinstance(end, int) and not isinstance(end, bool) for end in (low, high)):
            raise EntryError(OUTCOMES, name, f"min and max of '{name}' must be whole numbers")
        return f"{low}..{high}"
    if kind == "labels":
        labels = entry["values"]
        if not isinstance(labels, list) or not all(isinstance(one, str) for one in labels):
            raise EntryError(
                OUTCOMES, name, f'values of \'{name}\' must be two labels: ["no", "yes"]'
            )
        return ",".join(labels)
    if kind == "number":
        ends = entry["range"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise EntryError(
                OUTCOMES, name, f"range of '{name}' must be two numbers: range = [0, 200]"
            )
        low, high = _numbers(name, "range", ends)
        step = f" by {_numbers(name, 'step', [entry['step']])[0]}" if "step" in entry else ""
        return f"number:{low}..{high}{step}"
    if kind == "bins":
        listed = ",".join(_numbers(name, "edges", entry["edges"]))
        counted_as = ",".join(_numbers(name, "values", entry.get("values", [])))
        return f"bins:{listed}" + (f" as {counted_as}" if counted_as else "")
    return ",".join(_numbers(name, "values", entry["values"]))


def _numbers(name: str, key: str, given: Any) -> list[str]:
    is_listed = isinstance(given, list)
    if not is_listed or not all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in given
    ):
        raise EntryError(OUTCOMES, name, f"{key} of '{name}' must be numbers")
    return [shortest_decimal(one) for one in given]


def _margin_text(name: str, given: Any) -> str:
    """A baseline as options have it."""
    if isinstance(given, dict):
        if not {"mean"} <= set(given) <= {"mean", "sd"}:
            raise EntryError(OUTCOMES, name, f"baseline of '{name}' must be {_BASELINE}")
        numbers = dict(zip(given, _numbers(name, "baseline", list(given.values())), strict=True))
        return f"mean:{numbers['mean']}" + (f",std:{numbers['sd']}" if "sd" in numbers else "")
    return ",".join(_numbers(name, "baseline", given if isinstance(given, list) else [given]))


# A key that needs no quotes.
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(options: Options) -> str:
    """An experiment file that gives these options again."""
    given = options.to_dict()
    blocks = []
    for section, keys in SECTIONS.items():
        lines = (
            _outcome_lines(options)
            if section == OUTCOMES
            else [
                f"{key} = {to_value(structured_value(name, given[name]))}"
                for key, name in keys.items()
                if name in given
            ]
        )
        if lines:
            blocks.append("\n".join([f"[{section}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def to_key(name: str) -> str:
    """A key as TOML has it."""
    return name if _BARE.fullmatch(name) else to_value(name)


def to_value(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, dict):
        inner = ", ".join(f"{to_key(str(key))} = {to_value(one)}" for key, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(to_value, value))}]"
    # JSON's texts and numbers are TOML, but for one character that JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _outcome_lines(options: Options) -> list[str]:
    spaces = dict(parse_named(text, "{!r}") for text in options.outcomes or ())
    texts = options.baseline or []
    if len(spaces) == 1 and len(texts) == 1 and "=" not in texts[0]:
        texts = [f"{next(iter(spaces))}={texts[0]}"]
    margins = dict(parse_named(text, "{!r}") for text in texts)
    lines = []
    for name, text in spaces.items():
        entry = _space_entry(parse_space(text))
        if name in margins:
            entry["baseline"] = _margin_entry(margins[name])
        if name in (options.missing or ()):
            entry["missing"] = True
        if name + OBSERVED in margins and name + OBSERVED not in spaces:
            entry["observed"] = _margin_entry(margins[name + OBSERVED])
        lines.append(f"{to_key(name)} = {to_value(entry)}")
    return lines


def _space_entry(space: Space) -> dict[str, Any]:
    """The allowed values of an outcome as the file has them."""
    if isinstance(space, Number):
        step = {} if space.by is None else {"step": _plain(space.by)}
        return {"type": "number", "range": [_plain(space.low), _plain(space.high)], **step}
    if space.names is not None:
        return {"type": "labels", "values": list(space.names)}
    values = [_plain(value) for value in space.values]
    if space.edges is not None:
        shown = {"values": values} if " as " in str(space) else {}
        return {"type": "bins", "edges": [_plain(edge) for edge in space.edges], **shown}
    if values == [0, 1]:
        return {"type": "binary"}
    if ".." in str(space):
        least = {} if values[0] == 0 else {"min": values[0]}
        return {"type": "count", **least, "max": values[-1]}
    return {"type": "values", "values": values}


def _margin_entry(text: str) -> Any:
    """A baseline as the file has it."""
    if text.strip().startswith("mean:"):
        pairs = (part.split(":") for part in text.split(","))
        moments = {key.strip(): _plain(float(number)) for key, number in pairs}
        return {{"mean": "mean", "std": "sd"}[key]: one for key, one in moments.items()}
    numbers = [_plain(number) for number in parse_numbers(text)]
    return numbers[0] if len(numbers) == 1 else numbers


def _plain(number: float) -> float:
    """A number that is written without a trailing `.0`."""
    return int(number) if number == int(number) and abs(number) < 2**53 else number


def structured_value(name: str, value: Any) -> Any:
    """An option as the file has it."""
    if name in _STRUCTURES:
        return _STRUCTURES[name](value)
    return _plain(value) if isinstance(value, float) and name != "control" else value


def _questions(texts: list[str]) -> list[Any]:
    read = [(text, parse_question(text)) for text in texts]
    return [list(one.names) if one.weight is None else text for text, one in read]


def _numbers_by_name(texts: list[str]) -> dict[str, float]:
    return {name: _plain(float(number)) for name, number in _pairs(texts)}


def _rules(texts: list[str]) -> Any:
    """One rule for all outcomes, or one for each."""
    if all("=" in text for text in texts):
        return dict(_pairs(texts))
    return texts[0] if len(texts) == 1 else texts


def _pairs(texts: list[str]) -> list[tuple[str, str]]:
    """Names and what is given for them, one in a text or several separated by commas."""
    parts: list[str] = []
    for text in texts:
        several = text.split(",")
        parts += several if all("=" in one for one in several) else [text]
    split = (one.rpartition("=") for one in parts)
    return [(name.strip(), value.strip()) for name, _, value in split]


def _probs(text: str) -> Any:
    """Probabilities of arms: one number, or one for each arm."""
    if ":" not in text:
        return _plain(float(text))
    by_arm = (part.rpartition(":") for part in text.split("/"))
    return {arm: _plain(float(prob)) for arm, _, prob in by_arm}


def _covariates(texts: list[str]) -> dict[str, Any]:
    """Covariates by outcome, each with its column, its range and what is expected of it."""
    found: dict[str, Any] = {}
    for one in map(Covariate.parse, texts):
        found[one.outcome] = {"column": one.column, "range": [_plain(one.low), _plain(one.high)]}
        if one.correlation is not None:
            found[one.outcome]["correlation"] = _plain(one.correlation)
    return found


# Options that the file has in another form.
_STRUCTURES: dict[str, Callable[[Any], Any]] = {
    "labels": lambda given: list(parse_names(given)),
    "passthrough": lambda given: list(parse_names(given)),
    "prior": lambda given: [_plain(number) for number in parse_numbers(given)],
    "question": _questions,
    "weight": _numbers_by_name,
    "arm_shares": _numbers_by_name,
    "label_shares": _numbers_by_name,
    "assignment": lambda texts: {label: _probs(text) for label, text in _pairs(texts)},
    "aggregate": _rules,
    "covariate": _covariates,
}
