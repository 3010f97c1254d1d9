"""Control socket of a running ``diem up``: one JSON line each way, on an owner-only Unix socket."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from deploy.system.state_dir import NotUp, StateDir
from diem.errors import DiemError

MAX_REQUEST_BYTES: Final = 4096
MAX_REPLY_BYTES: Final = 4 * 1024 * 1024
MAX_CONNECTIONS: Final = 32
TIMEOUT_S: Final = 10.0

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Return the reply to a request; raise ``CommandRefused``."""


@dataclass(eq=False)
class ControlFailed(DiemError):
    """The running ``diem up`` refused a command or did not answer."""

    template = "{reason}"

    reason: str


class CommandRefused(DiemError):
    """A handler refused a request; the text is the reason."""


@asynccontextmanager
async def serve(state: StateDir, handlers: Mapping[str, Handler]) -> AsyncIterator[None]:
    """Answer requests ``{"command": NAME, ...}`` with the result of NAME's handler.

    At most ``MAX_CONNECTIONS`` at once, one request each within ``TIMEOUT_S``; others are closed unanswered.
    """
    connections: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await _answer(reader, writer, handlers)
            finally:
                await _close(writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(handle(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    path = state.new_socket()
    # The socket must never be accessible to others, not even before a chmod.
    umask = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(accept, path, limit=MAX_REQUEST_BYTES)
    finally:
        os.umask(umask)
    try:
        yield
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        state.remove_socket()


async def request(state: StateDir, command: str, **arguments: int) -> dict[str, Any]:
    """Send a command to the ``diem up`` of a state directory and return its reply.

    Raises:
        NotUp: none is running there.
        ControlFailed: the command is unknown or refused, or there is no reply within ``TIMEOUT_S``.
    """
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(state.socket(), limit=MAX_REPLY_BYTES)
            try:
                writer.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
                line = await reader.readline()
            finally:
                await _close(writer)
    except TimeoutError:
        raise ControlFailed("the running `diem up` does not answer") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotUp(state.path) from None
    except ConnectionError:
        line = b""
    except OSError as error:
        raise ControlFailed(error.strerror or str(error)) from error
    reply: dict[str, Any] = json.loads(line) if line else {"error": "the running `diem up` closed the connection"}
    if "error" in reply:
        raise ControlFailed(str(reply["error"]))
    return reply


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]) -> None:
    try:
        request = json.loads(await reader.readline())
        handler = handlers[request["command"]]
    except (ValueError, KeyError, TypeError):  # too long, not JSON, not an object, no such command
        reply: dict[str, Any] = {"error": "the running `diem up` does not know this command: is it of another release?"}
    else:
        try:
            reply = await handler(request)
        except CommandRefused as refused:
            reply = {"error": str(refused)}
    writer.write(json.dumps(reply).encode() + b"\n")
    await writer.drain()
