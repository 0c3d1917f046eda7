"""From a mixture of many steps to one of few that is as good.

An interior-point solver spreads mass over every high set that does no harm. With what outputs count
as fixed, the masses solve a linear program of (m + 1)·K equations, m metrics and K categories. A
simplex solution of it has at most as many outputs. For its high sets the equations are linear in
masses and, apart from them, in means: both are then moved to hold to the precision of doubles.

Masses are changed by factors, never by terms: none falls below 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray
    from clusterdp.channels.cone_program import ConeProgram, Mixture

# Steps nowhere more probable than this are left out before; and after, if equations hold without.
_UNUSED, _NEGLIGIBLE = 1e-13, (1e-6, 1e-8, 1e-10, 0.0)
# Steps of Newton's method, until equations are wrong by no more than rounding; and of refinement.
_MOST_STEPS, _ROUNDING, _POLISHINGS = 40, 4e-15, 3
# A direction that changes a mass by less, relative to the others, is taken not to change it.
_FLAT = 1e-9
# A direction of categories in which steps differ by less, relative to the others, is not spanned.
_SPANNED = 1e-14
# Equations must hold to this. Outputs that reveal may exceed their ends by so much: ends are for
# variance, not for privacy.
_EXACT, _BEYOND = 1e-11, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reduced:
    """Few steps that fulfil the equations of a program.

    Attributes:
        high: High sets; axes `[step, category]`.
        mass: μ, above 0; axes `[step]`.
        outputs: What each counts as, q/μ; axes `[step, metric]`.
        reveals: ρ; axes `[metric, category]`.
        cost: Σ μ·|output|², and what revealing costs.
    """

    high: BoolArray
    mass: FloatArray
    outputs: FloatArray
    reveals: FloatArray
    cost: float


def reduce_mixture(program: ConeProgram, mixture: Mixture) -> Reduced | None:
    """At most (m + 1)·K of a mixture's steps, as good as all; None if the equations are lost."""
    used = _likeliest(program, mixture.high, mixture.mass) > _UNUSED
    mass = mixture.mass[used]
    outputs = mixture.moved[used] / mass[:, np.newaxis]
    full = _polished(program, mixture.high[used], mass, outputs, mixture.reveals)
    if len(full.mass) <= (program.n_metrics + 1) * program.n_categories:
        return _best_exact(program, full, full.mass)
    return _best_exact(program, full, _eliminated(program, full))


def _best_exact(program: ConeProgram, full: Reduced, mass: FloatArray) -> Reduced | None:
    """The steps of these masses without the negligible ones, at its best; None if not exact."""
    likeliest = _likeliest(program, full.high, mass)
    exact = []
    for negligible in _NEGLIGIBLE:
        kept = likeliest > negligible
        reduced = _polished(program, full.high[kept], mass[kept], full.outputs[kept], full.reveals)
        if _is_exact(program, reduced):
            exact.append(reduced)
    return min(exact, key=lambda reduced: reduced.cost, default=None)


def _likeliest(program: ConeProgram, high: BoolArray, mass: FloatArray) -> FloatArray:
    """The largest probability of each step under any category; axes `[step]`."""
    return np.asarray(mass * program.levels(high).max(axis=1))


def _equations(program: ConeProgram, full: Reduced) -> FloatArray:
    """What a unit of each mass adds to probabilities and means; axes `[equation, step]`."""
    levels = program.levels(full.high).T
    return np.vstack([levels, *[levels * output for output in full.outputs.T]])


def _eliminated(program: ConeProgram, full: Reduced) -> FloatArray:
    """Masses of at most as many steps as there are equations, at no higher cost.

    Steps join in turn, likeliest first; as many as are too many are then emptied.
    """
    equations, costs = _equations(program, full), (full.outputs**2).sum(axis=1)
    order = np.argsort(-full.mass, kind="stable")
    mass = np.zeros(len(order))
    n_equations = len(equations)
    kept = order[:0]
    for begin in range(0, len(order), n_equations):
        joining = order[begin : begin + n_equations]
        mass[joining] = full.mass[joining]
        kept = np.concatenate([kept, joining])
        mass[kept] *= _emptied(equations[:, kept] * mass[kept], costs[kept] * mass[kept])
        kept = kept[mass[kept] > 0]
    return mass


