"""What the two clients have in common: versions that are known and told, and the events that wait."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from diem.links.client.event import Event, Mailbox
from diem.protocol import endpoints


class Client(ABC):
    """An asynchronous iterator of :class:`Event`, connected until the block is left.

    Updates that are not newer than what was told, or of endpoints that are not subscribed, are dropped. Events wait in
    a map of the latest per endpoint and kind: memory is bounded by the subscriptions. The iteration ends after a close
    code that forbids to reconnect.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._told: dict[str, int] = {}
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
        return max(self._known.get(name, 0), self._told.get(name, 0)) or None

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
        self._told.pop(name, None)

    def _say(self, event: Event, whose: str | None = None) -> None:
        self._events.put((event.kind, whose or event.endpoint), event)

    def _take(self, message: dict[str, Any]) -> None:
        """What a message means, whichever connection it came by."""
        match message.get("type"):
            case "update":
                name, version = message["endpoint"], message["version"]
                if name in self._known and version > (self.known(name) or 0):
                    self._told[name] = version
                    self._say(Event("update", name, version, gone=message.get("gone", False)))
            case "subscribed":
                for name, version in message["endpoints"].items():
                    self._say(Event("subscribed", name, version))
            case "unsubscribed":
                for name in message["endpoints"]:
                    self._say(Event("unsubscribed", name))
            case "resync":
                for name in message["endpoints"]:
                    self._say(Event("resync", name))
            case "error":
                self._say(Event("error", message=f"{message['code']}: {message['message']}"))

    def _reject(self, name: str, why: Mapping[str, Any]) -> None:
        self._forget(name)
        self._say(Event("rejected", name, message=f"{why['code']}: {why['message']}"))
