"""Which addresses a process and its descendants listen on."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

import psutil

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def listening_addresses(process: int) -> set[Address]:
    """The addresses of all sockets that wait for connections."""
    root = psutil.Process(process)
    found = set()
    for one in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            for socket in one.net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN:
                    found.add(_address(socket.laddr.ip))
    return found


def _address(text: str) -> Address:
    """An address; Java writes those of IPv4 as IPv6."""
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
