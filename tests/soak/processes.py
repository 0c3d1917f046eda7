"""A process and its children, as the system sees them."""

from __future__ import annotations

from pathlib import Path


def family(root: int) -> set[int]:
    """A process and all of its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry.name)] = int(status.rsplit(")", 1)[1].split()[1])
    found, growing = {root}, True
    while growing:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
        growing = bool(more)
    return found


def running_program(root: int, name: str) -> list[int]:
    """Those of a family whose command line names a program, the oldest first."""
    found = []
    for process in sorted(family(root)):
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if name.encode() in command:
            found.append(process)
    return found


def memory_of(root: int) -> int:
    """Bytes that a family holds; what they share is counted once."""
    return sum(map(_proportional_bytes, family(root)))


def _proportional_bytes(process: int) -> int:
    try:
        told = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in told.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
