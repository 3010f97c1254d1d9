"""One server of a partitioned client: a connection that is re-established while the client needs the server."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from diem.links.client.backoff import ReconnectBackoff, Timing
from diem.protocol.codes import reconnects
from tests.load.link import Link
from tests.load.locator import server_at
from tests.load.subscriber import (
    CONNECT_SECONDS,
    SILENCE_SECONDS,
    Subscriber,
)
from tests.oracle.history import LEFT, Kind

SUSPECT_SECONDS = 5.0
"""Time not live after which the routes to a server are checked, plus up to as much at random; repeated."""
EXPEDITE_SECONDS = 0.5
"""A server that was just named as an owner is dialled within this."""
EMPTY_SECONDS = 5.0
"""Time for which an unused connection is kept."""


class SessionOwner(Protocol):
    """Receiver of the events of a session."""

    def answered(self, session: "ServerSession", message: dict[str, Any]) -> None:
        """The server answered a subscribe."""

    def moved(self, session: "ServerSession", names: list[bytes], owner: str | None) -> None:
        """The server gives up these endpoints."""

    def gone(self, session: "ServerSession") -> None:
        """The connection is lost, with its subscriptions."""

    def revalidate(self, session: "ServerSession") -> None:
        """The endpoints of the server may have moved: locate them again."""

    async def wait_until_located(self) -> None:
        """Wait for a pending location, for a short time only."""


class ServerSession:
    """A connection to ``url``, kept while the client has endpoints there. Implements ``LinkOwner``."""

    def __init__(self, url: str, client: Subscriber, owner: SessionOwner, number: Callable[[], int]) -> None:
        self.url = url
        self.names: set[bytes] = set()
        """Endpoints of the client at this server."""
        self.link: Link | None = None
        self.over = False
        self._client = client
        self._owner = owner
        self._number = number
        self._dialed: Link | None = None
        self._backoff = ReconnectBackoff(Timing(), client.random)
        self._backoff.begin(monotonic())
        self._waiting = False
        self._empty_since: float | None = None
        self._suspect_at: float | None = None
        self._dialing = self._start(0.0)

    def want(self, name: bytes) -> None:
        """Subscribe, now or when connected."""
        self.names.add(name)
        self._empty_since = None
        if self.link and self.link.welcomed:
            self._client.ask(self.link, {name})
            return
        # The server was just named as owner: previous failures do not count.
        self._backoff.reset()
        soon_s = self._client.random.uniform(0.0, EXPEDITE_SECONDS)
        if self._waiting:
            self._dialing.cancel()
            self._dialing = self._start(soon_s)

    def release(self, name: bytes) -> bool:
        """Unsubscribe; return whether there is a connection that will answer."""
        if name not in self.names:
            return False
        self.names.discard(name)
        if self.link and self.link.welcomed:
            self.link.request("unsubscribe", [name.decode()])
            return True
        return False

    def check(self, now: float) -> None:
        """Check liveness and idleness; called about once a second."""
        link = self._dialed
        if link and now - link.last_received > (SILENCE_SECONDS if link.welcomed else CONNECT_SECONDS):
            link.abort()
        if self.names:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        elif now - self._empty_since > EMPTY_SECONDS:
            self.stop()
        self._check_liveness(now)

    def stop(self) -> None:
        """Close the connection for good."""
        self.over = True
        self._dialing.cancel()
        if self.link:
            self.link.close()

    # Events of the link

    def opened(self, link: Link) -> None:
        """The handshake was accepted."""
        self.link = link
        self._client.opened_link(link)

    def welcomed(self) -> None:
        """Subscribe to the endpoints of this server."""
        if self.link:
            self._client.ask(self.link, self.names)

    def updates(self, data: bytes, start: int, end: int, time: float) -> None:
        """Record the update frames between two positions of a chunk."""
        if self.link:
            self._client.record_frames(data, start, end, time, link=self.link.number)

    def message(self, message: dict[str, Any], time: float) -> None:
        """Handle any other message."""
        link = self.link
        if link is None:
            return
        if message["type"] == "moved":
            names = [name.encode() for name in message["endpoints"]]
            for name in names:
                self._client.record(Kind.MOVED, name, code=1, time=time, link=link.number)
            self._owner.moved(self, names, message.get("owner"))
            return
        self._client.record_message(message, time, link)
        if message["type"] == "subscribed":
            self._owner.answered(self, message)

    def violated(self, reason: str) -> None:
        """Record that the server sent what no server may send."""
        self._client.violated(reason)

    def lost(self, link: Link, code: int, reason: str) -> None:
        """Reconnect after a lost or failed connection, unless the client has no endpoints here."""
        now = monotonic()
        if link.opened:
            self._client.ended(link, LEFT if self._client.leaving else code, now)
        else:
            self._client.refused += 1
        self.link = self._dialed = None
        self._owner.gone(self)
        if self.over or self._client.leaving or not reconnects(code):
            return
        open_s = now - link.opened if link.opened else None
        self._dialing = self._start(self._backoff.delay_s(now, open_s, code, reason), again=True)

    def _start(self, delay: float, *, again: bool = False) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._dial(delay, again=again))

    async def _dial(self, delay: float, *, again: bool) -> None:
        self._waiting = again
        await asyncio.sleep(delay)
        self._waiting = False
        if again:
            self._owner.revalidate(self)
            await self._owner.wait_until_located()
            if not self.names:
                self.over = True
                return
        server = server_at(self._client.named(self.url))
        client = self._client
        link = self._dialed = Link(
            self, server, self._number(), tokens=client.tokens, compression=client.offers_compression
        )
        await link.dial(self._client.address, CONNECT_SECONDS)

    def _check_liveness(self, now: float) -> None:
        alive = self.link is not None and self.link.live and not self.link.stale & self.names
        if alive or not self.names:
            self._suspect_at = None
        elif self._suspect_at is None:
            self._suspect_at = now + SUSPECT_SECONDS * (1 + self._client.random.random())
        elif now >= self._suspect_at:
            self._suspect_at = None
            # Not awaited: endpoints with another owner move when the answer arrives.
            self._owner.revalidate(self)
