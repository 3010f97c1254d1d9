"""The public HTTP server, and connections that leave it to become WebSockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request

from diem.links import http
from diem.links.acceptor import ServerConnection
from diem.links.http import make_server
from diem.process.listeners import bind


class Echo(ServerConnection):
    """Takes every upgrade, and says what it is told."""

    def __init__(self) -> None:
        super().__init__(subprotocols=(), max_size=1000)

    def on_request(self, request: Request) -> None:
        self.upgrade(request)

    def on_text(self, data: bytes) -> None:
        self.send_text(data)


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, upgraded: type[Echo] | None) -> AsyncIterator[int]:
    server = make_server(app, connections=10, drain_s=1, upgraded=upgraded)
    listener, stopping = bind("127.0.0.1", 0), asyncio.Event()
    running = asyncio.create_task(server.run_until(stopping, listener))
    try:
        yield int(listener.getsockname()[1])
    finally:
        stopping.set()
        await running


async def test_one_port_answers_requests_and_takes_web_sockets() -> None:
    async with (
        serving(PlainTextResponse("hello"), Echo) as port,
        connect(f"ws://127.0.0.1:{port}/any", proxy=None) as socket,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        await socket.send("one")
        assert await socket.recv() == "one"
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hello"


async def test_a_web_socket_outlives_the_time_for_a_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_REQUEST_S", 0.1)
    async with (
        serving(PlainTextResponse("hello"), Echo) as port,
        connect(f"ws://127.0.0.1:{port}/", proxy=None) as socket,
    ):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(socket.wait_closed(), 0.3)
        await socket.send("still here")
        assert await socket.recv() == "still here"


async def test_without_a_protocol_for_them_there_are_no_web_sockets() -> None:
    async with serving(PlainTextResponse("hello"), None) as port:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{port}/", proxy=None)
    assert refused.value.response.status_code == 200
