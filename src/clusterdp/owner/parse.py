"""Options from what was given: by Python, by the command line, or in a TOML file.

Options that are lists of texts, in their one form: as the command line gives them.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from clusterdp._text import shortest_decimal
from clusterdp.errors import OutputError, ParameterError
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.outcomes.number import Number
from clusterdp.owner.fields import DECLARED, OF_ONE_RUN
from clusterdp.owner.options import Options
from clusterdp.storage.folder import MOST_OF_TEXT, read_regular

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


# Options with a text for each outcome, metric or implication.
LISTED = (
    "outcomes",
    "implies",
    "missing",
    "metric",
    "weight",
    "reference",
    "grids",
    "question",
    "breakdown",
    "aggregate",
    "label_shares",
    "assignment",
    "arm_shares",
)


def as_texts(option: str, given: Any) -> Any:
    """Texts from a text, from texts, or from what was given by name; all else as it is.

    `{"visit": [0, 1]}` becomes `["visit=0,1"]`. Numbers alone, which a reference may be, become one
    text.
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given, dict):
        values = {name: _as_text(value) for name, value in given.items()}
        if option == "assignment":
            values = {name: _as_parts(value) for name, value in values.items()}
        if not all(isinstance(value, str) for value in values.values()):
            return given
        return [f"{name}={value}" for name, value in values.items()]
    if option in ("breakdown", "question") and isinstance(given, list):
        return [",".join(one) if _are_texts(one) else one for one in given]
    if option == "reference" and _are_numbers(given):
        return [_as_text(given)]
    return given


def as_effect(given: Any) -> Any:
    """An effect to find: a number, or a text with the metric that it is on."""
    if isinstance(given, dict) and len(given) == 1:
        ((name, effect),) = given.items()
        return f"{name}={_as_text(effect)}" if _is_number(effect) else given
    if isinstance(given, str):
        try:
            return float(given)
        except ValueError:
            return given
    return given


def _as_text(value: Any) -> Any:
    """A number, a list of numbers or of labels as a text; all else as it is."""
    if _is_number(value):
        return shortest_decimal(value)
    if _are_numbers(value):
        return ",".join(map(shortest_decimal, value))
    if _are_texts(value) and value:
        return ",".join(value)
    return value


def _as_parts(value: Any) -> Any:
    """Probabilities by arm as one text, `email:0.3/letter:0.2`; all else as it is."""
    if isinstance(value, dict) and all(map(_is_number, value.values())):
        return "/".join(f"{arm}:{shortest_decimal(prob)}" for arm, prob in value.items())
    return value


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Larger integers mean nothing to any option, and TOML has none.
_LARGEST_INTEGER = 2**63 - 1
_LONGEST_SHOWN = 80


def parse_options(given: Mapping[str, Any], where: str = "") -> Options:
    """Options from their names and values; an option that is None was not given.

    Args:
        given: The names and values.
        where: Where they were read, for messages: ` in plan.toml`.

    Raises:
        ParameterError: If an option is unknown or of a wrong type.
    """
    named = _normalized(given, where)
    refuse_unknown(named, DECLARED, where)
    try:
        return msgspec.convert(named, Options)
    except msgspec.ValidationError as error:
        found = re.search(r"\$\.(\w+)", str(error))
        name = found[1] if found else next(iter(named))
        shown = repr(named[name])[:_LONGEST_SHOWN]
        raise ParameterError(
            f"{name} must be {DECLARED[name].rule.text}; got {shown}{where}"
        ) from None


def change_options(options: Options, given: Mapping[str, Any]) -> Options:
    """The same options, with those that are given in place of theirs."""
    return parse_options({**options.to_dict(), **_normalized(given, "")})


def refuse_unknown(given: Collection[str], known: Collection[str], where: str = "") -> None:
    """Raise a ParameterError if a name is not that of a known option."""
    for name in given:
        if name not in known:
            like = get_close_matches(name, known, n=1) or [", ".join(known)]
            raise ParameterError(f"there is no option {name!r}{where}; did you mean {like[0]}?")


def read_options(path: Path) -> Options:
    """Options from a TOML file."""
    try:
        content = tomllib.loads(read_regular(path, MOST_OF_TEXT).decode())
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"{path} is not TOML: {error}") from None
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"cannot read {path}: it is not text in UTF-8") from None
    except (RecursionError, ValueError):  # nested without end; a number of 5000 digits
        raise ParameterError(f"{path} is not TOML that can be read") from None
    named = {key.replace("-", "_"): value for key, value in content.items()}
    refuse_unknown(named, [name for name in DECLARED if name not in OF_ONE_RUN], f" in {path}")
    return parse_options(named, f" in {path}")


def write_options(options: Options, path: Path, remarks: list[str]) -> None:
    """Write options into a TOML file, below remarks for its reader."""
    # JSON strings, numbers and lists are TOML.
    lines = [f"# {remark}" for remark in remarks]
    lines += [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in options.to_dict().items()
    ]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def _normalized(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options that were given, each in its one form."""
    named = {name: _plain(value) for name, value in given.items() if value is not None}
    for name, value in named.items():
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise ParameterError(f"{name} is too large{where}: it must be at most 2**63 - 1")
    named |= {name: as_texts(name, named[name]) for name in LISTED if name in named}
    if "mde" in named:
        named["mde"] = as_effect(named["mde"])
    cluster, control = named.get("cluster"), named.get("control")
    if isinstance(cluster, list) and cluster and all(isinstance(name, str) for name in cluster):
        named["cluster"] = ",".join(cluster)
    if control is not None and not isinstance(control, str | int | float):
        named["control"] = str(control)  # a date: arms are found by the text of their labels
    return named


def _plain(value: Any) -> Any:
    """A value as TOML could hold it."""
    if isinstance(value, OutcomeSpace | Number):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
