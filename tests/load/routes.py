"""Routing of endpoints to servers, for clients that know the servers of a group (docs/protocol.md section 4.1). Pure.

It is the SDK's algorithm (``client/src/sdk/routes.ts``), operation by operation; ``tests/cases/routes.json`` has the
cases that both pass.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from diem.links.client.backoff import Timing
from diem.process.backoff import full_jitter


class Located(NamedTuple):
    """An answer of the metadata service, with URLs that may be dialled."""

    owners: Mapping[str, str | None]
    """None: the endpoint has no owner now, or it is hot."""
    hot: frozenset[str] = frozenset()
    """Endpoints that every server has."""
    servers: Sequence[str] = ()
    """The servers of the clone, the one with the fewest clients first."""
    rejected: Mapping[str, Mapping[str, str]] = {}
    older: bool = False
    """Its epoch is older than a previous answer's: it places what has no place, and moves nothing that has one."""


class RoutingAction(NamedTuple):
    """What to do with one endpoint at one server. A ``join`` where it is subscribed already subscribes it again."""

    kind: Literal["join", "leave"]
    endpoint: str
    url: str


MAX_LOCATED: Final = 1000
"""Names in one request to the metadata service."""
MAX_HOPS: Final = 3
"""Redirects followed at once; after them the endpoint is located with back-off."""


class Route:
    """Where one endpoint is subscribed, and when it is to be located.

    A new server is always joined before the old one is left. ``now`` is seconds of a monotonic clock.
    """

    __slots__ = (
        "_hops",
        "_rng",
        "_timing",
        "due",
        "endpoint",
        "is_limited",
        "is_refused",
        "is_registered",
        "locating",
        "old",
        "old_serves",
        "registered_at",
        "url",
    )

    def __init__(self, endpoint: str, timing: Timing, rng: random.Random | None, now: float) -> None:
        self.endpoint = endpoint
        self._timing = timing
        self._rng = rng
        self.url: str | None = None
        """The server where it is subscribed, or about to be; None until one is known."""
        self.is_registered = False
        """Whether that server has answered."""
        self.registered_at = math.inf
        self.old: str | None = None
        """The server where it stays subscribed until ``url`` has answered."""
        self.old_serves = False
        """Whether ``old`` was left by the client's own choice, and so still serves the endpoint."""
        self._hops = 0
        """Redirects since it last stayed at a server."""
        self.due = now
        """When to locate it; infinity: not at all."""
        self.locating = False
        """Whether a request to locate it is pending, and no event has superseded the answer."""
        self.is_refused = False
        """Whether the metadata service rejected the name."""
        self.is_limited = False
        """Whether its server has no room for it, and no other server has it."""

    def join(self, url: str) -> list[RoutingAction]:
        """Move to ``url``."""
        unregistered = None if self.is_registered else self.url
        if self.is_registered:
            self.old, self.old_serves = self.url, True
        if self.old == url:
            self.old = None
        self.url, self.is_registered, self.due = url, False, math.inf
        return [RoutingAction("join", self.endpoint, url), *self._leave(unregistered)]

    def leave(self) -> list[RoutingAction]:
        """Leave every server."""
        url, self.url, self.is_registered = self.url, None, False
        return [*self._leave(url), *self.leave_old()]

    def leave_old(self) -> list[RoutingAction]:
        """Leave the server that was kept until the new one answered."""
        url, self.old = self.old, None
        return self._leave(url)

    def register(self, now: float) -> list[RoutingAction]:
        """Its server has answered."""
        self.is_registered, self.is_limited, self.registered_at = True, False, now
        return self.leave_old()

    def moved(self, owner: str | None, now: float) -> list[RoutingAction]:
        """Its server gives it away, and may serve it until it is left."""
        origin = self.url
        self.old, self.old_serves, self.url, self.is_registered = origin, False, None, False
        return self._hop(owner, origin, now)

    def redirected(self, owner: str | None, now: float) -> list[RoutingAction]:
        """Its server refused to take it."""
        origin, self.url, self.is_registered = self.url, None, False
        return [*self._leave(origin), *self._hop(owner, origin, now)]

    def over_limit(self, now: float) -> list[RoutingAction]:
        """Its server has no room for it: it stays where it is served, and is located again after a delay."""
        actions = self._leave(self.url)
        self.url = self.old if self.old_serves else None
        self.is_registered = self.url is not None
        if self.is_registered:
            self.old = None
        self.is_limited = self.url is None and self.old is None
        self.wait(now)
        return actions

    def wait(self, now: float) -> None:
        """Locate it again after a delay, because no server has it now."""
        self._delay(max(self._hops, MAX_HOPS) + 1, now)

    def _hop(self, owner: str | None, origin: str | None, now: float) -> list[RoutingAction]:
        hops = 1 if now - self.registered_at >= self._timing.stayed_after_s else self._hops + 1
        self.registered_at = math.inf  # a stay counts once, or refusals after it would redirect it endlessly
        self._delay(hops, now)
        return [] if hops > MAX_HOPS or owner is None or owner == origin else self.join(owner)

    def _delay(self, hops: int, now: float) -> None:
        """Locate it at once, or with back-off after too many hops."""
        self._hops = hops
        self.locating = False  # the pending answer is older than this event
        attempt = hops - MAX_HOPS - 1
        self.due = now + (
            full_jitter(attempt, self._timing.base_s, self._timing.cap_s, self._rng) if attempt >= 0 else 0
        )

    def _leave(self, url: str | None) -> list[RoutingAction]:
        return [] if url is None else [RoutingAction("leave", self.endpoint, url)]


