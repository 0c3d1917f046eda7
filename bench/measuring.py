"""Work in processes of its own, measured: time, processor time, memory and stages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from clusterdp._progress import no_progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SAMPLE_SECONDS = 0.02
# To find the processes that another one started, and what they share, takes a while.
_SECONDS_BETWEEN_FAMILIES = 0.25
# What a release loads when it first needs it, which may take as long as a million rows.
_LIBRARIES = (
    "clusterdp.engines.spark.table",
    "clusterdp.owner.publish",
    "cryptography.hazmat.primitives.ciphers",
    "jinja2",
    "opendp.measurements",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.special",
)


class Stopwatch:
    """Notes when each stage of a release begins."""

    def __init__(self) -> None:
        self._begun = [("reading public columns and planning", time.perf_counter())]

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:  # noqa: ARG002 - a protocol
        """Begin a stage."""
        self._begun.append((name, time.perf_counter()))
        return no_progress

    def seconds(self) -> dict[str, float]:
        """How long each stage took."""
        ends = [begun for _, begun in self._begun[1:]] + [time.perf_counter()]
        return {name: end - begun for (name, begun), end in zip(self._begun, ends, strict=True)}


class Measured(NamedTuple):
    """One run.

    Attributes:
        seconds: From when everything is imported to the end.
        processor_seconds: What all threads worked meanwhile, in processes that it started, too.
        peak_bytes: The most memory that the processes held at once; what they share counts once.
        stages: How long each stage of a release took.
    """

    seconds: float
    processor_seconds: float
    peak_bytes: int
    stages: dict[str, float]


def run_measured(work: Callable[[], dict[str, float]]) -> None:
    """Do some work in this process, and print what `measure` reads."""
    for library in _LIBRARIES:
        import_module(library)
    seconds, processor = time.perf_counter(), time.process_time()
    stages = work()
    told = {
        "seconds": time.perf_counter() - seconds,
        "processor_seconds": time.process_time() - processor,
        "stages": stages,
    }
    print(json.dumps(told))


def measure(module: str, *arguments: object, target: Path) -> Measured:
    """Run a module in a process of its own, and look at it from outside meanwhile.

    Args:
        module: A program that calls `run_measured`.
        *arguments: What it is called with, before the target.
        target: The file or folder that it makes, which is removed in the end.
    """
    command = [sys.executable, "-m", module, *map(str, arguments), str(target)]
    watch = _Watch()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        while child.poll() is None:
            watch.look_at(child.pid)
            time.sleep(_SAMPLE_SECONDS)
        told, _ = child.communicate()
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, command)
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    found: dict[str, Any] = json.loads(told.splitlines()[-1])  # Java may have printed before
    found["processor_seconds"] += sum(watch.worked.values())
    return Measured(peak_bytes=watch.peak_bytes, **found)


class _Watch:
    """Looks at a process and at those it started.

    Attributes:
        peak_bytes: The most memory that they held at once.
        worked: Processor seconds of each that it started, by its number.
    """

    def __init__(self) -> None:
        self.peak_bytes, self.worked = 0, dict[int, float]()
        self._next = 0.0

    def look_at(self, root: int) -> None:
        """Note what they hold and how long they worked so far."""
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            process = psutil.Process(root)
            if time.perf_counter() > self._next:
                self._pilot_at_all(process, process.children(recursive=True))
                self._next = time.perf_counter() + _SECONDS_BETWEEN_FAMILIES
            if not self.worked:
                self.peak_bytes = max(self.peak_bytes, process.memory_info().rss)

    def _pilot_at_all(self, process: psutil.Process, others: list[psutil.Process]) -> None:
        for one in others:
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                self.worked[one.pid] = times.user + times.system
        if others:
            self.peak_bytes = max(self.peak_bytes, _bytes_of([process, *others]))


def _bytes_of(processes: list[psutil.Process]) -> int:
    """What processes hold; what they share counts once."""
    held = 0
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            held += one.memory_full_info().pss
    return held
