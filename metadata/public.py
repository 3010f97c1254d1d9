"""``POST /v1/locate`` on the public listener: who may ask, how often, and the answer (docs/protocol.md section 4)."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from typing import Final

import orjson
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from diem.links.problems import problem, title
from diem.process.limits import NAMES_A_MESSAGE
from diem.process.listeners import is_loopback
from diem.process.rate_limit import AddressRateLimiter
from diem.protocol.codes import ErrorCode
from metadata import locate
from metadata.locate import Answers, InvalidRequest

PATH: Final = "/v1/locate"
BODY_WITHIN_S: Final = 20.0
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "PATCH"})


class Public:
    """The ASGI application of the public listener.

    Pages of foreign origins are refused, as a WebSocket server refuses them, and so is who comes without an origin
    from another machine.
    """

    def __init__(
        self, answers: Answers, allows_origin: Callable[[str], bool], plan: AddressRateLimiter, *, most: int
    ) -> None:
        self._answers = answers
        self._allows_origin = allows_origin
        self._plan = plan
        self._most = most
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered requests by method and status."""
        self._app = Starlette(
            routes=[Route(PATH, self._locate, methods=["POST"])],
            exception_handlers={InvalidRequest: _on_bad_question, HTTPException: _on_http_error, Exception: _on_defect},
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method = scope["method"] if scope["method"] in _METHODS else "other"
        origins = Headers(scope=scope).getlist("origin")
        allowed = len(origins) == 1 and self._allows_origin(origins[0])

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.requests[method, message["status"]] += 1
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cache-Control"] = "no-store"
                headers["Vary"] = "Origin"
                if allowed:
                    headers["Access-Control-Allow-Origin"] = origins[0]
                    headers["Access-Control-Expose-Headers"] = "Retry-After"
            await send(message)

        refusal = self._refusal(scope, origins, allowed=allowed)
        await (self._app if refusal is None else refusal)(scope, receive, send_counted)

    def _refusal(self, scope: Scope, origins: list[str], *, allowed: bool) -> Response | None:
        address = scope["client"][0] if scope["client"] else ""
        wait = self._plan.take(address, asyncio.get_running_loop().time())
        if wait:
            headers = {"Retry-After": str(max(1, math.ceil(wait)))}
            return problem(429, "rate", "too many requests from this address", headers=headers)
        if origins and not allowed:
            return problem(403, "origin", "this origin is not allowed")
        if not origins and not is_loopback(address):
            return problem(403, "origin", "without an origin a token is needed")
        if scope["method"] == "OPTIONS" and scope["path"] == PATH and allowed:
            return _preflight()
        return None

    async def _locate(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return problem(415, "unsupported", "a question is application/json")
        question = locate.read(await _body(request), self._most)
        if request.client is not None:
            charged = question.given // NAMES_A_MESSAGE
            self._plan.charge(request.client.host, asyncio.get_running_loop().time(), charged)
        answer = self._answers.to(question)
        if answer is None:
            detail = "the map and the assignment have not been read yet"
            return problem(503, "not_ready", detail, headers={"Retry-After": "1"})
        return Response(orjson.dumps(answer), media_type="application/json")


async def _body(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > locate.MAX_QUESTION:
                    raise InvalidRequest(ErrorCode.TOO_MANY, f"a question has at most {locate.MAX_QUESTION} bytes")
                chunks.append(chunk)
    except TimeoutError:
        raise HTTPException(408, headers={"Connection": "close"}) from None
    return b"".join(chunks)


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": "Content-Type",
            "Access-Control-Max-Age": "600",
        },
    )


async def _on_bad_question(_request: Request, error: Exception) -> Response:
    if not isinstance(error, InvalidRequest):
        raise error
    return problem(413 if error.code is ErrorCode.TOO_MANY else 400, error.code, str(error))


async def _on_http_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not_found", 405: "method_not_allowed", 408: "timeout"}.get(error.status_code, "error")
    return problem(error.status_code, code, title(error.status_code), headers=error.headers)


async def _on_defect(_request: Request, _error: Exception) -> Response:
    return problem(500, "internal", "an error of the service; it has been logged")