class Routes:
    """The routes of all endpoints. Every event is a method that returns the actions which follow from it, in order.

    Owners are hints: following a wrong one costs a hop, never an update. ``now`` is seconds of a monotonic clock.
    """

    def __init__(self, timing: Timing, rng: random.Random | None = None) -> None:
        self._timing = timing
        self._rng = rng
        self._routes: dict[str, Route] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._routes

    def add(self, name: str, now: float) -> None:
        """Begin to route an endpoint: it is to be located."""
        self._routes[name] = Route(name, self._timing, self._rng, now)

    def remove(self, name: str, now: float) -> list[RoutingAction]:
        """Leave an endpoint everywhere; what a server had no room for is located now if that frees a place."""
        route = self._routes.pop(name, None)
        if route is None:
            return []
        if route.is_registered or route.old is not None:
            for other in self._routes.values():
                if other.is_limited:
                    other.due = now
        return route.leave()

    def url(self, name: str) -> str | None:
        """Return the server where an endpoint is subscribed, or about to be; None: nowhere."""
        route = self._routes.get(name)
        return None if route is None else route.url

    def at(self, url: str) -> list[str]:
        """Return the endpoints that are subscribed at a server, or about to be."""
        return [name for name, route in self._routes.items() if route.url == url]

    def is_registered(self, name: str) -> bool:
        """Return whether the server of an endpoint has answered, and has not redirected it since."""
        route = self._routes.get(name)
        return route is not None and route.is_registered

    def is_refused(self, name: str) -> bool:
        """Return whether the metadata service rejected a name, or its server has no room and no other one has it."""
        route = self._routes.get(name)
        return route is not None and (route.is_refused or route.is_limited)

    def uses(self, url: str) -> bool:
        """Return whether any endpoint is subscribed at a server, or has not left it yet."""
        return any(url in (route.url, route.old) for route in self._routes.values())

    @property
    def next_due(self) -> float:
        """When an endpoint is to be located next; infinity: none is."""
        return min((route.due for route in self._routes.values()), default=math.inf)

    def to_locate(self, now: float) -> list[str]:
        """Return the endpoints to locate now, as many as one request takes; they count as pending."""
        names = [name for name, route in self._routes.items() if route.due <= now][:MAX_LOCATED]
        for name in names:
            self._routes[name].due = math.inf
            self._routes[name].locating = True
        return names

    def unanswered(self, names: Iterable[str], now: float) -> None:
        """Keep all endpoints where they are after a request that failed; they are still to be located."""
        for name in names:
            route = self._routes.get(name)
            if route is not None and route.locating:
                route.locating, route.due = False, now

    def located(
        self, names: Sequence[str], answer: Located, live: Mapping[str, bool], now: float
    ) -> list[RoutingAction]:
        """Apply the metadata service's answer about ``names``.

        Args:
            names: those that were requested.
            answer: the owners, with URLs that may be dialled.
            live: servers with an open connection -> whether they are live.
            now: monotonic seconds.
        """
        actions: list[RoutingAction] = []
        # Hot ones last: they go where the others make connections.
        for name in sorted(names, key=answer.hot.__contains__):
            route = self._routes.get(name)
            if route is None or not route.locating:
                continue
            route.locating = False
            if name in answer.rejected:
                route.is_refused = True
                actions += route.leave()
                continue
            is_hot = name in answer.hot
            if answer.older and route.url is not None and not is_hot:
                continue
            owner = self._any_server(route.url, live, answer.servers) if is_hot else answer.owners.get(name)
            if owner is not None:
                actions += [] if owner == route.url else route.join(owner)
            elif route.url is None:
                route.wait(now)
        return actions

    def registered(self, url: str, names: Iterable[str], now: float) -> list[RoutingAction]:
        """The server answered a subscribe: leave the servers that were kept until now."""
        actions: list[RoutingAction] = []
        for name in names:
            route = self._routes.get(name)
            if route is not None and route.url == url and not route.is_registered:
                actions += route.register(now)
        return actions

    def moved(self, url: str, names: Iterable[str], owner: str | None, now: float) -> list[RoutingAction]:
        """The server gives endpoints away; it may serve them until they are left."""
        actions: list[RoutingAction] = []
        for name in names:
            route = self._routes.get(name)
            if route is None:
                continue
            if route.old == url:
                route.old_serves = False
            if route.url == url:
                actions += route.moved(owner, now) if route.is_registered else route.redirected(owner, now)
        return actions

    def not_owner(self, url: str, name: str, owner: str | None, now: float) -> list[RoutingAction]:
        """The server refused to take an endpoint."""
        route = self._routes.get(name)
        if route is None:
            return []
        if route.old == url:
            return route.leave_old()
        return route.redirected(owner, now) if route.url == url else []

    def over_limit(self, url: str, name: str, now: float) -> list[RoutingAction]:
        """The server has no room for an endpoint."""
        route = self._routes.get(name)
        return [] if route is None or route.url != url else route.over_limit(now)

    def lost(self, url: str) -> list[RoutingAction]:
        """The connection is closed, and nothing is registered on it."""
        actions: list[RoutingAction] = []
        for route in self._routes.values():
            if route.url == url:
                route.is_registered = False
            if route.old == url:
                actions += route.leave_old()
        return actions

    def suspect(self, url: str, now: float) -> None:
        """Locate now what is at a server, because another one may have it."""
        for route in self._routes.values():
            if route.url == url:
                route.due = now

    def _any_server(self, present: str | None, live: Mapping[str, bool], servers: Sequence[str]) -> str | None:
        """Choose a server for a hot endpoint.

        It stays where it is live, else goes to a live server, else to a listed one, preferably one in use.
        """
        good = [url for url, is_live in live.items() if is_live]
        if present is not None and (live.get(present) or (not good and present in live and present in servers)):
            return present
        used = [route.url for route in self._routes.values() if route.url is not None]
        choices = [*good, *(url for url in used if url in servers), *servers, *used]
        return next((url for url in choices if url != present), present)
