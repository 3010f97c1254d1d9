"""Base of all load clients: wanted endpoints, announced versions, and the recorded events for the oracle."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from random import Random
from time import monotonic
from typing import Any

from diem.links.client.tokens import TokenSource
from diem.protocol.update import DATA_FIELD
from tests.load import wire
from tests.load.datasets import stamp_of
from tests.load.link import Link
from tests.oracle.history import Event, Kind

SILENCE_SECONDS = 60.0
CONNECT_SECONDS = 10.0
MAX_EVENTS = 500_000
"""Most events of one client; beyond that the run fails as too long for this harness."""
_ANSWERED = {"subscribed", "unsubscribed", "resync", "status", "welcome"}

Row = tuple[float, str, bytes, int, int, int]
"""The fields of an :class:`Event`: a plain tuple, because 25,000 a second are created."""


class HistoryFull(Exception):
    """A client has recorded more than ``MAX_EVENTS``."""


class Subscriber(ABC):
    """A client that holds the announced versions; subclasses may fetch.

    What came on the wire is counted, and what passes the filter is recorded: a greater version than any before. Data is
    recorded as held if its version is greater than that of the data before, also if the version was announced already.
    """

    def __init__(self, name: str, address: str, wants: list[str], random: Random) -> None:
        self.name = name
        self.address = address
        self.wants = {endpoint.encode() for endpoint in wants}
        self.announced: dict[bytes, int] = {}
        self.held: dict[bytes, int] = {}
        """Versions whose data came with an update, or was fetched."""
        self.rows: list[Row] = []
        self.raw = 0
        """Number of update frames on ended connections."""
        self.refused = 0
        """Number of failed attempts to connect."""
        self.asks_data = False
        """Whether it asks servers for the data of updates."""
        self.offers_compression = False
        """Whether it offers compression to servers, as browsers do."""
        self.compressed = 0
        """Number of compressed frames on ended connections."""
        self.with_data = 0
        """Number of updates with data on the wire of a client that asks for it."""
        self.without_data = 0
        """Number of updates of existing endpoints without data, all the same."""
        self.unexpected: list[str] = []
        """Messages that servers must never send to this client."""
        self.random = random
        self.leaving = False
        self.tokens: TokenSource | None = None
        """Where its tokens come from; None: it is anonymous."""
        self.refreshed = 0
        """Number of tokens that servers have accepted on open connections."""

    def named(self, url: str) -> str:
        """Return the URL, or path, with the client's name, which identifies all its connections as one client's.

        As clients of earlier releases have it.
        """
        return f"{url}?client=load-client-{self.name}"

    # What the run asks of it

    @abstractmethod
    def start(self, delay: float) -> None:
        """Connect after ``delay`` seconds."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections and start no new ones."""

    @abstractmethod
    def add(self, endpoint: str) -> None:
        """Subscribe to another endpoint, while connected."""

    @abstractmethod
    def remove(self, endpoint: str) -> None:
        """Unsubscribe from an endpoint, while connected."""

    def swap(self, old: str, new: str) -> None:
        """Subscribe to ``new`` and unsubscribe from ``old``. No effect while not connected."""
        if self.connected:
            self.add(new)
            self.remove(old)

    @abstractmethod
    def drop(self) -> None:
        """Abort every connection, as a network failure would."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Abort connections without a welcome, or silent ones; called about once a second."""

    @property
    @abstractmethod
    def links(self) -> list[Link]:
        """The open connections."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether a server has welcomed the client."""

    @property
    @abstractmethod
    def live(self) -> bool:
        """Whether the client is connected and live."""

    def leave(self) -> None:
        """Leave for good."""
        self.leaving = True
        self.close()

    def watch(self, now: float) -> None:
        """Check connections and the size of the history; called about once a second. Raises ``HistoryFull``."""
        self.check(now)
        if len(self.rows) > MAX_EVENTS:
            raise HistoryFull(f"client {self.name} has more than {MAX_EVENTS} events")

    def count(self, time: float) -> None:
        """Record the counts of the open connections."""
        for link in self.links:
            self.record(Kind.RAW, code=link.updates, time=time, link=link.number)

    def events(self) -> list[Event]:
        """Return all recorded events."""
        return [Event(time, kind, endpoint.decode(), *more) for time, kind, endpoint, *more in self.rows]

    def level(self, endpoint: bytes) -> int:
        """Return the version of ``endpoint`` that the client knows."""
        return self.announced.get(endpoint, 0)

    def known(self, endpoint: bytes) -> int:
        """The version that the client holds, which it says when it subscribes."""
        return self.announced.get(endpoint, 0)

    def changed(self, endpoint: bytes) -> None:  # noqa: B027 - who does not fetch has nothing to do
        """The client was told of a new version of ``endpoint``: the place to fetch it."""

    # What its connections say

    def record(
        self, kind: Kind, endpoint: bytes = b"", version: int = 0, code: int = 0, *, time: float, link: int = 0
    ) -> None:
        """Record an event."""
        self.rows.append((time, kind.value, endpoint, version, code, link))

    def record_frames(
        self,
        data: bytes,
        start: int,
        end: int,
        time: float,
        *,
        link: int = 0,
        pattern: re.Pattern[bytes] = wire.ANY_UPDATE,
    ) -> None:
        """Record the update frames between two positions of a chunk, of endpoints that ``pattern`` finds."""
        if self.asks_data:
            self._record_data(wire.updates(data, start, end, pattern), time, link)
            return
        if (at := data.find(DATA_FIELD, start, end)) >= 0:
            self.unexpected.append(f"data that was not asked for: {data[at : at + 100]!r}")
        self._record_updates(pattern.findall(data, start, end), time, link)

    def _record_data(self, found: Iterable[tuple[bytes, bytes, bytes]], time: float, link: int) -> None:
        for endpoint, digits, rest in found:
            if not rest.startswith(DATA_FIELD):
                self.without_data += rest == b"}"
                self._record_updates([(endpoint, digits)], time, link)
                continue
            self.with_data += 1
            version = int(digits)
            if version > self.announced.get(endpoint, 0):
                self.announced[endpoint] = version
                self.record(Kind.UPDATE, endpoint, version, time=time, link=link)
            if version > self.held.get(endpoint, 0):
                self.held[endpoint] = version
                stamp = stamp_of(rest[len(DATA_FIELD) : -1], endpoint, version)
                self.record(Kind.HELD, endpoint, version, stamp, time=time, link=link)

    def _record_updates(self, found: Iterable[tuple[bytes, bytes]], time: float, link: int) -> None:
        announced, record = self.announced, self.rows.append
        for endpoint, digits in found:
            version = int(digits)
            if version > announced.get(endpoint, 0):
                announced[endpoint] = version
                record((time, "update", endpoint, version, 0, link))
                self.changed(endpoint)

    def record_message(self, message: dict[str, Any], time: float, link: Link) -> None:
        """Record any other message."""
        kind, number = message["type"], link.number
        if kind == "subscribed":
            for name, version in message["endpoints"].items():
                self.record(Kind.SUBSCRIBED, name.encode(), version or 0, time=time, link=number)
            for name in message.get("rejected", ()):
                self.record(Kind.REJECTED, name.encode(), time=time, link=number)
        elif kind in ("unsubscribed", "resync"):
            for name in message["endpoints"]:
                self.record(Kind(kind), name.encode(), time=time, link=number)
                if kind == "resync":
                    self.changed(name.encode())
        elif kind == "status":
            self._status(message, time, link)
        elif kind == "authenticated":
            self.refreshed += 1
        elif kind not in _ANSWERED:
            self.unexpected.append(f"{message}"[:300])

    def ask(self, link: Link, endpoints: set[bytes]) -> None:
        """Subscribe on a connection."""
        if not endpoints:
            return
        now = monotonic()
        known = {endpoint.decode(): self.known(endpoint) or None for endpoint in sorted(endpoints)}
        for name, version in known.items():
            self.record(Kind.SUBSCRIBE, name.encode(), version or 0, time=now, link=link.number)
        more = {"data": True} if self.asks_data and link.offers_data else {}
        link.request("subscribe", known, **more)

    def opened_link(self, link: Link) -> None:
        """Record that a handshake was accepted."""
        self.record(Kind.OPEN, code=int(link.deflate is not None), time=link.opened, link=link.number)

    def violated(self, reason: str) -> None:
        """A server sent what no server may send."""
        self.unexpected.append(reason)

    def ended(self, link: Link, code: int, now: float) -> None:
        """Record the end of a connection that was open."""
        self.record(Kind.RAW, code=link.updates, time=now, link=link.number)
        self.record(Kind.CLOSE, code=code, time=now, link=link.number)
        self.raw += link.updates
        if link.deflate is not None:
            self.compressed += link.deflate.frames

    def _status(self, message: dict[str, Any], time: float, link: Link) -> None:
        live, names = message["live"], message.get("endpoints")
        # A server repeats itself every 25 s; only what changes is recorded.
        if names is None and (live != link.live or (live and link.stale)):
            link.live = live
            link.stale.clear()
            self.record(Kind.STATUS, code=int(live), time=time, link=link.number)
        for name in names or ():
            (link.stale.discard if live else link.stale.add)(name.encode())
            self.record(Kind.STATUS, name.encode(), code=int(live), time=time, link=link.number)
