"""Middleware in front of the routes: Host check, plan of the address, read slots, headers of every answer."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diem.links.rest import SECURITY_HEADERS, RequestDecision, RestMiddleware, client_address, problem
from diem.process.auth import SharedKey
from diem.process.clock import Clock
from diem.process.limits import AddressRateLimiter
from services.data.access.access import Access
from services.data.access.keys import offered
from services.data.access.quota import QuotaReason, QuotaRequest, fields
from services.data.api import cost
from services.data.api.cors import Cors
from services.data.api.problems import refused, too_many_requests

WAIT_S: Final = 5.0
"""A read that has waited for so long is answered 503."""
RETRY_AFTER_S: Final = 2


class Slots:
    """ASGI middleware: at most ``at_once`` requests are worked on; the others wait in the order in which they came.

    The event loop takes what is ready in turn, so a write waits for all reads that are ready before it: this bounds
    how many those are. As many wait as readers have connections. A slot is free again when the answer begins: how
    quickly clients take answers is no matter of slots.
    """

    def __init__(self, app: ASGIApp, at_once: int) -> None:
        self._app = app
        self._free = asyncio.Semaphore(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request when it is its turn."""
        if not await self._acquired():
            await _busy()(scope, receive, send)
            return
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        async def sending(message: Message) -> None:
            release()
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            release()

    async def _acquired(self) -> bool:
        if not self._free.locked():
            return await self._free.acquire()
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._free.acquire()
        except TimeoutError:
            return False


def _busy() -> Response:
    return problem(503, "busy", "too many readers at once", headers={"Retry-After": str(RETRY_AFTER_S)})


_READS: Final = frozenset({"GET", "HEAD"})
_WRITES: Final = frozenset({"PUT", "DELETE", "POST", "PATCH"})
_OF_ENDPOINTS: Final = ("/v1/data", "/v1/history")
"""Resources whose paths go on with the name of an endpoint."""
# A page of another origin cannot even embed what it may not read.
_READ_HEADERS: Final = (*SECURITY_HEADERS, (b"cross-origin-resource-policy", b"same-origin"))
USAGE: Final = "/v1/usage"
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


class Guard(RestMiddleware):
    """Middleware around the whole application.

    A name in Host that is not ours is refused, so that a page of a foreign name that was pointed at this address (DNS
    rebinding) reaches nothing. ``hosts`` may contain ``*`` to allow any. Who shows the write key has no plan; who shows
    an API key has that key's, below ``/v1/``; everybody else has the plan of his address, and pays for what answers
    cost. At most ``concurrent_reads`` requests of readers below ``/v1/`` are worked on at once.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        plan: AddressRateLimiter,
        write_key: SharedKey,
        access: Access,
        anonymous: bool,
        cors: Cors,
        concurrent_reads: int,
        clock: Clock,
    ) -> None:
        super().__init__(app)
        self._slots = Slots(app, concurrent_reads)
        self._cors = cors
        self._hosts = frozenset(host.lower() for host in hosts)
        self._plan = plan
        self._write_key = write_key
        self._access = access
        self._anonymous = anonymous
        self._clock = clock

    def is_privileged(self, scope: Scope) -> bool:
        """Whether a request shows the write key."""
        given = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        return given is not None and self._write_key.matches(given.decode("latin-1"))

    async def decide(self, scope: Scope) -> RequestDecision:
        """Refuse the request, or admit it to a read slot or at once."""
        admitted = await self._admit(scope)
        waits = not admitted.privileged and _is_versioned(scope)
        app = admitted.refusal or (self._slots if waits else self._app)
        if scope["method"] not in _READS:
            return RequestDecision(app, admitted.fields, pays=admitted.pays)
        cors = self._cors.of_answer(_origin(scope), shows_key=admitted.shows_key)
        fields = {**cors, **admitted.fields} if cors else admitted.fields
        return RequestDecision(app, fields, _READ_HEADERS, varies=self._cors.depends_on_origin, pays=admitted.pays)

    def charge(self, scope: Scope, sent_bytes: int) -> None:
        """Charge the client's address for what the answer costs beyond an ordinary one."""
        more = cost.of(scope, sent_bytes)
        if more:
            self._plan.charge(client_address(scope), self._clock.monotonic(), more)

    async def _admit(self, scope: Scope) -> "_Admission":
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or ("*" not in self._hosts and host_name(hosts[0]) not in self._hosts):
            return _Admission(problem(400, "host", "this service does not have the name in the Host header"))
        if self.is_privileged(scope):
            return _Admission(privileged=True)
        quota_request = _quota_request(scope)
        text = offered(headers.get("authorization")) if _is_versioned(scope) else None
        if text is None:
            return self._without_key(scope, headers, quota_request)
        verdict = await self._access.admit(text, quota_request)
        if verdict.reason is QuotaReason.UNKNOWN or quota_request.free:
            # The key pays for nothing here, so the address does: keys are not for guessing.
            beyond = self._beyond_rate(scope)
            if beyond is not None:
                return _Admission(beyond, shows_key=True)
        return _Admission(refused(verdict), {} if quota_request.free else fields(verdict.limits), shows_key=True)

    def _without_key(self, scope: Scope, headers: Headers, quota_request: QuotaRequest) -> "_Admission":
        versioned = _is_versioned(scope)
        preflight = scope["method"] == "OPTIONS" and headers.get("access-control-request-method") in _READS
        plan = self._access.plans.anonymous
        if versioned and self._anonymous and plan is not None and not preflight and not quota_request.free:
            verdict = self._access.admit_anonymous(plan, client_address(scope), quota_request._replace(writes=False))
            return _Admission(refused(verdict), fields(verdict.limits))
        beyond = self._beyond_rate(scope)
        if beyond is not None:
            return _Admission(beyond)
        # Browsers ask this without the key that the request itself will show.
        if preflight and versioned:
            return _Admission(self._preflight(headers))
        if not self._anonymous and versioned:
            return _Admission(unauthorised("reading needs an API key here"))
        return _Admission(pays=True)

    def _preflight(self, headers: Headers) -> Response:
        granted = self._cors.of_preflight(headers.get("origin"), headers.get("access-control-request-headers"))
        if granted is None:
            return problem(403, "origin", "pages of this origin may read with an API key only")
        return Response(status_code=204, headers=dict(granted))

    def _beyond_rate(self, scope: Scope) -> Response | None:
        address = client_address(scope)
        wait_s = self._plan.take(address, self._clock.monotonic())
        return too_many_requests(wait_s, self._plan.rate(address).policy) if wait_s else None


class _Admission(NamedTuple):
    """What was decided on a request before it is routed."""

    refusal: Response | None = None
    fields: Mapping[str, str] = {}
    """Header fields that the answer gets."""
    privileged: bool = False
    """It shows the write key."""
    shows_key: bool = False
    """It shows an API key, right or wrong: whoever has it may have the answer."""
    pays: bool = False
    """Its address pays for what the answer costs."""


def _is_versioned(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/v1/"))


def _origin(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"), None)


def _quota_request(scope: Scope) -> QuotaRequest:
    # The decoded path, as the resources themselves take it.
    path: str = scope["path"]
    resource = next((prefix for prefix in _OF_ENDPOINTS if path.startswith(f"{prefix}/")), None)
    endpoint = None if resource is None else path.removeprefix(resource)
    return QuotaRequest(endpoint, writes=scope["method"] in _WRITES, free=path == USAGE)


def unauthorised(detail: str) -> Response:
    """The answer to a request without the key that it needs."""
    return problem(401, "unauthorised", detail, headers={"WWW-Authenticate": 'Bearer realm="DIEM"'})
