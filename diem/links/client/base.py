"""Common parts of both clients: timing, events and their queue, and the versions that are known. No I/O."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from diem.protocol import endpoints


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; the defaults are the protocol's, tests have shorter ones."""

    base: float = 0.5
    """The first window of a random delay; it doubles with every failure."""
    cap: float = 30.0
    stable_after: float = 60.0
    """An open connection of this age begins its back-off anew."""
    held_after: float = 10.0
    """An open connection of this age has ended the outage before it."""
    silent_after: float = 60.0
    suspect_after_s: float = 5.0
    """A server that is not live is doubted after this and up to as much again, and then once more."""
    empty_after: float = 5.0
    """A connection that nothing needs any more is kept this long."""
    stays_after: float = 1.0
    """What stayed this long at a server has arrived: its hops are forgotten."""
    named_cap: float = 5.0
    """The longest window for a server that the metadata service names: it is expected back."""
    soon: float = 0.5
    """A server that is named while it waits for its next attempt is dialled within this."""
    answer_timeout_s: float = 2.0
    """A dial waits this long for the metadata service, then goes where it went before."""


Kind = Literal["open", "closed", "subscribed", "unsubscribed", "update", "resync", "status", "rejected", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a subscriber can see."""

    kind: Kind
    endpoint: str | None = None
    """The endpoint that it is about; None for the connection itself."""
    version: int | None = None
    """Of an update: its version. Of ``subscribed``: the retained version, None = none yet."""
    gone: bool = False
    live: bool | None = None
    """Of ``status``: whether changes arrive as they happen."""
    code: int | None = None
    """Of ``closed``: the close code, None when there was no connection."""
    message: str = ""


class Mailbox:
    """The latest event of each key, in the order in which they came: a slow consumer conflates."""

    def __init__(self) -> None:
        self._events: dict[object, Event] = {}
        self._wake = asyncio.Event()
        self._ended = False

    def put(self, key: object, event: Event) -> None:
        """Keep an event, in place of an earlier one of the same key."""
        self._events.pop(key, None)
        self._events[key] = event
        self._wake.set()

    def drop(self, key: object) -> None:
        """Nobody wants to know any more."""
        self._events.pop(key, None)

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._wake.set()

    async def take(self) -> Event | None:
        """The oldest event, as soon as there is one; None after the end."""
        while not self._events:
            if self._ended:
                return None
            self._wake.clear()
            await self._wake.wait()
        return self._events.pop(next(iter(self._events)))


class BaseClient(ABC):
    """An asynchronous iterator of :class:`Event`, connected until the block is left.

    Updates that are not newer than what was told, or of endpoints that are not subscribed, are dropped. Events wait in
    a map of the latest per endpoint and kind: memory is bounded by the subscriptions. The iteration ends after a close
    code that forbids to reconnect.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._announced: dict[str, int] = {}
        self._events = Mailbox()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work())
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
        event = await self._events.take()
        if event is None:
            raise StopAsyncIteration
        return event

    async def subscribe(self, known: Mapping[str, int | None]) -> None:
        """Subscribe to endpoints, given the versions of the data that is held (None = none).

        Raises:
            BadName: one of the names is none; nothing is sent.
        """
        for name in known:
            endpoints.check(name)
        self._known.update({name: version or 0 for name, version in known.items()})
        self._want(list(known))

    async def unsubscribe(self, names: Sequence[str]) -> None:
        """Unsubscribe from endpoints."""
        for name in names:
            self._forget(name)
            self._events.drop(("update", name))
            self._events.drop(("status", name))
        self._release(list(names))

    def known(self, name: str) -> int | None:
        """The greatest version that the application holds or was told; None = none."""
        return max(self._known.get(name, 0), self._announced.get(name, 0)) or None

    async def _work(self) -> None:
        try:
            await self._run()
        finally:
            self._events.end()

    @abstractmethod
    async def _run(self) -> None: ...

    @abstractmethod
    def _want(self, names: Sequence[str]) -> None: ...

    @abstractmethod
    def _release(self, names: Sequence[str]) -> None: ...

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._announced.pop(name, None)

    def _publish(self, event: Event, whose: str | None = None) -> None:
        self._events.put((event.kind, whose or event.endpoint), event)

    def _take(self, message: dict[str, Any]) -> None:
        """What a message means, whichever connection it came by."""
        match message.get("type"):
            case "update":
                name, version = message["endpoint"], message["version"]
                if name in self._known and version > (self.known(name) or 0):
                    self._announced[name] = version
                    self._publish(Event("update", name, version, gone=message.get("gone", False)))
            case "subscribed":
                for name, version in message["endpoints"].items():
                    self._publish(Event("subscribed", name, version))
            case "unsubscribed":
                for name in message["endpoints"]:
                    self._publish(Event("unsubscribed", name))
            case "resync":
                for name in message["endpoints"]:
                    self._publish(Event("resync", name))
            case "error":
                self._publish(Event("error", message=f"{message['code']}: {message['message']}"))

    def _reject(self, name: str, why: Mapping[str, Any]) -> None:
        self._forget(name)
        self._publish(Event("rejected", name, message=f"{why['code']}: {why['message']}"))
