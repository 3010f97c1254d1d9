"""What every load client is: what it wants, what it was told, and the record of its life that the oracle reads."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from random import Random
from time import monotonic
from typing import Any

from diem.process.backoff import Outage
from diem.protocol.codes import Close
from diem.protocol.traffic import with_client
from tests.load.link import Link
from tests.oracle.history import Event, Kind

BACKOFF_SECONDS, BACKOFF_CAP_SECONDS = 0.5, 30.0
STABLE_SECONDS, HELD_SECONDS = 60.0, 10.0
SILENCE_SECONDS = 60.0
CONNECT_SECONDS = 10.0
MAX_EVENTS = 500_000
"""Events that one client records; then the run is too long for this harness, and says so."""
_ANSWERED = {"subscribed", "unsubscribed", "resync", "status", "welcome"}

Row = tuple[float, str, bytes, int, int, int]
"""An :class:`Event` in the making: plain, because 25,000 a second are made."""


class HistoryFull(Exception):
    """A client has recorded more than it may hold."""


class Subscriber(ABC):
    """A client that holds what it was told, because it does not fetch; a subclass may.

    What came on the wire is counted, and what passes the filter is recorded: a greater version than any before.
    """

    def __init__(self, name: str, address: str, wants: list[str], random: Random) -> None:
        self.name = name
        self.address = address
        self.wants = {endpoint.encode() for endpoint in wants}
        self.told: dict[bytes, int] = {}
        self.rows: list[Row] = []
        self.raw = 0
        """Update frames on connections that have ended."""
        self.refused = 0
        """Attempts to connect that came to nothing."""
        self.unexpected: list[str] = []
        """What servers said that they never should to this client."""
        self.random = random
        self.leaving = False

    def named(self, url: str) -> str:
        """The URL, or path, as this client dials it: by its name in the query all its connections are one client's."""
        return with_client(url, f"load-client-{self.name}")

    # What the run asks of it

    @abstractmethod
    def start(self, delay: float) -> None:
        """Connect after ``delay`` seconds."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open and begin nothing."""

    @abstractmethod
    def swap(self, old: str, new: str) -> None:
        """Look at another endpoint: subscribe to ``new``, unsubscribe from ``old``. Nothing while not connected."""

    @abstractmethod
    def drop(self) -> None:
        """Lose every connection, as a network loses them."""

    @abstractmethod
    def look(self, now: float) -> None:
        """Called about once a second: gives up servers that do not welcome, or say nothing."""

    @property
    @abstractmethod
    def links(self) -> list[Link]:
        """The connections that are open now."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether a server has taken it."""

    @property
    @abstractmethod
    def live(self) -> bool:
        """Whether it is connected, and told of everything as it happens."""

    def leave(self) -> None:
        """Go for good."""
        self.leaving = True
        self.close()

    def watch(self, now: float) -> None:
        """Called about once a second. Raises ``HistoryFull``."""
        self.look(now)
        if len(self.rows) > MAX_EVENTS:
            raise HistoryFull(f"client {self.name} has more than {MAX_EVENTS} events")

    def count(self, time: float) -> None:
        """Record what came on the connections that are open."""
        for link in self.links:
            self.record(Kind.RAW, code=link.updates, time=time, link=link.number)

    def events(self) -> list[Event]:
        """All that was recorded."""
        return [Event(time, kind, endpoint.decode(), *more) for time, kind, endpoint, *more in self.rows]

    def level(self, endpoint: bytes) -> int:
        """The version of ``endpoint`` that the client knows of."""
        return self.told.get(endpoint, 0)

    def known(self, endpoint: bytes) -> int:
        """The version that the client holds, which it says when it subscribes."""
        return self.told.get(endpoint, 0)

    def changed(self, endpoint: bytes) -> None:  # noqa: B027 - who does not fetch has nothing to do
        """The client was told of a new version of ``endpoint``: the place to fetch it."""

    # What its connections say

    def record(
        self, kind: Kind, endpoint: bytes = b"", version: int = 0, code: int = 0, *, time: float, link: int = 0
    ) -> None:
        """Record an event."""
        self.rows.append((time, kind.value, endpoint, version, code, link))

    def take_updates(self, found: Iterable[tuple[bytes, bytes]], time: float, link: int = 0) -> None:
        """Take the endpoints and versions of update frames."""
        told, record = self.told, self.rows.append
        for endpoint, digits in found:
            version = int(digits)
            if version > told.get(endpoint, 0):
                told[endpoint] = version
                record((time, "update", endpoint, version, 0, link))
                self.changed(endpoint)

    def take_message(self, message: dict[str, Any], time: float, link: Link) -> None:
        """Record what any other message says."""
        kind, number = message["type"], link.number
        if kind == "subscribed":
            for name, version in message["endpoints"].items():
                self.record(Kind.SUBSCRIBED, name.encode(), version or 0, time=time, link=number)
            for name in message.get("rejected", ()):
                self.record(Kind.REJECTED, name.encode(), time=time, link=number)
        elif kind == "unsubscribed":
            for name in message["endpoints"]:
                self.record(Kind.UNSUBSCRIBED, name.encode(), time=time, link=number)
        elif kind == "resync":
            for name in message["endpoints"]:
                self.record(Kind.RESYNC, name.encode(), time=time, link=number)
                self.changed(name.encode())
        elif kind == "status":
            self._status(message, time, link)
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
        link.request("subscribe", known)

    def ended(self, link: Link, code: int, now: float) -> None:
        """Record the end of a connection that was open."""
        self.record(Kind.RAW, code=link.updates, time=now, link=link.number)
        self.record(Kind.CLOSE, code=code, time=now, link=link.number)
        self.raw += link.updates

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


def window(failures: int) -> float:
    """Seconds within which to try again after so many failures."""
    return min(BACKOFF_CAP_SECONDS, BACKOFF_SECONDS * 2.0**failures)


class Redial:
    """When to dial again (docs/protocol.md section 1)."""

    def __init__(self, random: Random) -> None:
        self.failures = 0
        self._outage = Outage(monotonic(), HELD_SECONDS)
        self._random = random

    def lost(self, opened: float, now: float) -> None:
        """A connection that was open since ``opened`` has ended."""
        self._outage.lost(now, now - opened)
        if now - opened > STABLE_SECONDS:
            self.failures = 0

    def delay(self, now: float, code: int, reason: str) -> float:
        """Seconds until the next attempt; a close reason may give another window."""
        within = min(window(self.failures), max(BACKOFF_SECONDS, self._outage.seconds(now)))
        if hint := re.search(r"retry=(\d+)", reason):
            within = int(hint[1]) / 1000
        # A server that restarts in order has not failed.
        self.failures += code != Close.RESTART
        return self._random.random() * within
