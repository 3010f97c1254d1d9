"""What a subscriber can see, and the box in which it waits."""

import asyncio
from dataclasses import dataclass
from typing import Literal

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
