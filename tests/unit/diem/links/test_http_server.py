"""The public HTTP server."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from diem.links import connection_limits, http_server
from diem.links.connection_limits import ConnectionLimits
from diem.links.http_server import HttpServer, TimedProtocol, make_server
from diem.process.forwarding import UNKNOWN
from diem.process.listeners import bind
from tests.support.patience import PATIENCE_S, until

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
HELLO = PlainTextResponse("hello")


@contextlib.asynccontextmanager
async def running(app: ASGIApp, **options: Any) -> AsyncIterator[tuple[HttpServer, int]]:
    server = make_server(app, **{"limits": ConnectionLimits(10), "drain_s": 1, **options})
    listener, stopping = bind("127.0.0.1", 0), asyncio.Event()
    serve = asyncio.create_task(server.run_until(stopping, listener))
    try:
        yield server, int(listener.getsockname()[1])
    finally:
        stopping.set()
        await serve


@contextlib.asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    async with running(app) as (_, port):
        yield port


async def test_a_request_for_a_web_socket_is_answered_like_any_other() -> None:
    async with serving(PlainTextResponse("hello")) as port:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{port}/", proxy=None)
    assert refused.value.response.status_code == 200


async def test_visits_that_ask_for_a_web_socket_leave_nothing_behind() -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(found, TimedProtocol) for found in gc.get_objects())

    async with running(HELLO) as (server, port):
        before = alive()
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
            await writer.wait_closed()
        await until(lambda: not server.server_state.connections and alive() <= before)


async def test_malformed_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(HELLO) as port:
        for request in (
            HEAD + b"Upgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
            b"\x16\x03\x01 no HTTP\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert b" 200 " in await reader.read() or b"\x16" in request
            writer.close()
    assert not caplog.records


@pytest.mark.parametrize(
    ("trusted", "fields", "expected"),
    [
        ("", {}, "127.0.0.1"),
        ("", {"X-Forwarded-For": "192.0.2.1"}, UNKNOWN),
        ("", {"Forwarded": "for=192.0.2.1"}, UNKNOWN),
        ("", {"Via": "1.1 relay"}, UNKNOWN),
        ("127.0.0.1/32", {"X-Forwarded-For": "192.0.2.1"}, "192.0.2.1"),
        ("127.0.0.1/32", {"X-Forwarded-For": "127.0.0.1"}, "127.0.0.1"),
        ("127.0.0.1/32", {"X-Forwarded-For": "127.0.0.1", "Via": "1.1 relay"}, UNKNOWN),
    ],
)
async def test_application_sees_the_client_behind_trusted_proxies(
    trusted: str, fields: dict[str, str], expected: str
) -> None:
    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(scope["client"][0])(scope, receive, send)

    networks = [ip_network(trusted)] if trusted else []
    async with running(show, trusted_proxies=networks) as (_, port), httpx.AsyncClient(timeout=PATIENCE_S) as http:
        assert (await http.get(f"http://127.0.0.1:{port}/", headers=fields)).text == expected


class Wire:
    """One connection, on which a test sends every byte itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, head: bytes = HEAD) -> bytes:
        """Send a request; returns the first line of the answer, whose body is read."""
        self.writer.write(head + b"\r\n")
        answer = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        lines = answer.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        await self.reader.readexactly(length)
        return answer.partition(b"\r\n")[0]

    async def closed(self) -> bool:
        """Wait until the server closes; it must not send anything before."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(1), PATIENCE_S) == b""
        return True


@contextlib.asynccontextmanager
async def connection(port: int, **options: Any) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


async def dribble(wire: Wire) -> None:
    """Send a byte now and then, forever."""
    while not wire.writer.is_closing():
        wire.writer.write(b"x")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("sent", [b"", HEAD])
async def test_a_connection_without_a_whole_request_is_cut(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.1)
    async with serving(HELLO) as port, connection(port) as wire:
        wire.writer.write(sent)
        assert await wire.closed()


async def test_a_second_request_that_dribbles_in_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(HELLO) as port, connection(port) as wire:
        for _ in range(2):
            assert await wire.ask() == b"HTTP/1.1 200 OK"
        monkeypatch.setattr(http_server, "REQUEST_S", 0.1)
        wire.writer.write(HEAD + b"X: ")
        dribbling = asyncio.create_task(dribble(wire))
        assert await wire.closed()
        dribbling.cancel()


async def test_a_body_that_dribbles_in_after_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(HELLO) as port, connection(port) as wire:
        assert await wire.ask(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n") == b"HTTP/1.1 200 OK"
        monkeypatch.setattr(http_server, "REQUEST_S", 0.1)
        dribbling = asyncio.create_task(dribble(wire))
        assert await wire.closed()
        dribbling.cancel()


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
async def test_a_connection_whose_response_is_not_read_is_aborted(monkeypatch: pytest.MonkeyPatch, more: bytes) -> None:
    monkeypatch.setattr(http_server, "ANSWER_S", 0.1)
    async with running(PlainTextResponse("x" * 20_000_000)) as (server, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(HEAD + more + b"\r\n")
            await until(lambda: len(server.limiter.readers) == 1)
            await until(lambda: not server.limiter.readers)
            # It was cut, and not answered to its end.
            received = 0
            with contextlib.suppress(ConnectionError):
                while chunk := client.recv(1 << 20):
                    received += len(chunk)
            assert received < 20_000_000


async def test_connections_that_send_nothing_give_way_to_newer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_limits, "GRACE_S", 0.0)
    async with (
        running(HELLO, limits=ConnectionLimits(10, pending=2)) as (_, port),
        connection(port) as first,
        connection(port),
        connection(port) as third,
    ):
        assert await first.closed()
        assert await third.ask() == b"HTTP/1.1 200 OK"


async def test_an_idle_reader_gives_way_and_a_busy_one_is_left_alone() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await go.wait()
        await HELLO(scope, receive, send)

    async with (
        running(app, limits=ConnectionLimits(2)) as (server, port),
        connection(port) as busy,
        connection(port) as idle,
        connection(port) as new,
        connection(port) as newer,
    ):
        waiting = asyncio.create_task(busy.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n"))
        await until(lambda: len(server.limiter.readers) == 1)
        assert await idle.ask() == b"HTTP/1.1 200 OK"
        assert await new.ask() == b"HTTP/1.1 200 OK"
        assert await idle.closed()
        more = asyncio.create_task(new.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n"))
        await until(lambda: not server.limiter.readers.idle)
        assert await newer.ask() == b"HTTP/1.1 503 Service Unavailable"
        assert await newer.closed()
        go.set()
        assert await waiting == await more == b"HTTP/1.1 200 OK"


async def test_refused_requests_get_a_retry_after_that_spreads_them() -> None:
    async with running(HELLO, limits=ConnectionLimits(0)) as (_, port), httpx.AsyncClient(trust_env=False) as client:
        answers = [await client.get(f"http://127.0.0.1:{port}/") for _ in range(40)]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "full")
        assert answer.headers["connection"] == "close"
    assert len({answer.headers["retry-after"] for answer in answers} & {"1", "2", "3", "4"}) > 1
    assert {answer.headers["retry-after"] for answer in answers} <= {"1", "2", "3", "4"}


async def test_an_address_has_a_bound_of_its_own_and_others_are_served() -> None:
    limits = ConnectionLimits(10, per_address=lambda address: 2 if address == "127.0.0.1" else None)
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await go.wait()
        await HELLO(scope, receive, send)

    async with running(app, limits=limits) as (server, port), contextlib.AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connection(port)) for _ in range(2)]
        slow = [asyncio.create_task(wire.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n")) for wire in held]
        await until(lambda: len(server.limiter.readers) == 2)
        async with connection(port) as refused:
            assert await refused.ask() == b"HTTP/1.1 429 Too Many Requests"
        async with connection(port, local_addr=("127.0.0.2", 0)) as other:
            assert await other.ask() == b"HTTP/1.1 200 OK"
        go.set()
        assert await asyncio.gather(*slow) == [b"HTTP/1.1 200 OK"] * 2


async def test_privileged_requests_have_connections_of_their_own() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await go.wait()
        await HELLO(scope, receive, send)

    def is_put(scope: Scope) -> bool:
        return bool(scope["method"] == "PUT")

    put = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    async with (
        running(app, limits=ConnectionLimits(1, 1), privileged=is_put) as (server, port),
        connection(port) as reader,
        connection(port) as writer,
    ):
        waiting = asyncio.create_task(reader.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n"))
        await until(lambda: len(server.limiter.readers) == 1)
        for _ in range(2):
            assert await writer.ask(put) == b"HTTP/1.1 200 OK"
        async with connection(port) as another:
            assert await another.ask(put) == b"HTTP/1.1 200 OK"
        assert await writer.closed()
        # A connection that was privileged is a reader's when it is used for one, as by a proxy.
        async with connection(port) as shared:
            assert await shared.ask(put) == b"HTTP/1.1 200 OK"
            assert await shared.ask() == b"HTTP/1.1 503 Service Unavailable"
        go.set()
        assert await waiting == b"HTTP/1.1 200 OK"


async def test_requests_that_wait_for_their_turn_are_answered_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_limits, "REQUESTS_PER_TURN", 1)

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        body = await HttpRequest(scope, receive).body()
        await PlainTextResponse(scope["path"] + body.decode())(scope, receive, send)

    async with running(echo, limits=ConnectionLimits(50)) as (_, port), httpx.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{port}"
        reads = [client.get(f"{url}/{number}") for number in range(20)]
        writes = [client.put(f"{url}/{number}/", content="x" * 100_000) for number in range(5)]
        answers = [answer.text for answer in await asyncio.gather(*reads, *writes)]
    assert answers == [*(f"/{number}" for number in range(20)), *(f"/{number}/" + "x" * 100_000 for number in range(5))]


async def test_a_stopping_server_is_over_when_it_has_answered_what_it_had_begun() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go.wait()
        await HELLO(scope, receive, send)

    server, stopping = make_server(app, limits=ConnectionLimits(10), drain_s=PATIENCE_S), asyncio.Event()
    listener = bind("127.0.0.1", 0)
    port = int(listener.getsockname()[1])
    serve = asyncio.create_task(server.run_until(stopping, listener))
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        request = asyncio.create_task(http.get(f"http://127.0.0.1:{port}/"))
        await begun.wait()
        stopping.set()
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
        await asyncio.wait({serve}, timeout=0.05)
        assert not serve.done()
        go.set()
        assert (await request).text == "hello"
    await serve
