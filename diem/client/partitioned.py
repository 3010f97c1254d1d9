"""The client of mode z-client: a connection to each server of a subscribed endpoint (docs/protocol.md 3.2)."""

import asyncio
import contextlib
import math
import random
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from diem.client.backoff import Timing, TokenBuckets
from diem.client.client import BaseClient, Event
from diem.client.group_choice import least_loaded_group
from diem.client.link import ClientLink, new_identity
from diem.client.polling import Fallback
from diem.client.routes import Route, trusted_url
from diem.client.tokens import NoToken, TokenFunction, TokenSource
from diem.errors import ConfigurationError
from diem.process.backoff import wait

SILENCE_S: Final = 32.0
"""Servers send their status every 25 s."""
CAP_S: Final = 5.0
"""The longest back-off window: another server may have the endpoints of a lost one."""


class GroupLink(ClientLink):
    """The connection to a server, with its liveness. ``now`` is the time of the running loop."""

    url: str
    task: asyncio.Task[None]
    live: bool | None = None
    """True if its updates are current; None before its first answer."""
    stale: frozenset[str] = frozenset()
    """Endpoints that the server itself reports as not live."""
    suspect_at = math.inf
    """Time at which to try its endpoints elsewhere, because it is not live."""
    close_at = math.inf
    """Time at which to close it as unused."""
    expedite_at = -math.inf
    """Time from which another server that names it expedites the next attempt."""

    def dial(self, url: str, now: float) -> None:
        """Start dialling; :meth:`suspect_later` applies from now on."""
        self.url = url
        self.suspect_later(now)
        self.task = asyncio.create_task(self.run())

    def set_status(self, *, live: bool, endpoints: Sequence[str] | None, now: float) -> None:
        """Apply a ``status``: without ``endpoints`` it applies to all, overriding earlier ones by name."""
        if endpoints is not None:
            self.stale = self.stale - set(endpoints) if live else self.stale | set(endpoints)
            return
        if live:
            self.suspect_at = math.inf
        elif self.live:
            self.suspect_later(now)
        self.live, self.stale = live, frozenset()

    def named(self, now: float) -> None:
        """Redial soon, as another server has named it as an owner, which may be outdated."""
        if now >= self.expedite_at and self.expedite():
            self.expedite_at = now + self._timing.suspect_after_s

    def suspect_later(self, now: float) -> None:
        """Suspect the server after a delay, unless it is live by then."""
        after = self._timing.suspect_after_s
        self.suspect_at = now + after + random.uniform(0, after)  # noqa: S311 - spreads clients, is no secret


_UNKNOWN, _DOWN = 2, 3
_RANKS: Final = {True: 0, None: 1, False: _DOWN}
"""Liveness of a server -> its preference, which is ``_UNKNOWN`` without a connection."""


