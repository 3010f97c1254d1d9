"""Watchdog: a process sends heartbeats from its event loop, and its supervisor ends it when they stop.

A killed process closes its connections, so its clients and peers go elsewhere at once; a hung one keeps them, and its
kernel accepts more. Our own supervisor reads the heartbeats from the standard input of the process, which is a socket;
systemd from ``NOTIFY_SOCKET`` (sd_notify(3), ``WatchdogSec=``). Kubernetes polls ``/livez``.
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
"""Seconds without a heartbeat after which a process counts as hung: links are cut after 5 s, clients leave within 9 s,
and a bridge loses its partitions after 10 s, so by then nobody can lose anything."""
WANTED: Final = "WATCHDOG_USEC"
"""Variable with the microseconds within which a supervisor, ours or systemd, expects a heartbeat
(sd_watchdog_enabled(3)). Supervisors of earlier releases do not set it, and would mistake a heartbeat for the end of
the process."""
_VARIABLES: Final = ("NOTIFY_SOCKET", WANTED, "WATCHDOG_PID")
_BYTES: Final = 4096
"""More bytes than there are ever heartbeats waiting."""


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
        timer = loop.call_later(HEARTBEAT_S, fire)
        for call in calls:
            call()

    fire()
    try:
        yield
    finally:
        timer.cancel()


def has_heartbeat(link: socket.socket) -> bool:
    """Read a process's heartbeats from the other end of its standard input; return whether there were any."""
    try:
        return bool(link.recv(_BYTES))
    except OSError:  # nothing, or it has closed its end
        return False


class HangDetector:
    """Detects a hung process by checks every ``HEARTBEAT_S`` seconds. Without any heartbeats, none is detected.

    Checks without a heartbeat are counted, not seconds: while the supervisor does not run either (the machine sleeps or
    is overloaded, or everything is suspended), no process counts as hung.
    """

    def __init__(self, limit_s: float = HUNG_AFTER_S) -> None:
        self._limit = math.ceil(limit_s / HEARTBEAT_S)
        self.reset()

    def reset(self) -> None:
        """Start over with another process."""
        self._sends = False
        self._missed = 0

    def check(self, *, received: bool) -> bool:
        """Return whether the process became hung with this check: at most once until its next heartbeat."""
        if received:
            self._sends, self._missed = True, 0
        elif self._sends:
            self._missed += 1
        return self._missed == self._limit
