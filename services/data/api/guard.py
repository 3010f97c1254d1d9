"""Middleware in front of the routes: Host check, plans of keys and addresses, read slots, header fields."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diem.links.rest import SECURITY_HEADERS, RequestDecision, RestMiddleware, client_address, problem, retry_after
from diem.process import security_log
from diem.process.clock import Clock
from diem.process.limits import AddressRateLimiter
from diem.process.listeners import host_name
from diem.process.security_log import SecurityEvent
from services.data.access.access import INVALID, Access
from services.data.access.keys import bearer_key
from services.data.access.quota import QuotaDecision, QuotaReason, QuotaRequest, rate_limit_fields
from services.data.access.rights import ReadRights, common_rights
from services.data.access.tokens import client_token
from services.data.access.write_access import WriteAccess, WriteRights
from services.data.api import cost
from services.data.api.cors import Cors
from services.data.api.problems import REFUSALS, quota_problem, too_many_requests
from services.data.api.requests import names_version

SLOT_TIMEOUT_S: Final = 5.0
"""Longest wait of a read for a slot; then 503."""


class Slots:
    """ASGI middleware that bounds concurrent requests to ``at_once``; others wait in order of arrival.

    The event loop runs ready tasks in turn, so a write waits for all reads ready before it: the slots bound their
    number. The waiting requests are bounded by the readers' connections. A slot is released when the answer begins, so
    that slow clients hold none.
    """

    def __init__(self, app: ASGIApp, at_once: int, refusal: Callable[[Scope], Response | None] | None = None) -> None:
        self._app = app
        self._free = asyncio.Semaphore(at_once)
        self._refusal = refusal
        """Returns the answer to a request that was admitted, and may be no longer, after it has waited."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request once it has a slot."""
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

        refused = None if self._refusal is None else self._refusal(scope)
        try:
            await (refused or self._app)(scope, receive, sending)
        finally:
            release()

    async def _acquired(self) -> bool:
        if not self._free.locked():
            return await self._free.acquire()
        try:
            async with asyncio.timeout(SLOT_TIMEOUT_S):
                return await self._free.acquire()
        except TimeoutError:
            return False


def _busy() -> Response:
    return problem(503, "busy", "too many readers at once", headers={"Retry-After": retry_after()})


