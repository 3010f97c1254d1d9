"""The client of one server or proxy, and its base, shared with the client of a group (``partitioned``)."""

import asyncio
import contextlib
import random
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, Self

from diem.client.backoff import Timing
from diem.client.link import ClientLink
from diem.client.polling import Fallback
from diem.client.tokens import TokenFunction, TokenSource
from diem.client.values import EndpointSnapshot
from diem.protocol import endpoints

Kind = Literal["open", "closed", "subscribed", "unsubscribed", "update", "resync", "status", "rejected", "error"]


FUTURE_S: Final = 86_400.0
"""Versions contain the time: one further ahead of this clock makes clients fetch the data again."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change reported by a client."""

    kind: Kind
    endpoint: str | None = None
    """None: the event is about the connection."""
    version: int | None = None
    """Of an update: its version. Of ``subscribed``: the retained version, None = none yet."""
    gone: bool = False
    time: str = ""
    """Of an update: when the change was accepted, in RFC 3339."""
    media_type: str = ""
    """Of the value; empty: there is none, fetch it."""
    value: Any = None
    """Of an update: the value of this version, by its kind (:mod:`~diem.client.values`)."""
    fetch_window_s: float = 0.0
    """Window of the random delay before fetching the value, if at all; unused for updates with values."""
    live: bool | None = None
    """Of ``status``: True if updates are current."""
    code: int | None = None
    """Of ``closed``: the close code, or the HTTP status of a refused handshake; None when nobody answered."""
    message: str = ""
    """Of ``closed``: the reason; of a refusal with the status, as ``429: this address has 50 clients already``; of no
    answer the system's, as ``connection refused``, if it has one."""

    @property
    def has_value(self) -> bool:
        """Whether the value came with the update, or was fetched."""
        return bool(self.media_type)


class EventQueue:
    """The latest event of each key, in order of arrival: a slow consumer conflates."""

    def __init__(self) -> None:
        self._events: dict[object, Event] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, key: object, event: Event) -> None:
        """Enqueue an event, in place of an earlier one with the same key."""
        self._events.pop(key, None)
        self._events[key] = event
        self._changed.set()

    def discard(self, key: object) -> None:
        """Drop the event of a key."""
        self._events.pop(key, None)

    def close(self) -> None:
        """End the queue; queued events are still returned."""
        self._closed = True
        self._changed.set()

    async def get(self) -> Event | None:
        """Wait for the oldest event and return it; None once the queue is closed and empty."""
        while not self._events:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._events.pop(next(iter(self._events)))


class BaseClient(ABC):
    """An asynchronous iterator of :class:`Event`, connected until its ``async with`` block is left.

    Updates not newer than the last reported version, or of unsubscribed endpoints, are dropped. The queue holds the
    latest event per endpoint and kind, so memory is bounded by the subscriptions. The iteration ends after a close code
    that forbids reconnecting.

    With ``data``, updates are requested with their data where servers offer it. An update with data is an event unless
    data of its version was reported before, even if the same update came without.
    """

    link_type: ClassVar[type[ClientLink]] = ClientLink
    """Of its connections; the load clients of the tests have one that records their history."""

    def __init__(self, *, fallback: Fallback | None = None, data: bool = False) -> None:
        self._data = data
        self._fallback = fallback
        self._known: dict[str, int] = {}
        self._announced: dict[str, int] = {}
        self._events = EventQueue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run_to_end())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def subscribe(self, known: Mapping[str, int | None]) -> None:
        """Subscribe to endpoints, given the versions of the data held (None = none).

        Raises:
            BadName: one is not an endpoint name; nothing is sent.
        """
        for name in known:
            endpoints.check(name)
        self.add_names(known)

    async def unsubscribe(self, names: Sequence[str]) -> None:
        """Unsubscribe from endpoints."""
        self.drop_names(names)

    def add_names(self, known: Mapping[str, int | None]) -> None:
        """Subscribe to checked names, as :meth:`subscribe` does."""
        self._known.update({name: version or 0 for name, version in known.items()})
        self._add(list(known))

    def drop_names(self, names: Sequence[str]) -> None:
        """Unsubscribe, as :meth:`unsubscribe` does."""
        for name in names:
            self._forget(name)
            self._events.discard(("update", name))
            self._events.discard(("status", name))
        self._remove(list(names))

    def known(self, name: str) -> int | None:
        """Return the greatest version held by or reported to the application; None = none."""
        return max(self._known.get(name, 0), self._announced.get(name, 0)) or None

    def correct(self, name: str, version: int) -> None:
        """Report everything newer than ``version`` from now on: the Data Service has lost later versions."""
        if name in self._known:
            self._known[name] = version
            self._announced.pop(name, None)

    @property
    def transport(self) -> Literal["websocket", "http"]:
        """Return how servers are reached: ``http`` where no WebSocket gets through."""
        return "http" if self._fallback is not None and self._fallback.is_used else "websocket"

    @property
    @abstractmethod
    def received_bytes(self) -> int:
        """Return the payload bytes of all messages that servers have sent."""

    async def _run_to_end(self) -> None:
        try:
            await self._run()
        finally:
            self._events.close()

    @abstractmethod
    async def _run(self) -> None:
        """Stay connected until a close code forbids reconnecting."""

    @abstractmethod
    def _add(self, names: Sequence[str]) -> None:
        """Subscribe at the servers concerned."""

    @abstractmethod
    def _remove(self, names: Sequence[str]) -> None:
        """Unsubscribe at the servers concerned."""

    def _forget(self, name: str) -> None:
        """Drop the state of an endpoint."""
        self._known.pop(name, None)
        self._announced.pop(name, None)

    def _publish(self, event: Event, key: str | None = None) -> None:
        self._events.put((event.kind, key or event.endpoint), event)

    def _publish_message(self, message: dict[str, Any], fetch_window_s: float) -> None:
        """Publish those events of a message that are independent of the connection."""
        match message.get("type"):
            case "update":
                self._publish_update(message, fetch_window_s)
            case "subscribed":
                for name, version in message["endpoints"].items():
                    self._publish(Event("subscribed", name, version, fetch_window_s=fetch_window_s))
            case "unsubscribed":
                for name in message["endpoints"]:
                    self._publish(Event("unsubscribed", name))
            case "resync":
                for name in message["endpoints"]:
                    self._publish(Event("resync", name, fetch_window_s=fetch_window_s))
            case "error":
                self._publish(Event("error", message=f"{message['code']}: {message['message']}"))

    def _publish_update(self, message: dict[str, Any], fetch_window_s: float) -> None:
        name, version = message["endpoint"], message["version"]
        # A proxy may send unrequested data.
        found = EndpointSnapshot.of_update(message) if self._data else None
        announced = self._announced.get(name, 0)
        if name not in self._known or version <= max(self._known[name], announced - 1 if found else announced):
            return
        if version > 1000 * (time.time() + FUTURE_S):
            # It would block all later ones: forged, or this clock is wrong.
            self._publish(Event("resync", name, fetch_window_s=fetch_window_s))
            return
        self._announced[name] = version
        gone, changed = message.get("gone", False), message.get("time", "")
        if found is None:
            self._publish(Event("update", name, version, gone=gone, time=changed, fetch_window_s=fetch_window_s))
            return
        self._known[name] = version
        self._publish(Event("update", name, version, time=changed, media_type=found.media_type, value=found.value))

    def _reject(self, name: str, rejection: Mapping[str, Any]) -> None:
        """Drop an endpoint that no server accepts."""
        self._forget(name)
        self._remove([name])
        self._publish(Event("rejected", name, message=f"{rejection['code']}: {rejection['message']}"))


