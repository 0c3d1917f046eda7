"""An outcome with finitely many values, declared and never learned: numbers, bins or two labels.

Two labels, such as no and yes, count as 0 and 1.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._lists import parse_numbers
from clusterdp.errors import ParameterError
from clusterdp.outcomes.space import MetricLattice, ObservedRatio, squares_fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, CodeArray, FloatArray


_LONGEST = 40
_MARKS = frozenset(" -_./+")
# Labels that are usually meant to count as 1.
AFFIRMATIVE = frozenset({"true", "t", "yes", "y", "on"})
# What begins the text of another space.
_OTHER_FORMS = ("bins:", "number:")


def labels_of(given: str | Sequence[object]) -> tuple[str, str] | None:
    """The two labels that a space was given by; None if it was given by something else.

    `no,yes` are labels. `0,1` are numbers, and what begins as a number is meant to be one: `0,l`
    is a slip.

    Raises:
        ParameterError: If these are labels, but not two that can be distinguished and shown.
    """
    if isinstance(given, str) and (given.startswith(_OTHER_FORMS) or ".." in given):
        return None
    texts = given.split(",") if isinstance(given, str) else given
    labels = [text.strip() for text in texts if isinstance(text, str)]
    if len(labels) < max(2, len(texts)) or any(map(_looks_numeric, labels)):
        return None
    if len(labels) > 2:
        raise ParameterError(
            f"an outcome of labels has two, as in visited=no,yes; got {len(labels)}: for more, "
            "hold their numbers in the column, and declare 0,1,2"
        )
    first, second = labels
    _check_words((first, second))
    return first, second


def _check_words(labels: tuple[str, str]) -> None:
    """Raise a ParameterError unless two labels can be distinguished, and shown anywhere."""
    for label in labels:
        plain = all(letter.isalnum() or letter in _MARKS for letter in label)
        if not plain or label != label.strip() or not 0 < len(label) <= _LONGEST:
            raise ParameterError(
                f"a label has letters, digits, spaces or - _ . / +, at most {_LONGEST}; got "
                f"{label[:_LONGEST]!r}: rename it in the table"
            )
    if folded(labels[0]) == folded(labels[1]):
        raise ParameterError(
            f"labels must differ by more than capitals, got {labels[0]!r} and {labels[1]!r}"
        )


def folded(label: str) -> str:
    """A label as it is compared: TRUE, True and true are one."""
    return label.strip().lower()


def _looks_numeric(label: str) -> bool:
    return not label or label[0] in "0123456789.+-" or label.lower() in {"nan", "inf", "infinity"}


# Integer-scaled outcomes beyond this make sums overflow 64 bits for plausible populations.
_LARGEST_LATTICE_VALUE = 2**31
# Squares of larger values, and sums of them, would not be finite.
LARGEST_VALUE = 1e100
# Outcome codes are 16 bits wide.
MOST_OUTCOMES = 2**16
_FORM = (
    "an outcome's allowed values must be values (0,1,5), a range (0..5), two labels (no,yes), bins "
    "(bins:0,1,10,100) or binary; got {!r}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSpace:
    """A declared, ordered, finite set of outcomes (the paper's 𝒴, of size K).

    Make one with `of`, `integers`, `binary`, `labels` or `bins`, or `parse` a text such as "0..5".

    Attributes:
        values: The numbers outcomes stand for, strictly increasing. Effects are measured in them.
        edges: For binned outcomes the `len(values) + 1` bin edges, strictly increasing; a value
            `v` with `edges[k] <= v < edges[k + 1]` counts as `values[k]`, and the last edge belongs
            to the last bin. None when outcomes are taken as they are.
        names: Two labels in the column that mean 0 and 1, such as no and yes. None for a column
            of numbers.
    """

    values: tuple[float, ...]
    edges: tuple[float, ...] | None = None
    names: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        _check_increasing("values", self.values)
        if len(self.values) < 2:
            raise ParameterError(
                f"an outcome needs at least 2 allowed values, got {len(self.values)}"
            )
        _check_count(len(self.values))
        if self.edges is not None:
            object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
            _check_increasing("edges", self.edges)
            if len(self.edges) != len(self.values) + 1:
                raise ParameterError(
                    f"{len(self.edges)} edges make {len(self.edges) - 1} bins, "
                    f"but {len(self.values)} representative values were given"
                )
        if self.names is not None:
            _check_words(self.names)
            if self.edges is not None or self.values != (0.0, 1.0):
                raise ParameterError("labels stand for 0 and 1 only")

    @classmethod
    def parse(cls, given: OutcomeSpace | str | Sequence[float]) -> OutcomeSpace:
        """A space as people write it: `0,1,5`, `0..5`, `no,yes`, `bins:0,1,10,100` or `binary`.

        Bins count as their midpoints, or as what is listed: `bins:0,1,10 as 0,4`.
        """
        if isinstance(given, OutcomeSpace):
            return given
        try:
            return cls._parse(given)
        except ParameterError as error:
            # What the space itself refuses says more than that the text could not be read.
            if "separated by commas" not in str(error):
                raise
            raise ParameterError(_FORM.format(given)) from None
        except ValueError:
            raise ParameterError(_FORM.format(given)) from None

    @classmethod
    def _parse(cls, given: str | Sequence[float]) -> OutcomeSpace:
        names = labels_of(given)
        if names is not None:
            return cls.labels(*names)
        if not isinstance(given, str):
            return cls.of(parse_numbers(given))
        if given == "binary":
            return cls.binary()
        if given.startswith("bins:"):
            edges, _, values = given.removeprefix("bins:").partition(" as ")
            return cls.bins(parse_numbers(edges), parse_numbers(values) if values else None)
        if ".." in given:
            low, _, high = given.partition("..")
            return cls.integers(int(low), int(high))
        return cls.of(parse_numbers(given))

    def __str__(self) -> str:
        """What `parse` reads back."""
        if self.names is not None:
            return ",".join(self.names)
        if self.edges is not None:
            plain = OutcomeSpace.bins(self.edges).values == self.values
            return f"bins:{_listed(self.edges)}" + ("" if plain else f" as {_listed(self.values)}")
        if self._is_integer_range():
            return f"{self.values[0]:.0f}..{self.values[-1]:.0f}"
        return _listed(self.values)

    @property
    def in_words(self) -> str:
        """The same for readers, who may not know what labels count as."""
        if self.names is None:
            return str(self)
        return " or ".join(f"{name} ({number})" for number, name in enumerate(self.names))

    @classmethod
    def of(cls, values: Sequence[float]) -> OutcomeSpace:
        """An explicit list of values, in any order: `OutcomeSpace.of([0, 1, 5])`."""
        return cls(values=tuple(sorted(values)))

    @classmethod
    def integers(cls, low: int, high: int) -> OutcomeSpace:
        """Every integer from `low` to `high`, both included."""
        if low >= high:
            raise ParameterError(f"integers needs low < high, got low={low}, high={high}")
        _check_count(high - low + 1)  # before so many numbers are listed
        return cls(values=tuple(range(low, high + 1)))

    @classmethod
    def binary(cls) -> OutcomeSpace:
        """0 and 1 (or False and True)."""
        return cls(values=(0.0, 1.0))

    @classmethod
    def labels(cls, first: str, second: str) -> OutcomeSpace:
        """Two labels that a column holds, such as no and yes: they count as 0 and 1."""
        return cls(values=(0.0, 1.0), names=(first, second))

    @classmethod
    def bins(
        cls, edges: Sequence[float], representatives: Sequence[float] | None = None
    ) -> OutcomeSpace:
        """Bins for a continuous outcome, by declared edges.

        Effects are then effects on the binned outcome: each value counts as its bin's
        representative, by default the bin's midpoint.
        """
        _check_increasing("edges", tuple(float(edge) for edge in edges))
        if representatives is None:
            representatives = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
        return cls(values=tuple(representatives), edges=tuple(edges))

    @property
    def n_categories(self) -> int:
        """K, the number of values."""
        return len(self.values)

    def metric_values(self) -> FloatArray:
        """The values, as the one metric of this outcome; axes `[metric, category]`."""
        return self.as_array()[np.newaxis]

    @property
    def together(self) -> tuple[OutcomeSpace, ...]:
        """There is no other question."""
        return (self,)

    @property
    def place(self) -> int:
        """The first of one."""
        return 0

    def metric_lattice(self) -> MetricLattice:
        """The values as integers times a unit."""
        unit, multiples = self.lattice()
        return MetricLattice(
            units=(unit,),
            integers=np.array([multiples]),
            squared=(len(self.values) > 2 and squares_fit(multiples),),
            is_number=(False,),
            shifts=(0,),
            slacks=(1,),
        )

    def metric_weights(self, prior: FloatArray | None) -> FloatArray:  # noqa: ARG002 - as others
        """One metric counts for all."""
        return np.ones(1)

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """None: it has no name."""
        return ()

    def of_observed(self) -> dict[int, ObservedRatio]:
        """No outcome is missing."""
        return {}

    @property
    def low(self) -> float:
        """The least value."""
        return self.values[0]

    @property
    def high(self) -> float:
        """The largest value."""
        return self.values[-1]

    @property
    def span(self) -> float:
        """The largest change of a sum when one outcome is replaced, y_max − y_min."""
        return self.high - self.low

    @property
    def unit(self) -> Fraction:
        """What all values are multiples of."""
        return self.lattice()[0]

    def as_array(self) -> FloatArray:
        """The values, axes `[outcome]`."""
        return np.array(self.values, dtype=np.float64)

    def lattice(self) -> tuple[Fraction, tuple[int, ...]]:
        """The values as integers times a common unit, so that sums can be noised exactly.

        Returns:
            `(unit, multiples)` with `values[k] == unit * multiples[k]`, reading each value as the
            shortest decimal that denotes it (0.1 is one tenth).

        Raises:
            ParameterError: If the values have no common unit coarse enough for exact sums.
        """
        decimals = [Fraction(repr(value)) for value in self.values]
        denominator = math.lcm(*(decimal.denominator for decimal in decimals))
        multiples = [int(decimal * denominator) for decimal in decimals]
        shrink = math.gcd(*multiples)
        if max(abs(multiple) for multiple in multiples) // shrink > _LARGEST_LATTICE_VALUE:
            raise ParameterError(
                "outcome values have no common unit that exact integer sums can use; "
                "declare values (or bin representatives) with fewer decimals"
            )
        return Fraction(shrink, denominator), tuple(multiple // shrink for multiple in multiples)

    def encode(self, observed: npt.NDArray[Any]) -> tuple[CodeArray, BoolArray]:
        """The position of each observed value in `values`.

        Returns:
            `(codes, outside)`: codes are meaningful only where `outside` is False.
        """
        # Numbers of less precision are compared as such: 0.1 is then what 0.1 is written as.
        precision = np.float32 if observed.dtype == np.float32 else np.float64
        if self.edges is not None:
            return _encode_bins(observed, np.array(self.edges, dtype=precision))
        if observed.dtype.kind in "iub" and self._is_integer_range():
            low = int(self.values[0])
            outside = (observed < low) | (observed > low + self.n_categories - 1)
            return observed.astype(np.int64) - low, outside
        values = np.array(self.values, dtype=precision)
        codes = np.minimum(np.searchsorted(values, observed), len(values) - 1)
        return codes, values[codes] != observed

    def clip(self, observed: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Observed values, clipped to the ends of the space."""
        ends = self.edges if self.edges is not None else self.values
        low, high = ends[0], ends[-1]
        if observed.dtype.kind in "iu":
            # Integers stay integers: the conversion of large ones to float would round them.
            low, high = math.ceil(low), math.floor(high)
            limits = np.iinfo(observed.dtype)
            low, high = (min(max(end, limits.min), limits.max) for end in (low, high))
        clipped: npt.NDArray[Any] = np.clip(observed, low, high)
        return clipped

    def _is_integer_range(self) -> bool:
        low, high = self.values[0], self.values[-1]
        integral = all(value.is_integer() for value in self.values)
        return integral and high - low == self.n_categories - 1


def _listed(numbers: tuple[float, ...]) -> str:
    return ",".join(repr(number).removesuffix(".0") for number in numbers)


def _check_count(n_values: int) -> None:
    if n_values > MOST_OUTCOMES:
        raise ParameterError(
            f"an outcome has at most {MOST_OUTCOMES} allowed values, got {n_values}; declare a "
            "number (number:0..1000000) or bins (bins:0,1,10,100)"
        )


def _check_increasing(name: str, numbers: tuple[float, ...]) -> None:
    if not all(math.isfinite(number) for number in numbers):
        raise ParameterError(f"{name} must be finite numbers, got {list(numbers)}")
    if any(abs(number) > LARGEST_VALUE for number in numbers):
        raise ParameterError(f"{name} must be of at most {LARGEST_VALUE:g}; use a larger unit")
    if any(low >= high for low, high in itertools.pairwise(numbers)):
        raise ParameterError(f"{name} must be strictly increasing, got {list(numbers)}")


def _encode_bins(
    observed: npt.NDArray[Any], edges: npt.NDArray[Any]
) -> tuple[CodeArray, BoolArray]:
    codes = np.searchsorted(edges, observed, side="right") - 1
    codes = np.where(observed == edges[-1], len(edges) - 2, codes)
    outside = (codes < 0) | (codes > len(edges) - 2) | np.isnan(observed)
    return np.where(outside, 0, codes), outside
