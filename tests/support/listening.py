"""Which addresses a process and its descendants listen on, as Linux tells."""

from __future__ import annotations

import ipaddress
from pathlib import Path

_LISTEN = "0A"


def listening_addresses(process: int) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses of all sockets that wait for connections."""
    sockets = {
        link.removeprefix("socket:[").rstrip("]")
        for one in [process, *descendants(process)]
        for link in _open_files(one)
        if link.startswith("socket:[")
    }
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in sockets:
                found.add(_address(fields[1].split(":")[0]))
    return found


def descendants(process: int) -> list[int]:
    """Everything that a process started."""
    children = [
        int(child)
        for tasks in Path(f"/proc/{process}/task").glob("*/children")
        for child in tasks.read_text().split()
    ]
    return children + [one for child in children for one in descendants(child)]


def _open_files(process: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{process}/fd").glob("*"):
        try:
            found.append(str(entry.readlink()))
        except OSError:  # closed meanwhile
            continue
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address from the words of Linux, each with its lowest byte first."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
