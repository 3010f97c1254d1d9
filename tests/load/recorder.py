"""The history of a load client: the versions that it was announced, and the recorded events for the oracle."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from random import Random
from time import monotonic
from typing import Any

from diem.client import BaseClient
from diem.process.tasks import on_failure
from diem.protocol.update import DATA_FIELD, GONE_TAIL
from tests.load import wire
from tests.load.contents import GONE, Seen, carried
from tests.load.link import Link, RecordedLink
from tests.oracle.history import LEFT, Event, Kind
from tools.load.client import follow

MAX_EVENTS = 500_000
"""Most events of one client; beyond that the run fails as too long for this harness."""

Row = tuple[float, str, bytes, int, int, int]
"""The fields of an :class:`Event`: a plain tuple, because 25,000 a second are created."""


class HistoryFull(Exception):
    """A client has recorded more than ``MAX_EVENTS``."""


class Recorder(BaseClient):
    """A client that records its history, and holds the announced versions; subclasses may fetch.

    What came on the wire is counted, and what passes the filter is recorded: a greater version than any before. Data is
    recorded as held if its version is greater than that of the data before, also if the version was announced already.
    With ``filtered`` (all-to-all) updates of endpoints only are recorded that were requested on the connection. Without
    it an update for a foreign endpoint is recorded as well, for the oracle to name. Requests, and all other messages,
    are recorded as they are on the wire, whatever the client makes of them.
    """

    link_type = RecordedLink

    def __init__(
        self,
        name: str,
        address: str,
        wants: list[str],
        random: Random,
        *,
        data: bool = False,
        compression: bool = False,
        filtered: bool = False,
    ) -> None:
        self.name = name
        self.address = address
        self.wants = {endpoint.encode() for endpoint in wants}
        self.announced: dict[bytes, int] = {}
        self.held: dict[bytes, int] = {}
        """Versions whose data came with an update, or was fetched."""
        self.lists: dict[int, tuple[str, ...]] = {}
        """What collections listed, by stamp."""
        self.rows: list[Row] = []
        self.links: list[Link] = []
        """The open connections."""
        self.registered: dict[bytes, Link] = {}
        """The connection that confirmed an endpoint last."""
        self.server = ""
        """The name of the server that welcomed it last."""
        self.raw = 0
        """Number of update frames on ended connections."""
        self.requests = 0
        """Number of long polls and event streams."""
        self.refused = 0
        """Number of failed attempts to connect."""
        self.moves = 0
        """Number of redirections of an endpoint by servers."""
        self.asks_data = data
        """Whether it asks servers for the data of updates."""
        self.offers_compression = compression
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
        self.attempted: set[bytes] = set()
        """Endpoints without the right to them that it has subscribed to all the same."""
        self.forbidden = 0
        """Number of refusals of these."""
        self.leaving = False
        self.refreshed = 0
        """Number of tokens that servers have accepted on open connections."""
        self._filtered = filtered
        self._pattern = wire.updates_of(set()) if filtered else wire.ANY_UPDATE
        self._requested: set[bytes] = set()
        self._following: asyncio.Task[None] | None = None

    # What the run asks of it

    def start(self, delay: float) -> None:
        """Connect after ``delay`` seconds."""
        self._following = asyncio.get_running_loop().create_task(self._follow(delay))
        self._following.add_done_callback(on_failure(self.crashed))

    async def _follow(self, delay: float) -> None:
        await asyncio.sleep(delay)
        await follow(self, [endpoint.decode() for endpoint in self.wants], lambda _event, _time: None)

    def leave(self) -> None:
        """Leave for good."""
        self.leaving = True
        if self._following is not None:
            self._following.cancel()

    async def add(self, endpoint: str) -> None:
        """Subscribe to another endpoint."""
        self.wants.add(endpoint.encode())
        await self.subscribe({endpoint: None})

    async def remove(self, endpoint: str) -> None:
        """Unsubscribe from an endpoint."""
        self.wants.discard(endpoint.encode())
        self.record(Kind.UNSUBSCRIBE, endpoint.encode(), time=monotonic())
        await self.unsubscribe([endpoint])

    async def swap(self, old: str, new: str) -> None:
        """Subscribe to ``new`` and unsubscribe from ``old``. No effect while not connected."""
        if self.connected:
            await self.add(new)
            await self.remove(old)

    async def attempt(self, endpoint: str) -> None:
        """Subscribe to an endpoint that the client's token does not cover. No effect while not connected."""
        if self.connected:
            self.attempted.add(endpoint.encode())
            await self.subscribe({endpoint: None})

    def drop(self) -> None:
        """Abort every connection, as a network failure would."""
        for link in self.links:
            link.transport.abort()

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether it is connected to all servers that it needs."""

    @property
    @abstractmethod
    def live(self) -> bool:
        """Whether the client is connected and live."""

    def watch(self) -> None:
        """Check the size of the history; called about once a second. Raises ``HistoryFull``."""
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

    def known(self, name: str) -> int | None:
        """Return the version that the client says that it has when it subscribes."""
        return self.level(name.encode()) or None

    def changed(self, endpoint: bytes) -> None:
        """The client was told of a new version of ``endpoint``: the place to fetch it."""

    # What its connections say

    def record(
        self, kind: Kind, endpoint: bytes = b"", version: int = 0, code: int = 0, *, time: float, link: int = 0
    ) -> None:
        """Record an event."""
        self.rows.append((time, kind.value, endpoint, version, code, link))

    def record_frames(self, data: bytes, start: int, end: int, time: float, link: int) -> None:
        """Record the update frames between two positions of a chunk."""
        if self.asks_data:
            self._record_data(wire.updates(data, start, end, self._pattern), time, link)
            return
        if (at := data.find(DATA_FIELD, start, end)) >= 0:
            self.unexpected.append(f"data that was not asked for: {data[at : at + 100]!r}")
        self._record_updates(self._pattern.findall(data, start, end), time, link)

    def _record_data(self, found: Iterable[tuple[bytes, bytes, bytes]], time: float, link: int) -> None:
        for endpoint, digits, rest in found:
            gone = rest == GONE_TAIL
            if not gone and not rest.startswith(DATA_FIELD):
                self.without_data += rest == b"}"
                self._record_updates([(endpoint, digits)], time, link)
                continue
            self.with_data += not gone
            version = int(digits)
            if version > self.announced.get(endpoint, 0):
                self.announced[endpoint] = version
                self.record(Kind.UPDATE, endpoint, version, time=time, link=link)
            if version > self.held.get(endpoint, 0):
                self.hold(endpoint, version, GONE if gone else carried(rest, endpoint, version), time, link)

    def hold(self, endpoint: bytes, version: int, seen: Seen, time: float, link: int = 0) -> None:
        """Record that the client has the data of a version."""
        self.held[endpoint] = version
        self.record(Kind.HELD, endpoint, version, seen.stamp, time=time, link=link)
        if seen.members is not None:
            self.lists[seen.stamp] = seen.members

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
        match message["type"]:
            case "subscribed":
                self._record_reply(message, time, link)
            case "unsubscribed" | "resync" | "moved":
                self._record_names(message, time, link)
            case "status":
                self._status(message, time, link)
            case "authenticated":
                self.refreshed += link.authenticated
                link.authenticated = True
            case "welcome":
                link.welcomed, self.server = True, message.get("server", "")
            case _:
                self.unexpected.append(f"{message}"[:300])

    def _record_reply(self, message: dict[str, Any], time: float, link: Link) -> None:
        for name, version in message["endpoints"].items():
            self.registered[name.encode()] = link
            self.record(Kind.SUBSCRIBED, name.encode(), version or 0, time=time, link=link.number)
        for name, why in message.get("rejected", {}).items():
            if why["code"] == "not_owner":
                self.moves += 1
            else:
                self.count_refusal(why, name)
            self.record(Kind.REJECTED, name.encode(), time=time, link=link.number)

    def count_refusal(self, why: Mapping[str, Any], name: str) -> None:
        """Count the refusal of an endpoint: only one that the client has no right to may be refused."""
        if why.get("code") == "forbidden" and name.encode() in self.attempted:
            self.forbidden += 1
        else:
            self.unexpected.append(f"{name}: {why}"[:300])

    def _record_names(self, message: dict[str, Any], time: float, link: Link) -> None:
        kind = Kind(message["type"])
        for endpoint in (name.encode() for name in message["endpoints"]):
            self.record(kind, endpoint, code=int(kind == Kind.MOVED), time=time, link=link.number)
            if kind == Kind.MOVED:
                self.moves += 1
            elif kind == Kind.RESYNC:
                self.changed(endpoint)
            elif self.registered.get(endpoint) is link:
                del self.registered[endpoint]
        if kind == Kind.UNSUBSCRIBED:
            self._filter(self._requested.difference(name.encode() for name in message["endpoints"]))

    def sent(self, message: dict[str, Any], link: Link) -> None:
        """Record a request."""
        now = monotonic()
        if message["type"] == "subscribe":
            for name, version in message["endpoints"].items():
                self.record(Kind.SUBSCRIBE, name.encode(), version or 0, time=now, link=link.number)
            self._filter(self._requested.union(name.encode() for name in message["endpoints"]))
        elif message["type"] == "unsubscribe":
            for endpoint in {name.encode() for name in message["endpoints"]} & self.wants:
                # It has the endpoint on another connection now.
                self.record(Kind.MOVED, endpoint, time=now, link=link.number)

    def opened_link(self, link: Link) -> None:
        """Record that a handshake was accepted."""
        self.links.append(link)
        self._filter(set())
        self.record(Kind.OPEN, code=int(link.deflate is not None), time=link.opened, link=link.number)

    def crashed(self, error: BaseException) -> None:
        """Record that the client itself has failed."""
        self.unexpected.append(repr(error))

    def violated(self, reason: str) -> None:
        """A server sent what no server may send."""
        self.unexpected.append(reason)

    def ended(self, link: Link, code: int) -> None:
        """Record the end of a connection that was open."""
        now = monotonic()
        self.links.remove(link)
        self.registered = {endpoint: at for endpoint, at in self.registered.items() if at is not link}
        self.record(Kind.RAW, code=link.updates, time=now, link=link.number)
        self.record(Kind.CLOSE, code=LEFT if self.leaving else code, time=now, link=link.number)
        self.raw += link.updates
        if link.deflate is not None:
            self.compressed += link.deflate.frames

    def _filter(self, requested: set[bytes]) -> None:
        """Record updates of what was requested on the connection: the server sends everything from its start."""
        if self._filtered:
            self._requested = requested
            self._pattern = wire.updates_of(requested)

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
