"""Common parts of REST interfaces."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Scope

from diem.links import rest
from diem.links.rest import (
    BodyTooLarge,
    RequestDecision,
    RestMiddleware,
    on_defect,
    on_http_error,
    problem,
    read_body,
)


class Gated(RestMiddleware):
    """Refuses ``/refused``, and charges for everything else."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self.charged: list[int] = []

    async def decide(self, scope: Scope) -> RequestDecision:
        if scope["path"] == "/refused":
            return RequestDecision(problem(403, "refused", "not here"))
        return RequestDecision(self._app, {"Cache-Control": "no-store"}, varies=True, pays=True)

    def charge(self, scope: Scope, sent_bytes: int) -> None:
        self.charged.append(sent_bytes)


async def echo(request: Request) -> Response:
    body = await read_body(request, 10)
    return PlainTextResponse(body, headers={"Cache-Control": "max-age=60", "Vary": "Accept"})


async def on_too_large(_request: Request, error: Exception) -> Response:
    return problem(413, "too_large", str(error))


@pytest.fixture
def app() -> Gated:
    handlers = {BodyTooLarge: on_too_large, HTTPException: on_http_error, Exception: on_defect}
    return Gated(Starlette(routes=[Route("/echo", echo, methods=["POST"])], exception_handlers=handlers))


@pytest.fixture
async def client(app: Gated) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://rest.test") as http:
        yield http


async def test_answers_are_counted_and_charged_and_refusals_are_counted(app: Gated, client: httpx.AsyncClient) -> None:
    assert (await client.post("/echo", content=b"12345")).text == "12345"
    assert (await client.get("/refused")).json()["code"] == "refused"
    assert (await client.request("BREW", "/echo")).status_code == 405
    assert app.requests == {("POST", 200): 1, ("GET", 403): 1, ("other", 405): 1}
    assert app.charged[0] == 5
    assert len(app.charged) == 2
    assert len(list(app.samples())) == 3


async def test_every_answer_has_the_security_headers_and_decided_ones_replace_others(client: httpx.AsyncClient) -> None:
    answers = [await client.post("/echo"), await client.get("/refused"), await client.get("/unknown")]
    assert [answer.status_code for answer in answers] == [200, 403, 404]
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
    assert answers[0].headers["Vary"] == "Accept, Origin"
    assert "Vary" not in answers[1].headers


async def test_body_is_bounded_by_what_it_announces_and_by_what_arrives(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"123456"
        yield b"789012"

    announced = await client.post("/echo", content=b"x" * 11)
    assert (announced.status_code, announced.json()["detail"]) == (413, "a body has at most 10 bytes here, not 11")
    arrived = await client.post("/echo", content=chunks())
    assert (arrived.status_code, arrived.json()["detail"]) == (413, "a body has at most 10 bytes here")


async def test_slow_body_is_given_up(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "BODY_TIMEOUT_S", 0.01)

    async def stalled() -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.Event().wait()

    answer = await client.post("/echo", content=stalled())
    assert (answer.status_code, answer.json()["code"], answer.headers["Connection"]) == (408, "timeout", "close")


async def test_client_that_leaves_before_the_end_of_its_body_is_no_defect(app: Gated) -> None:
    messages: list[Message] = [{"type": "http.request", "body": b"1", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    async def send(_message: Message) -> None: ...

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/echo",
        "headers": [],
        "query_string": b"",
        "client": None,
    }
    # A defect would be raised again here, and logged with its traceback.
    await app(scope, receive, send)
    assert app.requests == {("POST", 400): 1}
