"""Relocation of endpoints: which server each is subscribed at, when it moves, and whether it is stale. Pure.

Every event is a method that returns the actions which follow from it, in order; the caller carries them out. There is
one relocator for all clients in shared mode, and one for each client in passthrough mode.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple

from diem.process.backoff import full_jitter
from diem.protocol.messages import ErrorReply, MovedMessage, ServerMessage, StatusMessage, SubscribedReply
from proxy.routing import Router

UNSENT: Final = -1
"""Instead of a request's id: not requested yet, because the link is down. It is requested when the link opens."""
REGISTERED: Final = 0
REJECTED: Final = -2
"""Refused there, or moved away; updates that still come from there are delivered until the new server has answered."""

MAX_NAMES: Final = 1000
"""Endpoints in one message to a server, which refuses messages over 1 MiB."""
MAX_HOPS: Final = 3
"""Redirects followed at once before an endpoint waits."""
RETRY_BASE_S: Final = 0.5
RETRY_CAP_S: Final = 5.0
LEAVE_AFTER_S: Final = 5.0
"""For which a server is not live, and up to as many more, before its endpoints go where the snapshot says."""
STALE_AFTER_S: Final = 3.0
"""Without a server's answer after which an endpoint counts as stale; at once when a link is lost."""
TICK_S: Final = 0.5


class SendSubscribe(NamedTuple):
    """Subscribe to endpoints at a server, whose link is open."""

    url: str
    request_id: int
    names: list[str]


class SendUnsubscribe(NamedTuple):
    """Unsubscribe from endpoints at a server, whose link is open."""

    url: str
    request_id: int
    names: list[str]


class BecameStale(NamedTuple):
    """No live server serves these endpoints now."""

    names: list[str]


class Recovered(NamedTuple):
    """A live server serves these endpoints again."""

    names: list[str]


Action = SendSubscribe | SendUnsubscribe | BecameStale | Recovered


class EndpointRoute:
    """One endpoint: its home, and its state at every server that was asked for it."""

    __slots__ = ("attempt", "home", "hops", "lagging", "places", "retry_at", "stale", "unserved_since")

    def __init__(self, home: str | None) -> None:
        self.home = home
        """The server that should serve it."""
        self.places: dict[str, int] = {}
        """Server -> id of the request that it has not answered yet, or one of the states above."""
        self.stale = False
        self.lagging = False
        """Its server has reported itself live except for this endpoint."""
        self.hops = 0
        self.attempt = 0
        self.retry_at: float | None = None
        """When to route it again."""
        self.unserved_since: float | None = None

    def is_served(self, dead: Container[str]) -> bool:
        """Return whether a live server serves it."""
        return not self.lagging and any(state == REGISTERED and url not in dead for url, state in self.places.items())

    @property
    def is_registered(self) -> bool:
        """Whether a server has registered it and has not sent it away."""
        return REGISTERED in self.places.values()


