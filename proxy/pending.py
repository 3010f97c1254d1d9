"""Requests of clients that wait for servers: subscribes by name, and unsubscribes to be confirmed.

Also the messages that a proxy sends of its own accord: partial status, and errors of whole requests.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from diem.links.edge_connection import EdgeConnection
from diem.process.clock import Clock
from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from diem.protocol.messages import MAX_NAMES, Refusal
from diem.protocol.update import iso

ANSWER_WITHIN_S: Final = 3.0
"""After which a client is answered without the servers that are still to answer."""
GROUP_S: Final = 0.1
"""For which answers wait for each other, so that a client gets one where one is possible."""
MAX_PENDING: Final = 32
"""Requests of one client that may wait; more are refused with ``limit``."""


class TimerHandle(Protocol):
    """A timer that was started."""

    def cancel(self) -> None:
        """Cancel the timer; no-op when it has expired."""
        ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
"""``loop.call_later``, or its replacement in a test."""


@dataclass(eq=False, slots=True)
class PendingSubscribe:
    """One ``subscribe`` of a client, as far as it has not been answered."""

    client: EdgeConnection
    id: int
    known: Mapping[str, int]
    """The versions that the client holds."""
    ready: dict[str, int | None] = field(default_factory=dict)
    rejected: dict[str, Refusal] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    resync: set[str] = field(default_factory=set)
    """Names that the client must fetch again, whatever version it is answered."""
    grouped: bool = False
    """Whether what is ready waits for the rest."""
    timers: list[TimerHandle] = field(default_factory=list)


class PendingSubscribes:
    """The subscribes that wait for servers; each is answered in as many parts as are needed.

    Args:
        answer: sends what is ready and rejected of a request, and clears it.
        expired: some names have waited for 3 s; called before they are answered with None.
        group_s: seconds that parts wait for each other, from the request on; 0 = never.
    """

    def __init__(
        self,
        answer: Callable[[PendingSubscribe], None],
        expired: Callable[[Iterable[str]], None],
        later: CallLater,
        group_s: float = GROUP_S,
    ) -> None:
        self.by_client: dict[EdgeConnection, dict[PendingSubscribe, None]] = {}
        self._by_name: dict[str, dict[PendingSubscribe, None]] = {}
        self._answer = answer
        self._expired = expired
        self._later = later
        self._group_s = group_s

    def __contains__(self, name: str) -> bool:
        """Return whether a client has not been answered for an endpoint."""
        return name in self._by_name

    def names(self, client: EdgeConnection) -> set[str]:
        """Return the endpoints for which a client has not been answered."""
        return {name for request in self.by_client.get(client, ()) for name in (*request.waiting, *request.ready)}

    def add(self, request: PendingSubscribe) -> None:
        """Add a request; one that waits for nothing is answered at once."""
        if not request.waiting:
            self._answer(request)
            return
        self.by_client.setdefault(request.client, {})[request] = None
        for name in (*request.waiting, *request.ready):
            self._by_name.setdefault(name, {})[request] = None
        request.timers.append(self._later(ANSWER_WITHIN_S, lambda: self._expire(request)))
        if self._group_s:
            request.grouped = True
            request.timers.append(self._later(self._group_s, lambda: self._ungroup(request)))

    def answered(
        self, versions: Mapping[str, int | None], *, only: PendingSubscribe | None = None, at_once: bool = False
    ) -> None:
        """Apply versions, and answer the requests that are complete, or whose parts do not wait for each other.

        Args:
            versions: endpoint -> version, None when there is none yet.
            only: the one request that is concerned; None: all that wait for these endpoints.
            at_once: answer in parts although they wait for each other.
        """
        touched: dict[PendingSubscribe, None] = {} if only is None else {only: None}
        for name, version in versions.items():
            for request in self._by_name.get(name, ()) if only is None else (only,):
                if name in request.waiting:
                    request.waiting.discard(name)
                    request.ready[name] = version
                    touched[request] = None
        for request in touched:
            if request.waiting and request.grouped and not at_once:
                continue
            if not request.waiting:
                self._remove(request)
            if request.ready or request.rejected:
                for name in request.ready:
                    self._forget(request, name)
                self._answer(request)

    def resync(self, names: Iterable[str]) -> None:
        """Note that endpoints must be fetched again: clients that wait for them are told with their answer."""
        for name in names:
            for request in self._by_name.get(name, ()):
                request.resync.add(name)

    def cancel(self, client: EdgeConnection, names: Iterable[str]) -> None:
        """Answer for endpoints that a client is unsubscribing from: before that is confirmed."""
        unwanted = set(names)
        for request in list(self.by_client.get(client, ())):
            request.resync -= unwanted
            if unwanted & (request.waiting | request.ready.keys()):
                self.answered(dict.fromkeys(unwanted & request.waiting), only=request, at_once=True)

    def drop(self, client: EdgeConnection) -> set[str]:
        """Remove the requests of a client that is gone; return the endpoints it was not answered for."""
        names = self.names(client)
        for request in list(self.by_client.get(client, ())):
            for name in (*request.waiting, *request.ready):
                self._forget(request, name)
            self._remove(request)
        return names

    def _ungroup(self, request: PendingSubscribe) -> None:
        """Answer what is ready, and from now on each part as it comes: a server that hangs holds up no other."""
        request.grouped = False
        self.answered({}, only=request)

    def _expire(self, request: PendingSubscribe) -> None:
        late = sorted(request.waiting)
        self._expired(late)
        self.answered(dict.fromkeys(late), only=request)

    def _forget(self, request: PendingSubscribe, name: str) -> None:
        requests = self._by_name.get(name)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._by_name[name]

    def _remove(self, request: PendingSubscribe) -> None:
        for timer in request.timers:
            timer.cancel()
        request.timers.clear()
        of_client = self.by_client.get(request.client, {})
        of_client.pop(request, None)
        if not of_client:
            self.by_client.pop(request.client, None)


@dataclass(eq=False, slots=True)
class _PendingUnsubscribe:
    request: messages.Unsubscribe
    unconfirmed: set[tuple[str, int]]


class PendingUnsubscribes:
    """The unsubscribes of one client that wait for servers, which are named by URL, with the ids of their requests.

    ``confirm`` is called once for each, when every server concerned has confirmed or its link is gone.
    """

    def __init__(self, confirm: Callable[[messages.Unsubscribe], None]) -> None:
        self._confirm = confirm
        self._sent: dict[tuple[str, int], frozenset[str]] = {}
        """Unsubscribes that servers have not confirmed, sent for a client or because an endpoint moved."""
        self._waiting: dict[tuple[str, int], list[_PendingUnsubscribe]] = {}

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len({id(pending) for requests in self._waiting.values() for pending in requests})

    @property
    def urls(self) -> Collection[str]:
        """Servers whose confirmation a client waits for."""
        return {url for url, _ in self._waiting}

    def sent(self, url: str, request_id: int, names: Iterable[str]) -> None:
        """Note an unsubscribe that was sent; until it is confirmed, updates of its names may come from there."""
        self._sent[url, request_id] = frozenset(names)

    def add(self, request: messages.Unsubscribe) -> None:
        """Add a client's request after its unsubscribes were sent; without any to wait for it is confirmed at once.

        It waits for all that concerns its endpoints: also for what an earlier request has sent, and for servers that
        the endpoints had left before.
        """
        pending = _PendingUnsubscribe(
            request, {key for key, names in self._sent.items() if not names.isdisjoint(request.endpoints)}
        )
        for key in pending.unconfirmed:
            self._waiting.setdefault(key, []).append(pending)
        if not pending.unconfirmed:
            self._confirm(request)

    def confirmed(self, url: str, request_id: int) -> None:
        """Apply a server's confirmation."""
        self._sent.pop((url, request_id), None)
        for pending in self._waiting.pop((url, request_id), ()):
            pending.unconfirmed.discard((url, request_id))
            if not pending.unconfirmed:
                self._confirm(pending.request)

    def lost(self, url: str) -> None:
        """Count everything sent to a server as confirmed: nothing more comes from there."""
        for _, request_id in [key for key in self._sent if key[0] == url]:
            self.confirmed(url, request_id)

    def clear(self) -> None:
        """Drop all requests without a reply: the client is gone."""
        self._sent.clear()
        self._waiting.clear()


def send_status(client: EdgeConnection, names: Sequence[str], clock: Clock, *, live: bool) -> None:
    """Send a partial ``status``. Skipped while the client is blocked; resent when it unblocks."""
    if client.session.blocked:
        return
    since = iso(clock.wall_ms())
    for start in range(0, len(names), MAX_NAMES):
        client.respond(messages.status(live=live, since=since, endpoints=names[start : start + MAX_NAMES]))


def refuse_pending(client: EdgeConnection, request_id: int) -> None:
    """Refuse a request because too many of this client wait."""
    text = f"more than {MAX_PENDING} requests that wait for servers"
    client.respond(messages.error(ErrorCode.LIMIT, text, request_id))