_WRITER: Final = "diem.writer"
"""Entry of the scope: the :class:`WriteRights` of a request, identified once."""
_READER: Final = "diem.reader"
"""Entry of the scope: the decision on a request by an API key, a token or the anonymous plan."""
_READS: Final = frozenset({"GET", "HEAD"})
_CHANGES: Final = frozenset({"PUT", "DELETE", "PATCH"})
_WRITES: Final = _CHANGES | {"POST"}
_OF_ENDPOINTS: Final = ("/v1/data", "/v1/history")
"""Resources with the name of an endpoint in their paths."""
# Pages of other origins must not even embed these answers.
READ_HEADERS: Final = (*SECURITY_HEADERS, (b"cross-origin-resource-policy", b"same-origin"))
USAGE: Final = "/v1/usage"
TOKENS: Final = "/v1/tokens"
KEY_SET: Final = "/v1/tokens/keys"
HOOKS: Final = "/v1/hooks/"
CACHED_HOSTS: Final = 64
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Guard(RestMiddleware):
    """Middleware around the whole application.

    Requests with a foreign name in Host are refused, as a protection from DNS rebinding. ``*`` in ``hosts`` allows any.
    Writes with a write key are limited by its terms, requests with an API key below ``/v1/`` by the key's plan, all
    others by the rate of the client's address, charged for the cost of answers. Deliveries of webhooks are charged
    until they are verified. At most ``concurrent_reads`` requests of readers below ``/v1/`` run at once.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        rate_limiter: AddressRateLimiter,
        write_access: WriteAccess,
        access: Access,
        anonymous: Callable[[str], bool],
        cors: Cors,
        concurrent_reads: int,
        clock: Clock,
        public: bool = False,
    ) -> None:
        super().__init__(app)
        self._public = public
        self._slots = Slots(app, concurrent_reads, self._invalid_meanwhile)
        self._cors = cors
        self._hosts = frozenset(host.lower() for host in hosts)
        self.is_own_host = lru_cache(CACHED_HOSTS)(self._is_own_host)
        """Returns whether a Host field names this service."""
        self._rate_limiter = rate_limiter
        self._write_access = write_access
        self._access = access
        self._anonymous = anonymous
        self._clock = clock
        self._written = RequestDecision(app)
        # For any read of data, independently of the endpoint.
        scope: Scope = {"type": "http", "method": "GET", "path": f"{_OF_ENDPOINTS[0]}/", "headers": []}
        self._plain = self._decision(scope, Headers(scope=scope), _Admission(self._slots, pays=True))

    def is_privileged(self, scope: Scope) -> bool:
        """Return whether a request has the file's write key, or writes with one in the store."""
        if _WRITER not in scope:
            given = next((value for name, value in scope["headers"] if name == b"authorization"), None)
            writes = scope["method"] in _WRITES
            identify = self._write_access.identify
            scope[_WRITER] = None if given is None else identify(given.decode("latin-1"), writes=writes)
        return scope[_WRITER] is not None

    async def decide(self, scope: Scope) -> RequestDecision:
        """Choose the answer: a refusal, the application at once, or the application behind the read slots."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.is_own_host(hosts[0]):
            admitted = _Admission(problem(400, "host", "this service does not have the name in the Host header"))
        elif scope["path"].startswith(HOOKS) and scope["method"] == "POST":
            # Verified by its signature, once its body is there: an Authorization field is none of a key here.
            admitted = _Admission(self._beyond_rate(scope) or self._app)
        elif self.is_privileged(scope):
            if scope["method"] in _CHANGES:
                return self._written
            admitted = _Admission(self._app)
        else:
            admitted = await self._admit_reader(scope, headers)
        return self._decision(scope, headers, admitted)

    def decide_keyless(self, scope: Scope) -> RequestDecision:
        """Decide on a read without an Authorization field and with a Host that :meth:`is_own_host`."""
        headers = Headers(scope=scope)
        return self._decision(scope, headers, self._admit_keyless(scope, headers, _quota_request(scope)))

    def decide_plain(self, address: str) -> RequestDecision | None:
        """Decide as :meth:`decide_keyless` on a read of data without Origin; None, without side effects, if that must.

        If readers need neither key nor plan, the decision is the same for all requests within the rate.
        """
        if self._access.plans.anonymous is not None or not self._anonymous(address):
            return None
        return None if self._rate_limiter.take(address, self._clock.monotonic()) else self._plain

    def _is_own_host(self, host: str) -> bool:
        return "*" in self._hosts or host_name(host) in self._hosts

    def _decision(self, scope: Scope, headers: Headers, admitted: "_Admission") -> RequestDecision:
        """Return the answer to an admitted or refused request, with the header fields for its origin."""
        decision = RequestDecision(admitted.app, admitted.fields, pays=admitted.pays)
        if not _is_read(scope):
            return decision
        cors = self._cors.of_answer(headers.get("origin"), shows_key=admitted.shows_key)
        return decision._replace(
            fields={**cors, **admitted.fields} if cors else admitted.fields,
            appended=READ_HEADERS,
            varies=self._cors.depends_on_origin,
        )

    def charge(self, scope: Scope, sent_bytes: int) -> None:
        """Charge the client's address for the extra cost of the answer."""
        self.charge_address(client_address(scope), cost.of(scope, sent_bytes))

    def charge_address(self, address: str, requests: float) -> None:
        """Charge an address for further requests."""
        if requests:
            self._rate_limiter.charge(address, self._clock.monotonic(), requests)

    async def _admit_reader(self, scope: Scope, headers: Headers) -> "_Admission":
        """Admit an unprivileged request by the plan of its API key, or else of its address."""
        versioned = _is_versioned(scope)
        quota_request = _quota_request(scope)
        authorization = headers.get("authorization") if versioned else None
        if authorization is not None:
            quota_request = quota_request._replace(origin=headers.get("origin"))
        text, token = bearer_key(authorization), client_token(authorization)
        if text is not None:
            decision = await self._access.admit(text, quota_request)
        elif token is not None:
            return await self._admit_token(scope, headers, token, quota_request)
        else:
            return self._admit_keyless(scope, headers, quota_request)
        return self._decided(scope, headers, decision, quota_request)

    async def _admit_token(
        self, scope: Scope, headers: Headers, token: str, quota_request: QuotaRequest
    ) -> "_Admission":
        """Admit a request with a client token.

        Checking a signature takes longer than any other decision here, so the address is charged first, and refunded
        afterwards; a refused token is charged like a wrong key. An address beyond its rate is admitted only with cached
        tokens.
        """
        charged = False

        def charge() -> None:
            nonlocal charged
            beyond = self._beyond_rate(scope)
            if beyond is not None:
                raise _BeyondRate(beyond)
            charged = True

        try:
            decision = await self._access.admit_token(token, quota_request, charge)
        except _BeyondRate as error:
            return _Admission(error.answer, shows_key=True)
        if charged:
            self._rate_limiter.refund(client_address(scope), self._clock.monotonic())
        return self._decided(scope, headers, decision, quota_request)

    def _decided(
        self, scope: Scope, headers: Headers, decision: QuotaDecision, quota_request: QuotaRequest
    ) -> "_Admission":
        """Return the admission by the decision on a request's key or token."""
        scope[_READER] = decision
        if decision.reason is not QuotaReason.ADMITTED:
            _record_refusal(scope, headers, decision)
        if decision.reason in _UNCOUNTED or quota_request.free:
            # No unit of a key is consumed, so charge the address: guessing keys is rate-limited.
            beyond = self._beyond_rate(scope)
            if beyond is not None:
                return _Admission(beyond, shows_key=True)
        limits = {} if quota_request.free else rate_limit_fields(decision.limits)
        # The only reader request with a body: slow ones would hold the slots of all others.
        handler = self._app if scope["path"] == TOKENS else self._slots
        return _Admission(quota_problem(decision) or handler, limits, shows_key=True)

    def _admit_keyless(self, scope: Scope, headers: Headers, quota_request: QuotaRequest) -> "_Admission":
        versioned = _is_versioned(scope)
        preflight = scope["method"] == "OPTIONS" and _is_read(scope, headers.get("access-control-request-method"))
        plan = self._access.plans.anonymous
        anonymous = versioned and self._anonymous(client_address(scope))
        if anonymous and plan is not None and not preflight and not quota_request.free:
            decision = self._access.admit_anonymous(plan, client_address(scope), quota_request._replace(writes=False))
            scope[_READER] = decision
            if decision.reason is not QuotaReason.ADMITTED:
                _record_refusal(scope, headers, decision)
            refusal = quota_problem(decision)
            # Shared caches serve such an answer to others, so it must not show the limits of one address.
            is_shared = refusal is None and self._public and names_version(scope)
            return _Admission(refusal or self._slots, {} if is_shared else rate_limit_fields(decision.limits))
        beyond = self._beyond_rate(scope)
        if beyond is not None:
            return _Admission(beyond)
        # Browsers send preflights without the key of the actual request.
        if preflight and versioned:
            return _Admission(self._preflight(scope, headers))
        if versioned and not anonymous and scope["path"] != KEY_SET:
            if scope["method"] in _WRITES and not _is_read(scope):
                return _Admission(unauthorised_write(scope))
            return _Admission(unauthorised("reading needs an API key here"))
        return _Admission(self._slots if versioned else self._app, pays=True)

    def _preflight(self, scope: Scope, headers: Headers) -> Response:
        methods = "POST" if scope["path"] == TOKENS else "GET, HEAD"
        requested = headers.get("access-control-request-headers")
        granted = self._cors.of_preflight(headers.get("origin"), requested, methods)
        if granted is None:
            return problem(403, "origin", "pages of this origin need an API key to read")
        return Response(status_code=204, headers=dict(granted))

    def _beyond_rate(self, scope: Scope) -> Response | None:
        address = client_address(scope)
        wait_s = self._rate_limiter.take(address, self._clock.monotonic())
        if not wait_s:
            return None
        security_log.record(SecurityEvent.RATE_EXCEEDED, address=address, code=429, detail="requests")
        return too_many_requests(wait_s, self._rate_limiter.rate(address).policy)

    def _invalid_meanwhile(self, scope: Scope) -> Response | None:
        decision: QuotaDecision | None = scope.get(_READER)
        key = None if decision is None else decision.key
        reason = None if key is None else self._access.refusal(key)
        return None if reason is None else quota_problem(QuotaDecision(reason))


