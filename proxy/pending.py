"""Subscribes of clients that wait for servers, and a proxy's own messages: partial ``status``, refusals."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from diem.links.edge import Subscriber
from diem.process.clock import Clock
from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from diem.protocol.messages import MAX_NAMES, Refusal
from diem.protocol.update import iso

ANSWER_TIMEOUT_S: Final = 3.0
"""Seconds after which a client is answered without the servers still silent."""
COALESCE_S: Final = 0.1
"""Seconds during which the answers of several servers are merged into one."""
MAX_PENDING: Final = 32
"""Unanswered requests of one client; more are refused with ``limit``."""


class TimerHandle(Protocol):
    """A running timer."""

    def cancel(self) -> None:
        """Cancel the timer; no-op when it has expired."""
        ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
"""``loop.call_later``, or a test's replacement."""


@dataclass(eq=False, slots=True)
class PendingSubscribe:
    """The unanswered part of one ``subscribe`` of a client."""

    client: Subscriber
    id: int
    known: Mapping[str, int]
    """Endpoint -> version that the client holds (0 = none)."""
    waiting: set[str] = field(default_factory=set)
    """Endpoints not answered yet by any server."""
    ready: dict[str, int | None] = field(default_factory=dict)
    """Answered endpoint -> version, None when there is none yet."""
    rejected: dict[str, Refusal] = field(default_factory=dict)
    data: bool = False
    """True if the client requested updates with data."""
    coalescing: bool = False
    """True if the ready part is held back until the rest is ready."""
    timers: list[TimerHandle] = field(default_factory=list)

    def cancel_timers(self) -> None:
        """Cancel all timers: the request needs no further answer."""
        for timer in self.timers:
            timer.cancel()


class PendingSubscribes:
    """Subscribes waiting for servers; each is answered in as many parts as necessary.

    Args:
        answer: sends and clears the ready and rejected part of a request.
        expired: called with a request's endpoints left unanswered for 3 s, before they are answered with None.
        later: starts a timer.
    """

    def __init__(
        self,
        answer: Callable[[PendingSubscribe], None],
        expired: Callable[[Iterable[str]], None],
        later: CallLater,
    ) -> None:
        self.by_client: dict[Subscriber, dict[PendingSubscribe, None]] = {}
        self._by_name: dict[str, dict[PendingSubscribe, None]] = {}
        """Endpoint -> requests in which it is waiting or ready."""
        self._answer = answer
        self._expired = expired
        self._later = later

    def __contains__(self, name: str) -> bool:
        """Return whether an endpoint is in an unanswered request."""
        return name in self._by_name

    def names(self, client: Subscriber) -> set[str]:
        """Return the endpoints of the unanswered requests of a client."""
        return {name for request in self.by_client.get(client, ()) for name in (*request.waiting, *request.ready)}

    def add(self, request: PendingSubscribe) -> None:
        """Add a request; one with nothing to wait for is answered at once."""
        if not request.waiting:
            self._answer(request)
            return
        self.by_client.setdefault(request.client, {})[request] = None
        for name in (*request.waiting, *request.ready):
            self._by_name.setdefault(name, {})[request] = None
        request.timers.append(self._later(ANSWER_TIMEOUT_S, lambda: self._expire(request)))
        request.coalescing = True
        request.timers.append(self._later(COALESCE_S, lambda: self._stop_coalescing(request)))

    def answered(self, versions: Mapping[str, int | None]) -> None:
        """Apply the answer of a server (endpoint -> version, None when there is none yet) to all that wait for it.

        Requests that are complete or do not coalesce are answered.
        """
        found: dict[PendingSubscribe, None] = {}
        for name, version in versions.items():
            for request in self._by_name.get(name, ()):
                if name in request.waiting:
                    request.waiting.discard(name)
                    request.ready[name] = version
                    found[request] = None
        for request in found:
            if not (request.waiting and request.coalescing):
                self._settle(request)
                self._answer(request)

    def cancel(self, client: Subscriber, names: Iterable[str]) -> None:
        """Stop waiting for endpoints that a client unsubscribes from, by answering them before the confirmation."""
        unwanted = set(names)
        for request in list(self.by_client.get(client, ())):
            if unwanted & (request.waiting | request.ready.keys()):
                self._give_up(request, unwanted & request.waiting)

    def reject(self, client: Subscriber, names: Iterable[str], reason: Refusal) -> None:
        """Refuse these endpoints to a client at once, without waiting for servers."""
        unwanted = set(names)
        for request in list(self.by_client.get(client, ())):
            refused = unwanted & (request.waiting | request.ready.keys())
            if refused:
                request.waiting -= refused
                request.ready = {name: version for name, version in request.ready.items() if name not in refused}
                request.rejected.update(dict.fromkeys(refused, reason))
                self._unindex(request, refused)
                self._settle(request)
                self._answer(request)

    def drop(self, client: Subscriber) -> set[str]:
        """Remove a disconnected client's requests; return their unanswered endpoints."""
        names = self.names(client)
        for request in self.by_client.pop(client, ()):
            request.cancel_timers()
            self._unindex(request, (*request.waiting, *request.ready))
        return names

    def _stop_coalescing(self, request: PendingSubscribe) -> None:
        """Answer the ready part, then every further part at once: a hung server delays no other."""
        request.coalescing = False
        if request.ready or request.rejected:
            self._settle(request)
            self._answer(request)

    def _expire(self, request: PendingSubscribe) -> None:
        late = sorted(request.waiting)
        self._expired(late)
        self._give_up(request, late)

    def _give_up(self, request: PendingSubscribe, names: Iterable[str]) -> None:
        """Answer a request at once, without the servers of these endpoints."""
        request.waiting.difference_update(names)
        request.ready.update(dict.fromkeys(names))
        self._settle(request)
        self._answer(request)

    def _settle(self, request: PendingSubscribe) -> None:
        """Forget the ready part of a request, which is about to be answered, and all of it if that is the last part."""
        self._unindex(request, request.ready)
        if not request.waiting:
            request.cancel_timers()
            requests = self.by_client[request.client]
            del requests[request]
            if not requests:
                del self.by_client[request.client]

    def _unindex(self, request: PendingSubscribe, names: Iterable[str]) -> None:
        for name in names:
            requests = self._by_name[name]
            del requests[request]
            if not requests:
                del self._by_name[name]


def send_status(client: Subscriber, names: Sequence[str], clock: Clock, *, live: bool) -> None:
    """Send a partial ``status``. Skipped while the client is blocked; resent when it unblocks."""
    if not client.session.blocked:
        _respond_status(client, names, clock, live=live)


def respond_stale(client: Subscriber, names: Sequence[str], clock: Clock) -> None:
    """Send a partial ``status`` before the reply with these endpoints, even to a blocked client."""
    _respond_status(client, names, clock, live=False)


def _respond_status(client: Subscriber, names: Sequence[str], clock: Clock, *, live: bool) -> None:
    since = iso(clock.wall_ms())
    for start in range(0, len(names), MAX_NAMES):
        client.respond(messages.status(live=live, since=since, endpoints=names[start : start + MAX_NAMES]))


def refuse_pending(client: Subscriber, request_id: int) -> None:
    """Refuse a request of a client that has :data:`MAX_PENDING` unanswered ones."""
    text = f"more than {MAX_PENDING} requests that wait for servers"
    client.respond(messages.error(ErrorCode.LIMIT, text, request_id))
