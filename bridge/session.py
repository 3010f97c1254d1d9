"""Serves one reader from Kafka: consumers come and go, the link and the positions written to it stay."""

import asyncio
import time
from typing import Final

import structlog
from aiokafka.errors import OffsetOutOfRangeError

from bridge.consumer import FAULTS, consuming
from bridge.consumer_loop import ConsumerLoop
from bridge.link import BridgeLink
from bridge.map_feed import MapFeed
from bridge.owners_feed import OwnersFeed
from bridge.positions import Positions
from bridge.state import BridgeState
from bridge.stream_state import StreamState
from diem.process.backoff import full_jitter
from diem.protocol import feed
from diem.protocol.codes import Close

RETRY_BASE: Final = 0.2
RETRY_CAP: Final = 3.0


class FeedSession:
    """From a reader's ``resume`` to the end of its link."""

    def __init__(self, link: BridgeLink, source: str, resume: feed.Resume, shared: BridgeState) -> None:
        self.source = source
        self._link = link
        self._shared = shared
        self._told = StreamState(link, source, resume, shared)
        self._reading: ConsumerLoop | None = None
        self._known = asyncio.Event()
        self._map: MapFeed | None = None
        self._owners: OwnersFeed | None = None
        if shared.group is not None and shared.map_name is not None:
            self._map = MapFeed(link, shared.map_name, shared.group.map)
            self._owners = OwnersFeed(link, shared.options, shared.group.membership)
        self._log = structlog.get_logger("bridge")

    @property
    def positions(self) -> Positions:
        """Where each name is."""
        return self._told.positions

    def names_changed(self) -> None:
        """The group has given out partitions, or the topic has more of them."""
        self._known.set()
        if self._reading is not None and self._shared.names != self._told.names:
            self._reading.names_changed()
        if self._owners is not None:
            self._owners.changed()

    def map_changed(self) -> None:
        """The partition map is another one."""
        if self._map is not None:
            self._map.changed()

    async def run(self) -> None:
        """Serve until cancelled, with one consumer after another if need be."""
        while (names := self._shared.names) is None:
            self._known.clear()
            await self._known.wait()
        self._told.first_names(names)
        others = [asyncio.create_task(each.run()) for each in (self._map, self._owners) if each is not None]
        for other in others:
            other.add_done_callback(self._other_ended)
        try:
            await self._serve()
        finally:
            for other in others:
                other.cancel()
            if others:
                await asyncio.wait(others)

    def _other_ended(self, other: asyncio.Task[None]) -> None:
        """Only the session ends them: a server that hears no more of the map would serve by an old one for ever."""
        if not other.cancelled() and (error := other.exception()) is not None:
            self._log.error("part of a session failed, link closed", exc_info=error)
            self._link.connection.close(Close.RESTART, "part of the session failed")

    async def _serve(self) -> None:
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                await self._read()
            except OffsetOutOfRangeError:
                # The log is not the one that was read: the server dials again, and is served by what is there then.
                self._log.warning("offset out of range, link closed", positions=self._told.next)
                self._shared.watch.hurry()
                self._link.connection.close(Close.RESTART, "offset out of range")
                return
            except FAULTS as error:
                self._failed(f"{type(error).__name__} {error}".strip())
            except Exception as error:  # noqa: BLE001  # the client library fails in more ways than its own errors
                self._log.exception("consumer failed")
                self._failed(type(error).__name__)
            attempt = 0 if time.monotonic() - began > RETRY_CAP else attempt + 1
            await asyncio.sleep(full_jitter(attempt, RETRY_BASE, RETRY_CAP))

    async def _read(self) -> None:
        shared = self._shared
        self._reading = None
        async with consuming(shared.options, shared.own_group, shared.watch.partitions + 1) as consumer:
            # From here on the reading hears of other names by itself.
            if (names := shared.names) is not None:
                self._told.rename(names)
            self._reading = ConsumerLoop(consumer, self._link, self._told, shared, self._map_is_told)
            await self._reading.run()

    def _map_is_told(self) -> bool:
        return self._map is None or self._map.may_beat

    def _failed(self, fault: str) -> None:
        if self._shared.fault is None:
            self._log.warning("Kafka cannot be read now, trying on", error=fault)
        self._shared.fault = fault
        self._shared.watch.hurry()
        if self._reading is not None and self._reading.begun:
            self._shared.recreated += 1
