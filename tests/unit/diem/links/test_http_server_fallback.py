import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from diem.links import listener as listener_module
from diem.links.http_server import AsgiFallback
from diem.links.internal import InternalListener
from diem.process.auth import SharedKey
from tests.support.patience import PATIENCE_S


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.method} {(await request.body()).decode()}")


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[InternalListener]:
    app = Starlette(routes=[Route("/v1/things", echo, methods=["GET", "POST"])])
    (tmp_path / "key").write_text("k" * 43)
    (tmp_path / "key").chmod(0o600)
    made = InternalListener(
        "127.0.0.1",
        0,
        key=SharedKey.load(tmp_path / "key"),
        ready=lambda: None,
        status=dict,
        fallback=AsgiFallback(app, "/v1/things"),
    )
    await made.start()
    yield made
    made.stop()


async def test_one_client_may_ask_the_application_and_the_listener_in_turn(listener: InternalListener) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}", trust_env=False) as http:
        for _ in range(2):
            assert (await http.post("/v1/things", content=b"a")).text == "POST a"
            assert (await http.get("/livez")).status_code == 200
            assert (await http.get("/v1/other")).status_code in {401, 404}


async def test_a_request_for_the_application_may_come_in_pieces(listener: InternalListener) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    for piece in (b"PO", b"ST /v1/things HTTP/1.1\r\nHost: a\r\n", b"Content-Length: 2\r\n\r\n", b"ab"):
        writer.write(piece)
        await writer.drain()
    async with asyncio.timeout(PATIENCE_S):
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
