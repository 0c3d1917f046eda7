"""How much a release can change the odds of two outcome combinations, part by part, by enumeration.

Two tables differ in one unit: it has combination y in one and y' in the other. The loss of a part
is the largest |ln P(part | y)/P(part | y')| over what the part can be. Parts are drawn
independently, so their losses for the same y and y' add up, and ε is the largest sum over all y
and y'. With δ > 0, ε is the smallest number at which no set of releases is likelier under y than
e^ε times its probability under y', plus δ.

**Rows.** The published integers are P(output | combination) times a constant: every output of every
randomizer is compared.

**Counts.** y and y' change two counts by one each. On a count, P(noise) ∝ e^(−|noise|/σ) on
integers: a step of one changes its probability by a factor of at most e^(1/σ). So counts lose 2/σ.

**Sums.** One vector of noise on some sums has P(z) ∝ exp(−max_j ⌈|z_j|/w_j⌉/σ). If sum j moves by
d_j, the exponent moves by at most max_j ⌈d_j/w_j⌉. A unit adds its metric times its weight.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats = npt.NDArray[np.float64]
# What a vector of noise is on: a statistic, its sums or squares, and the number of the vector.
Kind = tuple[str, int]
_DIGITS = 40
# Halvings of an interval of ε: far below the last digit of a float.
_HALVINGS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNoise:
    """One vector of noise on sums of some metrics of a question.

    Attributes:
        statistic: What it is part of, such as totals.
        kind: Whether sums or squares, and the number of the vector: other questions may share it.
        scale: σ.
        moves: The most that the exponent of the law moves, times σ; axes `[y, y']`.
        between: What more it loses for two values of a number that are no grid points.
    """

    statistic: str
    kind: Kind
    scale: float
    moves: npt.NDArray[np.int64]
    between: float = 0.0

    def losses(self) -> Floats:
        """What it loses; axes `[y, y']`."""
        return np.asarray(self.moves / self.scale + self.between)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionParts:
    """What of a unit depends on its outcomes of one question.

    Attributes:
        randomizers: Integers proportional to P(output | combination), one for each randomizer; axes
            `[output, combination]`.
        designed_epsilon: What any randomizer is allowed to lose, where noisy counts choose it.
        histograms: σ of noisy counts, by name.
        fixed: What other parts lose, for any two combinations.
        sums: Noise on sums.
        delta: δ of its rows.
        splits_delta: Whether δ is spent on statistics and rows together, or in the randomizer.
        n_combinations: How many combinations there are.
    """

    randomizers: Sequence[npt.NDArray[Any]]
    designed_epsilon: float
    histograms: dict[str, float]
    fixed: dict[str, float]
    sums: Sequence[SharedNoise]
    delta: float
    splits_delta: bool
    n_combinations: int


class Worst(NamedTuple):
    """Where the loss is largest.

    Attributes:
        epsilon: The loss.
        question: The question that the unit answers; None without rows.
        pair: y and y' of that question.
        output: The randomizer and its output where the odds change most, if there are rows.
        parts: The loss of each part there.
    """

    epsilon: Decimal
    question: int
    pair: tuple[int, int]
    output: tuple[int, int] | None
    parts: dict[str, Decimal]


def largest_loss(questions: Sequence[QuestionParts], *, has_rows: bool) -> Worst:
    """The largest loss of one unit.

    With rows, a unit answers one question, which is public: its row and its counts are of that
    question alone, and sums are of all questions. Without rows it is part of everything.
    """
    if has_rows:
        answered = [_of_answered(questions, (index,)) for index in range(len(questions))]
    else:
        answered = [_of_answered(questions, tuple(range(len(questions))))]
    return max(answered, key=lambda worst: worst.epsilon)


def _of_answered(questions: Sequence[QuestionParts], own: tuple[int, ...]) -> Worst:
    """The largest loss of a unit whose own parts are those of some questions.

    The outcomes of other questions can be anything. Vectors of noise that questions share move as
    far as the question that moves them most. So each kind of vector is tried with each question.
    """
    holders: dict[Kind, list[int]] = {}
    for index, question in enumerate(questions):
        for noise in question.sums:
            if index not in holders.setdefault(noise.kind, []):
                holders[noise.kind].append(index)
    found = []
    for moved_by in itertools.product(*holders.values()):
        counted = dict(zip(holders, moved_by, strict=True))
        found.append(_with_sums_of(questions, own, counted))
    return max(found, key=lambda worst: worst.epsilon)


def _with_sums_of(
    questions: Sequence[QuestionParts], own: tuple[int, ...], counted: dict[Kind, int]
) -> Worst:
    """The largest loss where each kind of noise is moved by one question."""
    worst = []
    for index, question in enumerate(questions):
        sums = [noise for noise in question.sums if counted[noise.kind] == index]
        if index in own or sums:
            worst.append(_worst_pair(index, question, sums, is_own=index in own))
    epsilon = sum((one.epsilon for one in worst), Decimal(0))
    parts: dict[str, Decimal] = {}
    for one in worst:
        for name, loss in one.parts.items():
            parts[name] = parts.get(name, Decimal(0)) + loss
    first = next(one for one in worst if one.question == own[0])
    return first._replace(epsilon=epsilon, parts=parts)


def _worst_pair(
    index: int, question: QuestionParts, sums: Sequence[SharedNoise], *, is_own: bool
) -> Worst:
    """The two combinations of a question whose odds change most."""
    size = question.n_combinations
    moved = np.zeros((size, size))
    for noise in sums:
        moved += noise.losses()
    constant = 0.0
    rows = np.zeros((size, size))
    if is_own:
        constant = sum(2 / scale for scale in question.histograms.values())
        constant += sum(question.fixed.values())
        for table in question.randomizers:
            rows = np.maximum(rows, row_losses(table, question.delta))
    if is_own and question.splits_delta:
        return _worst_together(index, question, sums)
    total = np.maximum(rows, question.designed_epsilon * is_own) + moved + constant
    np.fill_diagonal(total, 0.0)
    pair = divmod(int(total.argmax()), size)
    parts = _exact_parts(question, sums, pair, is_own=is_own)
    output = None
    if is_own and question.randomizers:
        row, output = _exact_row(question, pair)
        parts["rows"] = max(row, Decimal(question.designed_epsilon))
    return Worst(sum(parts.values(), Decimal(0)), index, (pair[0], pair[1]), output, parts)


def _exact_parts(
    question: QuestionParts, sums: Sequence[SharedNoise], pair: tuple[int, ...], *, is_own: bool
) -> dict[str, Decimal]:
    """What statistics lose for one pair, with more digits than a float has."""
    parts: dict[str, Decimal] = {}
    with localcontext(prec=_DIGITS):
        if is_own:
            parts |= {name: 2 / Decimal(scale) for name, scale in question.histograms.items()}
            parts |= {name: Decimal(loss) for name, loss in question.fixed.items()}
        for noise in sums:
            loss = Decimal(int(noise.moves[pair])) / Decimal(noise.scale) + Decimal(noise.between)
            parts[noise.statistic] = parts.get(noise.statistic, Decimal(0)) + loss
    return parts


def row_losses(table: npt.NDArray[Any], delta: float) -> Floats:
    """What rows lose, from integers proportional to P(output | combination); axes `[y, y']`."""
    probs = table.astype(np.float64)
    probs /= probs.sum(axis=0)
    size = probs.shape[1]
    found = np.zeros((size, size))
    for first in range(size):
        under = probs[:, [first]]
        if delta:
            found[first] = _smallest_epsilon(under, probs, delta)
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(under > 0, np.log(under / probs), -np.inf)
        found[first] = ratios.max(axis=0)
    return found


def _smallest_epsilon(under: Floats, probs: Floats, delta: float) -> Floats:
    """The smallest ε ≥ 0 with Σ max(0, P(o|y) − e^ε P(o|y')) ≤ δ, for each y'; axes `[y']`."""
    low, high = np.zeros(probs.shape[1]), np.full(probs.shape[1], 64.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = np.maximum(under - np.exp(middle) * probs, 0.0).sum(axis=0) > delta
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return high


def _exact_row(question: QuestionParts, pair: tuple[int, ...]) -> tuple[Decimal, tuple[int, int]]:
    """What a row loses for one pair, and the randomizer and output where it does."""
    best, place = Decimal(0), (0, 0)
    for number, table in enumerate(question.randomizers):
        if question.delta:
            loss = Decimal(float(row_losses(table, question.delta)[pair]))
            output = int((table[:, pair[0]] > table[:, pair[1]]).argmax())
        else:
            totals = [sum(map(int, table[:, one])) for one in pair]
            own, other = (list(map(int, table[:, one])) for one in pair)
            possible = [one for one, weight in enumerate(own) if weight]
            if any(not other[one] for one in possible):
                output = next(one for one in possible if not other[one])
                return Decimal("Infinity"), (number, output)
            output = max(possible, key=lambda one: Fraction(own[one], other[one]))
            ratio = Fraction(own[output] * totals[1], other[output] * totals[0])
            with localcontext(prec=_DIGITS):
                loss = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        if loss > best:
            best, place = loss, (number, output)
    return best, place


def _worst_together(index: int, question: QuestionParts, sums: Sequence[SharedNoise]) -> Worst:
    """The smallest ε of statistics and rows together at δ, over pairs.

    The loss of a noisy histogram takes three values. A statistic that loses ε at most is no worse
    than one that loses ε or −ε, with odds e^ε to 1 (Kairouz, Oh and Viswanath, 2015).
    """
    worst: list[tuple[float, tuple[int, int], int]] = []
    for number, table in enumerate(question.randomizers):
        probs = table.astype(np.float64)
        probs /= probs.sum(axis=0)
        for first, second in itertools.permutations(range(question.n_combinations), 2):
            by_statistic: dict[str, float] = dict(question.fixed)
            for noise in sums:
                loss = float(noise.losses()[first, second])
                by_statistic[noise.statistic] = by_statistic.get(noise.statistic, 0.0) + loss
            atoms = _atoms(question.histograms.values(), by_statistic.values())
            epsilon = _bisect(probs[:, first], probs[:, second], atoms, question.delta)
            worst.append((epsilon, (first, second), number))
    epsilon, pair, number = max(worst)
    output = int((question.randomizers[number][:, pair[0]]).argmax())
    parts = {"rows and statistics together": Decimal(epsilon)}
    return Worst(Decimal(epsilon), index, pair, (number, output), parts)


def _atoms(scales: Any, losses: Any) -> list[tuple[float, float]]:
    """The losses that statistics can have together, with their probabilities."""
    atoms = [(0.0, 1.0)]
    steps = []
    for scale in scales:
        up = 1 / (1 + math.exp(-1 / scale))
        steps.append([(2 / scale, up**2), (0.0, 2 * up * (1 - up)), (-2 / scale, (1 - up) ** 2)])
    for loss in losses:
        up = 1 / (1 + math.exp(-loss))
        steps.append([(loss, up), (-loss, 1 - up)])
    for step in steps:
        atoms = [(one + other, prob * share) for one, prob in atoms for other, share in step]
    return atoms


def _bisect(under: Floats, other: Floats, atoms: list[tuple[float, float]], delta: float) -> float:
    """The smallest ε ≥ 0 with Σ P(loss) Σ max(0, P(o|y) − e^(ε − loss) P(o|y')) ≤ δ."""
    low, high = 0.0, 64.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = sum(
            prob * float(np.maximum(under - math.exp(middle - loss) * other, 0.0).sum())
            for loss, prob in atoms
        )
        low, high = (middle, high) if beyond > delta else (low, middle)
    return high
