"""From a mixture of many steps to one of few that is as good.

An interior-point solver spreads mass over every high set that does no harm. With what outputs count
as fixed, the masses solve a linear program of (m + 1)·K equations, m metrics and K categories. A
simplex solution of it has at most as many outputs. For its high sets the equations are linear in
masses and, apart from them, in means: both are then moved to hold to the precision of doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray
    from clusterdp.channels.cone_program import ConeProgram, Mixture

# Steps nowhere more probable than this are left out before; and after, if equations hold without.
_UNUSED, _NEGLIGIBLE = 1e-9, (1e-6, 1e-8, 1e-10)
_POLISHINGS = 3
# A direction that changes a mass by less, relative to the others, is taken not to change it.
_FLAT = 1e-9
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
    """At most (m + 1)·K of a mixture's steps, as good as all; None if the solver gives up."""
    used = _likeliest(program, mixture.high, mixture.mass) > _UNUSED
    outputs = mixture.moved[used] / mixture.mass[used, np.newaxis]
    full = _polished(program, mixture.high[used], mixture.mass[used], outputs, mixture.reveals)
    if len(full.mass) <= (program.n_metrics + 1) * program.n_categories:
        return _best_exact(program, full, full.mass)
    return _best_exact(program, full, _simplex(program, full)) or _best_exact(
        program, full, _eliminated(program, full)
    )


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


def _simplex(program: ConeProgram, full: Reduced) -> FloatArray:
    """Masses of least cost at a vertex, with outputs fixed; none at all if the solver gives up."""
    from scipy.optimize import linprog

    totals, means = _right(program, full.reveals)
    found = linprog(
        (full.outputs**2).sum(axis=1),
        A_eq=_equations(program, full),
        b_eq=np.concatenate([totals, means.ravel()]),
        method="highs-ds",
    )
    return np.asarray(found.x) if found.status == 0 else np.zeros(len(full.outputs))


def _eliminated(program: ConeProgram, full: Reduced) -> FloatArray:
    """Masses of fewer steps, where a simplex solver gives up: one after the other is emptied.

    Along a direction that changes no equation, masses are moved, never towards a higher cost, until
    one of them is 0. The other directions are then freed of that step.
    """
    from scipy.linalg import null_space

    mass = np.maximum(full.mass, 0.0)
    costs = (full.outputs**2).sum(axis=1) * mass
    directions = null_space(_equations(program, full) * mass, rcond=1e-11)
    kept = np.ones(len(mass))  # shares of the masses
    while directions.shape[1]:
        way = directions[:, 0] * (-1.0 if costs @ directions[:, 0] > 0 else 1.0)
        if not (way < -_FLAT).any():
            way = -way  # as good, and it ends somewhere
        falling = np.flatnonzero(way < -_FLAT)
        if not len(falling):
            break
        ends = kept[falling] / -way[falling]
        emptied = falling[ends.argmin()]
        kept = np.maximum(kept + ends.min() * way, 0.0)
        kept[emptied] = 0.0
        others = directions[:, 1:]
        directions = others - np.outer(way, others[emptied] / way[emptied])
    return np.asarray(mass * kept)


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
    # Of all changes those that are least in relation to mass.
    sizes = np.sqrt(mass)[:, np.newaxis]
    inverse = sizes * np.linalg.pinv((levels * sizes).T, rcond=1e-12)
    for _ in range(_POLISHINGS):
        mass = mass + inverse @ (totals - mass @ levels)
        moved = moved + inverse @ (means - moved.T @ levels).T
    if program.delta:  # what steps cannot make up for
        reveals = (program.values - moved.T @ levels) / program.delta
    outputs = moved / mass[:, np.newaxis]
    revealed = program.delta * float((program.prior * reveals**2).sum())
    cost = float((outputs**2).sum(axis=1) @ mass) + revealed
    return Reduced(high=high, mass=mass, outputs=outputs, reveals=reveals, cost=cost)


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
