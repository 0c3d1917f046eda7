"""How the several rows of a unit become one outcome each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from clusterdp.errors import ParameterError

Rule = Literal["sum", "mean", "max", "any"]
# The rules, with what each makes of a unit's values. Missing values are left out; a unit with no
# other has no outcome.
RULES = {
    "sum": "the sum",
    "mean": "the mean",
    "max": "the largest",
    "any": "1 if one of them is not 0, else 0",
}
# The rule of a private cluster: the value that all rows of a unit have; missing if they differ.
COMMON = "common"
# The rule of each outcome, by its name.
Aggregates = Mapping[str, str]


def parse_aggregates(texts: Iterable[str], outcomes: tuple[str, ...]) -> dict[str, str]:
    """The rule of every outcome, from `spend=sum`, or from `sum` for all that have none.

    Raises:
        ParameterError: If a rule or an outcome is unknown, or an outcome has no rule.
    """
    rules: dict[str, str] = {}
    for text in texts:
        name, found, rule = text.rpartition("=")
        if rule.strip() not in RULES:
            raise ParameterError(
                f"aggregate reads NAME=RULE with one of {', '.join(RULES)} (spend=sum), got "
                f"{text!r}"
            )
        if found and name.strip() not in outcomes:
            raise ParameterError(
                f"aggregate: there is no outcome {name.strip()!r}; the outcomes are "
                f"{', '.join(map(repr, outcomes))}"
            )
        rules[name.strip()] = rule.strip()
    default = rules.pop("", None)
    without = [name for name in outcomes if name not in rules]
    if rules and default is None and without:
        raise ParameterError(
            f"aggregate has no rule for {without[0]!r}; give every outcome one, such as "
            f"{without[0]}=sum"
        )
    if default is None:
        return rules
    return {name: rules.get(name, default) for name in outcomes}


def aggregation_notes(aggregates: Aggregates) -> tuple[str, ...]:
    """What a reader of the release should know."""
    if not aggregates:
        return ()
    each = ", ".join(f"{name} ({rule})" for name, rule in aggregates.items())
    return (f"a unit had one row or more; its outcomes are made of all of them: {each}",)
