"""One server as one partitioned client knows it: the connection there, made again while something is wanted there."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from diem.protocol.codes import reconnects
from tests.load import wire
from tests.load.link import Link
from tests.load.locating import server_at
from tests.load.subscriber import (
    BACKOFF_SECONDS,
    CONNECT_SECONDS,
    SILENCE_SECONDS,
    Redial,
    Subscriber,
)
from tests.oracle.history import LEFT, Kind

DOUBT_SECONDS = 5.0
"""A server that is not live is doubted after this long, and as long again at random; then once more."""
EMPTY_SECONDS = 5.0
"""A connection that nothing needs any more is kept this long."""


class Posted(Protocol):
    """What a post tells its client."""

    def answered(self, post: "Post", message: dict[str, Any]) -> None:
        """The server answered a subscribe."""

    def moved(self, post: "Post", names: list[bytes], owner: str | None) -> None:
        """The server gives these away."""

    def gone(self, post: "Post") -> None:
        """The connection is lost, and what was registered on it."""

    def doubt(self, post: "Post") -> None:
        """What is wanted there may be elsewhere: ask."""

    async def asked(self) -> None:
        """Wait until there is an answer, though not for long."""


class Post:
    """Keeps a connection to ``url`` while the client wants anything there (it is a ``LinkOwner``)."""

    def __init__(self, url: str, client: Subscriber, posted: Posted, number: Callable[[], int]) -> None:
        self.url = url
        self.names: set[bytes] = set()
        """What is wanted there."""
        self.link: Link | None = None
        self.over = False
        self._client = client
        self._posted = posted
        self._number = number
        self._dialed: Link | None = None
        self._redial = Redial(client.random)
        self._waiting = False
        self._empty_since: float | None = None
        self._doubt_at: float | None = None
        self._dialing = self._start(0.0)

    def want(self, name: bytes) -> None:
        """Subscribe, now or when connected."""
        self.names.add(name)
        self._empty_since = None
        if self.link and self.link.welcomed:
            self._client.ask(self.link, {name})
            return
        # Somebody has just said that the server is there: what failed before does not count.
        self._redial.failures = 0
        if self._waiting:
            self._dialing.cancel()
            self._dialing = self._start(self._client.random.random() * BACKOFF_SECONDS)

    def release(self, name: bytes) -> bool:
        """Unsubscribe; returns whether there is a connection that will answer."""
        if name not in self.names:
            return False
        self.names.discard(name)
        if self.link and self.link.welcomed:
            self.link.request("unsubscribe", [name.decode()])
            return True
        return False

    def look(self, now: float) -> None:
        """Called about once a second."""
        link = self._dialed
        if link and now - link.heard > (SILENCE_SECONDS if link.welcomed else CONNECT_SECONDS):
            link.abort()
        if self.names:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        elif now - self._empty_since > EMPTY_SECONDS:
            self.stop()
        self._look_at_life(now)

    def stop(self) -> None:
        """Close the connection, and make no other one."""
        self.over = True
        self._dialing.cancel()
        if self.link:
            self.link.close()

    # What the link reports

    def opened(self, link: Link) -> None:
        """The handshake was accepted."""
        self.link = link
        self._client.record(Kind.OPEN, time=link.opened, link=link.number)

    def welcomed(self) -> None:
        """Subscribe to everything that is wanted there."""
        if self.link:
            self._client.ask(self.link, self.names)

    def updates(self, data: bytes, start: int, end: int, time: float) -> None:
        """Take the update frames between two places of a chunk."""
        if self.link:
            self._client.take_updates(wire.ANY_UPDATE.findall(data, start, end), time, self.link.number)

    def message(self, message: dict[str, Any], time: float) -> None:
        """Take any other message."""
        link = self.link
        if link is None:
            return
        if message["type"] == "moved":
            names = [name.encode() for name in message["endpoints"]]
            for name in names:
                self._client.record(Kind.MOVED, name, code=1, time=time, link=link.number)
            self._posted.moved(self, names, message.get("owner"))
            return
        self._client.take_message(message, time, link)
        if message["type"] == "subscribed":
            self._posted.answered(self, message)

    def lost(self, link: Link, code: int, reason: str) -> None:
        """The connection is gone, or never came to be: another one, unless nothing is wanted there any more."""
        now = monotonic()
        if link.opened:
            self._client.ended(link, LEFT if self._client.leaving else code, now)
            self._redial.lost(link.opened, now)
        else:
            self._client.refused += 1
        self.link = self._dialed = None
        self._posted.gone(self)
        if self.over or self._client.leaving or not reconnects(code):
            return
        self._dialing = self._start(self._redial.delay(now, code, reason), again=True)

    # Its own ways

    def _start(self, delay: float, *, again: bool = False) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._dial(delay, again=again))

    async def _dial(self, delay: float, *, again: bool) -> None:
        self._waiting = again
        await asyncio.sleep(delay)
        self._waiting = False
        if again:
            self._posted.doubt(self)
            await self._posted.asked()
            if not self.names:
                self.over = True
                return
        link = self._dialed = Link(self, server_at(self._client.named(self.url)), self._number())
        await link.dial(self._client.address, CONNECT_SECONDS)

    def _look_at_life(self, now: float) -> None:
        alive = self.link is not None and self.link.live and not self.link.stale & self.names
        if alive or not self.names:
            self._doubt_at = None
        elif self._doubt_at is None:
            self._doubt_at = now + DOUBT_SECONDS * (1 + self._client.random.random())
        elif now >= self._doubt_at:
            self._doubt_at = None
            # Not waited for: what has another owner is moved when the answer is there.
            self._posted.doubt(self)
