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
from diem.process.files import replace_file
from diem.process.listeners import BindFailed, PortInUse, bind

TRIES: Final = 1000
CHILD_RANGE: Final = range(10_000, 14_000)
"""Below the range of ephemeral ports, so that no outgoing connection takes the port of a child that restarts."""
POLL_S: Final = 0.05
# Not the global generator: processes with the same seed would try the same ports.
_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """Return whether a process of this user could listen on the port now; another one may take it at any time."""
    try:
        bind(HOST, port).close()
    except (PortInUse, BindFailed, OverflowError):
        return False
    return True


async def is_accepting(port: int, within_s: float = 1.0) -> bool:
    """Return whether a connection to the port of this machine is accepted in time."""
    try:
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(HOST, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


class PortReservations:
    """Ports reserved among all processes, until they are released or this process ends.

    A child binds the reserved port seconds later, and again after each restart, so the reservation must not prevent
    that. It is a bound UDP socket of the same number, never read: exclusive on every system among the processes of all
    users, even while connections of the last listener linger. On Linux, the TCP port is bound as well, without
    listening: that keeps the kernel from using it for outgoing connections, and SO_REUSEADDR lets the listener bind it.
    Each port costs two descriptors.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[socket.socket]] = {}

    def reserve(self, port: int) -> bool:
        """Reserve a port; return False if it is reserved, by this object or another process, or has a listener."""
        if port in self._held:
            return False
        held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_STREAM)]
        reservation, listener = held
        try:
            reservation.bind((HOST, port))
            # With SO_REUSEADDR, only a listener prevents the bind, not a connection that has just ended.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
        except (OSError, OverflowError):
            _close(held)
            return False
        if sys.platform != "linux":  # elsewhere, this would prevent the listener's bind
            _close([held.pop()])
        self._held[port] = held
        return True

    def guard(self, port: int) -> bool:
        """Keep processes of other users from listening on a reserved port too, until :meth:`admit`.

        Return False if that is not possible now: connections of the last listener linger, or the system is not Linux.
        """
        held = self._held.get(port, [])
        if len(held) < 2:
            return False
        held.pop().close()
        for shared in (False, True):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
            try:
                listener.bind((HOST, port))
            except OSError:
                listener.close()
            else:
                held.append(listener)
                return not shared
        return False

    def admit(self, port: int) -> None:
        """Let a child listen on a guarded port."""
        for listener in self._held.get(port, [])[1:]:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)

    def choose(self, ports: range, without: Collection[int] = ()) -> int:
        """Reserve a random port of a range, none of ``without``. Raises :class:`PortInUse` after 1,000 attempts."""
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
    """Free ports for the children of a composite, chosen at first use and persisted in ``file``.

    A restarted composite gets the ports of its predecessor, because members of its group are registered in Kafka with
    their URLs, and a killed one may still be in the group. Ports taken by others meanwhile are replaced.
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
        """Wait, at most ``seconds``, until the ports of the predecessor are free: its children may be ending."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(is_free(port) for pair in self._previous.values() for port in pair):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)

    def of(self, child: str) -> Ports:
        """Return the ports of a child, always the same. Raises :class:`PortInUse` if none are free."""
        if child not in self._given:
            previous = self._previous.get(child)
            kept = previous is not None and all(map(self._reservations.reserve, previous))
            self._given[child] = previous if previous and kept else (self._choose(), self._choose())
            self._write()
        return Ports(*self._given[child])

    def _choose(self) -> int:
        """Reserve a port that no child of the predecessor had. Raises :class:`PortInUse`."""
        return self._reservations.choose(CHILD_RANGE, {port for pair in self._previous.values() for port in pair})

    def _write(self) -> None:
        # Including those of pairs that do not run now. If this fails (full disk), the next composite chooses others.
        with suppress(OSError):
            replace_file(self._file, json.dumps({**self._previous, **self._given}).encode())


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _read(file: Path) -> Mapping[str, tuple[int, int]]:
    try:
        read = {name: (int(public), int(own)) for name, (public, own) in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return {}
    return {name: pair for name, pair in read.items() if pair[0] != pair[1]}
