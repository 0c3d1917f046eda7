"""How much a released row reveals: how often the best guess from it is the true outcome.

All of it follows from the mechanism and public numbers, so it can be stated before a release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.privacy.accounting import shown_percent

if TYPE_CHECKING:
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.mechanisms.mechanism import Mechanism

# From this ε on, rows reveal so much that readers are informed of it.
_REVEALING_EPSILON = 3.0


class Guesses(NamedTuple):
    """How often the best guess of a person's outcome is right.

    Attributes:
        from_row: For whoever sees the person's row: Σ_s max_y p(y)P(s|y).
        without: For whoever knows the distribution of outcomes alone: max_y p(y).
    """

    from_row: float
    without: float


def best_guesses(mechanism: Mechanism, space: CategorySpace) -> Guesses:
    """What a row is worth to whoever guesses, if outcomes are distributed like the public prior.

    The channel is the one that the mechanism makes of that prior. One that is made of noisy counts
    differs a little; it has the same bound.
    """
    rows = mechanism.settled_rows(space)
    prior = rows.public_prior(space)
    reached = rows.public_channel(space).transition()[0] * prior  # [released, true]
    return Guesses(from_row=float(reached.max(axis=1).sum()), without=float(prior.max()))


def disclosure_notes(mechanism: Mechanism, space: CategorySpace) -> tuple[str, ...]:
    """Notes about rows that reveal much; none for small ε, or without rows."""
    if not mechanism.releases_rows or mechanism.guarantee(space).epsilon < _REVEALING_EPSILON:
        return ()
    guesses = best_guesses(mechanism, space)
    uniform = guesses.without <= 1 / space.n_categories
    shown = "declared" if mechanism.look is None else "the look shows"
    believed = "equally likely" if uniform else f"as likely as {shown}"
    return (
        (
            f"rows reveal much about outcomes: if these are {believed}, the best guess from a "
            f"person's row is right for {shown_percent(guesses.from_row)} of people, and without "
            f"the row for {guesses.without:.0%}"
        ),
    )