class PartitionedClient(BaseClient):
    """Connects to any of ``urls``, and follows ``not_owner`` and ``moved`` to further servers.

    While no other server answers, the known ones are redialled. Servers are dialled only on the hosts of ``urls`` and
    ``metadata`` and on ``hosts``. ``status`` events are about endpoints.

    Args:
        urls: of servers of the groups.
        metadata: base URLs of metadata services, one of which chooses the group with the fewest clients at the start;
            empty, or without an answer: servers of all groups are asked.
        hosts: further allowed hosts of servers.
        origin: ``Origin`` header; None: none is sent.
        timing: delays.
        token: as with :class:`~diem.client.client.UpdatesClient`.
        tls: context for ``wss`` URLs; None: the system's authorities decide.
        data: ask for the data of updates.

    Raises:
        ConfigurationError: one of ``urls`` is not a WebSocket URL.
    """

    link_type: ClassVar[type[GroupLink]] = GroupLink

    def __init__(
        self,
        urls: Sequence[str],
        *,
        metadata: Sequence[str] = (),
        hosts: Iterable[str] = (),
        origin: str | None = None,
        timing: Timing | None = None,
        token: TokenFunction | None = None,
        tls: ssl.SSLContext | None = None,
        data: bool = False,
        local_address: str | None = None,
    ) -> None:
        # Other servers have the endpoints of a hung one, so wait for it no longer than a status takes.
        timing = timing or Timing(silence_s=SILENCE_S, cap_s=CAP_S)
        super().__init__(fallback=Fallback(timing, origin, tls, local_address), data=data)
        if not urls or not all(url.startswith(("ws:", "wss:")) for url in urls):
            raise ConfigurationError("the client needs URLs of servers (ws:, wss:), not of metadata services")
        self._urls = frozenset(urls)
        self._metadata = metadata
        self._group: frozenset[str] = frozenset()
        """Servers of the chosen group, which are preferred; empty: none was chosen."""
        self._hosts = frozenset({*hosts, *(urlsplit(url).hostname or "" for url in (*urls, *metadata))})
        self._tls = tls
        self._timing = timing
        self._origin = origin
        self._identity = new_identity()
        self._buckets = TokenBuckets()
        """Of all links: a link to a server that was dropped before does not get a new bucket."""
        self._tokens = None if token is None else TokenSource(token, self._timing)
        self._routes: dict[str, Route] = {}
        self._servers: dict[str, GroupLink] = {}
        """Those that are connected, or dialled."""
        self._dropped_bytes = 0
        """Received from servers that were dropped."""
        self._published_live: dict[str, bool] = {}
        """Endpoint -> liveness last published; endpoints that no server has registered yet are not in it."""
        self._wake = asyncio.Event()
        self._ended = False

    @property
    def received_bytes(self) -> int:
        """Return the payload bytes of all messages that servers have sent."""
        return self._dropped_bytes + sum(server.received_bytes for server in self._servers.values())

    def _add(self, names: Sequence[str]) -> None:
        for name in names:
            route = self._routes.get(name)
            if route is None:
                self._routes[name] = Route(name, self._timing, self._subscribe_at, self._unsubscribe_at, _now())
            elif route.url is not None:
                self._subscribe_at(route.url, name)
        self._wake.set()

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            if (route := self._routes.pop(name, None)) is not None:
                route.leave()
        self._wake.set()

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._published_live.pop(name, None)

    async def _run(self) -> None:
        try:
            if self._metadata:
                await self._choose_group()
            while not self._ended:
                self._wake.clear()
                self._poll_servers(_now())
                self._ask_due(_now())
                due = [route.due for route in self._routes.values()]
                polls = [min(server.suspect_at, server.close_at) for server in self._servers.values()]
                await wait(self._wake, min([*due, *polls], default=math.inf) - _now())
        finally:
            tasks = [server.task for server in self._servers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _choose_group(self) -> None:
        """Have a metadata service choose the group. Without a token servers do not answer either."""
        headers = {} if self._origin is None else {"Origin": self._origin}
        with contextlib.suppress(NoToken):
            if self._tokens is not None:
                headers["Authorization"] = f"Bearer {await self._tokens.ready()}"
            self._group = await least_loaded_group(self._metadata, self._hosts, headers, self._tls)
            self._urls |= self._group

    def _poll_servers(self, now: float) -> None:
        """Try other servers for the endpoints of servers that are not live, and drop unused ones."""
        for server in list(self._servers.values()):
            if server.suspect_at <= now:
                server.suspect_later(now)
                for name in self._at(server.url):
                    self._routes[name].due = now
            if self._uses(server.url):
                server.close_at = math.inf
            elif server.close_at == math.inf:
                server.close_at = now + self._timing.idle_after_s
            elif server.close_at <= now < server.paused_until:
                server.close_at = server.paused_until  # a new link to it would know of no pause
            elif server.close_at <= now:
                self._drop(server)

    def _ask_due(self, now: float) -> None:
        """Subscribe to due endpoints at another server."""
        for route in self._routes.values():
            if route.due <= now:
                route.due = math.inf
                if (url := self._another(route)) is not None:
                    route.ask(url)

    def _another(self, route: Route) -> str | None:
        """Return the server to try for an endpoint, preferably a responsive one of the chosen group.

        None: none is better than its own.
        """

        def rank(url: str) -> tuple[bool, bool, bool, bool, int, float]:
            server = self._servers.get(url)
            state = 0 if route.is_lost else _UNKNOWN if server is None else _RANKS[server.live]
            is_foreign = not route.is_lost and url not in self._group
            # The old server delivers as long as it is not asked again, which it might refuse.
            own = url == route.old, url == route.tried
            return *own, state == _DOWN, is_foreign, state, random.random()  # noqa: S311 - spreads clients

        best = min({*self._urls, *self._servers} - {route.url}, key=rank, default=None)
        is_down = best in self._servers and self._servers[best].live is False
        return None if route.is_registered and is_down else best

    def _subscribe_at(self, url: str, name: str) -> None:
        """Subscribe at a server, possibly a new one."""
        server = self._servers.get(url)
        if server is None:

            async def select() -> str:
                return url

            server = self._servers[url] = self.link_type(
                select,
                self,
                self._origin,
                self._timing,
                identity=self._identity,
                buckets=self._buckets,
                tokens=self._tokens,
                fallback=self._fallback,
                data=self._data,
            )
            server.dial(url, _now())
        server.subscribe([name])

    def _unsubscribe_at(self, url: str, name: str) -> None:
        if url in self._servers:
            self._servers[url].unsubscribe([name])

    def _drop(self, server: GroupLink) -> None:
        """Close the connection to a server."""
        del self._servers[server.url]
        self._dropped_bytes += server.received_bytes
        server.task.cancel()

    def _at(self, url: str) -> list[str]:
        """Return the endpoints subscribed at a server, or about to be."""
        return [name for name, route in self._routes.items() if route.url == url]

    def _uses(self, url: str) -> bool:
        """Return whether any endpoint is subscribed at a server or still leaving it."""
        return any(url in (route.url, route.old) for route in self._routes.values())

    # Events of the links

    def opened(self, link: ClientLink, url: str) -> None:
        """Publish ``open``; the server is live until it reports otherwise."""
        self._publish(Event("open", message=url), url)
        self._set_status(link, live=True)

    def closed(self, link: ClientLink, code: int | None, reason: str) -> None:
        """Mark the server's endpoints stale and try another server, unless the close code announces its return."""
        server = self._server(link)
        if server is None:
            return
        now = _now()
        # Some of the URLs' servers may not be running.
        was_absent = server.live is None and code is None and not reason and server.url in self._urls
        for route in self._routes.values():
            route.lost(server.url, now)
            # Below 1000: the HTTP status of a refusal.
            if route.url == server.url and (code is None or code < 1000):
                route.retry(now, was_absent=was_absent)
        self._set_status(server, live=False)
        if was_absent and not self._servers.keys() >= self._urls:
            return
        if self._uses(server.url):
            # Losing another connection before the main task runs must not undo this.
            self._ended = self._ended or server.ended is not None
            self._publish(Event("closed", code=code, message=reason or link.cause), server.url)
        elif server.ended is not None:
            # The link has stopped dialling: if needed again, the server gets a new one.
            self._drop(server)

    def protocol_error(self, link: ClientLink) -> None:
        """Publish ``error``."""
        if (server := self._server(link)) is not None:
            self._publish(Event("error", message=f"{server.url} violated the protocol"), server.url)

    def on_message(self, link: ClientLink, message: dict[str, Any]) -> None:
        """Route endpoints by the owners in a message, and publish its events."""
        server = self._server(link)
        if server is None:
            return
        url, now = server.url, _now()
        match message.get("type"):
            case "subscribed":
                for name in message["endpoints"]:
                    self._routes[name].registered(url, now)
                for name, rejection in message["rejected"].items():
                    self._on_rejected(url, name, rejection)
                self._publish_liveness(message["endpoints"])
            case "unsubscribed":
                # Endpoints moved to another server are still subscribed.
                message = {**message, "endpoints": [name for name in message["endpoints"] if name not in self._routes]}
            case "moved":
                owner = self._owner(message.get("owner"), url)
                for name in message["endpoints"]:
                    if name in self._routes:
                        self._routes[name].moved(url, owner, now)
                self._publish_liveness(message["endpoints"])
            case "status":
                self._set_status(server, live=message["live"], endpoints=message.get("endpoints"))
        self._wake.set()
        self._publish_message(message, server.fetch_window_s)

    def _server(self, link: ClientLink) -> GroupLink | None:
        """Return the server of a link; None once dropped."""
        return link if isinstance(link, GroupLink) and self._servers.get(link.url) is link else None

    def _on_rejected(self, url: str, name: str, rejection: dict[str, Any]) -> None:
        route = self._routes[name]
        if rejection["code"] == "not_owner":
            route.not_owner(url, self._owner(rejection.get("owner"), url), _now())
        elif rejection["code"] != "limit" or (route.over_limit(url, _now()) and name not in self._published_live):
            # Endpoints move without the client's doing: a formerly registered one is requested again.
            self._reject(name, rejection)
        self._publish_liveness([name])

    def _owner(self, url: object, base: str) -> str | None:
        """Return the URL of an owner named by the server ``base``; None if not trusted."""
        trusted = trusted_url(url, base, self._hosts)
        if trusted in self._servers:
            self._servers[trusted].named(_now())
        elif trusted is None and url is not None:
            self._publish(Event("error", message=f"refused a server that is on another host: {url}"), str(url))
        return trusted

    def _set_status(self, link: ClientLink, *, live: bool, endpoints: Sequence[str] | None = None) -> None:
        if (server := self._server(link)) is not None:
            server.set_status(live=live, endpoints=endpoints, now=_now())
            self._publish_liveness(self._at(server.url))
        self._wake.set()

    def _publish_liveness(self, names: Iterable[str]) -> None:
        """Publish changed liveness of endpoints; one that was never registered was never live."""
        for name in names:
            route = self._routes.get(name)
            if route is None or not (route.is_registered or name in self._published_live):
                continue
            server = self._servers.get(route.url or "")
            live = route.is_registered and server is not None and bool(server.live) and name not in server.stale
            if live != self._published_live.get(name):
                self._published_live[name] = live
                self._publish(Event("status", name, live=live))


def _now() -> float:
    return asyncio.get_running_loop().time()
