"""Looking more than once while units arrive: levels that hold over all looks together.

A 95% interval misses rarely if an analyst looks once. An analyst who looks every week, and stops
when zero is outside, is wrong far more often: eight looks at no effect find one in 17% of
experiments. So at each look an interval has a smaller **nominal level**, and all else stays as it
is.

**Planned looks.** With z an effect in standard errors, and t the share of all planned units that
are there, z·√t is a Brownian motion at t. Lan and DeMets (1983) spend

    α*(t) = 4 − 4Φ(z_{1−α/4}/√t)

of α until t: hardly any at first, as O'Brien and Fleming's boundaries do, and all at t = 1. The
boundary c_k of look k is such that a path that was within c_1, …, c_{k−1} is outside c_k with the
probability α*(t_k) − α*(t_{k−1}). The density of paths inside goes from look to look by a
convolution with a normal one (Armitage, McPherson and Rowe, 1969). Intervals of c_k standard errors
are repeated confidence intervals (Jennison and Turnbull, 1989): all of them cover together. The
p-value is the least α whose boundary z reaches, so it is below α exactly if the interval leaves out
zero.

**Any number of looks.** A normal mixture martingale stays below 1/α forever with probability 1 − α
(Robbins, 1970). With x proportional to the number of units, |z| stays below

    √((1 + 1/x)(2·log(1/α) + log(1 + x))).

That is shortest, 1.55 times a fixed interval at 95%, where x is about 8: at a number of units that
has to be chosen in advance. It holds in the limit of many units (Waudby-Smith et al., 2024).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.errors import ParameterError

# A path is integrated over at so many points.
_N_POINTS = 120
# Less than this is spent as if it were all there is to spend: the boundary errs on the wide side.
_LEAST_SPENT = 1e-12
# A nominal α below this is not told from it.
_LEAST_NOMINAL = 1e-15
# Boundaries of these α give p-values, those between them by interpolation.
_LEAST_ALPHA, _MOST_ALPHA, _N_ALPHAS = 1e-10, 0.999, 61
# Nobody plans more looks.
_MOST_LOOKS = 200
# x at which a normal mixture is shortest at 95%.
_SHORTEST = 8.0


class Look(Protocol):
    """What a look makes of levels: one of several, or of any number."""

    def nominal(self, alpha: float) -> float:
        """The α of a single look whose interval is as long."""

    def p_value(self, single: float) -> float:
        """The least α at which zero is outside, from the p-value of a single look."""

    def in_words(self, alpha: float) -> str:
        """What is going to be said of it."""

    def boundary(self, alpha: float) -> tuple[str, FloatArray, FloatArray]:
        """How many standard errors an effect needs, over looks or units; and what these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLook:
    """One of some looks that were planned, after equal shares of units.

    Attributes:
        number: Which look it is, from 1 on.
        planned: How many are planned.
    """

    number: int
    planned: int

    @classmethod
    def parse(cls, text: Any) -> PlannedLook:
        """A look such as `3/8`: the third of eight."""
        number, _, planned = text.partition("/") if isinstance(text, str) else ("", "", "")
        if not (number.strip().isdecimal() and planned.strip().isdecimal()):
            raise ParameterError(
                f'look must be which of how many, such as "3/8", got {text!r}. Fix: write '
                "--look 3/8."
            )
        found = cls(number=int(number), planned=int(planned))
        if not 1 <= found.number <= found.planned <= _MOST_LOOKS:
            raise ParameterError(
                f"look {text} must be from 1/N to N/N, with N at most {_MOST_LOOKS}. Fix: name "
                "this look, and how many you planned."
            )
        return found

    def boundaries(self, alpha: float) -> FloatArray:
        """How many standard errors an effect must be from zero at every planned look."""
        return spending_boundaries(alpha, self.planned)

    def nominal(self, alpha: float) -> float:
        """2Φ(−c_k)."""
        return _two_sided(float(self.boundaries(alpha)[self.number - 1]))

    def p_value(self, single: float) -> float:
        """By interpolation between boundaries of some α."""
        nominal, alphas = _nominal_levels(self.number, self.planned)
        if math.isnan(single):
            return math.nan
        if single >= nominal[-1]:
            return 1.0
        from scipy.interpolate import PchipInterpolator

        between = PchipInterpolator(np.log(nominal), _logit(alphas))
        place = max(math.log(max(single, 1e-300)), math.log(nominal[0]))
        return float(1 / (1 + np.exp(-between(place))))

    def in_words(self, alpha: float) -> str:
        """The boundary, and what is spent."""
        reach = self.boundaries(alpha)[self.number - 1]
        return (
            f"Look {self.number} of {self.planned}: CIs and p-values hold over all looks "
            f"(O'Brien–Fleming spending). An effect is significant beyond {reach:.2f} SEs at this "
            "look."
        )

    def boundary(self, alpha: float) -> tuple[str, FloatArray, FloatArray]:
        """That of every planned look."""
        return "look", np.arange(1.0, self.planned + 1), self.boundaries(alpha)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnytimeLook:
    """One of any number of looks.

    Attributes:
        share: The units that are there, as a share of those at which intervals are shortest.
        aim: Those units.
    """

    share: float
    aim: int

    def nominal(self, alpha: float) -> float:
        """2Φ(−c), with c of a normal mixture."""
        return _two_sided(float(self._reach(alpha, np.array(self.share))))

    def p_value(self, single: float) -> float:
        """√(1 + x)·exp(−z²/(2 + 2/x))."""
        from scipy.special import ndtri

        if math.isnan(single):
            return math.nan
        x, z_value = _SHORTEST * self.share, float(ndtri(max(single, 1e-300) / 2))
        return min(math.sqrt(1 + x) * math.exp(-(z_value**2) / (2 + 2 / x)), 1.0)

    def in_words(self, alpha: float) -> str:  # noqa: ARG002 - as of planned looks
        """What it holds for."""
        return (
            "CIs and p-values hold over any number of looks (a confidence sequence), as long as "
            f"every look uses --anytime {self.aim}."
        )

    def boundary(self, alpha: float) -> tuple[str, FloatArray, FloatArray]:
        """That of some numbers of units, from few to beyond those that are there."""
        shares = np.geomspace(0.02, 2 * max(self.share, 1.0), 60)
        return "units", shares * self.aim, self._reach(alpha, shares)

    @staticmethod
    def _reach(alpha: float, shares: FloatArray) -> FloatArray:
        """The boundary of a normal mixture."""
        x = _SHORTEST * shares
        return np.asarray(np.sqrt((1 + 1 / x) * (2 * math.log(1 / alpha) + np.log1p(x))))


