"""A process and its children, as the system sees them."""

from __future__ import annotations

from contextlib import suppress

import psutil


def family(root: int) -> list[psutil.Process]:
    """A process and all of its descendants, the oldest first; none once it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        descendants = process.children(recursive=True)
        return [process, *sorted(descendants, key=psutil.Process.create_time)]
    return []


def running_program(root: int, name: str) -> list[int]:
    """Those of a family whose command line names a program, the oldest first."""
    found = []
    for process in family(root):
        with suppress(psutil.NoSuchProcess):
            if any(name in word for word in process.cmdline()):
                found.append(process.pid)
    return found


def memory_of(root: int) -> int:
    """Bytes that a family holds; what they share is counted once."""
    total = 0
    for process in family(root):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total
