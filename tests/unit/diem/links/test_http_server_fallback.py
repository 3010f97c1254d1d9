import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from diem.links import listener as listener_module
from diem.links.http_server import AsgiFallback
from diem.links.internal import InternalListener
from diem.links.mutual_auth import DialerAuth
from diem.process.auth import SharedKey
from tests.support.internal import http_client
from tests.support.patience import PATIENCE_S
from tests.support.security_events import recorded_events

KEY = SharedKey("k" * 43)


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.method} {(await request.body()).decode()}")


@pytest.fixture
async def listener() -> AsyncIterator[InternalListener]:
    app = Starlette(routes=[Route("/v1/things", echo, methods=["GET", "POST"])])
    made = InternalListener(
        "127.0.0.1",
        0,
        key=KEY,
        ready=lambda: None,
        status=dict,
        fallback=AsgiFallback(app, "/v1/things"),
    )
    made.start()
    yield made
    made.stop()


async def test_one_client_may_ask_the_application_and_the_listener_in_turn(listener: InternalListener) -> None:
    address = f"http://127.0.0.1:{listener.port}"
    async with http_client(KEY) as http:
        for _ in range(2):
            assert (await http.post(f"{address}/v1/things", content=b"a")).text == "POST a"
            assert (await http.get(f"{address}/livez")).status_code == 200
            assert (await http.get(f"{address}/v1/other")).status_code == 404


@pytest.mark.parametrize("given", [None, KEY.header, 'DIEM-HMAC-SHA256 proof="0"'])
async def test_the_application_is_not_reached_without_a_proof(listener: InternalListener, given: str | None) -> None:
    headers = {"Authorization": given} if given else {}
    with recorded_events() as events:
        async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
            answer = await http.post(f"http://127.0.0.1:{listener.port}/v1/things", content=b"a")
        assert answer.status_code == 401
    (event,) = events.all()
    assert (event["kind"], event["detail"].partition(": ")[0]) == ("wrong_internal_key", "/v1/things")
    assert "k" * 43 not in str(event)


async def test_a_challenge_and_a_request_for_the_application_may_come_in_pieces(listener: InternalListener) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    auth = DialerAuth(KEY, f"127.0.0.1:{listener.port}")

    async def send(data: bytes) -> None:
        for start in range(0, len(data), 7):
            writer.write(data[start : start + 7])
            await writer.drain()
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_S):
        await send(auth.challenge("a"))
        auth.verify(await reader.readuntil(b"\r\n\r\n"))
        head = f"POST /v1/things HTTP/1.1\r\nHost: a\r\nAuthorization: {auth.authorization('POST', '/v1/things')}\r\n"
        await send(f"{head}Content-Length: 2\r\n\r\nab".encode())
        assert (await reader.read()).endswith(b"POST ab")
    writer.close()


async def test_a_head_for_the_application_that_does_not_end_is_cut(
    listener: InternalListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_TIMEOUT_S", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"POST /v1/things HTTP/1.1\r\nHost: a\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""
    writer.close()
