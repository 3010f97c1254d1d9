"""A TCP relay on a loopback port in front of a listener, to simulate network failures."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Final, Self

HOST: Final = "127.0.0.1"
CHUNK: Final = 64 * 1024
_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for 0 s, so that a close is a reset."""

Target = Callable[[], tuple[str, int]]
"""Returns the target address, for every connection; raises ``OSError`` if there is none now."""


class Relay:
    """Forwards connections to their target, as an asynchronous context manager.

    A black hole accepts nothing and forwards nothing, ends included, while every socket stays open: what was sent
    meanwhile is forwarded when it is over.
    """

    def __init__(self, target: Target) -> None:
        self.port = 0
        self.accepted = 0
        """Number of connections so far."""
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._listener: socket.socket | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept(self._listener))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener:
            self._listener.close()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._writers) // 2

    def reset(self) -> None:
        """Reset every connection on both sides. New ones are accepted."""
        for writer in self._writers:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            writer.transport.abort()

    def black_hole(self) -> None:
        """Stop forwarding."""
        self._open.clear()

    def heal(self) -> None:
        """Forward again, including the data received meanwhile."""
        self._open.set()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._open.wait()
            near, _ = await loop.sock_accept(listener)
            self._start(self._relay(near))

    async def _relay(self, near: socket.socket) -> None:
        # One may be accepted just after the hole has opened.
        await self._open.wait()
        self.accepted += 1
        reader, writer = await asyncio.open_connection(sock=near)
        with contextlib.suppress(OSError):
            try:
                # From the same address, which counts its connections.
                address = near.getpeername()[0]
                there, back = await asyncio.open_connection(*self._target(), local_addr=(address, 0))
                try:
                    await self._both_ways((reader, back), (there, writer))
                finally:
                    await _closed(back)
            finally:
                await _closed(writer)

    async def _both_ways(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        writers = {writer for _, writer in ways}
        self._writers |= writers
        try:
            pumps = [asyncio.ensure_future(self._pump(*way)) for way in ways]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._writers -= writers

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        # An end, orderly or not, does not pass a black hole either.
        await self._open.wait()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
