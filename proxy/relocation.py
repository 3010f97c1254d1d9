"""Relocation of endpoints: each one's current server, moves and staleness. Pure.

Every event is a method returning the actions for the caller to execute, in order.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple

from diem.process.backoff import full_jitter
from diem.protocol.messages import ErrorReply, MovedMessage, ServerMessage, StatusMessage, SubscribedReply
from proxy.routing import Router

UNSENT: Final = -1
"""State at a server, in place of a request id: to be requested once the link opens."""
REGISTERED: Final = 0
"""State at a server: subscription confirmed."""
REJECTED: Final = -2
"""State at a server: refused, or moved away. Late updates are delivered until the new server answers."""

MAX_NAMES: Final = 1000
"""Endpoints per message to a server, which refuses messages over 1 MiB."""
MAX_HOPS: Final = 3
"""Consecutive redirects of an endpoint before it backs off."""
RETRY_BASE_S: Final = 0.5
RETRY_CAP_S: Final = 5.0
FAILOVER_AFTER_S: Final = 5.0
"""Seconds a server must be dead before its endpoints move to their owners in the snapshot.

Plus a random time of up to the same length.
"""
STALE_AFTER_S: Final = 3.0
"""Seconds without a server's answer after which an endpoint is stale; after the loss of a link it is stale at once."""
TICK_S: Final = 0.5


class SendSubscribe(NamedTuple):
    """Subscribe to endpoints at a server with an open link."""

    url: str
    request_id: int
    names: list[str]


class SendUnsubscribe(NamedTuple):
    """Unsubscribe from endpoints at a server with an open link."""

    url: str
    request_id: int
    names: list[str]


class BecameStale(NamedTuple):
    """No live server serves these endpoints."""

    names: list[str]


class Recovered(NamedTuple):
    """A live server serves these endpoints again."""

    names: list[str]


Action = SendSubscribe | SendUnsubscribe | BecameStale | Recovered


class EndpointRoute:
    """Route of one endpoint: its home, and its state at every server it was requested from."""

    __slots__ = ("attempt", "home", "hops", "lagging", "retry_at", "stale", "states", "unserved_since")

    def __init__(self, home: str | None) -> None:
        self.home = home
        """The server that should serve it; None without an owner."""
        self.states: dict[str, int] = {}
        """Server -> id of the unanswered request, or one of the states above."""
        self.stale = False
        """Whether it was reported stale."""
        self.lagging = False
        """Whether its server, which is live, reports this endpoint as not live."""
        self.hops = 0
        """Redirects followed since its home has last answered or a wait has ended."""
        self.attempt = 0
        """Waits since its home has last answered."""
        self.retry_at: float | None = None
        """When to route it again."""
        self.unserved_since: float | None = None

    def is_served(self, dead: Container[str]) -> bool:
        """Return whether a live server serves the endpoint."""
        return not self.lagging and any(state == REGISTERED and url not in dead for url, state in self.states.items())

    @property
    def is_registered(self) -> bool:
        """Return whether a server has confirmed the subscription without moving it away since."""
        return REGISTERED in self.states.values()


