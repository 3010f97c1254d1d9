"""Common parts of REST interfaces: problem documents, bounded bodies, and the middleware around the routes."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import orjson
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diem.errors import DiemError
from diem.process import metrics
from diem.process.forwarding import ClientAddresses

BODY_TIMEOUT_S: Final = 20.0
"""Time to receive a body: a slower client must not hold its connection forever."""
RETRY_AFTER_S: Final = (1, 4)
"""Range of the Retry-After for refused readers when there are too many."""
MEDIA_TYPE: Final = "application/problem+json"
SECURITY_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))

WHOLE_BODY: Final = "diem.body"
"""Entry of the scope: the body of a request that has arrived whole."""

_CODES: Final = {404: "not_found", 405: "method_not_allowed", 408: "timeout"}
"""Codes of the statuses raised by Starlette's router and :func:`read_body`; any other is ``error``."""
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "PATCH"})


# Problem documents


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """Return an RFC 9457 problem document. ``code`` is stable and for programs, ``detail`` is for people."""
    document = {"type": "about:blank", "title": _title(status), "status": status, "code": code, "detail": detail}
    body = orjson.dumps({**document, **(more or {})})
    return Response(body, status, headers={"Cache-Control": "no-store", **(headers or {})}, media_type=MEDIA_TYPE)


def retry_after() -> str:
    """Return a random Retry-After, so that many readers do not all return at once."""
    return str(random.randint(*RETRY_AFTER_S))  # noqa: S311 - spreads clients, is no secret


def _title(status: int) -> str:
    """Return the phrase of a status (RFC 9110; the library has older ones for two)."""
    return {413: "Content Too Large", 422: "Unprocessable Content"}.get(status) or HTTPStatus(status).phrase


async def on_http_error(_request: Request, error: Exception) -> Response:
    """Answer an error that has a status: the router's 404 and 405, those of :func:`read_body`."""
    if not isinstance(error, HTTPException):
        raise error
    status = error.status_code
    return problem(status, _CODES.get(status, "error"), error.detail, headers=error.headers)


async def on_defect(_request: Request, _error: Exception) -> Response:
    """Answer any other error with 500; its details go to the log, not to the client."""
    return problem(500, "internal", "an error of the service; it has been logged")


# Bodies


@dataclass(eq=False)
class BodyTooLarge(DiemError):
    """A request body above its limit. ``announced`` is its Content-Length, None unless that exceeded it."""

    max_bytes: int
    announced: int | None = None

    def __str__(self) -> str:
        """Return the limit, and the size if announced."""
        size = "" if self.announced is None else f", not {self.announced}"
        return f"a body has at most {self.max_bytes} bytes here{size}"


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request.

    Raises:
        BodyTooLarge: at once if the Content-Length exceeds ``max_bytes``, else as soon as more have arrived.
        HTTPException: 408, the body took more than :data:`BODY_TIMEOUT_S`; 400, the client left before its end, which
            is no defect of ours: nobody reads the answer, and the log has no line.
    """
    whole: bytes | None = request.scope.get(WHOLE_BODY)
    if whole is not None:
        if len(whole) > max_bytes:
            raise BodyTooLarge(max_bytes, len(whole))
        return whole
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > max_bytes:
        raise BodyTooLarge(max_bytes, int(length))
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise BodyTooLarge(max_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise HTTPException(408, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, headers={"Connection": "close"}) from None
    return b"".join(chunks)


# Middleware


def client_address(scope: Scope) -> str:
    """Return the address of the client; empty if unknown."""
    return str(scope["client"][0]) if scope["client"] else ""


class ClientAddressMiddleware:
    """ASGI middleware: replaces the peer's address by that of the client behind trusted proxies.

    uvicorn's own trusts the same headers, but does not report those of untrusted proxies.
    """

    def __init__(self, app: ASGIApp, addresses: ClientAddresses) -> None:
        self._app = app
        self._addresses = addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its client's address; the port is 0 behind a proxy."""
        if scope["type"] == "http" and scope["client"]:
            hops = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
            relayed = any(name in _RELAYED for name, _ in scope["headers"])
            if hops or relayed:
                peer = scope["client"][0]
                address = self._addresses.resolve(peer, ", ".join(hops) if hops else None, relayed=relayed)
                if address != peer:
                    scope["client"] = (address, 0)
        await self._app(scope, receive, send)


_RELAYED: Final = frozenset({b"forwarded", b"via"})


class RequestDecision(NamedTuple):
    """Decision on a request's answer, made before routing."""

    app: ASGIApp
    """Answering application; a response if the request is refused."""
    fields: Mapping[str, str] = {}
    """Header fields of the answer; they replace its own."""
    appended: Iterable[tuple[bytes, bytes]] = SECURITY_HEADERS
    """Header fields to append, set by no application."""
    varies: bool = False
    """Add ``Vary: Origin``."""
    pays: bool = False
    """The cost of the answer is charged to the client's address."""

    def complete(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Merge the header fields of an answer with those of the decision."""
        if not self.fields and not self.varies:
            return [*headers, *self.appended]
        completed = MutableHeaders(raw=[*headers, *self.appended])
        completed.update(self.fields)
        if self.varies:
            completed.add_vary_header("Origin")
        return completed.raw


class RestMiddleware(ABC):
    """ASGI middleware: decide on each request, count the answers, and add header fields to all of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered requests by method and status."""

    @abstractmethod
    async def decide(self, scope: Scope) -> RequestDecision:
        """Refuse the request, or choose the answering application."""

    def charge(self, scope: Scope, sent_bytes: int) -> None:  # noqa: B027 - a hook: mostly there is nothing to charge
        """Charge the client's address for an answer, if :attr:`RequestDecision.pays`; by default do nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "other"
        decision = await self.decide(scope)
        sent_bytes = 0

        async def send_counted(message: Message) -> None:
            nonlocal sent_bytes
            if message["type"] == "http.response.start":
                self.complete(message, method, decision)
            else:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        await decision.app(scope, receive, send_counted)
        if decision.pays:
            self.charge(scope, sent_bytes)

    def complete(self, message: Message, method: str, decision: RequestDecision) -> None:
        """Count an answer, and add the header fields to its start message."""
        self.requests[method, message["status"]] += 1
        message["headers"] = decision.complete(message.get("headers", ()))

    def samples(self) -> Iterable[metrics.Sample]:
        """Return the metrics of the interface."""
        for (method, status), count in self.requests.items():
            yield metrics.HTTP_REQUESTS.sample(count, method, str(status))
