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

from clusterdp.engines.base import no_progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SAMPLE_SECONDS = 0.02
# What a release loads when it first needs it, which may take as long as a million rows.
_LIBRARIES = (
    "clusterdp.releasing.to_folder",
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
        processor_seconds: What all threads worked meanwhile.
        peak_bytes: The most memory that the process held at once.
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
    """Run a module in a process of its own, and look at its memory from outside meanwhile.

    Args:
        module: A program that calls `run_measured`.
        *arguments: What it is called with, before the target.
        target: The file or folder that it makes, which is removed in the end.
    """
    command = [sys.executable, "-m", module, *map(str, arguments), str(target)]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        seen = psutil.Process(child.pid)
        while child.poll() is None:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                peak = max(peak, seen.memory_info().rss)
            time.sleep(_SAMPLE_SECONDS)
        told, _ = child.communicate()
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, command)
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    found: dict[str, Any] = json.loads(told)
    return Measured(peak_bytes=peak, **found)
