"""Work in processes of its own, measured: time, processor time, memory and stages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from clusterdp.engines.base import no_progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SAMPLE_SECONDS = 0.02
# To look at many processes takes a while; it may take this share of the time.
_SHARE_OF_LOOKING = 0.1


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
    peak, started = 0, dict[int, float]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        while child.poll() is None:
            begun = time.perf_counter()
            memory, worked = _look_at(child.pid)
            peak, started = max(peak, memory), {**started, **worked}
            took = time.perf_counter() - begun
            time.sleep(max(_SAMPLE_SECONDS, took / _SHARE_OF_LOOKING - took))
        told, _ = child.communicate()
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, command)
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    found: dict[str, Any] = json.loads(told.splitlines()[-1])  # Java may have printed before
    found["processor_seconds"] += sum(started.values())
    return Measured(peak_bytes=peak, **found)


def _look_at(root: int) -> tuple[int, dict[int, float]]:
    """Bytes that a process and those it started hold; and how long each of these worked so far."""
    memory, worked = 0, {}
    with suppress(psutil.NoSuchProcess):  # it ended meanwhile
        process = psutil.Process(root)
        others = process.children(recursive=True)
        for one in [process, *others]:
            with suppress(psutil.NoSuchProcess):
                memory += one.memory_full_info().pss if others else one.memory_info().rss
                times = one.cpu_times()
                worked[one.pid] = times.user + times.system
        worked.pop(root, None)  # it tells that itself
    return memory, worked
