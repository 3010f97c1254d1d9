"""Front end of one process: the shared state of its client connections, their admission, metrics and drain."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final, NamedTuple, Protocol

from websockets.datastructures import Headers, MultipleValuesError

from diem.fanout.fanout import Fanout
from diem.fanout.feed_hub import FeedHub
from diem.fanout.read_meter import UNMETERED, ReadMeter, ReadMeters
from diem.fanout.session import ClientTrace, Session
from diem.links.client_auth import AuthorisedConnection, ClientAuth, may_be_anonymous
from diem.links.departures import Departures
from diem.links.handshakes import HandshakeLimiter, HandshakeLimits
from diem.links.keepalive import HEARTBEAT_CHECK_S, TimerWheel, WheelMember
from diem.links.refusals import NO_TOKENS, TWO_ORIGINS, RefusedClient, by_limit, by_origin, by_rate_of_requests
from diem.links.shared_polls import SharedPolls
from diem.process import metrics
from diem.process.clock import SystemClock
from diem.process.edge_settings import Anonymous, EdgeSettings
from diem.process.forwarding import ClientAddresses
from diem.process.limits import (
    CAPACITY,
    CONNECT_BURST,
    CONNECT_RATE_PER_S,
    CONNECTIONS_PER_ADDRESS,
    CONNECTIONS_PER_USER,
    READMITTED_WITH,
    AddressLimits,
    AddressRateLimiter,
    AddressTable,
    AdmissionResult,
    ConnectionQuota,
    MessageAllowance,
    RateLimit,
    UserTable,
    address_key,
    message_burst,
    messages_for,
)
from diem.process.listeners import is_loopback, origin_allowed
from diem.process.metrics import Sample
from diem.process.shared_counts import SharedCounts
from diem.protocol import messages
from diem.protocol.codes import Close
from diem.protocol.events import EventCache
from diem.protocol.frames import text_frame
from diem.protocol.messages import MAX_FETCH_WINDOW_MS
from diem.tokens.claims import Claims
from diem.tokens.verifier import ISSUER

MAX_VIOLATIONS: Final = 3
"""Rate violations of one address within a minute before a connection is closed with 1008 instead of 4003."""
VIOLATION_WINDOW_S: Final = 60.0
MAX_VIOLATORS: Final = 4096
EXPLANATIONS: Final = RateLimit(5.0, 20.0)
"""Rate of one address's requests for a refusal's reason; a page makes one per refused handshake."""
FETCHES_PER_S: Final = 4000
"""Fetches per second by one server's clients if all start at once: half of one core of the Data Service, uncached."""
MIN_FETCH_WINDOW_MS: Final = 100
"""Minimum window: fetches that complete sooner need no spreading."""
CLOSED_AT_ONCE: Final = 100
"""Connections closed per turn of the loop when tokens expire together, some milliseconds of work."""
DRAIN_RETRY_MS: Final = 500
"""Reconnect window of a stopping server's clients, which are without a server meanwhile."""
DRAINED_PER_S: Final = 500
"""Clients that a stopping server closes a second: a fifth of a core of one other server, which may get them all."""
ADMITTED_PER_S: Final = 2000
"""Clients that such a server can admit a second (``make bench-scale``)."""
DRAIN_STEP_S: Final = 0.1
LATE_CHECK_S: Final = 1.5
"""Time between two calls from which on heartbeats are late."""
MAX_PENDING_HANDSHAKES: Final = 1024
"""Maximum number of connections without a request; each has 10 s to send it."""
ACCEPTED_AHEAD: Final = MAX_PENDING_HANDSHAKES - 256
"""From so many on, others wait; those of one turn are still being accepted then."""
REQUEST_AFTER_S: Final = 0.25
"""Time in which a client's request follows, after a connection over a slow network."""
REMEMBERED_CALLERS: Final = 4096
"""Addresses with their rights: those of long polls come again and again."""
MAX_REMEMBERED_SOURCE: Final = 256
"""Longest fields that are remembered."""


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Origins, trusted proxies and limits of client connections (docs/reliability.md S2, S3, S13, S18)."""

    anonymous: Anonymous = "auto"
    """Clients exempt from tokens: all but remote programs (no Origin), none, or local ones if ``loopback_bind``."""
    anonymous_data: Anonymous = "auto"
    """Clients that may be sent data without a token: all, none, or those on this machine if ``loopback_bind``."""
    tokens: bool = False
    """True if clients can authenticate with tokens."""
    origins: frozenset[str] = frozenset()
    """Exact origins allowed besides the page's on a loopback bind."""
    page_port: int | None = None
    loopback_bind: bool = True
    trusted_proxies: Sequence[IPv4Network | IPv6Network] = ()
    per_address: int = CONNECTIONS_PER_ADDRESS
    rate_per_address: float | None = None
    """New connections of one address a second; None: 10, or a fifth of ``per_address`` if that is more."""
    limit_loopback: bool = True
    """True if clients on this machine have the limits of one address, too."""
    per_user: int = CONNECTIONS_PER_USER
    """Maximum number of connections with tokens of one user."""
    subscriptions: int = messages.SUBSCRIPTIONS
    """Maximum number of subscriptions per connection; a client may request all at once."""
    capacity: int = CAPACITY

    @property
    def address_limits(self) -> AddressLimits:
        """Limits of one address.

        All of its connections may reconnect at once, as after the loss of a server, and each may request all of its
        subscriptions twice before it has to wait. An address is readmitted only once it may request all of them:
        otherwise each attempt would use up its allowance before completing.
        """
        rate = max(CONNECT_RATE_PER_S, self.per_address / 5) if self.rate_per_address is None else self.rate_per_address
        burst = message_burst(self.subscriptions)
        return AddressLimits(
            connections=self.per_address,
            connect_rate_per_s=rate,
            connect_burst=max(CONNECT_BURST, self.per_address),
            message_burst=burst,
            readmitted_with=max(READMITTED_WITH, messages_for(self.subscriptions) / burst),
        )


