"""TLS clients that read slowly or not at all, on the event loop of production: its TLS transport buffers twice."""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from diem.fanout.feed_hub import FeedHub
from diem.links import admitted_client
from diem.links.connection import HIGH_WATER_BYTES
from diem.links.connection_limits import ConnectionLimits
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.links.edge_connection import EdgeConnection
from diem.links.http_server import TimedProtocol, make_server
from diem.links.listener import Listener
from diem.process.listeners import bind
from diem.process.tls import ServerTls, client_context
from diem.protocol.codes import Close
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_S, until
from tests.unit.diem.links.edges import HANDSHAKE

SMALL = 4096
"""Bytes of kernel buffers, so that little disappears in them."""
FRAME = b"\x81\x7e\x03\xe8" + bytes(1000)


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on uvloop."""

    @functools.wraps(test)
    def run(*args: object, **fixtures: object) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*args, **fixtures))

    return run


class Served(NamedTuple):
    edge: Edge
    made: list[EdgeConnection]
    client: ssl.SSLSocket


def small_listener() -> socket.socket:
    listening = bind("127.0.0.1", 0)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    return listening


async def dialled(port: int, authority: Authority) -> ssl.SSLSocket:
    def dial() -> ssl.SSLSocket:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        raw.settimeout(PATIENCE_S)
        raw.connect(("127.0.0.1", port))
        return client_context(authority.file).wrap_socket(raw, server_hostname="localhost")

    return await asyncio.to_thread(dial)


@contextlib.asynccontextmanager
async def edge_with_a_client(tmp_path: Path) -> AsyncIterator[Served]:
    """Serve a client that has read its welcome, and nothing after it."""
    authority = Authority(tmp_path)
    hub = FeedHub()
    edge = Edge(hub.fanout, Admission(AdmissionRules()), EdgeRules("test", "single"), HubService(hub))
    edge.ready = True
    edge.publish_status(live=True, since="-")
    made: list[EdgeConnection] = []

    def connection() -> EdgeConnection:
        made.append(EdgeConnection(edge))
        return made[-1]

    listener = Listener((small_listener(),), connection, send_buffer=SMALL, tls=ServerTls(*authority.issue()[:2]))
    listener.start()
    client = await dialled(listener.port, authority)
    client.sendall(HANDSHAKE)
    head = b""
    while b'"status"' not in head:
        head += await asyncio.to_thread(client.recv, SMALL)
    try:
        yield Served(edge, made, client)
    finally:
        client.close()
        listener.stop()
        await until(lambda: not edge.admission.open)


async def fill(connection: EdgeConnection) -> None:
    """Send until the connection is blocked, and nothing moves any more."""
    while not connection.session.blocked:
        connection.transport.write(FRAME)
        await asyncio.sleep(0)
    before = -1
    while connection.unsent() != before:
        before = connection.unsent()
        await asyncio.sleep(0.1)


@on_uvloop
async def test_tls_client_that_reads_slowly_is_kept_and_one_that_reads_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The checks are made here, at the times that matter.
    monkeypatch.setattr(admitted_client, "STALL_TIMEOUT_S", 1e6)
    async with edge_with_a_client(tmp_path) as (edge, (connection,), client):
        for _ in range(5):
            await fill(connection)
            connection._check_stall()
            waiting = connection.unsent()
            while connection.session.blocked and connection.unsent() == waiting:
                await asyncio.to_thread(client.recv, 1024)
                await asyncio.sleep(0.01)
            # How much the kernel takes at once is its own affair: sometimes all that keeps the connection blocked.
            if connection.session.blocked:
                break
        assert connection.session.blocked, "progress is seen while the connection is blocked"
        connection._check_stall()
        assert connection.is_open
        connection._check_stall()
        assert not connection.is_open, "nothing was read since the last check"
        assert edge.closes == {Close.SLOW: 1}
        await until(lambda: not edge.admission.open)


@on_uvloop
async def test_tls_client_that_reads_nothing_holds_little(tmp_path: Path) -> None:
    async with edge_with_a_client(tmp_path) as (_, (connection,), _client):
        await fill(connection)
        # A write that crosses the limit is accepted whole.
        assert connection.unsent() <= 1.5 * HIGH_WATER_BYTES + 2 * len(FRAME)


@on_uvloop
async def test_tls_connection_whose_answer_is_not_read_is_not_drained(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    answered = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("x" * 40_000)(scope, receive, send)
        answered.set()

    tls = ServerTls(*authority.issue()[:2])
    server = make_server(answer, limits=ConnectionLimits(10), drain_s=1, tls=tls)
    listening, stopping = small_listener(), asyncio.Event()
    serving = asyncio.create_task(server.run_until(stopping, listening))
    client = await dialled(listening.getsockname()[1], authority)
    try:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await answered.wait()
        (connection,) = server.server_state.connections
        assert isinstance(connection, TimedProtocol)
        assert not connection.drained
        read = 0
        while read < 40_000:
            read += len(await asyncio.to_thread(client.recv, SMALL))
        await until(lambda: connection.drained)
    finally:
        client.close()
        stopping.set()
        await asyncio.wait_for(serving, PATIENCE_S)
