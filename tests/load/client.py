"""One load client: subscribes, applies the drop rule, reconnects as the SDK does, and records what the oracle needs."""

import asyncio
import re
from random import Random
from time import monotonic
from typing import Any

from diem.protocol.codes import reconnects
from tests.load import wire
from tests.load.link import Link, Server
from tests.oracle.history import LEFT, Event, Kind

BACKOFF_SECONDS, BACKOFF_CAP_SECONDS = 0.5, 30.0
STABLE_SECONDS = 60.0
SILENCE_SECONDS = 60.0
CONNECT_SECONDS = 10.0
MAX_EVENTS = 500_000
"""Events that one client records; then the run is too long for this harness, and says so."""

Row = tuple[float, str, bytes, int, int]
"""An :class:`Event` in the making: plain, because 25,000 a second are made."""


class HistoryFull(Exception):
    """A client has recorded more than it may hold."""


class LoadClient:
    """One client over all its connections.

    It holds what it was told, because it does not fetch; a subclass may. What came on the wire is counted, and what
    passes the filter is recorded: a greater version than any before, and with ``filtered`` (all-to-all) only for
    endpoints that are subscribed. Without ``filtered`` an update for a foreign endpoint is recorded as well, for the
    oracle to name.
    """

    def __init__(
        self, name: str, address: str, servers: list[Server], wants: list[str], random: Random, *, filtered: bool
    ) -> None:
        self.name = name
        self.address = address
        self.wants = {endpoint.encode() for endpoint in wants}
        self.told: dict[bytes, int] = {}
        self.rows: list[Row] = []
        self.raw = 0
        self.refused = 0
        self.link: Link | None = None
        self._dialed: Link | None = None
        self.pattern = wire.ANY_UPDATE
        self._servers = servers
        self._server = random.choice(servers)
        self._random = random
        self._filtered = filtered
        self._failures = 0
        self._request = 0
        self._leaving = False
        self._later: asyncio.TimerHandle | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._refilter()

    # What the run asks of it

    def start(self, delay: float) -> None:
        """Connect after ``delay`` seconds."""
        self._later = asyncio.get_running_loop().call_later(delay, self._dial)

    def leave(self) -> None:
        """Go for good."""
        self._leaving = True
        if self._later:
            self._later.cancel()
        if self._dialing:
            self._dialing.cancel()
        if self.link:
            self.link.close()

    def swap(self, old: str, new: str) -> None:
        """Look at another endpoint: subscribe to ``new``, unsubscribe from ``old``. Nothing while not connected."""
        if self.link and self.link.welcomed:
            self.wants.add(new.encode())
            self._subscribe({new.encode()})
            self.wants.discard(old.encode())
            self._request += 1
            self.record(Kind.UNSUBSCRIBE, old.encode(), time=monotonic())
            self.link.say({"type": "unsubscribe", "id": self._request, "endpoints": [old]})

    def watch(self, now: float) -> None:
        """Called about once a second: gives up a server that does not welcome, or says nothing for 60 s."""
        link = self._dialed
        if link and now - link.heard > (SILENCE_SECONDS if link.welcomed else CONNECT_SECONDS):
            link.abort()
        if len(self.rows) > MAX_EVENTS:
            raise HistoryFull(f"client {self.name} has more than {MAX_EVENTS} events")

    def events(self) -> list[Event]:
        """All that was recorded."""
        return [Event(time, kind, endpoint.decode(), *more) for time, kind, endpoint, *more in self.rows]

    def level(self, endpoint: bytes) -> int:
        """The version of ``endpoint`` that the client knows of."""
        return self.told.get(endpoint, 0)

    def known(self, endpoint: bytes) -> int:
        """The version that the client holds, which it says when it subscribes."""
        return self.told.get(endpoint, 0)

    def changed(self, endpoint: bytes) -> None:
        """The client was told of a new version of ``endpoint``: the place to fetch it."""

    # What the link reports (it is a ``LinkOwner``)

    def opened(self, link: Link) -> None:
        """The handshake was accepted."""
        self.link = link
        self.record(Kind.OPEN, time=link.opened)

    def welcomed(self) -> None:
        """The server sent its first frame: subscribe to everything that is wanted."""
        self._subscribe(self.wants)

    def updates(self, data: bytes, start: int, end: int, time: float) -> None:
        """Take the update frames between two places of a chunk."""
        told, record = self.told, self.rows.append
        for endpoint, digits in self.pattern.findall(data, start, end):
            version = int(digits)
            if version > told.get(endpoint, 0):
                told[endpoint] = version
                record((time, "update", endpoint, version, 0))
                self.changed(endpoint)

    def message(self, message: dict[str, Any], time: float) -> None:
        """Take any other message."""
        kind = message["type"]
        if kind == "subscribed":
            for name, version in message["endpoints"].items():
                self.record(Kind.SUBSCRIBED, name.encode(), version or 0, time=time)
            for name in message.get("rejected", ()):
                self.record(Kind.REJECTED, name.encode(), time=time)
        elif kind == "unsubscribed":
            for name in message["endpoints"]:
                self.record(Kind.UNSUBSCRIBED, name.encode(), time=time)
            self._refilter()
        elif kind == "resync":
            for name in message["endpoints"]:
                self.record(Kind.RESYNC, name.encode(), time=time)
                self.changed(name.encode())
        elif kind == "status":
            self._status(live=message["live"], names=message.get("endpoints"), time=time)
        elif kind != "welcome":
            raise wire.WireError(f"unexpected message: {message}")

    def lost(self, link: Link, code: int, reason: str) -> None:
        """The connection is gone, or never came to be: connect again, unless the code forbids it."""
        now = monotonic()
        if link.opened:
            self.record(Kind.RAW, code=link.updates, time=now)
            self.record(Kind.CLOSE, code=LEFT if self._leaving else code, time=now)
            self.raw += link.updates
            if now - link.opened > STABLE_SECONDS:
                self._failures = 0
        else:
            self.refused += 1
            # Another one after a failed connect, where there is another one.
            others = [server for server in self._servers if server != self._server]
            self._server = self._random.choice(others or self._servers)
        self.link = self._dialed = None
        if not self._leaving and reconnects(code):
            self._again(reason)

    def record(self, kind: Kind, endpoint: bytes = b"", version: int = 0, code: int = 0, *, time: float) -> None:
        """Record an event."""
        self.rows.append((time, kind.value, endpoint, version, code))

    # Its own ways

    def _again(self, reason: str) -> None:
        window = min(BACKOFF_CAP_SECONDS, BACKOFF_SECONDS * 2**self._failures)
        if hint := re.search(r"retry=(\d+)", reason):
            window = int(hint[1]) / 1000
        self._failures += 1
        self.start(self._random.random() * window)

    def _dial(self) -> None:
        self._dialing = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        server = self._server
        link = self._dialed = Link(self, server)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: link, server.host, server.port, local_addr=(self.address, 0)
                )
        except (OSError, TimeoutError) as error:
            self.lost(link, 1006, str(error))

    def _subscribe(self, endpoints: set[bytes]) -> None:
        if self.link is None or not endpoints:
            return
        self._request += 1
        now = monotonic()
        known = {endpoint.decode(): self.known(endpoint) or None for endpoint in sorted(endpoints)}
        for name, version in known.items():
            self.record(Kind.SUBSCRIBE, name.encode(), version or 0, time=now)
        self.link.say({"type": "subscribe", "id": self._request, "endpoints": known})
        self._refilter()

    def _refilter(self) -> None:
        if self._filtered:
            self.pattern = wire.updates_of(self.wants)

    def _status(self, *, live: bool, names: list[str] | None, time: float) -> None:
        link = self.link
        if link is None:
            return
        # The server repeats itself every 25 s; only what changes is recorded.
        if names is None and live != link.live:
            link.live = live
            self.record(Kind.STATUS, code=int(live), time=time)
        for name in names or ():
            self.record(Kind.STATUS, name.encode(), code=int(live), time=time)
