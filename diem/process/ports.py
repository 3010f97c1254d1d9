"""Ports of this machine: reservations respected by all processes of DIEM, and the persisted ports of children."""

import asyncio
import errno
import json
import random
import socket
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from diem.process.addresses import HOST, Ports
from diem.process.files import replace_file
from diem.process.listeners import AddressUnavailable, BindFailed, PortInUse, bind, bind_error

TRIES: Final = 1000
MAX_PORT: Final = 65_535
LOOPBACK_IPV6: Final = "::1"
CHILD_RANGE: Final = range(10_000, 14_000)
"""Below the ephemeral ports, so that no outgoing connection takes the port of a restarting child."""
POLL_S: Final = 0.05
# Not the global generator: equally seeded processes would try the same ports.
_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """Return whether a process of this user could listen on the port now, without reserving it."""
    try:
        bind(HOST, port).close()
    except (PortInUse, AddressUnavailable, BindFailed, OverflowError):
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
    """Ports reserved among all processes, until released or this process ends.

    A child binds the reserved port seconds later, and again after each restart, so the reservation must permit that. It
    is a bound UDP socket of the same number, never read: exclusive on every system among the processes of all users,
    even while connections of the last listener linger. On Linux, the TCP port is bound as well, without listening, on
    every address at which clients may look for the child, to keep the kernel from using it for outgoing connections.
    SO_REUSEADDR lets any program listen there; after :meth:`protect`, only those of this user may, which set
    SO_REUSEPORT (see ``diem.process.listeners.bind``). Listeners alone get connections.

    Each port costs two descriptors, and one for each further address. ``public`` is the address of public listeners.
    """

    def __init__(self, public: str = HOST) -> None:
        self._held: dict[int, _Held] = {}
        # localhost may be either loopback address.
        both = (HOST, LOOPBACK_IPV6)
        self._hosts = both if public in {*both, "localhost"} else (*both, public)

    def reserve(self, port: int) -> bool:
        """Reserve a port; return False if already reserved (here or by another process), or if it has a listener.

        Raises:
            BindFailed: the port is privileged.
        """
        if port in self._held or not 0 < port <= MAX_PORT:
            return False
        held = _Held(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), {})
        try:
            held.reservation.bind((HOST, port))
            for host in self._hosts:
                # With SO_REUSEADDR, only a listener prevents the bind, not a recently closed connection.
                if (listener := _bound(host, port, socket.SO_REUSEADDR)) is not None:
                    held.listeners[host] = listener
        except PermissionError as error:
            held.close()
            raise bind_error(HOST, port, error) from error
        except OSError:
            held.close()
            return False
        if sys.platform != "linux":  # elsewhere, these would prevent the child's bind
            held.close_listeners()
        self._held[port] = held
        return True

    def protect(self, port: int) -> None:
        """Keep other users from listening on a reserved port, before, after and between its listeners.

        Otherwise any user of the machine could replace a dead process and receive its clients. Programs that do not set
        SO_REUSEPORT cannot listen there either. Without effect on systems other than Linux.
        """
        if (held := self._held.get(port)) is None:
            return
        for host, shared in held.listeners.items():
            # The kernel compares the owners of sockets with SO_REUSEPORT, but only without SO_REUSEADDR: it remembers
            # for each port whether all its sockets had that when bound.
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, True)
            try:
                protected = _bound(host, port, socket.SO_REUSEPORT)
            except OSError:
                # Connections of the last listener linger, owned by root on older kernels, which remember that the port
                # was protected.
                shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, False)
            else:
                shared.close()
                held.listeners[host] = protected or shared

    def choose(self, ports: range, without: Collection[int] = ()) -> int:
        """Reserve a random port of a range, except ``without``. Raises :class:`PortInUse` after 1,000 attempts."""
        wanted = [port for port in ports if port not in without]
        for port in _random.sample(wanted, min(TRIES, len(wanted))):
            if self.reserve(port):
                return port
        raise PortInUse(HOST, ports.start)

    def release(self) -> None:
        """Release all ports."""
        for held in self._held.values():
            held.close()
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class PersistedPorts:
    """Free ports for the children of a composite, chosen at first use and persisted in ``file``.

    A restarted composite keeps its predecessor's ports, because its members are registered in Kafka by URL, and a
    killed one may still be in the group. Ports taken by others meanwhile are replaced.
    """

    def __init__(self, reservations: PortReservations, file: Path) -> None:
        self._reservations = reservations
        self._file = file
        self._previous = _read(file)
        self._given: dict[str, tuple[int, int]] = {}

    def reserve(self, port: int) -> None:
        """Reserve a port of the composite itself, keeping it from children."""
        self._reservations.reserve(port)
        self._reservations.protect(port)

    async def wait_until_free(self, seconds: float) -> None:
        """Wait, at most ``seconds``, until the ports of the predecessor are free: its children may be ending."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(is_free(port) for pair in self._previous.values() for port in pair):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)

    def of(self, child: str) -> Ports:
        """Return the ports of a child, the same on every call. Raises :class:`PortInUse` if none are free."""
        if child not in self._given:
            previous = self._previous.get(child)
            kept = previous is not None and all(map(self._reservations.reserve, previous))
            self._given[child] = previous if previous and kept else (self._choose(), self._choose())
            for port in self._given[child]:
                self._reservations.protect(port)
            self._write()
        return Ports(*self._given[child])

    def _choose(self) -> int:
        """Reserve a port not used by the predecessor's children. Raises :class:`PortInUse`."""
        return self._reservations.choose(CHILD_RANGE, {port for pair in self._previous.values() for port in pair})

    def _write(self) -> None:
        # Including those of stopped pairs. If this fails (full disk), the next composite chooses others.
        with suppress(OSError):
            replace_file(self._file, json.dumps({**self._previous, **self._given}).encode())


@dataclass(slots=True)
class _Held:
    """The sockets that reserve a port: of UDP, and of TCP by address."""

    reservation: socket.socket
    listeners: dict[str, socket.socket]

    def close(self) -> None:
        self.close_listeners()
        self.reservation.close()

    def close_listeners(self) -> None:
        for listener in self.listeners.values():
            listener.close()
        self.listeners.clear()


def _bound(host: str, port: int, option: int) -> socket.socket | None:
    """Return a socket bound with ``option``; None if the machine lacks the address now.

    Raises:
        OSError: the port is taken, or privileged.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # a kernel without IPv6
        return None
    try:
        found.setsockopt(socket.SOL_SOCKET, option, True)
        found.bind((host, port))
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            return None
        raise
    return found


def _read(file: Path) -> Mapping[str, tuple[int, int]]:
    try:
        read = {name: (int(public), int(own)) for name, (public, own) in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return {}
    return {name: pair for name, pair in read.items() if pair[0] != pair[1]}
