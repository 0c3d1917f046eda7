"""How much a released row reveals: how often the best guess from it is the true outcome.

All of it follows from the mechanism and public numbers, so it can be stated before a release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.privacy.accounting import shown_percent

if TYPE_CHECKING:
    from clusterdp.channels.catalogue import Channel
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


def best_guesses(
    mechanism: Mechanism, space: CategorySpace, channel: Channel | None = None
) -> Guesses:
    """What a row is worth to whoever guesses, if outcomes are distributed like the public prior.

    Args:
        mechanism: What is published.
        space: The outcome space.
        channel: The published channel of its rows, if it was designed: to design it again takes
            long. Of several, the one that reveals most. By default the one that the mechanism makes
            of the public prior; one that is made of noisy counts has the same bound.
    """
    rows = mechanism.settled_rows(space)
    prior = rows.public_prior(space)
    if channel is None or not mechanism.designs_rows:
        channel = rows.public_channel(space)
    reached = channel.transition() * prior  # [channel, released, true]
    return Guesses(
        from_row=float(reached.max(axis=-1).sum(axis=-1).max()), without=float(prior.max())
    )


def disclosure_notes(
    mechanism: Mechanism, space: CategorySpace, channel: Channel | None = None
) -> tuple[str, ...]:
    """Notes about rows that reveal much; none for small ε, or without rows."""
    if not mechanism.releases_rows or mechanism.guarantee(space).epsilon < _REVEALING_EPSILON:
        return ()
    guesses = best_guesses(mechanism, space, channel)
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
