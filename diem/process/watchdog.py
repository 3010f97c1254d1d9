"""Watchdog: a process sends heartbeats from its event loop, and who supervises it ends it when they stop.

A process that is killed closes its connections, so its clients and peers go elsewhere at once; one that hangs keeps
them, and its kernel accepts more. Our own supervisor reads the heartbeats from the standard input of the process, which
is a socket; systemd from ``NOTIFY_SOCKET`` (sd_notify(3), ``WatchdogSec=``). Kubernetes asks at ``/livez``.
"""

import asyncio
import contextlib
import math
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Final, Self

HEARTBEAT_S: Final = 1.0
"""Seconds between two heartbeats."""
HUNG_AFTER_S: Final = 12.0
"""Seconds without a heartbeat after which a process hangs: links are cut after 5 s, clients leave within 9 s, and a
bridge loses its partitions after 10 s, so nobody is there who could lose something."""
WANTED: Final = "WATCHDOG_USEC"
"""Variable with the microseconds within which a supervisor wants a heartbeat, ours or systemd (sd_watchdog_enabled(3)).
Supervisors of earlier releases do not set it, and would take what is written for the end of a process."""
_VARIABLES: Final = ("NOTIFY_SOCKET", WANTED, "WATCHDOG_PID")
_BYTES: Final = 4096
"""More heartbeats than are ever waiting."""


@contextlib.contextmanager
def heartbeats(*, supervised: bool) -> Iterator[None]:
    """Send heartbeats to the supervisor, if there is one, or to systemd, if they are wanted, while the block runs.

    They need the running loop. Children do not inherit the variables.
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
    """The receiver of notifications that ``NOTIFY_SOCKET`` names; they are lost if it does not take them now."""

    def __init__(self, address: str) -> None:
        # An abstract address begins with a null byte, in the variable with an "@".
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
    """Call these now and every ``HEARTBEAT_S`` seconds while the block runs."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def fire() -> None:
        nonlocal timer
        timer = loop.call_later(HEARTBEAT_S, fire)
        for call in calls:
            call()

    fire()
    try:
        yield
    finally:
        timer.cancel()


def has_heartbeat(link: socket.socket) -> bool:
    """Return whether a process has written to the other end of its standard input, and discard what it wrote."""
    try:
        return bool(link.recv(_BYTES))
    except OSError:  # nothing, or it has closed its end
        return False


class HangDetector:
    """Detects that a process hangs, by checks every ``HEARTBEAT_S`` seconds. One that never sends heartbeats cannot.

    The checks without a heartbeat are counted, not the seconds: where the supervisor does not run either, because the
    machine sleeps or is overloaded, or everything was stopped together, no process hangs.
    """

    def __init__(self, limit_s: float = HUNG_AFTER_S) -> None:
        self._limit = math.ceil(limit_s / HEARTBEAT_S)
        self.reset()

    def reset(self) -> None:
        """Begin anew: with another process."""
        self._sends = False
        self._missed = 0

    def check(self, *, received: bool) -> bool:
        """Return whether the process hangs since this check: only once until it sends another heartbeat."""
        if received:
            self._sends, self._missed = True, 0
        elif self._sends:
            self._missed += 1
        return self._missed == self._limit