def admission_rules(settings: EdgeSettings) -> AdmissionRules:
    """Return the rules configured for a process."""
    return AdmissionRules(
        anonymous=settings.anonymous,
        anonymous_data=settings.anonymous_data,
        tokens=bool(settings.token_keys),
        origins=frozenset(settings.origins),
        page_port=settings.page_port,
        loopback_bind=is_loopback(settings.host),
        trusted_proxies=tuple(settings.trusted_proxies),
        per_address=settings.connections_per_address,
        rate_per_address=settings.connection_rate_per_address,
        limit_loopback=settings.limit_loopback,
        per_user=settings.connections_per_user,
        subscriptions=settings.subscriptions,
        capacity=settings.capacity,
    )


class RequestSource(NamedTuple):
    """The fields of a request on which the rights of its client depend."""

    origin: str | None = None
    forwarded_for: str | None = None
    relayed: bool = False
    """There is another trace of a proxy."""


class _Caller(NamedTuple):
    """The address and rights of a client, before its limits."""

    address: str
    refusal: RefusedClient | None = None
    anonymous: bool = False
    anonymous_data: bool = False


class Admitted(NamedTuple):
    """An admitted client."""

    allowance: MessageAllowance
    anonymous: bool
    """True if it needs no token."""
    anonymous_data: bool
    """True if it may be sent data without one."""


