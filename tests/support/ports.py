"""Free loopback ports, reserved among the processes of the tests, and outside the kernel's ephemeral range."""

import atexit
import socket
from pathlib import Path
from typing import Final

from diem.process.addresses import HOST
from diem.process.ports import PortReservations

OWN_RANGE: Final = range(14_000, 24_000)
"""Outside the ranges of `diem up`, its brokers, and the children of composites."""
BLOCK: Final = 100
"""Number of ports that a process reserves at a time, by the first one: two descriptors instead of two hundred."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")

_reservations = PortReservations()
_unused: list[int] = []
atexit.register(_reservations.release)


def free_port() -> int:
    """Return a free port that no other process of the tests gets while this one runs.

    Raises ``PortInUse`` when other processes have reserved all.
    """
    return free_ports(1).start


def free_ports(count: int) -> range:
    """Return consecutive ports like :func:`free_port`, fewer than BLOCK."""
    while True:
        if len(_unused) < count:
            _unused.extend(_new_block())
        found = range(_unused[-count], _unused[-count] + count)
        if _unused[-count:] == [*found] and all(map(_nobody_listens, found)):
            del _unused[-count:]
            return found
        _unused.pop()


def _new_block() -> range:
    blocks = range(OWN_RANGE.start, OWN_RANGE.stop, BLOCK)
    given = given_to_connections()
    unusable = overlapping(blocks, given)
    if len(unusable) == len(blocks):
        raise RuntimeError(f"the tests need ports outside of {_EPHEMERAL}, some of {OWN_RANGE}")
    first = _reservations.choose(blocks, unusable)
    return range(first + 1, first + BLOCK)


def overlapping(blocks: range, given: range) -> set[int]:
    """Return the first ports of the blocks that overlap the kernel's ephemeral range.

    Whoever dials meanwhile, a port of another block that is free now is so when it is bound seconds later.
    """
    return {block for block in blocks if block + BLOCK > given.start and block < given.stop}


def given_to_connections() -> range:
    """Return the kernel's ephemeral range: ports of outgoing connections and of binds to port 0."""
    if not _EPHEMERAL.exists():
        return range(49_152, 65_536)  # RFC 6335, section 6
    first, last = map(int, _EPHEMERAL.read_text().split())
    return range(first, last + 1)


def _nobody_listens(port: int) -> bool:
    with socket.socket() as sock:
        # A connection that has just ended is in nobody's way.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
        return True
