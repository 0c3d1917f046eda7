"""Categories of declared outcomes, as most tests need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.mechanisms.draw import Question
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.spec.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterable

    import clusterdp as cdp
    from clusterdp.mechanisms.mechanism import Mechanism


def one_outcome(name: str, space: cdp.OutcomeSpace) -> Categories:
    return Categories(declared=declare({name: space}))


def one_question(space: Categories, mechanism: Mechanism) -> Terms:
    """The terms of a release of one question."""
    return Terms.from_questions(questions_of([space], [mechanism]))


def questions_of(
    spaces: Iterable[Categories], mechanisms: Iterable[Mechanism]
) -> tuple[Question, ...]:
    """Each space with its mechanism."""
    pairs = zip(spaces, mechanisms, strict=True)
    return tuple(Question(space=space, mechanism=mechanism) for space, mechanism in pairs)