class Admission:
    """Decides on opening handshakes; counts admitted connections and rate violations by address.

    ``shared`` has the connections of all processes that share the port; None: it is not shared.
    """

    def __init__(self, rules: AdmissionRules, shared: SharedCounts | None = None) -> None:
        self._rules = rules
        self._addresses = ClientAddresses(rules.trusted_proxies)
        self._remembered = lru_cache(REMEMBERED_CALLERS)(self._check)
        addresses = AddressTable(rules.address_limits, shared=shared)
        self._quota = ConnectionQuota(addresses, rules.capacity, limits_loopback=rules.limit_loopback)
        self._violations: dict[str, tuple[int, float]] = {}
        self._explanations = AddressRateLimiter(EXPLANATIONS, EXPLANATIONS)
        self.users: Final = UserTable(rules.per_user, rules.address_limits)
        """Connections with tokens."""

    @property
    def capacity(self) -> int:
        """Return the maximum number of clients of this process."""
        return self._rules.capacity

    def is_public(self, *, data: bool) -> bool:
        """Return whether all clients may be sent updates without a token, with or without data."""
        rules = self._rules
        return rules.anonymous == "on" and (not data or rules.anonymous_data == "on")

    @property
    def open(self) -> int:
        """Number of admitted connections not yet released."""
        return self._quota.open

    def open_of(self, address: str) -> int:
        """Return the number of admitted connections of one address."""
        return self._quota.open_of(address)

    def handshakes(self) -> HandshakeLimiter:
        """Return the limiter of TLS handshakes by these rules."""
        rules = self._rules
        loopback = None if rules.limit_loopback else rules.capacity
        limits = HandshakeLimits.of_clients(
            rules.address_limits, rules.trusted_proxies, self.open_of, loopback=loopback
        )
        return HandshakeLimiter("public", limits)

    def admit(self, peer: str, headers: Headers, now: float) -> tuple[str, Admitted | RefusedClient]:
        """Return the client's address with its admission, or with the refusal (403, 429 or 503)."""
        source = _source(headers)
        return (peer, TWO_ORIGINS) if source is None else self.admit_from(peer, source, now)

    def admit_from(
        self, peer: str, source: RequestSource, now: float, *, arriving: bool = True
    ) -> tuple[str, Admitted | RefusedClient]:
        """Do the same for a parsed request.

        Without ``arriving``, the client does not count to the rates of new connections.
        """
        size = len(source.origin or "") + len(source.forwarded_for or "")
        caller = (self._remembered if size <= MAX_REMEMBERED_SOURCE else self._check)(peer, source)
        address, refusal, anonymous, anonymous_data = caller
        if refusal is not None:
            return address, refusal
        outcome = self._quota.admit(address, now, arriving=arriving)
        if isinstance(outcome, AdmissionResult):
            return address, self._beyond(outcome, address, now)
        return address, Admitted(outcome, anonymous, anonymous_data)

    def refusal(self, peer: str, headers: Headers, now: float) -> RefusedClient | None:
        """Return the reason why :meth:`admit` would refuse such a client now, else None; counts nothing."""
        source = _source(headers)
        if source is None:
            return TWO_ORIGINS
        caller = self._check(peer, source)
        if caller.refusal is not None:
            return caller.refusal
        outcome = self._quota.refusal(caller.address, now)
        return None if outcome is None else self._beyond(outcome, caller.address, now)

    def beyond_explanations(self, peer: str, headers: Headers, now: float) -> tuple[str, RefusedClient | None]:
        """Count a request for a refusal's reason; return the client's address, and the answer if beyond the rate."""
        forwarded_for, relayed = _forwarded(headers)
        address = self._addresses.resolve(peer, forwarded_for, relayed=relayed)
        wait_s = self._explanations.take(address, now)
        return address, by_rate_of_requests(math.ceil(wait_s)) if wait_s else None

    def _check(self, peer: str, source: RequestSource) -> _Caller:
        """Return the client's address and rights, or the reason why it may not connect."""
        rules, (origin, forwarded_for, relayed) = self._rules, source
        address = self._addresses.resolve(peer, forwarded_for, relayed=relayed)
        if origin is not None and not origin_allowed(
            origin, allowed=rules.origins, page_port=rules.page_port, loopback_bind=rules.loopback_bind
        ):
            return _Caller(address, by_origin(origin))
        anonymous = may_be_anonymous(
            rules.anonymous, address, loopback_bind=rules.loopback_bind, has_origin=origin is not None
        )
        if not anonymous and not rules.tokens:
            return _Caller(address, NO_TOKENS)
        data = may_be_anonymous(rules.anonymous_data, address, loopback_bind=rules.loopback_bind, has_origin=True)
        return _Caller(address, None, anonymous, anonymous and data)

    def _beyond(self, result: AdmissionResult, address: str, now: float) -> RefusedClient:
        """Return the refusal for exceeding a limit of the address or the process."""
        rules = self._rules
        bound = {
            AdmissionResult.ADDRESS_LIMIT: rules.per_address,
            AdmissionResult.ADDRESS_TOO_FAST: rules.address_limits.connect_rate_per_s,
            AdmissionResult.PROCESS_FULL: self._quota.capacity_for(address),
        }.get(result, 0)
        return by_limit(result, bound, max(1, math.ceil(self._quota.retry_after(address, now))))

    def user_refusal(self, result: AdmissionResult, retry_after_s: int) -> RefusedClient:
        """Return the refusal for exceeding a limit of the user."""
        return by_limit(result, self._rules.per_user, retry_after_s)

    def release(self, address: str, allowance: MessageAllowance, now: float) -> None:
        """Release an admitted connection; its used allowance stays charged to its address for a while."""
        self._quota.release(address, allowance, now)

    def add_violation(self, address: str, now: float) -> bool:
        """Count a rate violation; return whether the address exceeds :data:`MAX_VIOLATIONS`.

        Bounded by :data:`MAX_VIOLATORS`: the least recent address is evicted.
        """
        key = address_key(address)
        count, since = self._violations.pop(key, (0, now))
        if now - since > VIOLATION_WINDOW_S:
            count, since = 0, now
        if len(self._violations) >= MAX_VIOLATORS:
            del self._violations[next(iter(self._violations))]
        self._violations[key] = (count + 1, since)
        return count + 1 > MAX_VIOLATIONS


