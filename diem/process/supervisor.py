"""Supervises child processes: starts them, restarts dead ones, stops them in order, and ends them with this process.

Every child's standard input is a socket whose other end only the supervisor holds: a child reads the end of file when
the supervisor dies in whatever way (see ``diem.process.lifecycle``), and writes heartbeats to it. One that stops
writing them is killed (see ``diem.process.watchdog``).
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from diem.process.backoff import Backoff, wait
from diem.process.clock import Clock, SystemClock, until_next
from diem.process.cores import waited_for_core_s
from diem.process.fork_server import ForkedProcess, ForkServer, NotForked
from diem.process.lifecycle import EXIT_CONFIGURATION
from diem.process.watchdog import HEARTBEAT_S, HUNG_AFTER_S, WANTED, ChildLink, HangDetector


@dataclass(frozen=True, slots=True)
class Spec:
    """A child to run. ``env`` is its whole environment; both outputs are appended to ``log``.

    Without a log, the outputs are discarded, or with ``inherit`` go to the supervisor's. Children start together; they
    stop in stages, the highest stage first. ``sweep`` kills the remainder of a dead child's process group before its
    restart: workers outliving their master would hold its ports. ``process`` is what ``argv`` runs if that is a process
    of ours.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path | None = None
    stage: int = 0
    sweep: bool = False
    inherit: bool = False
    process: str | None = None


class ChildState(StrEnum):
    """State of a child."""

    WAITING = "waiting"  # for its first start, or for the delay before a restart
    RUNNING = "running"
    STOPPED = "stopped"  # by us
    FAILED = "failed"  # its configuration is wrong: a restart would change nothing


class ChildEvent(NamedTuple):
    """A change of a child: ``kind`` is started, died, failed, stopped, killed, hung, silent or resumed.

    A hung child is killed, and then dies. One with lent listening sockets is silent before, and gets no new clients
    until it has resumed.

    ``code`` is its exit code, or the negative number of the signal that ended it; ``delay_s`` is the time to its
    restart.
    """

    name: str
    kind: str
    pid: int | None = None
    code: int | None = None
    delay_s: float = 0.0


class ChildStatus(NamedTuple):
    """Current status of a child."""

    name: str
    state: ChildState
    pid: int | None
    uptime_seconds: float
    restarts: int
    last_exit: int | None
    last_exit_seconds: float | None = None
    """Seconds since the last exit; None before it."""


Child = Process | ForkedProcess


async def spawn(spec: Spec, stdin: int, hung_after_s: float, fork_server: ForkServer | None) -> Child:
    """Start a child in its own process group; ``stdin`` is the descriptor of its standard input.

    It is requested to send heartbeats within ``hung_after_s``.

    Raises:
        OSError: it cannot be started, or its log cannot be opened.
    """
    log = None
    if spec.log is not None:
        log = os.open(spec.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    output = log if log is not None else None if spec.inherit else DEVNULL
    env = {**spec.env, WANTED: str(round(hung_after_s * 1_000_000))}
    try:
        if fork_server is not None and spec.process is not None and output != DEVNULL:
            with contextlib.suppress(NotForked):
                to = sys.stderr.fileno() if output is None else output
                return await fork_server.spawn(spec.process, env, stdin, to)
        return await asyncio.create_subprocess_exec(
            *spec.argv,
            env=env,
            stdin=stdin,
            stdout=output,
            stderr=output,
            # Its own session, so that Ctrl-C at the terminal reaches only the supervisor, which stops in order.
            start_new_session=True,
        )
    finally:
        if log is not None:
            os.close(log)


def send(process: Child | None, number: signal.Signals) -> bool:
    """Send a signal to a child, SIGKILL to its whole process group; return whether the child was running."""
    if process is None or process.returncode is not None:
        return False
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)  # with its descendants
        else:
            process.send_signal(number)
    return True


