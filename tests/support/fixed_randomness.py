"""A process whose releases draw the same key and the same noise, and begin on the same day.

What a release takes from outside is planted where it enters: the operating system's entropy, the
Laplace noise of OpenDP, and the day. So the public functions run as they are, and modules of the
package can move: one line below names one, for the day.
"""

from __future__ import annotations

import math
import os
import secrets
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import opendp.measurements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import tzinfo

# Where the package asks which day it is: the only name of a module in here.
CLOCK = "clusterdp.owner.publish.datetime"
# Odd, with bits that look like chance: 2^64 over the golden ratio.
_MIXED = 0x9E3779B97F4A7C15


class _OneDay(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _OneDay:
        return cls(2024, 2, 29, 12, tzinfo=tz)


def _bytes(n_bytes: int) -> bytes:
    return bytes(place % 256 for place in range(n_bytes))


def _bits(n_bits: int) -> int:
    return int(f"{_MIXED:064b}" * (n_bits // 64 + 1), 2) >> (64 - n_bits % 64)


def _below(end: int) -> int:
    return _MIXED * (end + 1) % end


def _laplace(domain: Any, metric: Any, scale: float) -> Callable[[list[int]], list[int]]:
    """Noise by the place in the list alone: as many threads as there are give the same."""
    unit = math.ceil(scale)
    return lambda values: [value + (place % 5 - 2) * unit for place, value in enumerate(values)]


@contextmanager
def fixed_randomness() -> Iterator[None]:
    """Every draw is a function of what is asked for, and of nothing that was drawn before."""
    with (
        patch.object(os, "urandom", _bytes),
        patch.object(secrets, "randbits", _bits),
        patch.object(secrets, "randbelow", _below),
        patch.object(opendp.measurements, "make_laplace", _laplace),
        patch(CLOCK, _OneDay),
    ):
        yield