def _forwarded(headers: Headers) -> tuple[str | None, bool]:
    hops = headers.get_all("X-Forwarded-For")
    return ", ".join(hops) if hops else None, "Forwarded" in headers or "Via" in headers


def _source(headers: Headers) -> RequestSource | None:
    """Return the source of a handshake; None if it has two origins."""
    try:
        return RequestSource(headers.get("Origin"), *_forwarded(headers))
    except MultipleValuesError:
        return None


def fetch_window_ms(clients: int) -> int:
    """Return the window in which this many clients spread the fetches of one update without data; 0 if they are few."""
    window_ms = 1000 * clients // FETCHES_PER_S
    return min(window_ms, MAX_FETCH_WINDOW_MS) if window_ms >= MIN_FETCH_WINDOW_MS else 0


class DrainPace(NamedTuple):
    """Pace at which a stopping process closes its clients."""

    spread_s: float
    """From the first close to the last."""
    retry_ms: int
    """Window of each client's reconnect."""


def drain_pace(clients: int, seconds: float) -> DrainPace:
    """Return the pace to close ``clients`` connections within ``seconds``.

    While there is time to close one after the other, a client is without a server only for its own reconnect. Clients
    beyond those that another server admits meanwhile are spread by the window instead.
    """
    spread_s = min(clients / DRAINED_PER_S, 0.8 * seconds)
    return DrainPace(spread_s, max(DRAIN_RETRY_MS, round(1000 * (clients / ADMITTED_PER_S - spread_s))))


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """Contents of a server's ``welcome``."""

    server: str
    mode: str
    subscriptions: int = messages.SUBSCRIPTIONS
    data: bool = False
    """True if clients may request updates with data."""
    compression: bool = False
    """True if data is compressed for clients that offer it."""


class Subscriber(Hashable, Protocol):
    """A client as its service knows it, or the subscription of several."""

    session: Session

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        """Send a reply, and then frames."""
        ...


class EdgeClient(WheelMember, AuthorisedConnection, Protocol):
    """The connection of a client, as its edge knows it."""

    session: Session

    def on_heartbeat_check(self) -> None:
        """Send a heartbeat, unless something else was sent lately."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of the client: its session, address and user, as far as it has them."""
        ...

    def describe(self, endpoint: bytes, *, named: bool) -> dict[str, Any]:
        """Return the state of the client for an endpoint as JSON values, if ``named`` with its subscriptions."""
        ...