class Relocator:
    """Keeps endpoints subscribed at the router's servers: at a new server before the old one is dropped.

    Args:
        links: the servers with an open link; the caller updates it before reporting a change.
        now: returns monotonic seconds.
    """

    def __init__(self, router: Router, links: Container[str], now: Callable[[], float]) -> None:
        self.routes: dict[str, EndpointRoute] = {}
        self.used: Counter[str] = Counter()
        """Server -> number of endpoints with a state there; never 0."""
        self._router = router
        self._links = links
        self._now = now
        self._request_id = 0
        self._dead: set[str] = set()
        """Servers that are not live or not reachable."""
        self._failover_at: dict[str, float] = {}
        """Dead server -> when its endpoints move away."""
        self._unserved: dict[str, None] = {}
        """Endpoints to check at the next tick: unserved, or to be routed again."""

    def is_stale(self, name: str) -> bool:
        """Return whether an endpoint was reported stale."""
        route = self.routes.get(name)
        return route is not None and route.stale

    @property
    def stale(self) -> int:
        """Number of stale endpoints."""
        return sum(route.stale for route in self.routes.values())

    @property
    def tick_after_s(self) -> float | None:
        """Seconds until the next :meth:`tick` is due; None while none is needed."""
        if not self._failover_at:
            return TICK_S if self._unserved else None
        failover_in = max(0.0, min(self._failover_at.values()) - self._now())
        return min(TICK_S, failover_in) if self._unserved else failover_in

    # Events of clients

    def subscribe(self, names: Iterable[str], *, at: str | None = None) -> list[SendSubscribe]:
        """Subscribe to endpoints at their homes, or at the server ``at``; unrouted ones are routed first."""
        now = self._now()
        by_server: dict[str, list[str]] = {}
        for name in names:
            route = self.routes.get(name)
            if route is None:
                owner = self._router.owner(name, used=self.used, dead=self._dead)
                route = self.routes[name] = EndpointRoute(owner)
            if (url := at or route.home) is not None:
                by_server.setdefault(url, []).append(name)
            # Another server may serve a moving endpoint: checked at the next tick.
            if route.unserved_since is None and len(route.states) < 2:
                route.unserved_since = now
            self._unserved[name] = None
        actions: list[SendSubscribe] = []
        for url, requested in by_server.items():
            for start in range(0, len(requested), MAX_NAMES):
                part = requested[start : start + MAX_NAMES]
                state = UNSENT
                if url in self._links:
                    state = self._request_id = self._request_id + 1
                    actions.append(SendSubscribe(url, state, part))
                for name in part:
                    states = self.routes[name].states
                    self.used[url] += url not in states
                    states[url] = state
        return actions

    def unsubscribe(self, names: Iterable[str]) -> list[Action]:
        """Drop endpoints, and unsubscribe from them at every server they were requested from."""
        dropped: dict[str, list[str]] = {}
        for name in names:
            self._unserved.pop(name, None)
            if (route := self.routes.pop(name, None)) is None:
                continue
            for url in tuple(route.states):
                self._remove(route, url)
                dropped.setdefault(url, []).append(name)
        return self._unsubscribe(dropped)

    def mark_stale(self, names: Iterable[str]) -> list[Action]:
        """Mark those of ``names`` stale that no server has registered: a client is answered without them."""
        waiting = [name for name in names if (route := self.routes.get(name)) is not None and not route.is_registered]
        return self._check_staleness(waiting, at_once=True)

    # Events of servers

    def opened(self, url: str) -> list[SendSubscribe]:
        """Request the endpoints that waited for this link to open."""
        self._mark_live(url)
        return self.subscribe([n for n, route in self.routes.items() if route.states.get(url) == UNSENT], at=url)

    def lost(self, url: str) -> list[Action]:
        """Mark this home's endpoints stale until its link reopens; move hot endpoints at once."""
        self._mark_dead(url)
        here = [name for name, route in self.routes.items() if url in route.states]
        moving = []
        for name in here:
            route = self.routes[name]
            if route.home == url:
                route.states[url] = UNSENT
                if self._owner(name, route) != url and self._router.is_hot(name):
                    moving.append(name)
            else:
                self._remove(route, url)
        return [*self._check_staleness(here, at_once=True), *self._rehome(moving)]

    def subscribed(self, url: str, reply: SubscribedReply) -> tuple[dict[str, int | None], list[Action]]:
        """Apply the answer to a subscribe request, except for endpoints requested again since.

        Returns:
            Endpoint -> version of those now registered, and the actions.
        """
        registered: dict[str, int | None] = {}
        dropped: dict[str, list[str]] = {}
        unchecked = []
        is_live = url not in self._dead
        for name, version in reply.versions.items():
            route = self.routes.get(name)
            if route is None or route.states.get(url) != reply.id:
                continue
            registered[name] = version
            route.states[url] = REGISTERED
            route.lagging = False
            if route.home == url:
                # Only for the home: after another server's answer, the home may still need another request.
                route.hops = route.attempt = 0
                route.retry_at = None
                if len(route.states) > 1:
                    self._remove_others(name, route, dropped)
            if is_live:
                route.unserved_since = None
            if route.stale or not is_live:
                unchecked.append(name)
        actions = self._unsubscribe(dropped) if dropped else []
        if unchecked:
            # Before the client is answered: it regards the version of a live endpoint as current.
            actions += self._check_staleness(unchecked, at_once=not is_live)
        if reply.elsewhere:
            actions += self._redirect(url, self._requested(url, reply.id, reply.elsewhere))
        return registered, actions

    def handle(self, url: str, message: ServerMessage) -> list[Action]:
        """Apply any other message from a server."""
        match message:
            case StatusMessage():
                return self._status(url, message.endpoints, live=message.live)
            case MovedMessage():
                here = [n for n in message.endpoints if n in self.routes and url in self.routes[n].states]
                return self._redirect(url, dict.fromkeys(here, message.owner))
            case ErrorReply():
                return self._redirect(url, self._requested(url, message.id, dict.fromkeys(self.routes)))
            case _:
                return []

    def _requested(self, url: str, request_id: int, hints: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return those of ``hints`` whose latest request at a server is ``request_id``."""
        return {
            name: hint
            for name, hint in hints.items()
            if (route := self.routes.get(name)) is not None and route.states.get(url) == request_id
        }

    def _status(self, url: str, names: Collection[str] | None, *, live: bool) -> list[Action]:
        if names is not None:
            here = [n for n in names if (r := self.routes.get(n)) is not None and r.is_registered and url in r.states]
            for name in here:
                self.routes[name].lagging = not live
        elif live == (url not in self._dead):
            return []
        else:
            (self._mark_live if live else self._mark_dead)(url)
            here = [name for name, route in self.routes.items() if url in route.states]
        return self._check_staleness(here, at_once=True)

    # Events of the metadata service and of time

    def rerouted(self) -> list[Action]:
        """Reroute all endpoints by a new snapshot; those without an owner stay."""
        self._dead &= {*self._router.members, *self.used}
        return self._rehome(list(self.routes))

    def tick(self) -> list[Action]:
        """Move endpoints off servers dead for too long, retry those due, check staleness."""
        now = self._now()
        failed = {url for url, at in self._failover_at.items() if at <= now}
        for url in failed:
            del self._failover_at[url]
        actions = self._rehome([n for n, route in self.routes.items() if route.home in failed]) if failed else []
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
        actions += self._check_staleness(list(self._unserved))
        return actions

    # Moves

    def _owner(self, name: str, route: EndpointRoute) -> str | None:
        return self._router.owner(name, current=route.home, used=self.used, dead=self._dead)

    def _rehome(self, names: Iterable[str]) -> list[Action]:
        """Move endpoints to the router's homes, regardless of servers' hints."""
        moving = []
        for name in names:
            route = self.routes[name]
            home = self._owner(name, route)
            if home is not None and (home != route.home or home not in route.states):
                route.home = home
                moving.append(name)
        return self._move(moving)

    def _move(self, names: Iterable[str]) -> list[Action]:
        """Request endpoints at their new homes; drop the other servers of those already registered there."""
        requesting = []
        dropped: dict[str, list[str]] = {}
        for name in names:
            route = self.routes[name]
            state = route.states.get(route.home or "", REJECTED)
            if state == REJECTED:
                requesting.append(name)
            elif state == REGISTERED:
                self._remove_others(name, route, dropped)
        return [*self._unsubscribe(dropped), *self.subscribe(requesting)]

    def _redirect(self, url: str, hints: Mapping[str, str | None]) -> list[Action]:
        """Move endpoints that a server does not serve: to its hint, to another owner in the snapshot, or after a wait.

        ``hints`` has the URL of each endpoint's owner, None if the server does not know it.
        """
        moving = []
        for name, hint in hints.items():
            route = self.routes[name]
            route.states[url] = REJECTED
            if route.home != url:
                continue
            route.hops += 1
            targets = (self._router.resolve_hint(hint), self._owner(name, route)) if route.hops <= MAX_HOPS else ()
            target = next((target for target in targets if target not in {None, url}), None)
            if target is not None:
                route.home = target
                moving.append(name)
            else:
                self._postpone(route)
        return [*self._move(moving), *self._check_staleness(hints)]

    def _postpone(self, route: EndpointRoute) -> None:
        # A bare count, no Backoff: there is a route for every subscribed endpoint.
        route.retry_at = self._now() + full_jitter(route.attempt, RETRY_BASE_S, RETRY_CAP_S)
        route.attempt += 1

    def _remove(self, route: EndpointRoute, url: str) -> None:
        del route.states[url]
        self.used[url] -= 1
        if not self.used[url]:
            del self.used[url]

    def _remove_others(self, name: str, route: EndpointRoute, dropped: dict[str, list[str]]) -> None:
        """Remove an endpoint from all servers but its home, and add them to ``dropped``."""
        for other in [url for url in route.states if url != route.home]:
            self._remove(route, other)
            dropped.setdefault(other, []).append(name)

    def _unsubscribe(self, dropped: Mapping[str, list[str]]) -> list[Action]:
        actions: list[Action] = []
        for url, names in dropped.items():
            for start in range(0, len(names), MAX_NAMES) if url in self._links else ():
                self._request_id += 1
                actions.append(SendUnsubscribe(url, self._request_id, names[start : start + MAX_NAMES]))
        return actions

    # Staleness

    def _check_staleness(self, names: Iterable[str], *, at_once: bool = False) -> list[Action]:
        """Report endpoints that became stale or recovered; unserved ones are rechecked at the next tick.

        Args:
            names: the endpoints to check.
            at_once: unserved endpoints are stale now, instead of after :data:`STALE_AFTER_S`.
        """
        stale, recovered = [], []
        now = self._now()
        for name in names:
            route = self.routes[name]
            if route.is_served(self._dead):
                route.unserved_since = None
                if route.retry_at is None:
                    self._unserved.pop(name, None)
                else:
                    # Its home refused it and will be asked again; another server serves it meanwhile.
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
        """Count a server as dead, and schedule the failover of its endpoints."""
        if url not in self._dead:
            self._dead.add(url)
            # The random part spreads the load of several proxies.
            self._failover_at[url] = self._now() + FAILOVER_AFTER_S * (1 + random.random())  # noqa: S311 - no secret

    def _mark_live(self, url: str) -> None:
        self._dead.discard(url)
        self._failover_at.pop(url, None)