_UNCOUNTED: Final = INVALID | {QuotaReason.WRITE_ONLY, QuotaReason.UNVERIFIED, QuotaReason.ORIGIN}
_KINDS: Final = {
    QuotaReason.UNKNOWN: SecurityEvent.WRONG_API_KEY,
    QuotaReason.REVOKED: SecurityEvent.REVOKED_KEY,
    QuotaReason.EXPIRED: SecurityEvent.REVOKED_KEY,
    QuotaReason.UNVERIFIED: SecurityEvent.WRONG_TOKEN,
    QuotaReason.NO_PLAN: SecurityEvent.FORBIDDEN,
    QuotaReason.ORIGIN: SecurityEvent.FORBIDDEN,
    QuotaReason.READ_ONLY: SecurityEvent.FORBIDDEN,
    QuotaReason.WRITE_ONLY: SecurityEvent.FORBIDDEN,
    QuotaReason.PREFIX: SecurityEvent.FORBIDDEN,
    QuotaReason.MINUTE: SecurityEvent.RATE_EXCEEDED,
    QuotaReason.DAY: SecurityEvent.RATE_EXCEEDED,
    QuotaReason.USER_MINUTE: SecurityEvent.RATE_EXCEEDED,
    QuotaReason.USER_DAY: SecurityEvent.RATE_EXCEEDED,
    QuotaReason.TOKENS: SecurityEvent.RATE_EXCEEDED,
}
"""Refusal reasons that are security events; a store unable to commit is none."""


