"""A load client with one connection: subscribes, applies the drop rule, reconnects as the SDK does."""

import asyncio
from dataclasses import replace
from random import Random
from time import monotonic
from typing import Any

from diem.links.client.backoff import ReconnectBackoff, Timing
from diem.protocol.codes import reconnects
from tests.load import wire
from tests.load.link import Link, Server
from tests.load.subscriber import (
    CONNECT_SECONDS,
    SILENCE_SECONDS,
    HistoryFull,
    Subscriber,
)
from tests.oracle.history import LEFT, Kind

__all__ = ["HistoryFull", "LoadClient"]


class LoadClient(Subscriber):
    """One client over all its connections, one at a time.

    With ``filtered`` (all-to-all) it records updates of endpoints only that are subscribed. Without it an update for a
    foreign endpoint is recorded as well, for the oracle to name.
    """

    def __init__(
        self, name: str, address: str, servers: list[Server], wants: list[str], random: Random, *, filtered: bool
    ) -> None:
        super().__init__(name, address, wants, random)
        self.link: Link | None = None
        self.pattern = wire.ANY_UPDATE
        self._dialed: Link | None = None
        self._servers = servers
        self._server = random.choice(servers)
        self._filtered = filtered
        self._backoff = ReconnectBackoff(Timing(), random)
        self._backoff.begin(monotonic())
        self._later: asyncio.TimerHandle | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._refilter()

    # What the run asks of it

    def start(self, delay: float) -> None:
        self._later = asyncio.get_running_loop().call_later(delay, self._dial)

    def close(self) -> None:
        if self._later:
            self._later.cancel()
        if self._dialing:
            self._dialing.cancel()
        if self.link:
            self.link.close()

    def add(self, endpoint: str) -> None:
        self.wants.add(endpoint.encode())
        self._subscribe({endpoint.encode()})

    def remove(self, endpoint: str) -> None:
        self.wants.discard(endpoint.encode())
        if self.link:
            self.record(Kind.UNSUBSCRIBE, endpoint.encode(), time=monotonic())
            self.link.request("unsubscribe", [endpoint])

    def drop(self) -> None:
        if self.link:
            self.link.abort()

    def check(self, now: float) -> None:
        link = self._dialed
        if link and now - link.last_received > (SILENCE_SECONDS if link.welcomed else CONNECT_SECONDS):
            link.abort()

    @property
    def links(self) -> list[Link]:
        return [self.link] if self.link else []

    @property
    def connected(self) -> bool:
        return self.link is not None and self.link.welcomed

    @property
    def live(self) -> bool:
        return self.link is not None and self.link.live and not self.link.stale & self.wants

    # What the link reports (it is a ``LinkOwner``)

    def opened(self, link: Link) -> None:
        """The handshake was accepted."""
        self.link = link
        self.opened_link(link)

    def welcomed(self) -> None:
        """Subscribe to all wanted endpoints after the server's first frame."""
        self._subscribe(self.wants)

    def updates(self, data: bytes, start: int, end: int, time: float) -> None:
        """Record the update frames between two positions of a chunk."""
        self.record_frames(data, start, end, time, pattern=self.pattern)

    def message(self, message: dict[str, Any], time: float) -> None:
        """Record any other message."""
        if self.link is None:
            return
        self.record_message(message, time, self.link)
        if message["type"] == "unsubscribed":
            self._refilter()

    def lost(self, link: Link, code: int, reason: str) -> None:
        """Reconnect after a lost or failed connection, unless the code forbids it."""
        now = monotonic()
        if link.opened:
            self.ended(link, LEFT if self.leaving else code, now)
        else:
            self.refused += 1
            # Another one after a failed connect, where there is another one.
            others = [server for server in self._servers if server != self._server]
            self._server = self.random.choice(others or self._servers)
        self.link = self._dialed = None
        if not self.leaving and reconnects(code):
            open_s = now - link.opened if link.opened else None
            self.start(self._backoff.delay_s(now, open_s, code, reason))

    # Its own ways

    def _dial(self) -> None:
        self._dialing = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        server = replace(self._server, path=self.named(self._server.path))
        link = self._dialed = Link(self, server, tokens=self.tokens, compression=self.offers_compression)
        await link.dial(self.address, CONNECT_SECONDS)

    def _subscribe(self, endpoints: set[bytes]) -> None:
        if self.link is not None:
            self.ask(self.link, endpoints)
            self._refilter()

    def _refilter(self) -> None:
        if self._filtered:
            self.pattern = wire.updates_of(self.wants)
