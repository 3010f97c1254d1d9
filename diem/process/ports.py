"""Ports of this machine: reservations that hold among all processes of DIEM, and the persisted ports of children."""

import asyncio
import json
import random
import socket
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from diem.process.environment import HOST, Ports
from diem.process.listeners import BindFailed, PortInUse, bind

TRIES: Final = 1000
CHILD_RANGE: Final = range(10_000, 14_000)
"""Below the range from which systems take the ports of outgoing connections: a restarted child finds its port free."""
POLL_S: Final = 0.05
# Not the seeded numbers of whoever calls: several processes would try the same ports.
_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """Whether a process of this user could listen on the port now; nothing keeps another one from taking it next."""
    try:
        bind(HOST, port).close()
    except (PortInUse, BindFailed, OverflowError):
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
        raise PortInUse(HOST, ports.start)

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


class PersistedPorts:
    """Free ports for the children of a composite, chosen at first use and persisted in `file`.

    A composite that is started again gets the ports of its predecessor: members of its group are known to Kafka by
    their URLs, and one that was killed may still be in the group. Ports taken by others meanwhile are replaced.
    """

    def __init__(self, reservations: PortReservations, file: Path) -> None:
        self._reservations = reservations
        self._file = file
        self._previous = _read(file)
        self._given: dict[str, tuple[int, int]] = {}

    def reserve(self, port: int) -> None:
        """Exclude a port from those of children."""
        self._reservations.reserve(port)

    async def wait_until_free(self, seconds: float) -> None:
        """Wait until the ports of the predecessor are free: its children may be about to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(is_free(port) for pair in self._previous.values() for port in pair):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)

    def of(self, child: str) -> Ports:
        """Return the ports of a child, always the same. Raises `PortTaken` when none are free."""
        if child not in self._given:
            previous = self._previous.get(child)
            kept = previous is not None and all(map(self._reservations.reserve, previous))
            self._given[child] = previous if previous and kept else (self._choose(), self._choose())
            self._write()
        return Ports(*self._given[child])

    def _choose(self) -> int:
        """Reserve a port that no child of the predecessor had. Raises `PortTaken`."""
        return self._reservations.choose(CHILD_RANGE, {port for pair in self._previous.values() for port in pair})

    def _write(self) -> None:
        # With those of pairs that do not run now. On a full disk the next composite chooses others.
        with suppress(OSError):
            new = self._file.with_name(f".{self._file.name}.new")
            new.write_text(json.dumps({**self._previous, **self._given}), encoding="utf-8")
            new.replace(self._file)


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _read(file: Path) -> Mapping[str, tuple[int, int]]:
    try:
        read = {name: (int(public), int(own)) for name, (public, own) in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return {}
    return {name: pair for name, pair in read.items() if pair[0] != pair[1]}
