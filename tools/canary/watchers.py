"""Connections to edges: what each delivers of the canary's endpoints."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import orjson

from diem.links.client import BaseClient, UpdatesClient
from diem.links.dialer import LinkConnection, Reconnector
from diem.process.key_ring import KeyRing, KeyRole
from diem.protocol import feed, messages

NAMES_PER_CLIENT: Final = 100
"""Subscriptions of one client, below the limit of a server (docs/reliability.md S10)."""


class Observer(Protocol):
    """Receives what an edge does."""

    def opened(self, edge: str) -> None:
        """There is a connection."""
        ...

    def lost(self, edge: str, reason: str) -> None:
        """The connection was lost, or an attempt has failed."""
        ...

    def confirmed(self, edge: str, name: str, version: int) -> None:
        """The edge has subscribed an endpoint; 0: it has no version of it."""
        ...

    def refused(self, edge: str, name: str, reason: str) -> None:
        """The edge has refused an endpoint, or has ended its subscription."""
        ...

    def updated(self, edge: str, name: str, version: int) -> None:
        """An update has arrived."""
        ...


class ClientWatcher:
    """Watches an edge as clients do.

    Args:
        edge: its name.
        connect: makes a client.
        names: the endpoints, which are divided among as many clients as it takes.
        observer: receives what happens.
    """

    def __init__(self, edge: str, connect: Callable[[], BaseClient], names: Sequence[str], observer: Observer) -> None:
        self._edge = edge
        self._observer = observer
        starts = range(0, len(names), NAMES_PER_CLIENT)
        self._clients = [(connect(), names[start : start + NAMES_PER_CLIENT]) for start in starts]
        self._has_one_connection = len(starts) == 1 and isinstance(self._clients[0][0], UpdatesClient)
        """Else the loss of one does not mean that there is none: late updates show it."""

    async def run(self) -> None:
        """Watch until cancelled, or until servers forbid to reconnect."""
        async with asyncio.TaskGroup() as tasks:
            for client, names in self._clients:
                tasks.create_task(self._follow(client, names))

    def request_missing(self) -> None:
        """Do nothing: clients do so by themselves."""

    async def _follow(self, client: BaseClient, names: Sequence[str]) -> None:
        edge, observer = self._edge, self._observer
        async with client:
            await client.subscribe(dict.fromkeys(names))
            async for event in client:
                name = event.endpoint or ""
                match event.kind:
                    case "open":
                        observer.opened(edge)
                    case "closed" if self._has_one_connection:
                        observer.lost(edge, event.message)
                    case "subscribed":
                        observer.confirmed(edge, name, event.version or 0)
                    case "rejected":
                        observer.refused(edge, name, event.message)
                    case "update":
                        observer.updated(edge, name, event.version or 0)


class ServerLink(LinkConnection):
    """One link to the internal listener of a server, as that of a proxy."""

    __slots__ = ("_watcher",)

    def __init__(self, url: str, authorization: str, watcher: "ServerWatcher") -> None:
        super().__init__(url, authorization, subprotocol=messages.SUBPROTOCOL, max_size=feed.MAX_BATCH_BYTES)
        self._watcher = watcher

    def on_text(self, data: bytes) -> None:
        """Pass a message on."""
        self._watcher.on_message(orjson.loads(data))


class ServerWatcher(Reconnector[ServerLink]):
    """Watches a server at its internal listener, where it has neither nginx nor a proxy before it."""

    def __init__(self, edge: str, url: str, names: Iterable[str], observer: Observer, keys: KeyRing) -> None:
        super().__init__(edge, [url], keys, KeyRole.ADMIN, logger="canary")
        self._edge = edge
        self._observer = observer
        self._missing: dict[str, None] = dict.fromkeys(names)
        """Names that the server has not confirmed."""
        self._names = tuple(self._missing)
        self._link: ServerLink | None = None
        self._ids = itertools.count(1)

    def request_missing(self) -> None:
        """Request again what the server has refused: it may have got the partition since."""
        if self._link is not None and self._missing:
            # Links of proxies have no limit of names in a message.
            self._link.send_text(messages.subscribe(next(self._ids), dict(self._missing)))

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle a message of the server."""
        match message:
            case {"type": "update", "endpoint": str(name), "version": int(version)}:
                self._observer.updated(self._edge, name, version)
            case {"type": "subscribed", "endpoints": dict(registered)}:
                for name, version in registered.items():
                    self._missing.pop(name, None)
                    self._observer.confirmed(self._edge, name, version or 0)
                for name, why in message.get("rejected", {}).items():
                    self._observer.refused(self._edge, name, str(why.get("code", "")))
            case {"type": "moved", "endpoints": list(moved)}:
                for name in moved:
                    self._missing[name] = None
                    self._observer.refused(self._edge, name, "moved")
                if self._link is not None:
                    # A server that is about to stop waits until nobody is subscribed to what it has given away.
                    self._link.send_text(messages.unsubscribe(next(self._ids), moved))

    def _connection(self, url: str, authorization: str) -> ServerLink:
        return ServerLink(url, authorization, self)

    def _on_open(self, link: ServerLink, url: str) -> None:  # noqa: ARG002 - it has one URL
        self._link = link
        self._missing = dict.fromkeys(self._names)
        self._observer.opened(self._edge)
        self.request_missing()

    def _on_lost(self, link: ServerLink, url: str) -> float:  # noqa: ARG002 - it has one link
        self._link = None
        self._observer.lost(self._edge, "")
        return 0.0
