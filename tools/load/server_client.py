"""A client of a server's internal listener, bypassing nginx and proxies."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final

import orjson

from diem.client import BaseClient, Event
from diem.links.dialer import LinkConnection, Reconnector
from diem.process.key_ring import KeyRing, KeyRole
from diem.protocol import feed, messages

REQUEST_EVERY_S: Final = 2.0
"""Interval of retries for refused endpoints: the server may have gained the partition since."""


class ServerLink(LinkConnection):
    """One link to a server, like a proxy's."""

    __slots__ = ("_client",)

    def __init__(self, url: str, authorization: str, client: "ServerClient") -> None:
        super().__init__(url, authorization, subprotocol=messages.SUBPROTOCOL, max_size=feed.MAX_BATCH_BYTES)
        self._client = client

    def on_text(self, data: bytes) -> None:
        """Pass a message on."""
        self._client.on_text(data)


class ServerClient(BaseClient, Reconnector[ServerLink]):
    """Subscribes at one server only, retrying refused and moved endpoints (``rejected``)."""

    def __init__(self, name: str, url: str, keys: KeyRing) -> None:
        BaseClient.__init__(self)
        Reconnector.__init__(self, name, [url], keys, KeyRole.ADMIN, logger="canary")
        self._missing: dict[str, None] = {}
        """Names that the server has not confirmed."""
        self._link: ServerLink | None = None
        self._ids = itertools.count(1)
        self._received_bytes = 0

    @property
    def received_bytes(self) -> int:
        """Return the payload bytes of all messages received."""
        return self._received_bytes

    def on_text(self, data: bytes) -> None:
        """Publish the events of a message."""
        self._received_bytes += len(data)
        message: dict[str, Any] = orjson.loads(data)
        self._publish_message(message, 0.0)
        match message:
            case {"type": "subscribed", "endpoints": dict(confirmed)}:
                for name in confirmed:
                    self._missing.pop(name, None)
                for name, why in message.get("rejected", {}).items():
                    self._publish(Event("rejected", name, message=str(why["code"])))
            case {"type": "moved", "endpoints": list(moved)}:
                # A stopping server waits until nobody is subscribed to moved endpoints.
                self._remove(moved)
                for name in moved:
                    self._missing[name] = None
                    self._publish(Event("rejected", name, message="moved"))

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run())
            while True:
                await asyncio.sleep(REQUEST_EVERY_S)
                self.request_missing()

    def request_missing(self) -> None:
        """Request unconfirmed endpoints."""
        self._add(list(self._missing))

    def _add(self, names: Sequence[str]) -> None:
        self._missing.update(dict.fromkeys(names))
        if self._link is not None and names:
            # Links of proxies have no limit of names in a message.
            self._link.send_text(messages.subscribe(next(self._ids), dict.fromkeys(names)))

    def _remove(self, names: Sequence[str]) -> None:
        if self._link is not None:
            self._link.send_text(messages.unsubscribe(next(self._ids), names))

    def _connection(self, url: str, authorization: str) -> ServerLink:
        return ServerLink(url, authorization, self)

    def _on_open(self, link: ServerLink, url: str) -> None:
        self._link = link
        self._publish(Event("open", message=url))
        self._add(list(self._known))

    def _on_lost(self, link: ServerLink, url: str) -> float:  # noqa: ARG002 - it has one link
        self._link = None
        self._publish(Event("closed"))
        return 0.0
