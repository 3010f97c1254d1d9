"""Ports of this machine: whether one is free, and reservations of them that hold among all processes of DIEM."""

import random
import socket
import sys
from collections.abc import Collection
from types import TracebackType
from typing import Final, Self

from diem.process.listeners import BindFailed, PortTaken, bind

HOST: Final = "127.0.0.1"
TRIES: Final = 1000
# Not the seeded numbers of whoever calls: several processes would try the same ports.
_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """Whether a process of this user could listen on the port now; nothing keeps another one from taking it next."""
    try:
        bind(HOST, port).close()
    except (PortTaken, BindFailed, OverflowError):
        return False
    return True


class PortReservations:
    """Ports that nobody else reserves until they are released, which the end of the process does as well.

    Another process binds a reserved port, seconds later and again whenever it is restarted, so the reservation must
    not be in its way. It is the UDP socket of the same number, bound and never read: exclusive on every system among
    the processes of all users, also while connections of the last listener linger. On Linux the TCP port is bound
    too, without listening: that keeps the kernel from giving it to an outgoing connection, and with SO_REUSEADDR
    leaves it to the listener. Costs two descriptors for each port.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[socket.socket]] = {}

    def reserve(self, port: int) -> bool:
        """Reserve a port; returns false if somebody has reserved it, this object included, or listens there."""
        if port in self._held:
            return False
        held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_STREAM)]
        reservation, listener = held
        try:
            reservation.bind((HOST, port))
            # With SO_REUSEADDR only a listener is in the way, not a connection that has just ended.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
        except (OSError, OverflowError):
            _close(held)
            return False
        if sys.platform != "linux":  # elsewhere nobody could bind it any more
            _close([held.pop()])
        self._held[port] = held
        return True

    def choose(self, ports: range, without: Collection[int] = ()) -> int:
        """Reserve any port of a range but some, at random. Raises `PortTaken` when none of up to 1,000 is free."""
        wanted = [port for port in ports if port not in without]
        for port in _random.sample(wanted, min(TRIES, len(wanted))):
            if self.reserve(port):
                return port
        raise PortTaken(HOST, ports.start)

    def release(self) -> None:
        """Release all ports."""
        for held in self._held.values():
            _close(held)
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