def _record_refusal(scope: Scope, headers: Headers, decision: QuotaDecision) -> None:
    kind = _KINDS.get(decision.reason)
    if kind is not None:
        security_log.record(
            kind,
            address=client_address(scope),
            key_name="" if decision.key is None else decision.key.name,
            origin=headers.get("origin", ""),
            code=REFUSALS[decision.reason][1],
            detail=scope["path"],
        )


class _BeyondRate(Exception):
    """An address has no request left to charge for the check of a signature."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


class _Admission(NamedTuple):
    """Application and terms for answering a request."""

    app: ASGIApp
    """A response if the request is refused."""
    fields: Mapping[str, str] = {}
    """Header fields of the answer: the limits of the plan."""
    shows_key: bool = False
    """True if the request has an API key, valid or not: a page with the key may read the answer."""
    pays: bool = False
    """True to charge the client's address for the cost of the answer."""


def _is_versioned(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/v1/"))


def _quota_request(scope: Scope) -> QuotaRequest:
    # The decoded path, as used by the resources.
    path: str = scope["path"]
    resource = next((prefix for prefix in _OF_ENDPOINTS if path.startswith(f"{prefix}/")), None)
    endpoint = None if resource is None else path.removeprefix(resource)
    writes = scope["method"] in _WRITES and not _is_read(scope)
    return QuotaRequest(endpoint, writes=writes, free=path == USAGE, mints=path == TOKENS)


def _is_read(scope: Scope, method: str | None = None) -> bool:
    """Return whether a method (None: the request's) is safe, and so allowed with API keys."""
    method = method or scope["method"]
    return method in _READS or (method == "POST" and scope["path"] == TOKENS)


def writer_of(scope: Scope) -> WriteRights | None:
    """Return the writer identified by the guard; None without a valid write key."""
    writer: WriteRights | None = scope.get(_WRITER)
    return writer


def by_writer(handler: "WriteHandler") -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a route that only writers may use: others are answered 401."""

    async def handle(request: Request) -> Response:
        writer = writer_of(request.scope)
        return unauthorised_write(request.scope) if writer is None else await handler(request, writer)

    return handle


WriteHandler = Callable[[Request, WriteRights], Awaitable[Response]]


def rights_of(scope: Scope) -> ReadRights | None:
    """Return the endpoints, names included, that a reader may read; None: all."""
    decision: QuotaDecision | None = scope.get(_READER)
    return None if decision is None else common_rights(decision.granted)


def unauthorised(detail: str) -> Response:
    """Return the answer to a request without the required key."""
    return problem(401, "unauthorised", detail, headers={"WWW-Authenticate": 'Bearer realm="DIEM"'})


def unauthorised_write(scope: Scope) -> Response:
    """Return the answer to a write without a valid write key, and record it."""
    origin = Headers(scope=scope).get("origin", "")
    security_log.record(SecurityEvent.WRONG_WRITE_KEY, address=client_address(scope), origin=origin, code=401)
    return unauthorised(
        "a write needs a write key of this server as a bearer token; that of `diem up` is in .diem/write.key"
    )
