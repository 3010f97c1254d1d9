"""Many HTTP readers: connections from many loopback addresses that send requests, or are held idle."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from typing import Final

from tests.support.patience import PATIENCE_S

PER_ADDRESS: Final = 20


class HttpReaders:
    """``asking`` connections that send requests repeatedly, and ``held`` ones that send one, or half of one."""

    def __init__(self, port: int, path: str, *, asking: int, held: int) -> None:
        self.answers = Counter[str]()
        """Responses by status; ``cut``: a first request was not answered; ``late``: it was not within ``PATIENCE_S``;
        ``bare``: a 503 without Retry-After."""
        self._port = port
        self._request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
        self._numbers = count()
        self._asking = asking
        self._held = held
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def have_all_connections(self) -> bool:
        """Whether readers were answered, and some refused, or idle ones closed for others where answers are fast."""
        return self.answers["200"] > 0 and self.answers["503"] + self.answers["idle"] > 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["HttpReaders"]:
        """Open all connections on entry, and close them on exit."""
        tasks = [asyncio.create_task(self._ask_for_ever()) for _ in range(self._asking)]
        try:
            await asyncio.gather(*(self._hold(whole=number % 2 == 0) for number in range(self._held)))
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        number = next(self._numbers) // PER_ADDRESS
        local = (f"127.0.{1 + number // 250 % 250}.{1 + number % 250}", 0)
        return await asyncio.open_connection("127.0.0.1", self._port, local_addr=local)

    async def _hold(self, *, whole: bool) -> None:
        with contextlib.suppress(ConnectionError):
            _, writer = await self._dial()
            self._writers.add(writer)
            writer.write(self._request + (b"\r\n" if whole else b"X: "))

    async def _ask_for_ever(self) -> None:
        while True:
            try:
                reader, writer = await self._dial()
            except ConnectionError:
                self.answers["refused"] += 1
                await asyncio.sleep(0.1)
                continue
            try:
                await self._ask(reader, writer)
            finally:
                writer.transport.abort()
            # As a browser does that was told to come back.
            await asyncio.sleep(0.5)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in count():
            writer.write(self._request + b"\r\n")
            try:
                async with asyncio.timeout(PATIENCE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
                    await reader.readexactly(int(fields[b"content-length"]))
            except (ConnectionError, asyncio.IncompleteReadError):
                # An idle connection gives way to others, and may do so at any moment; a first request is answered.
                self.answers["idle" if number else "cut"] += 1
                return
            except TimeoutError:
                self.answers["late"] += 1
                return
            status = head.split(b" ", 2)[1].decode()
            self.answers["bare" if status == "503" and b"retry-after" not in fields else status] += 1
            if status != "200":
                return