class UpdatesClient(BaseClient):
    """One connection to one of ``urls``, redialled until the block is left.

    A ``status`` event is about the connection, or about one endpoint: an endpoint is live while the last events of both
    kinds are live. Those about an endpoint end with its subscription.

    Args:
        urls: of equivalent servers.
        origin: ``Origin`` header; None: none is sent.
        timing: delays.
        token: called before connecting, before the last token expires, and when it was refused, one call at a time;
            None: no token is presented.
        tls: context for ``wss`` URLs; None: the system's authorities decide.
        data: request updates with their data.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        origin: str | None = None,
        timing: Timing | None = None,
        token: TokenFunction | None = None,
        tls: ssl.SSLContext | None = None,
        data: bool = False,
        local_address: str | None = None,
    ) -> None:
        timing = timing or Timing()
        super().__init__(fallback=Fallback(timing, origin, tls, local_address), data=data)
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._last = ""
        """The server that was dialled last."""
        self._stale: dict[str, None] = {}
        """Subscribed endpoints that the server last named as not live."""
        tokens = None if token is None else TokenSource(token, timing)
        self._link = self.link_type(
            self._select, self, origin, timing, tokens=tokens, fallback=self._fallback, data=data
        )

    @property
    def received_bytes(self) -> int:
        """Return the payload bytes of all messages that servers have sent."""
        return self._link.received_bytes

    async def _run(self) -> None:
        await self._link.run()

    async def _select(self) -> str:
        # Not the server just lost: it may be cut off.
        others = [url for url in self._urls if url != self._last] or self._urls
        self._last = random.choice(others)  # noqa: S311 - spreads clients, is no secret
        return self._last

    def _add(self, names: Sequence[str]) -> None:
        self._link.subscribe(names)

    def _remove(self, names: Sequence[str]) -> None:
        self._link.unsubscribe(names)

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._stale.pop(name, None)

    # Events of the link

    def opened(self, _link: ClientLink, url: str) -> None:
        """Publish ``open``."""
        self._publish(Event("open", message=url))

    def closed(self, link: ClientLink, code: int | None, reason: str) -> None:
        """Publish ``closed``."""
        self._publish(Event("closed", code=code, message=reason or link.cause))

    def protocol_error(self, _link: ClientLink) -> None:
        """Publish ``error``."""
        self._publish(Event("error", message="the server violated the protocol"))

    def on_message(self, link: ClientLink, message: dict[str, Any]) -> None:
        """Publish the events of a message."""
        self._publish_message(message, link.fetch_window_s)
        match message.get("type"):
            case "subscribed":
                for name, rejection in message["rejected"].items():
                    self._reject(name, rejection)
            case "unsubscribed":
                # Of endpoints that are subscribed again: the status is sent again if it still holds.
                self._publish_status([name for name in message["endpoints"] if name in self._stale], live=True)
            case "status":
                self._publish_status(message.get("endpoints"), live=message["live"])

    def _publish_status(self, names: Sequence[str] | None, *, live: bool) -> None:
        """Publish a status: without ``names`` it applies to all endpoints, overriding earlier ones by name."""
        if names is None:
            self._publish(Event("status", live=live))
            names = list(self._stale) if live else []
        for name in names:
            if name not in self._known:
                continue
            if live:
                self._stale.pop(name, None)
            else:
                self._stale[name] = None
            self._publish(Event("status", name, live=live))