class Relocator:
    """Keeps endpoints subscribed where the router says, at the new server before the old one is dropped.

    Args:
        links: the servers whose link is open now, kept up to date by the caller before it reports the change.
        now: monotonic seconds.
        load: how busy this proxy keeps each server; None: by the endpoints of this relocator.
    """

    def __init__(
        self,
        router: Router,
        links: Container[str],
        now: Callable[[], float],
        load: Counter[str] | None = None,
    ) -> None:
        self.routes: dict[str, EndpointRoute] = {}
        self.used: Counter[str] = Counter()
        """Server -> endpoints that have a state there; servers without any are not in it."""
        self._router = router
        self._links = links
        self._now = now
        self._load = self.used if load is None else load
        self._request_id = 0
        self._dead: set[str] = set()
        """Servers that are not live, or not reachable."""
        self._leave_at: dict[str, float] = {}
        """Dead server -> when its endpoints leave it."""
        self._unserved: dict[str, None] = {}
        """Endpoints to check at the next tick: unserved, or to be routed again."""

    def is_stale(self, name: str) -> bool:
        """Return whether an endpoint was reported stale."""
        route = self.routes.get(name)
        return route is not None and route.stale

    @property
    def stale(self) -> int:
        """Endpoints that are stale."""
        return sum(route.stale for route in self.routes.values())

    @property
    def tick_after_s(self) -> float | None:
        """Seconds until :meth:`tick` is to be called, None while there is nothing to wait for."""
        if not self._leave_at:
            return TICK_S if self._unserved else None
        leave = max(0.0, min(self._leave_at.values()) - self._now())
        return min(TICK_S, leave) if self._unserved else leave

    # Events of clients

    def subscribe(self, names: Iterable[str], *, at: str | None = None) -> list[Action]:
        """Subscribe to endpoints at their homes, or at the server ``at``; one that has no route yet is routed first."""
        now = self._now()
        by_server: dict[str, list[str]] = {}
        for name in names:
            route = self.routes.get(name)
            if route is None:
                owner = self._router.owner(name, used=self.used, dead=self._dead, load=self._load)
                route = self.routes[name] = EndpointRoute(owner)
            if (url := at or route.home) is not None:
                by_server.setdefault(url, []).append(name)
            # Whether one that is moving is served by another server is checked at the next tick.
            if route.unserved_since is None and len(route.places) < 2:
                route.unserved_since = now
            self._unserved[name] = None
        actions: list[Action] = []
        for url, requested in by_server.items():
            for start in range(0, len(requested), MAX_NAMES):
                part = requested[start : start + MAX_NAMES]
                state = UNSENT
                if url in self._links:
                    state = self._request_id = self._request_id + 1
                    actions.append(SendSubscribe(url, state, part))
                for name in part:
                    places = self.routes[name].places
                    self.used[url] += url not in places
                    places[url] = state
        return actions

    def unsubscribe(self, names: Iterable[str]) -> list[Action]:
        """Drop endpoints, and unsubscribe from them wherever they were requested."""
        leaving: dict[str, list[str]] = {}
        for name in names:
            self._unserved.pop(name, None)
            if (route := self.routes.pop(name, None)) is None:
                continue
            for url in tuple(route.places):
                self._remove(route, url)
                leaving.setdefault(url, []).append(name)
        return self._unsubscribe(leaving)

    def mark_stale(self, names: Iterable[str]) -> list[Action]:
        """Count endpoints as stale that no server has registered, as a client has waited long enough."""
        waiting = [name for name in names if (route := self.routes.get(name)) is not None and not route.is_registered]
        return self._check(waiting, at_once=True)

    def close(self) -> None:
        """Drop everything, without any action."""
        self.routes.clear()
        self.used.clear()
        self._unserved.clear()
        self._leave_at.clear()

    # Events of servers

    def opened(self, url: str) -> list[Action]:
        """Request everything that waited for this link to open."""
        self._mark_live(url)
        return self.subscribe([n for n, route in self.routes.items() if route.places.get(url) == UNSENT], at=url)

    def lost(self, url: str) -> list[Action]:
        """Wait for the server again with the endpoints whose home it is, which are stale; hot ones move at once."""
        self._mark_dead(url)
        here = [name for name, route in self.routes.items() if url in route.places]
        moving = []
        for name in here:
            route = self.routes[name]
            if route.home == url:
                route.places[url] = UNSENT
                if self._owner(name, route) != url and self._router.is_hot(name):
                    moving.append(name)
            else:
                self._remove(route, url)
        return [*self._check(here, at_once=True), *self._rehome(moving)]

    def subscribed(self, url: str, reply: SubscribedReply) -> tuple[dict[str, int | None], list[Action]]:
        """Apply the answer to a subscription; a newer request for the same endpoint is not answered by it.

        Returns:
            Endpoint -> version, of those that are registered now; and the actions.
        """
        registered: dict[str, int | None] = {}
        leaving: dict[str, list[str]] = {}
        stale = []
        is_live = url not in self._dead
        for name, version in reply.versions.items():
            route = self.routes.get(name)
            if route is None or route.places.get(url) != reply.id:
                continue
            registered[name] = version
            route.places[url] = REGISTERED
            route.lagging = False
            if route.home == url:
                # The answer of another server says nothing about the home, which may have to be asked again.
                route.hops = route.attempt = 0
                route.retry_at = None
                for other in [place for place in route.places if place != url]:
                    self._remove(route, other)
                    leaving.setdefault(other, []).append(name)
            if is_live:
                route.unserved_since = None
            if route.stale:
                stale.append(name)
        actions = self._unsubscribe(leaving) if leaving else []
        if stale:
            actions += self._check(stale)
        if reply.elsewhere:
            actions += self._leave(url, self._requested(url, reply.id, reply.elsewhere))
        return registered, actions

    def handle(self, url: str, message: ServerMessage) -> list[Action]:
        """Apply any other message of a server."""
        match message:
            case StatusMessage():
                return self._status(url, message.endpoints, live=message.live)
            case MovedMessage():
                here = [n for n in message.endpoints if n in self.routes and url in self.routes[n].places]
                return self._leave(url, dict.fromkeys(here, message.owner))
            case ErrorReply():
                return self._leave(url, self._requested(url, message.id, dict.fromkeys(self.routes)))
            case _:
                return []

    def _requested(self, url: str, request_id: int, hints: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return those of ``hints`` whose newest request at a server is ``request_id``."""
        return {
            name: hint
            for name, hint in hints.items()
            if (route := self.routes.get(name)) is not None and route.places.get(url) == request_id
        }

    def _status(self, url: str, names: Collection[str] | None, *, live: bool) -> list[Action]:
        if names is not None:
            here = [n for n in names if (r := self.routes.get(n)) is not None and r.is_registered and url in r.places]
            for name in here:
                self.routes[name].lagging = not live
        elif live == (url not in self._dead):
            return []
        else:
            (self._mark_live if live else self._mark_dead)(url)
            here = [name for name, route in self.routes.items() if url in route.places]
        return self._check(here, at_once=True)

    # Events of the metadata service and of time

    def rerouted(self) -> list[Action]:
        """Route everything by a new snapshot: what nobody owns stays where it is."""
        return self._rehome(list(self.routes))

    def tick(self) -> list[Action]:
        """Leave servers that were dead for too long, route again what is due, and check what is unserved."""
        now = self._now()
        left = {url for url, at in self._leave_at.items() if at <= now}
        for url in left:
            del self._leave_at[url]
        actions = self._rehome([n for n, route in self.routes.items() if route.home in left]) if left else []
        due = []
        for name in self._unserved:
            route = self.routes[name]
            if route.home is None and route.retry_at is None:
                self._postpone(route)
            elif route.retry_at is not None and route.retry_at <= now:
                route.retry_at = None
                route.hops = 0
                route.home = self._owner(name, route) or route.home
                due.append(name)
        actions += self._move(due)
        actions += self._check(list(self._unserved))
        return actions

    # Moves

    def _owner(self, name: str, route: EndpointRoute) -> str | None:
        return self._router.owner(name, current=route.home, used=self.used, dead=self._dead, load=self._load)

    def _rehome(self, names: Iterable[str]) -> list[Action]:
        """Move endpoints to where the router says, whatever servers have said."""
        moving = []
        for name in names:
            route = self.routes[name]
            home = self._owner(name, route)
            if home is not None and (home != route.home or home not in route.places):
                route.home = home
                moving.append(name)
        return self._move(moving)

    def _move(self, names: Iterable[str]) -> list[Action]:
        """Request endpoints at new homes; where one is registered there already, leave the other servers."""
        requesting = []
        leaving: dict[str, list[str]] = {}
        for name in names:
            route = self.routes[name]
            state = route.places.get(route.home or "", REJECTED)
            if state == REJECTED:
                requesting.append(name)
            elif state == REGISTERED:
                for other in [place for place in route.places if place != route.home]:
                    self._remove(route, other)
                    leaving.setdefault(other, []).append(name)
        return [*self._unsubscribe(leaving), *self.subscribe(requesting)]

    def _leave(self, url: str, hints: Mapping[str, str | None]) -> list[Action]:
        """Move endpoints that are not at a server: to its hint, to another owner in the snapshot, or after a wait."""
        moving = []
        for name, hint in hints.items():
            route = self.routes[name]
            route.places[url] = REJECTED
            if route.home != url:
                continue
            route.hops += 1
            targets = (self._router.hinted(hint), self._owner(name, route)) if route.hops <= MAX_HOPS else ()
            target = next((target for target in targets if target not in {None, url}), None)
            if target is not None:
                route.home = target
                moving.append(name)
            else:
                self._postpone(route)
        return [*self._move(moving), *self._check(hints)]

    def _postpone(self, route: EndpointRoute) -> None:
        route.retry_at = self._now() + full_jitter(route.attempt, RETRY_BASE_S, RETRY_CAP_S)
        route.attempt += 1

    def _remove(self, route: EndpointRoute, url: str) -> None:
        del route.places[url]
        self.used[url] -= 1
        if not self.used[url]:
            del self.used[url]

    def _unsubscribe(self, leaving: Mapping[str, list[str]]) -> list[Action]:
        actions: list[Action] = []
        for url, names in leaving.items():
            for start in range(0, len(names), MAX_NAMES) if url in self._links else ():
                self._request_id += 1
                actions.append(SendUnsubscribe(url, self._request_id, names[start : start + MAX_NAMES]))
        return actions

    # Staleness

    def _check(self, names: Iterable[str], *, at_once: bool = False) -> list[Action]:
        """Report what has become stale or has recovered; check what is unserved again at the next tick."""
        stale, recovered = [], []
        now = self._now()
        for name in names:
            route = self.routes[name]
            if route.is_served(self._dead):
                route.unserved_since = None
                if route.retry_at is None:
                    self._unserved.pop(name, None)
                else:
                    # Its home has refused it: another server serves it meanwhile.
                    self._unserved[name] = None
                if route.stale:
                    route.stale = False
                    recovered.append(name)
                continue
            if route.unserved_since is None:
                route.unserved_since = now
            self._unserved[name] = None
            if not route.stale and (at_once or now - route.unserved_since >= STALE_AFTER_S):
                route.stale = True
                stale.append(name)
        return [*([BecameStale(stale)] if stale else []), *([Recovered(recovered)] if recovered else [])]

    def _mark_dead(self, url: str) -> None:
        """Count a server as dead."""
        if url not in self._dead:
            self._dead.add(url)
            # The random part spreads proxies, and the clients of one.
            self._leave_at[url] = self._now() + LEAVE_AFTER_S * (1 + random.random())  # noqa: S311 - no secret

    def _mark_live(self, url: str) -> None:
        self._dead.discard(url)
        self._leave_at.pop(url, None)
