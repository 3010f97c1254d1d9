"""Watchdog: a process sends heartbeats from its event loop, and its supervisor ends it when they stop.

A killed process closes its connections, so its clients and peers go elsewhere at once; a hung one keeps them, and its
kernel accepts more. Our own supervisor reads the heartbeats from the standard input of the process, which is a socket;
systemd from ``NOTIFY_SOCKET`` (sd_notify(3), ``WatchdogSec=``). Kubernetes polls ``/livez``.

A process that shares its public port with others lends the listening sockets to its supervisor, which stops and resumes
their listening (docs/adr/0043): otherwise new clients wait in the queue of the one that hangs.
"""

import asyncio
import contextlib
import math
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

from diem.process.clock import until_next
from diem.process.listeners import BACKLOG

HEARTBEAT_S: Final = 1.0
"""Seconds between two heartbeats."""
HUNG_AFTER_S: Final = 12.0
"""Seconds without a heartbeat after which a process counts as hung: links are cut after 5 s, clients leave within 9 s,
and a bridge loses its partitions after 10 s, so by then nobody can lose anything."""
SILENT_SHARE: Final = 0.25
"""Share of that time after which new clients are kept from a process, which it undoes with its next heartbeat."""
WANTED: Final = "WATCHDOG_USEC"
"""Variable with the microseconds within which a supervisor, ours or systemd, expects a heartbeat
(sd_watchdog_enabled(3)). Supervisors of earlier releases do not set it, and would mistake a heartbeat for the end of
the process."""
_VARIABLES: Final = ("NOTIFY_SOCKET", WANTED, "WATCHDOG_PID")
_BYTES: Final = 4096
"""More bytes than there are ever heartbeats waiting."""
_LENT: Final = b"L"
"""Heartbeat with listening sockets, in place of those lent before; none, if it has stopped listening."""
_MAX_LENT: Final = 4


@contextlib.contextmanager
def heartbeats(*, supervised: bool) -> Iterator[None]:
    """Send heartbeats, if requested, to the supervisor or systemd while the block runs.

    Needs the running loop. Children do not inherit the variables.
    """
    given = {name: os.environ.pop(name, "") for name in _VARIABLES}
    with contextlib.ExitStack() as closing:
        receivers: list[Callable[[], None]] = []
        if supervised and given[WANTED]:
            receivers.append(_to_supervisor)
        if address := given["NOTIFY_SOCKET"]:
            manager = closing.enter_context(_ServiceManager(address))
            manager.notify("READY=1")
            receivers.append(manager.heartbeat)
        if receivers:
            closing.enter_context(_repeated(receivers))
        yield


def standard_input() -> int:
    """Return the descriptor of the standard input."""
    return sys.__stdin__.fileno() if sys.__stdin__ is not None else 0


def _to_supervisor() -> None:
    # It may have died.
    with contextlib.suppress(OSError):
        os.write(standard_input(), b".")


class _ServiceManager:
    """The receiver of notifications named by ``NOTIFY_SOCKET``; they are lost if it cannot accept them at once."""

    def __init__(self, address: str) -> None:
        # An abstract address begins with a null byte, written "@" in the variable.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def notify(self, state: str) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(state.encode(), self._address)

    def heartbeat(self) -> None:
        self.notify("WATCHDOG=1")


@contextlib.contextmanager
def _repeated(calls: list[Callable[[], None]]) -> Iterator[None]:
    """Call these at once, then every ``HEARTBEAT_S`` seconds, while the block runs."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def fire() -> None:
        nonlocal timer
        timer = loop.call_later(until_next(loop.time(), HEARTBEAT_S), fire)
        for call in calls:
            call()

    fire()
    try:
        yield
    finally:
        timer.cancel()


def lend(listeners: Iterable[socket.socket]) -> None:
    """Lend listening sockets to the supervisor, in place of earlier ones. Blocks as little as a heartbeat."""
    # It may have died.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(standard_input())) as link:
        socket.send_fds(link, [_LENT], [each.fileno() for each in listeners])


class ChildLink:
    """The supervisor's end of a process's standard input, and the listening sockets lent by the process.

    They stay open in the supervisor: it must :meth:`close` the link as soon as the process has ended.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.setblocking(False)
        self._listeners: list[socket.socket] = []
        self._paused: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the link and the lent sockets, with all connections that wait for the process to accept them."""
        self._return()
        self._link.close()

    def has_heartbeat(self) -> bool:
        """Read heartbeats and lent sockets; return whether there were any."""
        found = False
        with contextlib.suppress(OSError):  # nothing more, or it has closed its end
            while True:
                # One call returns nothing beyond the next sockets. Python 3.11 ignores its flags (MSG_CMSG_CLOEXEC).
                data, lent, _, _ = socket.recv_fds(self._link, _BYTES, _MAX_LENT)
                for number in lent:
                    # In another child it would go on to listen when this one has ended.
                    os.set_inheritable(number, False)
                if not data:
                    break
                found = True
                if _LENT in data:
                    self._return()
                    self._listeners = [socket.socket(fileno=number) for number in lent]
        return found

    def pause_listening(self) -> bool:
        """Stop listening on the lent sockets: clients in their queues are disconnected, new ones reach other processes.

        Return whether it listened on any.
        """
        found = [each for each in self._listeners if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]
        for listener in found:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        self._paused += found
        return bool(found)

    def resume_listening(self) -> bool:
        """Listen again after :meth:`pause_listening`; return whether that was necessary."""
        paused, self._paused = self._paused, []
        for listener in paused:
            with contextlib.suppress(OSError):
                listener.listen(BACKLOG)
        return bool(paused)

    def _return(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners, self._paused = [], []


class HangDetector:
    """Detects a hung process by checks every ``HEARTBEAT_S`` seconds. Without any heartbeats, none is detected.

    Checks without a heartbeat are counted, not seconds: while the supervisor does not run either (the machine sleeps or
    is overloaded, or everything is suspended), no process counts as hung. Time for which the process waited for a core
    does not count: killing one that is only starved sends its clients to the others, and they are starved next.
    """

    def __init__(self, limit_s: float = HUNG_AFTER_S) -> None:
        self._limit = math.ceil(limit_s / HEARTBEAT_S)
        self._silent = math.ceil(SILENT_SHARE * self._limit)
        self.reset()

    def reset(self) -> None:
        """Start over with another process."""
        self._sends = False
        self._missed = 0.0
        self._waited_s: float | None = None

    def check(self, *, received: bool, waited_s: Callable[[], float] = lambda: 0.0) -> bool:
        """Return whether the process became hung with this check: at most once until its next heartbeat.

        Args:
            received: whether there was a heartbeat since the last check.
            waited_s: returns the seconds for which the process has waited for a core since its start.
        """
        before = self._missed
        if received:
            self._sends, self._missed, self._waited_s = True, 0.0, None
        elif self._sends:
            known, self._waited_s = self._waited_s, waited_s()
            starved_s = 0.0 if known is None else self._waited_s - known
            self._missed += max(0.0, 1 - starved_s / HEARTBEAT_S)
        return before < self._limit <= self._missed

    @property
    def is_silent(self) -> bool:
        """True after :data:`SILENT_SHARE` of the checks without a heartbeat that make a process count as hung."""
        return self._missed >= self._silent
