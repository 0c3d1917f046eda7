"""How outcomes and questions are named in what is published.

How the several rows of a unit become one outcome each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from clusterdp.errors import ParameterError
from clusterdp.outcomes.metric import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Sequence


# An outcome that may be missing, 0 where it is, has the name of the outcome and this.
TIMES_OBSERVED = "_times_observed"
# The name of the question that a row of a published table is about, where there are several.
QUESTION = "question"


def question_suffixes(n_questions: int) -> tuple[str, ...]:
    """What the columns of each question end with; nothing where there is one question."""
    return ("",) if n_questions == 1 else tuple(f"_{place}" for place in range(1, n_questions + 1))


def question_name(outcomes: Sequence[str]) -> str:
    """What a question is called."""
    return "+".join(outcomes)


def question_names(outcomes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What questions are called, from the outcomes of each; nothing where there is one question."""
    return () if len(outcomes) == 1 else tuple(map(question_name, outcomes))


def debiased_names(outcomes: tuple[str, ...], missing: tuple[str, ...]) -> tuple[str, ...]:
    """The published columns of some outcomes, of which some may be missing."""
    values = (f"{name}{TIMES_OBSERVED}" if name in missing else name for name in outcomes)
    observed = (f"{name}{OBSERVED}" for name in missing)
    return tuple(f"{name}_debiased" for name in (*values, *observed))


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
