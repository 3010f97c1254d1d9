"""One child process: what it is, what is known of it, and the system calls that start it and send it signals."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run. `env` is the child's whole environment; `log` takes both its outputs, appended.

    Without a log its outputs are lost, or with `inherit` those of the supervisor. Children start together; they stop in
    stages, the highest stage first. `sweep` kills what a dead child leaves in its process group before the next one
    starts: workers that outlive their master would hold its ports.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path | None = None
    stage: int = 0
    sweep: bool = False
    inherit: bool = False


class ChildState(StrEnum):
    """Where a child is in its life."""

    WAITING = "waiting"  # for its first start, or for the delay before a restart
    RUNNING = "running"
    STOPPED = "stopped"  # by us
    FAILED = "failed"  # its configuration is wrong: a restart would change nothing


class ChildEvent(NamedTuple):
    """A change in a child's life: `kind` is started, died, failed, stopped or killed.

    `code` is its exit code, minus the number of the signal that ended it; `delay_s` is the wait before its restart.
    """

    name: str
    kind: str
    pid: int | None = None
    code: int | None = None
    delay_s: float = 0.0


class ChildStatus(NamedTuple):
    """What is known of a child now."""

    name: str
    state: ChildState
    pid: int | None
    uptime_seconds: float
    restarts: int
    last_exit: int | None


async def spawn(spec: Spec) -> Process:
    """Start a child, in a process group of its own.

    Raises:
        OSError: it cannot be started, or its log not be opened.
    """
    log = None
    if spec.log is not None:
        log = os.open(spec.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    output = log if log is not None else None if spec.inherit else DEVNULL
    try:
        return await asyncio.create_subprocess_exec(
            *spec.argv,
            env=dict(spec.env),
            stdin=PIPE,
            stdout=output,
            stderr=output,
            # A session of its own: Ctrl-C at the terminal reaches the supervisor alone, which stops in order.
            start_new_session=True,
        )
    finally:
        if log is not None:
            os.close(log)


def send(process: Process | None, number: signal.Signals) -> bool:
    """Send a signal to a child; SIGKILL to its whole process group. Returns whether there was any."""
    if process is None or process.returncode is not None:
        return False
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)  # with whatever it started itself
        else:
            process.send_signal(number)
    return True
