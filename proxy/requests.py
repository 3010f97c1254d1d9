"""Requests of clients that wait for servers: subscribes by name, and unsubscribes to be confirmed. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from diem.protocol import messages
from diem.protocol.messages import Refusal
from proxy.relocation import Handle, Later

if TYPE_CHECKING:
    from diem.links.edge_connection import EdgeConnection


class _PendingUnsubscribe:
    __slots__ = ("request", "waiting")

    def __init__(self, request: messages.Unsubscribe, waiting: set[tuple[str, int]]) -> None:
        self.request = request
        self.waiting = waiting


class PendingUnsubscribes:
    """The requests that wait. ``reply`` is called once for each, when every server concerned has confirmed or is gone.

    Servers are named by their URLs, their requests by the ids that the follower was given.
    """

    def __init__(self, reply: Callable[[messages.Unsubscribe], None]) -> None:
        self._reply = reply
        self._asked: dict[tuple[str, int], frozenset[str]] = {}
        """What servers were asked to unsubscribe and have not confirmed, for a client or because an endpoint moved."""
        self._waiting: dict[tuple[str, int], list[_PendingUnsubscribe]] = {}

    def __len__(self) -> int:
        """Requests that wait."""
        return len({id(leaving) for leavings in self._waiting.values() for leaving in leavings})

    @property
    def urls(self) -> Collection[str]:
        """Servers that are to confirm something for which a client waits."""
        return {url for url, _ in self._waiting}

    def asked(self, url: str, request_id: int, names: Iterable[str]) -> None:
        """A server was asked to unsubscribe; until it confirms that, updates of these may come from there."""
        self._asked[url, request_id] = frozenset(names)

    def add(self, request: messages.Unsubscribe) -> None:
        """A client leaves, and the servers were asked. Without anything to confirm, the reply follows at once.

        It waits for all that concerns its endpoints: also for what an earlier request has asked for, and for servers
        that the endpoints had left before.
        """
        leaving = _PendingUnsubscribe(
            request, {key for key, names in self._asked.items() if not names.isdisjoint(request.endpoints)}
        )
        for key in leaving.waiting:
            self._waiting.setdefault(key, []).append(leaving)
        self._look_at(leaving)

    def confirmed(self, url: str, request_id: int) -> None:
        """A server has answered."""
        self._done((url, request_id))

    def lost(self, url: str) -> None:
        """Nothing more comes from this server."""
        for key in [key for key in self._asked if key[0] == url]:
            self._done(key)

    def clear(self) -> None:
        """The client is gone: nobody is replied to."""
        self._asked.clear()
        self._waiting.clear()

    def _done(self, key: tuple[str, int]) -> None:
        self._asked.pop(key, None)
        for leaving in self._waiting.pop(key, ()):
            leaving.waiting.discard(key)
            self._look_at(leaving)

    def _look_at(self, leaving: _PendingUnsubscribe) -> None:
        if not leaving.waiting:
            self._reply(leaving.request)


ANSWER_WITHIN: Final = 3.0
"""Seconds after which a client is answered without the servers that are still to answer."""
TOGETHER: Final = 0.1
"""Seconds for which answers wait for each other, so that a client gets one where one is possible."""
MAX_PENDING: Final = 32
"""Requests of one client that may wait; more are refused with ``limit``."""


class Request:
    """One ``subscribe``, as far as it has not been answered."""

    __slots__ = ("client", "id", "known", "ready", "rejected", "resync", "timers", "together", "waiting")

    def __init__(self, client: "EdgeConnection", request_id: int, known: Mapping[str, int]) -> None:
        self.client = client
        self.id = request_id
        self.known = known
        """The versions that the client says it holds."""
        self.ready: dict[str, int | None] = {}
        self.rejected: dict[str, Refusal] = {}
        self.waiting: set[str] = set()
        self.resync: set[str] = set()
        """Names that the client must fetch again, whatever version it is answered."""
        self.together = False
        """Whether what is ready waits for the rest."""
        self.timers: list[Handle] = []

    def take(self) -> tuple[dict[str, int | None], dict[str, Refusal]]:
        """What is to be answered now; it will not be answered again."""
        ready, self.ready = self.ready, {}
        rejected, self.rejected = self.rejected, {}
        return ready, rejected


class Requests:
    """The requests that wait. ``answer`` sends what :meth:`Request.take` gives; it is not called for nothing.

    Args:
        answer: sends an answer; called as often as parts of a request become ready.
        late: some names have waited too long; called before they are answered with None.
        later: the timer.
        together: seconds that parts wait for each other, from the request on; 0 = never.
    """

    def __init__(
        self,
        answer: Callable[[Request], None],
        late: Callable[[Iterable[str]], None],
        later: Later,
        together: float = TOGETHER,
    ) -> None:
        self._answer = answer
        self._late = late
        self._later = later
        self._together = together
        self._by_name: dict[str, dict[Request, None]] = {}
        self._by_client: dict[EdgeConnection, dict[Request, None]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether somebody has not been answered for an endpoint."""
        return name in self._by_name

    def pending(self, client: "EdgeConnection") -> int:
        """Requests of a client that wait."""
        return len(self._by_client.get(client, ()))

    def names(self, client: "EdgeConnection") -> set[str]:
        """Endpoints for which a client has not been answered."""
        return {name for request in self._by_client.get(client, ()) for name in (*request.waiting, *request.ready)}

    def add(self, request: Request) -> None:
        """A new request: answered at once when it waits for nothing."""
        if not request.waiting:
            self._answer(request)
            return
        self._by_client.setdefault(request.client, {})[request] = None
        for name in (*request.waiting, *request.ready):
            self._by_name.setdefault(name, {})[request] = None
        request.timers.append(self._later(ANSWER_WITHIN, lambda: self._give_up(request)))
        if self._together:
            request.together = True
            request.timers.append(self._later(self._together, lambda: self._separate(request)))

    def answered(self, versions: Mapping[str, int | None]) -> None:
        """Servers have answered for these endpoints."""
        touched: dict[Request, None] = {}
        for name, version in versions.items():
            for request in self._by_name.get(name, ()):
                if name in request.waiting:
                    request.waiting.discard(name)
                    request.ready[name] = version
                    touched[request] = None
        for request in touched:
            if not request.waiting or not request.together:
                self._flush(request)

    def resync(self, names: Iterable[str]) -> None:
        """Servers have announced that these must be fetched again; who waits for them is to be told when answered."""
        for name in names:
            for request in self._by_name.get(name, ()):
                request.resync.add(name)

    def cancel(self, client: "EdgeConnection", names: Iterable[str]) -> None:
        """A client does not want these after all: what waits for them is answered before that is confirmed."""
        unwanted = set(names)
        for request in list(self._by_client.get(client, ())):
            request.resync -= unwanted
            for name in unwanted & request.waiting:
                request.waiting.discard(name)
                request.ready[name] = None
            if unwanted & request.ready.keys():
                self._flush(request)

    def drop(self, client: "EdgeConnection") -> set[str]:
        """A client is gone; returns what it was not answered for."""
        names = self.names(client)
        for request in self._by_client.pop(client, ()):
            for name in (*request.waiting, *request.ready):
                self._forget(request, name)
            self._stop(request)
        return names

    def _flush(self, request: Request) -> None:
        """Answer what is ready."""
        if not request.waiting:
            self._stop(request)
            of_client = self._by_client.get(request.client, {})
            of_client.pop(request, None)
            if not of_client:
                self._by_client.pop(request.client, None)
        if request.ready or request.rejected:
            for name in request.ready:
                self._forget(request, name)
            self._answer(request)

    def _separate(self, request: Request) -> None:
        """Answer what is ready, and from now on each part as it comes: a server that hangs holds up no other."""
        request.together = False
        self._flush(request)

    def _give_up(self, request: Request) -> None:
        late = sorted(request.waiting)
        self._late(late)
        request.ready.update(dict.fromkeys(late))
        request.waiting.clear()
        self._flush(request)

    def _forget(self, request: Request, name: str) -> None:
        requests = self._by_name.get(name)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._by_name[name]

    def _stop(self, request: Request) -> None:
        for timer in request.timers:
            timer.cancel()
        request.timers.clear()