class PendingConnection(Hashable, Protocol):
    """A connection without a request."""

    @property
    def peer(self) -> str:
        """Address of the peer; empty on a Unix socket."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class Service:
    """Answers client requests: a server from its hub at once, a proxy later, through servers.

    Implementations inherit it and override the events they need.
    """

    def subscribe(self, client: Subscriber, request: messages.Subscribe) -> None:
        """Answer with one or more ``subscribed`` that together cover all names."""
        raise NotImplementedError

    def unsubscribe(self, client: Subscriber, request: messages.Unsubscribe) -> None:
        """Answer with ``unsubscribed``."""
        raise NotImplementedError

    def restrict(self, client: Subscriber, allows: Callable[[str], bool]) -> list[str]:
        """End the subscriptions lost with a client's rights; return the endpoints concerned.

        Nothing follows for endpoints that ``allows`` refuses. Pending requests for them are answered with
        ``forbidden``.
        """
        raise NotImplementedError

    def joined(self, client: Subscriber) -> None:
        """Called once a client has been sent its ``welcome``."""

    def unblocked(self, client: Subscriber) -> None:
        """Called when a blocked client accepts data again."""

    def left(self, client: Subscriber) -> None:
        """Called once when a client disconnects, before it leaves the fan-out."""


class TraceSink(Protocol):
    """Records connections and requests of clients."""

    def connected(self, session: Session, connection: bytes, address: str) -> ClientTrace:
        """Return the trace of a new connection from an address."""
        ...


class HubService(Service):
    """Answers from a hub."""

    def __init__(self, hub: FeedHub) -> None:
        self._hub = hub

    def subscribe(self, client: Subscriber, request: messages.Subscribe) -> None:
        """Subscribe the client, and send retained versions newer than its own."""
        answer = self._hub.subscribe(client.session, request.endpoints, with_data=request.data)
        answer.rejected.update(request.rejected)
        client.respond(messages.subscribed(request.id, answer.endpoints, answer.rejected), answer.replay)

    def unsubscribe(self, client: Subscriber, request: messages.Unsubscribe) -> None:
        """Unsubscribe the client."""
        self._hub.fanout.unsubscribe(client.session, request.endpoints)
        client.respond(messages.unsubscribed(request.id, request.endpoints))

    def restrict(self, client: Subscriber, allows: Callable[[str], bool]) -> list[str]:
        """Unsubscribe the client from endpoints that it may no longer read."""
        return self._hub.fanout.unsubscribe_refused(client.session, allows)


class Edge:
    """Shared state of the client connections of one process; used on the event loop only."""

    def __init__(
        self, fanout: Fanout, admission: Admission, rules: EdgeRules, service: Service, auth: ClientAuth | None = None
    ) -> None:
        self.fanout = fanout
        self.admission = admission
        self.auth = ClientAuth(SystemClock()) if auth is None else auth
        self.rules = rules
        self.service = service
        self.wheel: TimerWheel[EdgeClient] = TimerWheel()
        self.connections: set[EdgeClient] = set()
        self.status_frame = b""
        """The current ``status``, as one frame for all clients."""
        self.live = False
        """The same."""
        self.heartbeat_frame = b""
        """A ``status`` of no endpoint, which changes nothing: browsers see no pings (ADR 23)."""
        self.events = EventCache()
        """Events of recent frames, for the event streams."""
        self.polls: SharedPolls[Any] = SharedPolls()
        """Subscriptions of long polls."""
        self.gathering: list[Callable[[], None]] = []
        """Answers of those with news, which gather more for some milliseconds."""
        self.pending_handshakes: dict[PendingConnection, float] = {}
        """Connections without a request yet, oldest first, with the times since when."""
        self._ready = False
        self.on_readiness: Callable[[bool], None] = lambda _ready: None
        """Called when :attr:`ready` has changed."""
        self.draining = False
        self.received: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.closes: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        """Handshakes by the HTTP status of the refusal; 0: there was no request."""
        self.departures: Final = Departures()
        self.trace_sink: TraceSink | None = None
        """None unless traffic is recorded."""
        self.read_meters: ReadMeters | None = None
        """Counts the data that clients with API keys receive; None unless that is reported."""

    @property
    def ready(self) -> bool:
        """True while clients are admitted."""
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        changed, self._ready = ready is not self._ready, ready
        if changed:
            self.on_readiness(ready)

    def awaits_requests(self) -> bool:
        """Return whether connections must wait in the kernel's queue, because many others have yet to send a request.

        In a herd they are accepted sooner than requests arrive. A connection that had time for it gives way instead.
        """
        pending = self.pending_handshakes
        if len(pending) < ACCEPTED_AHEAD:
            return False
        return asyncio.get_running_loop().time() - next(iter(pending.values())) < REQUEST_AFTER_S

    def publish_status(self, *, live: bool, since: str) -> None:
        """Send a changed ``status`` to every client; later ones get it after their ``welcome``."""
        self.live = live
        self.status_frame = text_frame(messages.status(live=live, since=since))
        self.heartbeat_frame = text_frame(messages.status(live=live, since=since, endpoints=()))
        self.fanout.broadcast(self.status_frame)

    def meter_of(self, claims: Claims) -> ReadMeter:
        """Return the meter for the data of a client with a token: by its API key and user, if reported.

        Keys of other issuers are unrelated to the Data Service's.
        """
        if self.read_meters is None or not claims.key or claims.issuer != ISSUER:
            return UNMETERED
        named = claims.subject.startswith(f"{claims.key}/")
        return self.read_meters.of(claims.key, claims.subject if named else None)

    def close_moved(self, sessions: Collection[Session]) -> None:
        """Close clients that have not followed their ``moved``: on reconnecting, they locate their endpoints again."""
        if sessions:
            for connection in [each for each in self.connections if each.session in sessions]:
                connection.close(Close.MOVED, "retry=2000")

    async def run(self) -> None:
        """Ping the clients and close those past their deadline, until cancelled."""
        loop = asyncio.get_running_loop()
        checked = loop.time()
        while True:
            await asyncio.sleep(1.0)
            self.wheel.tick()
            before, checked = checked, loop.time()
            # A busy loop comes back late: clients that get no heartbeat leave, and return to it.
            self.send_heartbeats(1 if checked - before > LATE_CHECK_S else HEARTBEAT_CHECK_S)
            await self.close_due()

    def send_heartbeats(self, every_s: int) -> None:
        """Send a frame to clients without a recent one, to all of them within so many calls.

        At once, as an update to all is sent: between two turns of a busy loop may be seconds.
        """
        for members in self.wheel.due_every(every_s):
            for connection in members:
                connection.on_heartbeat_check()

    async def close_due(self) -> None:
        """Close clients that did not authenticate in time, or whose token expired or was revoked."""
        for number, (connection, code, reason) in enumerate(self.auth.pop_due(self.connections), start=1):
            # It may have refreshed its token while others were closed.
            if self.auth.is_due(connection):
                connection.close(code, reason)
            if number % CLOSED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def drain(self, seconds: float) -> None:
        """Close every client with 1012, one after the other, and return when all have left, within ``seconds``.

        Remaining clients are served meanwhile. The caller has closed the public listener: new and returning clients
        reach another server.
        """
        self.draining = True
        loop = asyncio.get_running_loop()
        began, waiting = loop.time(), list(self.connections)
        # Clients of the only server have nowhere to go: closing them sooner starts its successor sooner.
        pace = drain_pace(len(waiting), 0.0 if self.rules.mode == "single" else seconds)
        steps = min(len(waiting), 1 + int(pace.spread_s / DRAIN_STEP_S))
        for step in range(steps):
            # By the clock, because closing takes time, too.
            await asyncio.sleep(max(0.0, began + step * pace.spread_s / steps - loop.time()))
            for connection in waiting[step::steps]:
                connection.close(Close.RESTART, f"retry={pace.retry_ms}")
        while self.admission.open and loop.time() < began + 0.95 * seconds:  # noqa: ASYNC110 - once in a life
            await asyncio.sleep(0.05)

    def status(self) -> dict[str, Any]:
        """Return the part of ``/status`` about clients."""
        connections = len(self.connections)
        return {
            "clients": connections,
            "capacity": self.admission.capacity,
            "clients_by_access": self.auth.counts(connections),
            "deliveries": self.fanout.stats.sent,
            **self.auth.status(),
        }

    def samples(self) -> Iterable[Sample]:
        """Sample clients, authentications, deliveries, messages, errors, closes and refused handshakes."""
        yield metrics.CLIENTS.sample(len(self.connections))
        yield from self.auth.samples(len(self.connections))
        yield metrics.DELIVERIES.sample(self.fanout.stats.sent)
        yield metrics.DELIVERIES_CONFLATED.sample(self.fanout.stats.conflated)
        yield metrics.REPLIES_WITHOUT_DATA.sample(self.fanout.stats.replies_without_data)
        for kind, count in self.received.items():
            yield metrics.MESSAGES.sample(count, kind)
        for error, count in self.errors.items():
            yield metrics.ERRORS.sample(count, error)
        for code, count in self.closes.items():
            yield metrics.CLOSES.sample(count, str(int(code)))
        for status, count in self.refused.items():
            yield metrics.REFUSED.sample(count, str(status))