def parse_look(look: Any, anytime: Any, n_units: int) -> Look | None:
    """One of several looks, from what an analyst asks for; None for a single one.

    Args:
        look: Such as "3/8"; None if looks are not planned.
        anytime: The units at which intervals are to be shortest; None if looks are planned.
        n_units: The units that are there.

    Raises:
        ParameterError: If it is neither.
    """
    if look is not None and anytime is not None:
        raise ParameterError(
            "look is for planned looks, and anytime for any number. Fix: leave out one of them."
        )
    if anytime is None:
        return None if look is None else PlannedLook.parse(look)
    if isinstance(anytime, bool) or not isinstance(anytime, int) or anytime < 1:
        raise ParameterError(
            f"anytime must be a number of units, got {anytime!r}. Fix: give the number that you "
            "expect to decide at, the same at every look."
        )
    return AnytimeLook(share=n_units / anytime, aim=anytime)


def nominal_level(look: Look | None, level: float) -> float:
    """The level of a single look whose interval is as long; the same without looks."""
    return level if look is None else 1 - max(look.nominal(1 - level), _LEAST_NOMINAL)


def _two_sided(reach: float) -> float:
    return math.erfc(reach / math.sqrt(2))


def _logit(alphas: FloatArray) -> FloatArray:
    return np.asarray(np.log(alphas / (1 - alphas)))


def spent_alpha(alpha: float, shares: FloatArray) -> FloatArray:
    """α*(t) = 4 − 4Φ(z_{1−α/4}/√t)."""
    from scipy.special import ndtr, ndtri

    return np.asarray(4 * ndtr(ndtri(alpha / 4) / np.sqrt(shares)))


@functools.lru_cache(maxsize=4096)
def spending_boundaries(alpha: float, planned: int) -> FloatArray:
    """c_k of equally spaced looks; axes `[look]`.

    Args:
        alpha: What is spent over all looks.
        planned: How many there are.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri

    shares = np.arange(1, planned + 1) / planned
    each = np.diff(spent_alpha(alpha, shares), prepend=0.0)
    nodes, weights = np.polynomial.legendre.leggauss(_N_POINTS)
    step, found = math.sqrt(1 / planned), []
    places, density = np.zeros(1), np.ones(1)  # of paths that are inside, times weights
    for share, spend in zip(shares, each, strict=True):
        scale = math.sqrt(share)

        def outside(reach: float, places: FloatArray = places, scale: float = scale) -> FloatArray:
            edge = reach * scale
            return np.asarray(ndtr((-edge - places) / step) + ndtr((places - edge) / step))

        def excess(reach: float, density: FloatArray = density, spend: float = spend) -> float:
            return float(density @ outside(reach)) - spend

        if spend < _LEAST_SPENT:
            reach = float(-ndtri(max(spend, 1e-300) / 2))
        elif excess(0.0) <= 0:
            reach = 0.0
        else:
            reach = float(brentq(excess, 0.0, 40.0, xtol=1e-10))
        found.append(reach)
        edge = min(reach, 9.0) * scale
        ahead = edge * nodes
        kernel = np.exp(-((ahead[:, np.newaxis] - places) ** 2) / (2 * step**2))
        density = (kernel @ density) / (step * math.sqrt(2 * math.pi)) * weights * edge
        places = ahead
    boundaries = np.array(found)
    boundaries.setflags(write=False)
    return boundaries


@functools.lru_cache(maxsize=64)
def _nominal_levels(number: int, planned: int) -> tuple[FloatArray, FloatArray]:
    """Nominal α of a look for some α, and these; both increasing."""
    ends = _logit(np.array([_LEAST_ALPHA, _MOST_ALPHA]))
    alphas = 1 / (1 + np.exp(-np.linspace(float(ends[0]), float(ends[1]), _N_ALPHAS)))
    reaches = [spending_boundaries(float(alpha), planned)[number - 1] for alpha in alphas]
    nominal = np.array([max(math.erfc(one / math.sqrt(2)), 1e-300) for one in reaches])
    kept = np.append(True, np.diff(np.maximum.accumulate(nominal)) > 0)
    return nominal[kept], alphas[kept]
