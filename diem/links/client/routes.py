"""Route each endpoint to a server: subscribed, to be located, or redirected a bounded number of times. No I/O."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from diem.links.client.base import Timing
from diem.process.backoff import full_jitter


class Located(NamedTuple):
    """An answer of the metadata service, with URLs that may be dialled."""

    owners: Mapping[str, str | None]
    """None = nobody owns it now, or it is hot."""
    hot: frozenset[str] = frozenset()
    servers: Sequence[str] = ()
    """The servers of the clone, the one with the fewest clients first."""
    rejected: Mapping[str, Mapping[str, str]] = {}
    older: bool = False
    """It comes of an older epoch than one before: good enough for what has no place, no reason to leave one."""


class RouteStep(NamedTuple):
    """What is to be done with one endpoint at one server. A join of what is joined already asks again."""

    kind: Literal["join", "leave"]
    name: str
    url: str


MAX_LOCATED: Final = 1000
"""Names in one question to the metadata service."""
MAX_HOPS: Final = 3
"""Moves that servers ask for are followed at once this often; then there is a delay, and it is located."""


@dataclass(slots=True)
class _Route:
    due: float
    """When it is to be located; infinity = not."""
    url: str | None = None
    """Where it is subscribed, or about to be."""
    registered: bool = False
    """Whether that server has answered."""
    registered_at: float = math.inf
    old: str | None = None
    """Where it is subscribed still, until the server at ``url`` has answered."""
    old_serves: bool = False
    """Whether ``old`` was left by our own choice: it has given nothing away."""
    was_registered: bool = False
    """Whether any server has ever answered."""
    hops: int = 0
    locating: bool = False
    """Its question is under way, and nothing has overtaken it."""


class Routes:
    """The places of all endpoints. A new server is always joined before the old one is left.

    Owners are hints: following a wrong one costs a hop, never an update. ``now`` is seconds of a monotonic clock.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._routes: dict[str, _Route] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._routes

    def want(self, name: str, now: float) -> None:
        """It is to be located."""
        self._routes[name] = _Route(due=now)

    def again(self, name: str) -> list[RouteStep]:
        """Ask for it once more where it is, if it is anywhere."""
        url = self._routes[name].url
        return [] if url is None else [RouteStep("join", name, url)]

    def release(self, name: str) -> list[RouteStep]:
        """Nobody wants it any more."""
        route = self._routes.pop(name, None)
        return [] if route is None else [RouteStep("leave", name, url) for url in (route.url, route.old) if url]

    def url(self, name: str) -> str | None:
        """Where it is subscribed, or about to be; None = nowhere."""
        return self._routes[name].url

    def at(self, url: str) -> list[str]:
        """What is subscribed at a server, or about to be."""
        return [name for name, route in self._routes.items() if route.url == url]

    def is_registered(self, name: str) -> bool:
        """Whether its server has answered, and has not sent it on since."""
        return self._routes[name].registered

    def was_registered(self, name: str) -> bool:
        """Whether any server has ever answered for it."""
        return self._routes[name].was_registered

    def uses(self, url: str) -> bool:
        """Whether any endpoint is at this server, or not gone from it yet."""
        return any(url in (route.url, route.old) for route in self._routes.values())

    @property
    def next_due(self) -> float:
        """When something is to be located; infinity = never."""
        return min((route.due for route in self._routes.values()), default=math.inf)

    def to_locate(self, now: float) -> list[str]:
        """What is to be located now, as many as one question takes; it counts as asked."""
        names = [name for name, route in self._routes.items() if route.due <= now][:MAX_LOCATED]
        for name in names:
            self._routes[name].due = math.inf
            self._routes[name].locating = True
        return names

    def unanswered(self, names: Iterable[str], now: float) -> None:
        """All stays where it is, and is still to be located."""
        for name in names:
            route = self._routes.get(name)
            if route and route.locating:
                route.locating, route.due = False, now

    def located(self, names: Sequence[str], answer: Located, live: Mapping[str, bool], now: float) -> list[RouteStep]:
        """Follow an answer about ``names``. ``live``: servers with an open connection, and whether they are live."""
        steps: list[RouteStep] = []
        # Hot ones last: they go where the others make connections.
        for name in sorted(names, key=answer.hot.__contains__):
            route = self._routes.get(name)
            if route is None or not route.locating:
                continue
            route.locating = False
            if answer.older and route.url is not None and name not in answer.hot:
                continue
            owner = self._anywhere(route, live, answer.servers) if name in answer.hot else answer.owners.get(name)
            if owner is not None and owner != route.url:
                steps += self._join(name, route, owner)
            elif owner is None and route.url is None:
                self._delay(route, max(route.hops, MAX_HOPS) + 1, now)
        return steps

    def registered(self, url: str, names: Iterable[str], now: float) -> list[RouteStep]:
        """The server answered: what was kept elsewhere until now is left."""
        steps: list[RouteStep] = []
        for name in names:
            route = self._routes.get(name)
            if route and route.url == url and not route.registered:
                route.registered, route.registered_at, route.was_registered = True, now, True
                steps += _leave_old(name, route)
        return steps

    def moved(self, url: str, names: Iterable[str], owner: str | None, now: float) -> list[RouteStep]:
        """The server gives these away; it may go on serving them until they are left."""
        steps: list[RouteStep] = []
        for name in names:
            route = self._routes.get(name)
            if route is None:
                continue
            if route.old == url:
                route.old_serves = False
            if route.url != url:
                continue
            if route.registered:
                route.old, route.old_serves, route.url, route.registered = url, False, None, False
                steps += self._hop(name, route, owner, url, now)
            else:
                steps += self.not_owner(url, name, owner, now)
        return steps

    def not_owner(self, url: str, name: str, owner: str | None, now: float) -> list[RouteStep]:
        """The server refused to take it."""
        route = self._routes.get(name)
        if route is None or url not in (route.url, route.old):
            return []
        if route.old == url:
            return _leave_old(name, route)
        route.url, route.registered = None, False
        return [RouteStep("leave", name, url), *self._hop(name, route, owner, url, now)]

    def over_limit(self, url: str, name: str, now: float) -> list[RouteStep]:
        """The server has no room for it: it stays where it still is, and is located again after a delay."""
        route = self._routes.get(name)
        if route is None or route.url != url:
            return []
        route.url = route.old if route.old_serves else None
        route.registered = route.url is not None
        if route.registered:
            route.old = None
        self._delay(route, max(route.hops, MAX_HOPS) + 1, now)
        return [RouteStep("leave", name, url)]

    def lost(self, url: str) -> list[RouteStep]:
        """The connection is gone, and all that was registered on it."""
        steps: list[RouteStep] = []
        for name, route in self._routes.items():
            if route.url == url:
                route.registered = False
            if route.old == url:
                steps += _leave_old(name, route)
        return steps

    def suspect(self, url: str, now: float) -> None:
        """What is at this server may be better off at another one: it is to be located now."""
        for route in self._routes.values():
            if route.url == url:
                route.due = now

    def _hop(self, name: str, route: _Route, owner: str | None, origin: str, now: float) -> list[RouteStep]:
        hops = 1 if now - route.registered_at >= self._timing.stays_after else route.hops + 1
        route.registered_at = math.inf  # a stay counts once, or refusals after it would go round for ever
        self._delay(route, hops, now)
        return [] if hops > MAX_HOPS or owner in (None, origin) else self._join(name, route, str(owner))

    def _delay(self, route: _Route, hops: int, now: float) -> None:
        route.hops = hops
        route.locating = False  # an answer that is under way is older than what was just heard
        wait = full_jitter(hops - MAX_HOPS - 1, self._timing.base, self._timing.cap) if hops > MAX_HOPS else 0
        route.due = now + wait

    def _join(self, name: str, route: _Route, url: str) -> list[RouteStep]:
        steps = [RouteStep("join", name, url)]
        if route.registered:
            route.old, route.old_serves = route.url, True
        elif route.url is not None:
            steps.append(RouteStep("leave", name, route.url))
        if route.old == url:
            route.old = None
        route.url, route.registered, route.due = url, False, math.inf
        return steps

    def _anywhere(self, route: _Route, live: Mapping[str, bool], servers: Sequence[str]) -> str | None:
        """A hot one stays where it is live, else goes where that is so, else to a listed server, one in use first."""
        present, good = route.url, [url for url, is_live in live.items() if is_live]
        if present is not None and (live.get(present) or (not good and present in live and present in servers)):
            return present
        used = [other.url for other in self._routes.values() if other.url is not None]
        choices = [*good, *(url for url in used if url in servers), *servers, *used]
        return next((url for url in choices if url != present), present)


def _leave_old(name: str, route: _Route) -> list[RouteStep]:
    url, route.old = route.old, None
    return [] if url is None else [RouteStep("leave", name, url)]
