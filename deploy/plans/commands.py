"""Runs commands of `diem` as children that end when this process does."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from typing import Final

from deploy.launch import command, guarded
from deploy.plans.loop import CommandResult

END_WITHIN_S: Final = 20.0
"""What an interrupted command has to end, with its JVM."""


class Interrupted(Exception):  # it is no error
    """It was to stop."""


class Commands:
    """Runs one command at a time, until `stopping` is set."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping

    async def __call__(self, *arguments: str) -> CommandResult:
        """Run a command to its end. Raises `Interrupted`: it was to stop, and was interrupted as by Ctrl-C."""
        # A session of its own: Ctrl-C at a terminal reaches this process alone, which passes it on, once.
        child = await asyncio.create_subprocess_exec(
            *guarded((*command(), *arguments)), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        done = asyncio.ensure_future(child.communicate())
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({done, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                await _end(child, done)
                raise Interrupted
        finally:
            stop.cancel()
        out, err = done.result()
        return CommandResult(child.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


async def _end(child: asyncio.subprocess.Process, done: "asyncio.Future[tuple[bytes, bytes]]") -> None:
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    await asyncio.wait({done}, timeout=END_WITHIN_S)
    if not done.done():
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    await done
