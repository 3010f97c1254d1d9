"""nginx in front of servers whose hosts are gone, so that packets to them are dropped, and of servers that hang."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from deploy import nginx
from tests.support.nginx import changed, needs_nginx, with_probe
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.ports import free_port
from tests.support.stalls import stalls

pytestmark = needs_nginx
HANDSHAKE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SILENT: Final = 3
GONE_S: Final = SILENT * nginx.CONNECT_TIMEOUT_MS / 1000
"""Time for the first client, who meets all of them."""


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
    if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /livez "):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()
        return
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


class Hanging:
    """A server that may begin to hang: it still accepts connections, and answers nothing."""

    def __init__(self, *, answers_probes: bool = False) -> None:
        self.handshakes = 0
        """Those that it has not answered."""
        self.is_hung = False
        self._answers_probes = answers_probes
        self._clients: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        is_probe = head.startswith(b"GET /livez ")
        if self.is_hung and not (is_probe and self._answers_probes):
            self.handshakes += not is_probe
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            return
        reader.feed_data(head)
        if not is_probe:
            self._clients.append(writer)
        await _accept(reader, writer)

    def lose_clients(self) -> None:
        """All that it had go elsewhere, as they do after a silence: then it has the fewest."""
        for writer in self._clients:
            writer.close()


def _waiting(listener: socket.socket) -> int:
    """Close the connections that the kernel has accepted and nobody else has; return their number."""
    for count in itertools.count():
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
    raise AssertionError


@contextlib.asynccontextmanager
async def serving(
    slots: tuple[int, ...],
    directory: Path,
    failed_s: int = nginx.FAILED_S,
    probe_s: int = int(PATIENCE_S),
    silence_s: int = 9,
) -> AsyncIterator[Callable[[], "asyncio.Task[int]"]]:
    """Start nginx; yield what begins to connect a client, and returns the status of its handshake.

    A probe may take ``probe_s``: the servers are in this process, which may stand still for longer than it usually may.
    A server may be silent for ``silence_s``.
    """
    port = free_port()
    plan = nginx.NginxPlan(
        directory=directory,
        port=port,
        data=(f"127.0.0.1:{free_port()}",),
        slots=tuple(f"127.0.0.1:{slot}" for slot in slots),
        limit_loopback=False,
    )
    text = with_probe(nginx.render(plan), probe_s)
    text = changed(text, f"fail_timeout={nginx.FAILED_S}s", f"fail_timeout={failed_s}s", len(slots))
    text = changed(text, "proxy_read_timeout 9s", f"proxy_read_timeout {silence_s}s", 3)
    nginx.write(directory, text)
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
            async with stalls() as counted:
                began = loop.time()
                statuses.append(await connect())
                assert loop.time() - began - counted.seconds < 2 * GONE_S * FACTOR
    assert statuses == [101] * 6
    server.close()


async def test_a_server_that_is_back_is_used_within_seconds_while_others_are_silent(
    silent: list[int], tmp_path: Path
) -> None:
    server = await asyncio.start_server(_accept, "127.0.0.1", 0)
    came = asyncio.Event()

    async def accept_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await _accept(reader, writer)

    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        slots = (*silent, late.getsockname()[1], server.sockets[0].getsockname()[1])
        async with serving(slots, tmp_path / "nginx", failed_s=1) as connect:
            # While it refuses, it counts as failed.
            assert await asyncio.gather(*(connect() for _ in range(4))) == [101] * 4
            back = await asyncio.start_server(accept_late, sock=late)
            async with asyncio.timeout(PATIENCE_S):
                while not came.is_set():
                    assert await connect() == 101
                    await asyncio.sleep(0.25)
            back.close()
    server.close()


@pytest.mark.takes(4)
async def test_a_server_that_has_lost_its_clients_because_it_hangs_gets_no_others(tmp_path: Path) -> None:
    loop, hanging = asyncio.get_running_loop(), Hanging()
    handlers = (_accept, hanging.accept, _accept)
    servers = [await asyncio.start_server(handler, "127.0.0.1", 0) for handler in handlers]
    slots = tuple(each.sockets[0].getsockname()[1] for each in servers)
    async with serving(slots, tmp_path / "nginx", probe_s=nginx.PROBE_S) as connect:
        assert [await connect() for _ in range(9)] == [101] * 9
        hanging.is_hung = True
        hanging.lose_clients()
        for count in (1, 5, 30, 1):
            async with stalls() as counted:
                began = loop.time()
                assert await asyncio.gather(*(connect() for _ in range(count))) == [101] * count
                assert loop.time() - began - counted.seconds < (nginx.PROBE_S + 1) * FACTOR
    # One may take the balance between the probe and the handshake of another (ADR 24).
    assert hanging.handshakes <= 1
    for each in servers:
        each.close()


async def test_a_client_of_a_server_that_hangs_after_its_probe_is_served_by_another(tmp_path: Path) -> None:
    hanging = Hanging(answers_probes=True)
    servers = [await asyncio.start_server(handler, "127.0.0.1", 0) for handler in (_accept, hanging.accept)]
    slots = tuple(each.sockets[0].getsockname()[1] for each in servers)
    hanging.is_hung = True
    async with serving(slots, tmp_path / "nginx", silence_s=1) as connect:
        assert await asyncio.gather(*(connect() for _ in range(4))) == [101] * 4
    assert hanging.handshakes > 0
    for each in servers:
        each.close()


@pytest.mark.takes(4)
async def test_no_client_is_sent_to_a_server_that_hangs(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    hung, *others = listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    # The kernel accepts connections to it, and nobody reads them. It was never asked before: where the test stood still
    # for as long as a probe may take, it would be passed over from the beginning.
    hung.setblocking(False)
    servers = [await asyncio.start_server(_accept, sock=each) for each in others]
    slots = tuple(each.getsockname()[1] for each in listeners)
    # It is marked for as long as the test takes.
    async with serving(slots, tmp_path / "nginx", int(PATIENCE_S), nginx.PROBE_S) as connect:
        async with stalls() as counted:
            began = loop.time()
            assert await asyncio.gather(*(connect() for _ in range(6))) == [101] * 6
            assert loop.time() - began - counted.seconds < (nginx.PROBE_S + 1) * FACTOR
        assert _waiting(hung) > 0
        assert [await connect() for _ in range(6)] == [101] * 6
        assert _waiting(hung) == 0, "it is passed over"
    for each in servers:
        each.close()
    hung.close()
