"""One client of a load test, and the counts of all."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from diem.client import BaseClient, Event
from tools.load.completeness import Holding
from tools.load.delays import Delays

MAX_REASONS: Final = 20
"""Maximum number of distinct reasons; further ones count as ``OTHER_REASONS``."""
OTHER_REASONS: Final = "other reasons"
FIRST_CLOSE_CODE: Final = 1000
"""Lower codes are HTTP statuses of refused handshakes."""
_RETRY: Final = re.compile(r"\s*\bretry=\d+")


async def follow(client: BaseClient, names: Sequence[str], apply: Callable[[Event, float], None]) -> None:
    """Subscribe once, and pass on each event with the Unix time of its arrival.

    Until cancelled, or a server forbids reconnecting.
    """
    async with client:
        await client.subscribe(dict.fromkeys(names))
        async for event in client:
            apply(event, time.time())


class Reasons:
    """Counts of reasons."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, reason: str) -> None:
        """Count a reason, without any requested delay in it."""
        reason = _RETRY.sub("", reason).strip().removesuffix(":")[:200]
        self.counts[reason if reason in self.counts or len(self.counts) < MAX_REASONS else OTHER_REASONS] += 1


class Received:
    """Counts over all clients of a load test.

    An update counts during the measurement, and afterwards if the final catalogue has its version, so as to include
    late ones. Only updates published after their client's subscription count.
    """

    def __init__(self) -> None:
        self.delays = Delays()
        self.updates = 0
        self.refused = Reasons()
        """Why clients could not connect or subscribe, before all their subscriptions were confirmed once."""
        self.rejected = Reasons()
        """Why single endpoints were rejected."""
        self.interrupted = Reasons()
        """Why connections ended afterwards, and why attempts to reconnect failed."""
        self.complete = 0
        """Clients of which all subscriptions were confirmed or rejected once."""
        self._is_measuring = False
        self._latest: Mapping[str, int] = {}

    def measure(self) -> None:
        """Count updates from now on."""
        self._is_measuring = True

    def finish(self, latest: Mapping[str, int]) -> None:
        """Count only updates up to these versions from now on: they were published during the measurement."""
        self._is_measuring, self._latest = False, latest

    def update(self, name: str, version: int, now_s: float) -> None:
        """Count an update that arrived at Unix time ``now_s``."""
        if self._is_measuring or version <= self._latest.get(name, 0):
            self.updates += 1
            self.delays.add(1000 * now_s - version)


class LoadClient:
    """A client that subscribes once and counts received updates."""

    def __init__(self, number: int, names: Sequence[str], before: Mapping[str, int], received: Received) -> None:
        self.number = number
        self.names = names
        self.is_connected = False
        self.is_complete = False
        """Whether all subscriptions were confirmed or rejected once."""
        self._received = received
        self._client: BaseClient | None = None
        self._before = before
        """Versions of the catalogue at the start: what is not greater is no event of the test."""
        self._retained: dict[str, int] = {}
        """Version that the first confirmation of each subscription stated."""
        self._rejected: set[str] = set()
        self._resync: set[str] = set()

    @property
    def is_subscribed(self) -> bool:
        """True if any subscription was confirmed."""
        return bool(self._retained.keys() - self._rejected)

    @property
    def received_bytes(self) -> int:
        """Return the payload bytes received."""
        return 0 if self._client is None else self._client.received_bytes

    async def run(self, client: BaseClient) -> None:
        """Stay connected until cancelled, or until a server forbids reconnecting."""
        self._client = client
        await follow(client, self.names, self.apply)
        self.is_connected = False

    def apply(self, event: Event, now_s: float) -> None:
        """Apply an event received at Unix time ``now_s``."""
        name = event.endpoint or ""
        match event.kind:
            case "update":
                version, retained = event.version or 0, self._retained.get(name)
                self._resync.discard(name)
                if retained is not None and version > max(retained, self._before.get(name, 0)):
                    self._received.update(name, version, now_s)
            case "subscribed":
                self._retained.setdefault(name, event.version or 0)
                self._count_complete()
            case "rejected":
                self._received.rejected.add(event.message)
                self._rejected.add(name)
                self._count_complete()
            case "resync":
                self._resync.add(name)
            case "open":
                self.is_connected = True
            case "closed":
                self.is_connected = False
                self._closed(event)
            case "error":
                self._reasons.add(event.message)

    def _count_complete(self) -> None:
        if not self.is_complete and len(self._retained.keys() | self._rejected) == len(self.names):
            self.is_complete = True
            self._received.complete += 1

    def _closed(self, event: Event) -> None:
        # The text of a refused handshake begins with its status.
        code = "" if event.code is None or event.code < FIRST_CLOSE_CODE else f"{event.code}: "
        self._reasons.add(f"{code}{event.message}" or "no connection")

    @property
    def _reasons(self) -> Reasons:
        return self._received.interrupted if self.is_complete else self._received.refused

    def holdings(self) -> Iterator[Holding]:
        """Yield the latest received version of each endpoint."""
        for name in self.names:
            subscribed = name in self._retained and name not in self._rejected
            known = self._client.known(name) if self._client is not None else None
            yield Holding(self.number, name, known, subscribed, name in self._resync, self.is_connected)
