"""Time and memory of every method, and of rows with more than two outcomes."""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from bench.peers import library_response
from bench.peers.methods import METHODS
from bench.peers.simulated import AllRespond, SimulatedPopulation
from bench.throughput import SPACE, experiment, numpy_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import IntArray

EPSILON = 1.0
N_WORKERS = 2
_WARM_UP_UNITS = 2000
_KILOBYTES_PER_MEGABYTE = 1024
# Rows that each randomizes to tell its rate; some take one value at a time.
_MANY_ROWS, _SOME_ROWS, _FEW_ROWS = 1_000_000, 100_000, 5_000


class Cost(NamedTuple):
    """Of one release and its overall answer."""

    seconds: float
    megabytes: float


def measure_costs(n_units: int) -> dict[str, Cost]:
    """Each method in a process of its own."""
    context = multiprocessing.get_context("spawn")
    names = [method.name for method in METHODS]
    with ProcessPoolExecutor(
        mp_context=context, max_workers=N_WORKERS, max_tasks_per_child=1
    ) as workers:
        found = workers.map(cost_of, names, [n_units] * len(names))
        return dict(zip(names, found, strict=True))


def cost_of(name: str, n_units: int) -> Cost:
    """Processor time, and how much the peak of memory grew, after a small release to warm up."""
    (method,) = (one for one in METHODS if one.name == name)
    rng = np.random.default_rng()
    for size in (_WARM_UP_UNITS, n_units):
        sample = SimulatedPopulation(AllRespond(), n_units=size).sample(rng)
        peak, start = _peak(), time.process_time()
        method.release(sample, EPSILON, rng).overall()
        seconds, grown = time.process_time() - start, _peak() - peak
    return Cost(seconds, grown)


def _peak() -> float:
    """The most memory that this process had so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KILOBYTES_PER_MEGABYTE


def row_rates() -> dict[str, float]:
    """Rows per second of processor time, with twelve outcomes."""
    rng = np.random.default_rng()
    table = experiment(_MANY_ROWS, rng)
    codes = (table["clicks"] - int(SPACE.values[0])).to_numpy()
    libraries: dict[str, tuple[library_response.Respond, int]] = {
        "pure-ldp": (library_response.pure_ldp, _SOME_ROWS),
        "multi-freq-ldpy": (library_response.multi_freq_ldpy, _SOME_ROWS),
        "OpenDP": (library_response.opendp, _FEW_ROWS),
    }

    def release() -> None:
        cdp.release(
            table,
            mechanism=cdp.optimal(epsilon=2),
            outcomes={"clicks": SPACE},
            unit="user",
            arm="treated",
            cluster="market",
        )

    rates = {
        "clusterdp, a whole release": _rate(release, _MANY_ROWS),
        "NumPy, the response alone": _rate(lambda: numpy_response(codes, rng), _MANY_ROWS),
    }
    for name, (respond, n_rows) in libraries.items():
        rates[name] = _rate(_randomize(respond, codes[:n_rows]), n_rows)
    return rates


def _randomize(respond: library_response.Respond, codes: IntArray) -> Callable[[], object]:
    return lambda: respond(codes, SPACE.n_categories, 2.0)


def _rate(run: Callable[[], object], n_rows: int) -> float:
    """After one run to warm up."""
    run()
    start = time.process_time()
    run()
    return n_rows / (time.process_time() - start)


def row_variances(epsilon: float) -> dict[str, float]:
    """The noise variance of a debiased row with twelve equally likely outcomes, in closed form."""
    values = SPACE.metric_values()[0]
    truth = library_response.truth_prob(len(values), epsilon)
    other = (1 - truth) / (len(values) - 1)
    debiased = library_response.debias(np.arange(len(values)), values, epsilon)
    second = (truth - other) * debiased**2 + other * (debiased**2).sum()
    rows = cdp.optimal(epsilon=epsilon).settled_rows(SPACE)
    noise = rows.public_channel(SPACE).noise_variance()[0]
    return {
        "k-ary response, any library": float((second - values**2).mean()),
        "clusterdp, rows alone": float(noise.mean()),
    }