def _emptied(equations: FloatArray, costs: FloatArray) -> FloatArray:
    """Shares of steps, of which at most as many are above 0 as there are equations.

    Along a direction that changes no equation, shares are moved, never towards a higher cost, until
    one of them is 0. The other directions are then freed of that step.
    """
    from scipy.linalg import qr

    shares = np.ones(len(costs))
    directions = qr(equations.T)[0][:, len(equations) :]
    while directions.shape[1]:
        way = directions[:, 0] * (-1.0 if costs @ directions[:, 0] > 0 else 1.0)
        falling = np.flatnonzero(way < 0)
        ends = shares[falling] / -way[falling]
        emptied = falling[ends.argmin()]
        shares = np.maximum(shares + ends.min() * way, 0.0)
        shares[emptied] = 0.0
        others = directions[:, 1:]
        directions = others - np.outer(way, others[emptied] / way[emptied])
        directions[emptied] = 0.0
    return shares


def _right(program: ConeProgram, reveals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What steps must add up to: probabilities `[category]` and means `[metric, category]`."""
    totals = np.full(program.n_categories, 1 - program.delta)
    return totals, program.values - program.delta * reveals


def _polished(
    program: ConeProgram,
    high: BoolArray,
    mass: FloatArray,
    outputs: FloatArray,
    reveals: FloatArray,
) -> Reduced:
    """Steps whose equations hold to the precision of doubles, not of the solver."""
    levels = program.levels(high)
    totals, means = _right(program, reveals)
    moved = outputs * mass[:, np.newaxis]
    # Of all changes those that are least in relation to mass: of masses in relative entropy (by
    # Newton's method), of means in squares.
    for _ in range(_MOST_STEPS):
        inverse, wrong = _inverse(levels, mass), totals - mass @ levels
        if np.abs(wrong).max() <= _ROUNDING:
            break
        change = levels @ (inverse @ wrong)
        mass = mass * np.exp(change / max(1.0, np.abs(change).max()))
    for _ in range(_POLISHINGS):
        moved = moved + mass[:, np.newaxis] * (levels @ (inverse @ (means - moved.T @ levels).T))
    if program.delta:  # what steps cannot make up for
        reveals = (program.values - moved.T @ levels) / program.delta
    outputs = moved / mass[:, np.newaxis]
    revealed = program.delta * float((program.prior * reveals**2).sum())
    cost = float((outputs**2).sum(axis=1) @ mass) + revealed
    return Reduced(high=high, mass=mass, outputs=outputs, reveals=reveals, cost=cost)


def _inverse(levels: FloatArray, mass: FloatArray) -> FloatArray:
    """The inverse of Σ_A μ_A·L_A·L_A', or its pseudo-inverse; axes `[category, category]`."""
    sizes, directions = np.linalg.eigh((levels * mass[:, np.newaxis]).T @ levels)
    spanned = sizes > _SPANNED * sizes[-1]
    return np.asarray((directions[:, spanned] / sizes[spanned]) @ directions[:, spanned].T)


def _is_exact(program: ConeProgram, reduced: Reduced) -> bool:
    """Whether masses are above 0, all equations hold, and what reveals is within its ends."""
    if not len(reduced.mass) or not (reduced.mass > 0).all():
        return False
    levels = program.levels(reduced.high)
    totals, means = _right(program, reduced.reveals)
    wrong_totals = np.abs(reduced.mass @ levels - totals).max()
    wrong_means = np.abs((reduced.outputs.T * reduced.mass) @ levels - means).max()
    beyond = np.maximum(
        program.ends[:, :1] - reduced.reveals, reduced.reveals - program.ends[:, 1:]
    )
    within = not program.delta or beyond.max() <= _BEYOND
    return bool(max(wrong_totals, wrong_means) <= _EXACT and within)
