"""The client of mode z-client: one connection to each server that owns a subscribed endpoint (docs/protocol.md 4.1)."""

import asyncio
import functools
import ssl
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpx

from diem.links.client.backoff import Timing, TokenBuckets
from diem.links.client.client import BaseClient, Event
from diem.links.client.link import ClientLink, NoServer, ServerSelector, new_identity
from diem.links.client.locator import TIMEOUT_S, Locator, NotLocated
from diem.links.client.pool import ServerPool
from diem.links.client.routes import Located, Routes, RoutingAction
from diem.links.client.tokens import NoToken, TokenFunction, TokenSource
from diem.process.backoff import Backoff, wait

SILENCE_S: Final = 32.0
"""Servers send their status every 25 s."""


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """The trusted certificates, shared by all clients of the process: loading them takes 17 ms and 850 KiB."""
    return httpx.create_ssl_context(trust_env=False)


class PartitionedClient(BaseClient):
    """Locates the owners of endpoints at the metadata services ``bases``, and follows ``moved`` and ``not_owner``.

    It fails static: while no metadata service answers, everything stays where it is and is dialled where it was. Owners
    are dialled only on the hosts of ``bases``, and on ``hosts``. ``status`` events are about endpoints. ``token`` is as
    with :class:`~diem.links.client.client.UpdatesClient`; the metadata services are sent it, too.
    ``tls`` is the context for ``https`` and ``wss`` URLs; None: the usual authorities decide. ``data``: ask for data of
    updates.
    """

    def __init__(
        self,
        bases: Sequence[str],
        *,
        hosts: Iterable[str] = (),
        origin: str | None = None,
        timing: Timing | None = None,
        token: TokenFunction | None = None,
        tls: ssl.SSLContext | None = None,
        data: bool = False,
    ) -> None:
        super().__init__(data=data)
        self._tls = tls
        # Another server has the endpoints of one that hangs, so it is not waited for longer than a status takes.
        self._timing = timing or Timing(silence_s=SILENCE_S)
        self._origin = origin
        self._identity = new_identity()
        self._buckets = TokenBuckets()
        """Of all links: a link to a server that was dropped before does not get a new bucket."""
        self._tokens = None if token is None else TokenSource(token, self._timing)
        self._locator = Locator(bases, frozenset(hosts), origin)
        self._routes = Routes(self._timing)
        self._pool = ServerPool(self._connect, self._timing)
        self._published_live: dict[str, bool] = {}
        """Endpoint -> liveness last published; endpoints that no server has registered yet are not in it."""
        self._wake = asyncio.Event()
        self._located = asyncio.Event()
        """Set and replaced whenever a round of locating ends."""
        self._backoff = Backoff(self._timing.base_s, self._timing.cap_s)
        """Of requests to the metadata services."""
        self._not_before = 0.0
        self._ended = False

    @property
    def received_bytes(self) -> int:
        """Return the payload bytes of all messages that servers have sent."""
        return self._pool.received_bytes

    def _add(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._routes:
                self._routes.add(name, _now())
            elif (url := self._routes.url(name)) is not None:
                self._pool.link(url).subscribe([name])
        self._wake.set()

    def _remove(self, names: Sequence[str]) -> None:
        self._apply([action for name in names for action in self._routes.remove(name, _now())])

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._published_live.pop(name, None)

    async def _run(self) -> None:
        try:
            async with httpx.AsyncClient(
                timeout=TIMEOUT_S, trust_env=False, verify=self._tls or _tls_context()
            ) as http:
                while not self._ended:
                    self._wake.clear()
                    self._poll_servers()
                    if _now() >= self._not_before:
                        await self._locate(http)
                    self._located.set()
                    self._located = asyncio.Event()
                    await wait(self._wake, self._due_at - _now())
        finally:
            await self._pool.close()

    @property
    def _due_at(self) -> float:
        """When the next endpoint is to be located, or the next server to be polled; infinity: never."""
        polls = [server.poll_at for server in self._pool]
        return min([max(self._routes.next_due, self._not_before), *polls])

    def _poll_servers(self) -> None:
        """Suspect servers that are not live, and drop those that nothing uses."""
        now = _now()
        for server in self._pool:
            if server.is_suspect(now):
                self._routes.suspect(server.url, now)
            if server.is_idle(used=self._routes.uses(server.url), now=now):
                self._pool.drop(server.url)

    async def _locate(self, http: httpx.AsyncClient) -> None:
        """Locate all endpoints that are due."""
        while names := self._routes.to_locate(_now()):
            try:
                token = None if self._tokens is None else await self._tokens.ready()
                answer = await self._locator.locate(http, names, token)
            except (NotLocated, NoToken) as error:
                retry_after_s = error.retry_after_s if isinstance(error, NotLocated) else 0.0
                self._not_before = _now() + retry_after_s + self._backoff.next_delay()
                self._routes.unanswered(names, _now())
                self._set_listed(names, None)
                self._publish(Event("error", message=str(error)))
                return
            self._backoff.reset()
            if self._locator.untrusted:
                self._publish_untrusted(self._locator.untrusted)
            self._apply(self._routes.located(names, answer, self._pool.live, _now()))
            if not answer.older:
                self._set_listed(names, answer)
            for name in answer.rejected:
                if self._routes.is_refused(name):
                    self._reject(name, answer.rejected[name])

    def _set_listed(self, names: Sequence[str], answer: Located | None) -> None:
        """Pass on to the servers of ``names``, once each, whether an answer lists them."""
        servers: dict[str, bool] = {}
        for name in names:
            url = self._routes.url(name)
            if url is None:
                continue
            listed = answer is not None and (
                url in answer.servers if name in answer.hot else url == answer.owners.get(name)
            )
            servers[url] = listed or servers.get(url, False)
        self._pool.set_listed(servers)

    def _apply(self, actions: Sequence[RoutingAction]) -> None:
        """Carry out actions, those of the same kind at the same server together."""
        groups: dict[tuple[str, str], list[str]] = defaultdict(list)
        for action in actions:
            groups[action.kind, action.url].append(action.endpoint)
        for (kind, url), names in groups.items():
            if kind == "join":
                self._pool.link(url).subscribe(names)
            elif (server := self._pool.get(url)) is not None:
                server.link.unsubscribe(names)
        self._wake.set()

    def _connect(self, url: str) -> ClientLink:
        return ClientLink(
            self._selector(url),
            self,
            self._origin,
            self._timing,
            identity=self._identity,
            buckets=self._buckets,
            tokens=self._tokens,
            tls=self._tls,
            data=self._data,
        )

    def _selector(self, url: str) -> ServerSelector:
        async def select() -> str:
            """Return ``url``, after locating its endpoints unless the server was just listed."""
            server = self._pool.get(url)
            if server is None or not server.pop_listed():
                self._routes.suspect(url, _now())
                self._wake.set()
                await wait(self._located, self._timing.answer_timeout_s)
                if not self._routes.uses(url):
                    raise NoServer(url)
            return url

        return select

    # Events of the links

    def opened(self, _link: ClientLink, url: str) -> None:
        """Publish ``open``; the server is live until it reports otherwise."""
        self._publish(Event("open", message=url), url)
        self._set_status(url, live=True)

    def closed(self, link: ClientLink, code: int | None, reason: str) -> None:
        """Mark the server's endpoints stale; they are located before the next attempt."""
        url = self._pool.url(link)
        if url is None:
            return
        self._apply(self._routes.lost(url))
        self._set_status(url, live=False)
        if self._routes.uses(url):
            # Another connection may be lost before the main task runs, which must not undo this.
            self._ended = self._ended or link.ended is not None
            self._publish(Event("closed", code=code, message=reason), url)
        elif link.ended is not None:
            # The link dials no more: if the server is needed again, it gets a new one.
            self._pool.drop(url)

    def protocol_error(self, link: ClientLink) -> None:
        """Publish ``error``."""
        url = self._pool.url(link)
        self._publish(Event("error", message=f"{url} violated the protocol"), url)

    def on_message(self, link: ClientLink, message: dict[str, Any]) -> None:
        """Route endpoints by what the server sends about owners, and publish the events of the message."""
        url = self._pool.url(link)
        if url is None:
            return
        match message.get("type"):
            case "subscribed":
                self._apply(self._routes.registered(url, message["endpoints"], _now()))
                for name, rejection in message["rejected"].items():
                    self._on_rejected(url, name, rejection)
                self._publish_liveness(message["endpoints"])
            case "unsubscribed":
                # Endpoints that moved to another server are still subscribed.
                message = {**message, "endpoints": [name for name in message["endpoints"] if name not in self._routes]}
            case "moved":
                owner = self._trusted_url(message.get("owner"))
                self._apply(self._routes.moved(url, message["endpoints"], owner, _now()))
                self._publish_liveness(message["endpoints"])
            case "status":
                self._set_status(url, live=message["live"], endpoints=message.get("endpoints"))
        self._publish_message(message, link.fetch_window_s)

    def _on_rejected(self, url: str, name: str, rejection: dict[str, Any]) -> None:
        if rejection["code"] == "not_owner":
            owner = self._trusted_url(rejection.get("owner"))
            self._apply(self._routes.not_owner(url, name, owner, _now()))
        elif rejection["code"] == "limit" and name in self._published_live:
            # Endpoints move without the client's doing: one that was registered before is requested again.
            self._apply(self._routes.over_limit(url, name, _now()))
            self._publish_liveness([name])
        elif name in self._known:
            self._reject(name, rejection)

    def _trusted_url(self, url: object) -> str | None:
        if url is None:
            return None
        trusted = self._locator.trusted_url(url)
        if trusted is None:
            self._publish_untrusted(str(url))
        return trusted

    def _publish_untrusted(self, url: str) -> None:
        self._publish(Event("error", message=f"refused a server that is on another host: {url}"), url)

    def _set_status(self, url: str, *, live: bool, endpoints: Sequence[str] | None = None) -> None:
        if (server := self._pool.get(url)) is not None:
            server.set_status(live=live, endpoints=endpoints, now=_now())
        self._publish_liveness(self._routes.at(url))
        self._wake.set()

    def _publish_liveness(self, names: Iterable[str]) -> None:
        """Publish the liveness of endpoints where it has changed; one that was never registered was never live."""
        for name in names:
            if name not in self._routes or not (self._routes.is_registered(name) or name in self._published_live):
                continue
            server = self._pool.get(self._routes.url(name))
            live = server is not None and server.live and self._routes.is_registered(name) and name not in server.stale
            if live != self._published_live.get(name):
                self._published_live[name] = live
                self._publish(Event("status", name, live=live))


def _now() -> float:
    return asyncio.get_running_loop().time()