EXIT_NOT_STARTED: Final = 127
RESTART_BASE_S: Final = 0.25
RESTART_CAP_S: Final = 5.0
STABLE_AFTER_S: Final = 10.0
"""Uptime after which a death counts as the first again, with an immediate restart."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Supervised:
    spec: Spec
    backoff: Backoff
    watchdog: HangDetector
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    state: ChildState = ChildState.WAITING
    process: Child | None = None
    link: ChildLink | None = None
    started: float = 0.0
    restarts: int = 0
    last_exit: int | None = None
    ended: float | None = None


class Supervisor:
    """Runs the children of ``specs`` until stopped; calls ``on_event``, which must not block, on every change.

    Errors of ``on_event`` are logged and do not affect the child. A child that stops sending heartbeats for
    ``hung_after_s`` is killed.
    """

    def __init__(
        self,
        specs: Iterable[Spec],
        *,
        on_event: Callable[[ChildEvent], None] = lambda _event: None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        hung_after_s: float = HUNG_AFTER_S,
        fork_server: ForkServer | None = None,
    ) -> None:
        self._fork_server = fork_server
        self._hung_after_s = hung_after_s
        self._timer: asyncio.TimerHandle | None = None
        self._rng = rng or random.Random()  # noqa: S311  # jitter is no secret
        self._clock = clock or SystemClock()
        self._on_event = on_event
        self._children = {spec.name: self._child(spec) for spec in specs}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    def _child(self, spec: Spec) -> _Supervised:
        backoff = Backoff(RESTART_BASE_S, RESTART_CAP_S, stable_s=STABLE_AFTER_S, immediate=True, rng=self._rng)
        return _Supervised(spec, backoff, HangDetector(self._hung_after_s))

    def start(self) -> None:
        """Start every child, without waiting. Needs a running loop."""
        for child in self._children.values():
            self._start(child)

    def add(self, spec: Spec) -> None:
        """Start one more child, without waiting.

        Raises:
            ValueError: a child has this name already. RuntimeError: the supervisor is stopping or stopped, so nobody
                would stop the new child.
        """
        if self._stopping:
            raise RuntimeError("the supervisor is stopping")
        if spec.name in self._children:
            raise ValueError(f"there is a child called {spec.name}")
        child = self._children[spec.name] = self._child(spec)
        self._start(child)

    async def remove(self, name: str, seconds: float) -> None:
        """Stop and forget one child: SIGTERM, after ``seconds`` SIGKILL.

        Raises:
            KeyError: there is no such child.
        """
        child = self._children[name]
        await self._stop_together([child], seconds)
        self._children.pop(name, None)
        self._tasks.pop(name, None)

    async def become(self, specs: Sequence[Spec], seconds: float) -> None:
        """Start those of ``specs`` not running, then :meth:`remove` all other children.

        The children of a stage are removed together, the highest stage first, so that consumers stop before their
        sources.
        """
        for spec in specs:
            if spec.name not in self._children:
                self.add(spec)
        wanted = {spec.name for spec in specs}
        leaving = [child.spec for child in self._children.values() if child.spec.name not in wanted]
        for stage in sorted({spec.stage for spec in leaving}, reverse=True):
            await asyncio.gather(*(self.remove(spec.name, seconds) for spec in leaving if spec.stage == stage))

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a child; return whether there is one of that name, and it was running."""
        child = self._children.get(name)
        return child is not None and send(child.process, number)

    def check_heartbeats(self) -> None:
        """Keep new clients from silent children, and kill hung ones. Called every ``HEARTBEAT_S`` seconds."""
        for child in self._children.values():
            if child.link is None or child.stop.is_set():
                continue
            received = child.link.has_heartbeat()
            waited_s = partial(waited_for_core_s, child.process.pid if child.process else 0)
            if child.watchdog.check(received=received, waited_s=waited_s):
                self._notify(child, "hung")
                send(child.process, signal.SIGKILL)
            elif received and child.link.resume_listening():
                self._notify(child, "resumed")
            elif child.watchdog.is_silent and child.link.pause_listening():
                self._notify(child, "silent")

    def status(self) -> list[ChildStatus]:
        """Describe every child, in the order of the specs."""
        return [self._describe(child) for child in self._children.values()]

    async def wait(self) -> None:
        """Wait until all children have ended for good. Raises errors of the supervisor itself."""
        waited: set[asyncio.Task[None]] = set()
        while tasks := set(self._tasks.values()) - waited:  # again, because children may have been added
            await asyncio.gather(*tasks)
            waited |= tasks

    async def stop(self, stage_seconds: float) -> None:
        """Stop the children stage by stage, the highest first: SIGTERM, ``stage_seconds``, then SIGKILL."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for stage in sorted({child.spec.stage for child in self._children.values()}, reverse=True):
            await self._stop_together([c for c in self._children.values() if c.spec.stage == stage], stage_seconds)

    def _start(self, child: _Supervised) -> None:
        if self._timer is None:
            self._schedule_check()
        self._tasks[child.spec.name] = asyncio.create_task(self._keep(child), name=f"keep {child.spec.name}")

    def _schedule_check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(until_next(loop.time(), HEARTBEAT_S), self._check)

    def _check(self) -> None:
        # Never two in a row: a supervisor that was late or suspended must not count that time as missed heartbeats.
        self._schedule_check()
        self.check_heartbeats()

    async def _stop_together(self, children: list[_Supervised], seconds: float) -> None:
        for child in children:
            # Once: a second SIGTERM makes a process end without draining.
            if not child.stop.is_set():
                child.stop.set()
                send(child.process, signal.SIGTERM)
        tasks = {task for child in children if (task := self._tasks.get(child.spec.name))}
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=seconds)
        while pending:
            for child in children:
                if send(child.process, signal.SIGKILL):
                    self._notify(child, "killed")
            # Repeated, because a child may have been starting.
            _, pending = await asyncio.wait(pending, timeout=1)

    async def _keep(self, child: _Supervised) -> None:
        while not child.stop.is_set():
            code, uptime = await self._run_once(child)
            child.last_exit, child.ended = code, self._clock.monotonic()
            if child.stop.is_set():
                break
            if code == EXIT_CONFIGURATION:
                child.state = ChildState.FAILED
                self._notify(child, "failed", code=code)
                return
            delay = child.backoff.next_delay(uptime)
            child.state = ChildState.WAITING
            child.restarts += 1
            self._notify(child, "died", code=code, delay_s=delay)
            if delay:
                await wait(child.stop, delay)
        child.state = ChildState.STOPPED
        self._notify(child, "stopped", code=child.last_exit)

    async def _run_once(self, child: _Supervised) -> tuple[int, float]:
        child.started = self._clock.monotonic()
        ours, theirs = socket.socketpair()
        with ChildLink(ours) as link:
            try:
                with theirs:
                    process = await spawn(child.spec, theirs.fileno(), self._hung_after_s, self._fork_server)
            except OSError:
                return EXIT_NOT_STARTED, 0.0
            child.watchdog.reset()
            child.process, child.link, child.state = process, link, ChildState.RUNNING
            self._notify(child, "started")
            if child.stop.is_set():
                send(child.process, signal.SIGTERM)
            try:
                code = await process.wait()
            finally:
                child.process = child.link = None
        if child.spec.sweep:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return code, self._clock.monotonic() - child.started

    def _notify(self, child: _Supervised, kind: str, code: int | None = None, delay_s: float = 0.0) -> None:
        pid = child.process.pid if child.process else None
        try:
            self._on_event(ChildEvent(child.spec.name, kind, pid, code, delay_s))
        except Exception:
            # A fault of the listener must not end the supervision of the child.
            _logger.exception("listener failed", child=child.spec.name, kind=kind)

    def _describe(self, child: _Supervised) -> ChildStatus:
        running = child.process is not None
        return ChildStatus(
            child.spec.name,
            child.state,
            child.process.pid if child.process else None,
            self._clock.monotonic() - child.started if running else 0.0,
            child.restarts,
            child.last_exit,
            None if child.ended is None else self._clock.monotonic() - child.ended,
        )
