"""What every request passes before it is routed: the Host check, the plan of its address, headers of every answer."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diem.links.problems import problem
from diem.process.auth import SharedKey
from diem.process.clock import Clock
from diem.process.plan import ReadPlan
from services.data.api.problems import too_many_requests

_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "PATCH"})
_READS: Final = frozenset({"GET", "HEAD"})
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
    rebinding) reaches nothing. ``hosts`` may contain ``*`` to allow any. Who shows the write key has no plan.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        plan: ReadPlan,
        write_key: SharedKey,
        anonymous: bool,
        clock: Clock,
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._plan = plan
        self._write_key = write_key
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
                    headers["Access-Control-Expose-Headers"] = "ETag, Retry-After"
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_counted)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or ("*" not in self._hosts and host_name(hosts[0]) not in self._hosts):
            return problem(400, "host", "this service does not have the name in the Host header")
        if self._write_key.matches(headers.get("authorization")):
            return None
        address = scope["client"][0] if scope["client"] else ""
        wait_s = self._plan.take(address, self._clock.monotonic())
        if wait_s:
            return too_many_requests(wait_s, self._plan.rate(address).policy)
        if not self._anonymous and scope["path"].startswith("/v1/"):
            return unauthorised("anonymous reads are switched off: show the write key")
        if scope["method"] == "OPTIONS" and headers.get("access-control-request-method") in _READS:
            return _preflight(scope)
        return None


def unauthorised(detail: str) -> Response:
    """The answer to a request without the key that it needs."""
    return problem(401, "unauthorised", detail, headers={"WWW-Authenticate": 'Bearer realm="DIEM"'})


def _preflight(scope: Scope) -> Response | None:
    # Reads are open to every origin; a conditional read asks first. Writes get no such permission.
    if not scope["path"].startswith("/v1/"):
        return None
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Methods": "GET, HEAD",
            "Access-Control-Allow-Headers": "If-None-Match, Accept",
            "Access-Control-Max-Age": "86400",
        },
    )
