"""``POST /v1/locate`` on the public listener: access, rate limit and answer (docs/protocol.md section 3)."""

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

from diem.links.client_auth import RETRY_AFTER_S, AuthRefused, ClientAuth, OriginRefused, may_be_anonymous
from diem.links.refusals import Cause, foreign_origin
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
from diem.process.auth import bearer_credential
from diem.process.edge_settings import Anonymous
from diem.process.limits import NAMES_PER_MESSAGE, AddressRateLimiter
from diem.process.security_log import SecurityEvent
from diem.protocol.codes import Close, ErrorCode
from diem.tokens.claims import Claims
from metadata import locate
from metadata.locate import InvalidRequest, OwnerLookup

PATH: Final = "/v1/locate"
_CLAIMS: Final = "diem.claims"
"""Key of a scope: the rights of the client; absent for an anonymous one."""


class LocateApi(RestMiddleware):
    """The ASGI application of the public listener.

    As at a WebSocket server, pages of foreign origins are refused, clients that need a token must send one, and names
    it does not cover are rejected.
    """

    def __init__(
        self,
        owners: OwnerLookup,
        allows_origin: Callable[[str], bool],
        limiter: AddressRateLimiter,
        auth: ClientAuth,
        *,
        max_names: int,
        anonymous: Anonymous = "auto",
        loopback_bind: bool = True,
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
        self._auth = auth
        self._max_names = max_names
        self._anonymous = anonymous
        self._loopback_bind = loopback_bind

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
            return _refuse_origin(address, origins, foreign_origin(" ".join(origins)))
        if scope["method"] == "OPTIONS" and scope["path"] == PATH and allowed:
            return _preflight()
        return self._authenticate(scope, address, origins[0] if origins else None)

    def _authenticate(self, scope: Scope, address: str, origin: str | None) -> Response | None:
        """Keep the rights of the client in the scope, or return the refusal."""
        headers = Headers(scope=scope).getlist("authorization")
        if headers and self._auth.accepts_tokens:
            token = bearer_credential(headers[0])
            try:
                if len(headers) > 1 or token is None:
                    raise AuthRefused(Close.UNAUTHORISED, "one Authorization field with a Bearer token is accepted")
                scope[_CLAIMS] = self._auth.verify(token, origin)
            except OriginRefused as error:
                return _refuse_origin(address, [origin or ""], error.reason)
            except AuthRefused as error:
                return _refuse_token(address, error)
        elif not may_be_anonymous(
            self._anonymous, address, loopback_bind=self._loopback_bind, has_origin=origin is not None
        ):
            return _unauthorised("a token is needed: Authorization: Bearer")
        return None

    async def _locate(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return problem(415, "unsupported", "a request is application/json")
        query = locate.parse(await read_body(request, locate.MAX_REQUEST_BYTES), self._max_names)
        claims: Claims | None = request.scope.get(_CLAIMS)
        if claims is not None and not claims.everything:
            query = query.restricted(claims.allows)
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
    security_log.refuse(
        SecurityEvent.FORBIDDEN, Cause.ORIGIN, address=address, origin=origin, code=Cause.ORIGIN, detail=detail
    )
    return problem(403, Cause.ORIGIN, detail)


def _refuse_token(address: str, error: AuthRefused) -> Response:
    security_log.record(SecurityEvent.WRONG_TOKEN, address=address, code=int(error.code), detail=error.reason)
    if error.code is Close.OVERLOAD:
        return problem(503, "not_ready", error.reason, headers={"Retry-After": str(RETRY_AFTER_S)})
    return _unauthorised(error.reason)


def _unauthorised(detail: str) -> Response:
    return problem(401, ErrorCode.UNAUTHORISED, detail, headers={"WWW-Authenticate": "Bearer"})


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
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
    return problem(413, ErrorCode.TOO_MANY, f"a request has at most {error.max_bytes} bytes")
