"""``POST /v1/locate`` on the public listener: access, rate limit and answer (docs/protocol.md section 4)."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

import orjson
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from diem.links.rest import (
    BodyTooLarge,
    RequestDecision,
    RestMiddleware,
    client_address,
    on_defect,
    on_http_error,
    problem,
    read_body,
)
from diem.process import security_log
from diem.process.limits import NAMES_PER_MESSAGE, AddressRateLimiter
from diem.process.listeners import is_loopback
from diem.process.security_log import SecurityEvent
from diem.protocol.codes import ErrorCode
from metadata import locate
from metadata.locate import InvalidRequest, OwnerLookup

PATH: Final = "/v1/locate"


class LocateApi(RestMiddleware):
    """The ASGI application of the public listener.

    As by a WebSocket server, pages of foreign origins are refused, and so are requests without an origin from other
    machines.
    """

    def __init__(
        self,
        owners: OwnerLookup,
        allows_origin: Callable[[str], bool],
        limiter: AddressRateLimiter,
        *,
        max_names: int,
    ) -> None:
        app = Starlette(
            routes=[Route(PATH, self._locate, methods=["POST"])],
            exception_handlers={
                InvalidRequest: _on_invalid_request,
                BodyTooLarge: _on_too_large,
                HTTPException: on_http_error,
                Exception: on_defect,
            },
        )
        app.router.redirect_slashes = False
        super().__init__(app)
        self._owners = owners
        self._allows_origin = allows_origin
        self._limiter = limiter
        self._max_names = max_names

    async def decide(self, scope: Scope) -> RequestDecision:
        """Refuse the request, or pass it on to the routes."""
        origins = Headers(scope=scope).getlist("origin")
        allowed = len(origins) == 1 and self._allows_origin(origins[0])
        fields = {"Cache-Control": "no-store", "Vary": "Origin"}
        if allowed:
            fields["Access-Control-Allow-Origin"] = origins[0]
            fields["Access-Control-Expose-Headers"] = "Retry-After"
        return RequestDecision(self._refusal(scope, origins, allowed=allowed) or self._app, fields)

    def _refusal(self, scope: Scope, origins: list[str], *, allowed: bool) -> Response | None:
        address = client_address(scope)
        wait = self._limiter.take(address, asyncio.get_running_loop().time())
        if wait:
            headers = {"Retry-After": str(max(1, math.ceil(wait)))}
            security_log.record(SecurityEvent.RATE_EXCEEDED, address=address, code=429, detail=PATH)
            return problem(429, "rate", "too many requests from this address", headers=headers)
        if origins and not allowed:
            return _refuse_origin(address, origins, "this origin is not allowed")
        if not origins and not is_loopback(address):
            return _refuse_origin(address, origins, "without an origin a token is needed")
        if scope["method"] == "OPTIONS" and scope["path"] == PATH and allowed:
            return _preflight()
        return None

    async def _locate(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return problem(415, "unsupported", "a question is application/json")
        query = locate.parse(await read_body(request, locate.MAX_REQUEST_BYTES), self._max_names)
        if request.client is not None:
            charged = query.name_count // NAMES_PER_MESSAGE
            self._limiter.charge(request.client.host, asyncio.get_running_loop().time(), charged)
        answer = self._owners.locate(query)
        if answer is None:
            detail = "the map and the assignment have not been read yet"
            return problem(503, "not_ready", detail, headers={"Retry-After": "1"})
        return Response(orjson.dumps(answer), media_type="application/json")


def _refuse_origin(address: str, origins: list[str], detail: str) -> Response:
    origin = " ".join(origins)
    security_log.record(SecurityEvent.FORBIDDEN, address=address, origin=origin, code="origin", detail=detail)
    return problem(403, "origin", detail)


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": "Content-Type",
            "Access-Control-Max-Age": "600",
        },
    )


async def _on_invalid_request(_request: Request, error: Exception) -> Response:
    if not isinstance(error, InvalidRequest):
        raise error
    return problem(413 if error.code is ErrorCode.TOO_MANY else 400, error.code, str(error))


async def _on_too_large(_request: Request, error: Exception) -> Response:
    if not isinstance(error, BodyTooLarge):
        raise error
    return problem(413, ErrorCode.TOO_MANY, f"a question has at most {error.max_bytes} bytes")
