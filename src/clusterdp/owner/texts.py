"""Options that are lists of texts, in their one form: as the command line gives them."""

from __future__ import annotations

from typing import Any

from clusterdp.experiment.decimals import shown

# Options with a text for each outcome, metric or implication.
LISTED = (
    "outcomes",
    "implies",
    "missing",
    "metric",
    "weight",
    "reference",
    "grids",
    "block",
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
    if option in ("breakdown", "block") and isinstance(given, list):
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
        return shown(value)
    if _are_numbers(value):
        return ",".join(map(shown, value))
    if _are_texts(value) and value:
        return ",".join(value)
    return value


def _as_parts(value: Any) -> Any:
    """Probabilities by arm as one text, `email:0.3/letter:0.2`; all else as it is."""
    if isinstance(value, dict) and all(map(_is_number, value.values())):
        return "/".join(f"{arm}:{shown(prob)}" for arm, prob in value.items())
    return value


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
