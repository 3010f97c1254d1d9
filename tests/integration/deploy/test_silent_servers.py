"""nginx in front of servers whose hosts are gone: packets to them are dropped, and nothing refuses."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from deploy import nginx
from tests.support.nginx import needs_nginx
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.ports import free_port

pytestmark = needs_nginx
HANDSHAKE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SILENT: Final = 3
LONGEST_S: Final = 1.5
"""Two silent servers at first, and three of those that are not remembered yet."""


@pytest.fixture
def silent() -> Iterator[list[int]]:
    """Ports of sockets whose queue is full: the kernel drops what would open another connection."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        for _ in range(SILENT):
            listening = stack.enter_context(socket.socket())
            listening.bind(("127.0.0.1", 0))
            listening.listen(0)
            for _ in range(3):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    waiting.connect(listening.getsockname())
            ports.append(listening.getsockname()[1])
        yield ports


async def _accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


@contextlib.asynccontextmanager
async def serving(slots: tuple[int, ...], directory: Path) -> AsyncIterator[Callable[[], "asyncio.Task[int]"]]:
    """Start nginx; yield what begins to connect a client, and returns the status of its handshake."""
    port = free_port()
    plan = nginx.NginxPlan(
        directory=directory,
        port=port,
        data=(f"127.0.0.1:{free_port()}",),
        slots=tuple(f"127.0.0.1:{slot}" for slot in slots),
        limit_loopback=False,
    )
    nginx.write(directory, nginx.render(plan))
    process = await asyncio.create_subprocess_exec(*nginx.argv(nginx.find(), directory))
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        writer.write(HANDSHAKE)
        return int((await reader.readline()).split()[1])

    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                except OSError:
                    await asyncio.sleep(0.02)
        yield lambda: asyncio.create_task(connect())
    finally:
        for writer in writers:
            writer.close()
        process.terminate()
        await process.wait()


async def test_no_client_waits_long_for_hosts_that_are_gone_and_most_are_served_at_once(
    silent: list[int], tmp_path: Path
) -> None:
    server = await asyncio.start_server(_accept, "127.0.0.1", 0)
    alive = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    async with serving((*silent, alive), tmp_path / "nginx") as connect:
        statuses: list[int] = []
        for _ in range(6):
            began = loop.time()
            statuses.append(await connect())
            assert loop.time() - began < 2 * LONGEST_S * FACTOR
    # The first one may find three that are not remembered yet; it comes again.
    assert statuses[1:] == [101] * 5
    server.close()


async def test_a_server_that_is_back_is_used_at_once_while_others_are_silent(silent: list[int], tmp_path: Path) -> None:
    server = await asyncio.start_server(_accept, "127.0.0.1", 0)
    came: list[asyncio.StreamWriter] = []

    async def accept_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        await _accept(reader, writer)

    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        slots = (*silent, late.getsockname()[1], server.sockets[0].getsockname()[1])
        async with serving(slots, tmp_path / "nginx") as connect:
            # While it refuses, it counts as failed among the remembered ones.
            assert [await connect() for _ in range(4)][1:] == [101] * 3
            assert not came
            back = await asyncio.start_server(accept_late, sock=late)
            assert set(await asyncio.gather(*(connect() for _ in range(20)))) == {101}
            assert came
            back.close()
    server.close()
