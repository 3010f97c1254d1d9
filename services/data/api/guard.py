"""What every request passes before it is routed: the Host check, the plan of its address, headers of every answer."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diem.links.problems import problem
from diem.process.auth import SharedKey
from diem.process.clock import Clock
from diem.process.plan import ReadPlan
from services.data.access.access import Access
from services.data.access.keys import offered
from services.data.access.quota import fields
from services.data.access.verdict import Asked, Reason
from services.data.api.problems import refused, too_many_requests

_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "PATCH"})
_READS: Final = frozenset({"GET", "HEAD"})
_WRITES: Final = frozenset({"PUT", "DELETE", "POST", "PATCH"})
_OF_ENDPOINTS: Final = ("/v1/data", "/v1/history")
"""Resources whose paths go on with the name of an endpoint."""
USAGE: Final = "/v1/usage"
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


class Guard:
    """ASGI middleware around the whole application.

    A name in Host that is not ours is refused, so that a page of a foreign name that was pointed at this address (DNS
    rebinding) reaches nothing. ``hosts`` may contain ``*`` to allow any. Who shows the write key has no plan; who shows
    an API key has that key's, below ``/v1/``; everybody else has the plan of his address.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        plan: ReadPlan,
        write_key: SharedKey,
        access: Access,
        anonymous: bool,
        clock: Clock,
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._plan = plan
        self._write_key = write_key
        self._access = access
        self._anonymous = anonymous
        self._clock = clock
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered requests by method and status."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "other"

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.requests[method, message["status"]] += 1
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                if scope["path"].startswith("/v1/") and scope["method"] in _READS:
                    headers["Access-Control-Allow-Origin"] = "*"
                    headers["Access-Control-Expose-Headers"] = "ETag, Retry-After, RateLimit, RateLimit-Policy"
                for name, value in limits.items():
                    headers[name] = value
            await send(message)

        refusal, limits = await self._decide(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_counted)

    async def _decide(self, scope: Scope) -> tuple[Response | None, Mapping[str, str]]:
        """The answer, if there is one already, and the header fields that every answer gets."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or ("*" not in self._hosts and host_name(hosts[0]) not in self._hosts):
            return problem(400, "host", "this service does not have the name in the Host header"), {}
        authorization = headers.get("authorization")
        if self._write_key.matches(authorization):
            return None, {}
        asked = _asked(scope)
        text = offered(authorization) if scope["path"].startswith("/v1/") else None
        if text is None:
            return self._without_key(scope, headers, asked)
        verdict = await self._access.admit(text, asked)
        if verdict.reason is Reason.UNKNOWN or asked.free:
            # The key pays for nothing here, so the address does: keys are not for guessing.
            beyond = self._beyond_rate(scope)
            if beyond is not None:
                return beyond, {}
        return refused(verdict), {} if asked.free else fields(verdict.limits)

    def _without_key(self, scope: Scope, headers: Headers, asked: Asked) -> tuple[Response | None, Mapping[str, str]]:
        versioned = scope["path"].startswith("/v1/")
        preflight = scope["method"] == "OPTIONS" and headers.get("access-control-request-method") in _READS
        plan = self._access.plans.anonymous
        if versioned and self._anonymous and plan is not None and not preflight and not asked.free:
            verdict = self._access.admit_anonymous(plan, _address(scope), asked._replace(writes=False))
            return refused(verdict), fields(verdict.limits)
        beyond = self._beyond_rate(scope)
        if beyond is not None:
            return beyond, {}
        # Browsers ask this without the key that the request itself will show.
        if preflight and versioned:
            return _preflight(), {}
        if not self._anonymous and versioned:
            return unauthorised("reading needs an API key here"), {}
        return None, {}

    def _beyond_rate(self, scope: Scope) -> Response | None:
        address = _address(scope)
        wait_s = self._plan.take(address, self._clock.monotonic())
        return too_many_requests(wait_s, self._plan.rate(address).policy) if wait_s else None


def _address(scope: Scope) -> str:
    return str(scope["client"][0]) if scope["client"] else ""


def _asked(scope: Scope) -> Asked:
    # The decoded path, as the resources themselves take it.
    path: str = scope["path"]
    resource = next((prefix for prefix in _OF_ENDPOINTS if path.startswith(f"{prefix}/")), None)
    endpoint = None if resource is None else path.removeprefix(resource)
    return Asked(endpoint, writes=scope["method"] in _WRITES, free=path == USAGE)


def unauthorised(detail: str) -> Response:
    """The answer to a request without the key that it needs."""
    return problem(401, "unauthorised", detail, headers={"WWW-Authenticate": 'Bearer realm="DIEM"'})


def _preflight() -> Response:
    # Reads are open to every origin; a conditional read, or one with a key, asks first. Writes get no such permission.
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Methods": "GET, HEAD",
            "Access-Control-Allow-Headers": "If-None-Match, Accept, Authorization",
            "Access-Control-Max-Age": "86400",
        },
    )
