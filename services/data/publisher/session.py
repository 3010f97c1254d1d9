"""Publishing over one connection: takes in the store's changes, marks, passes over everything, keeps the cursor."""

import asyncio
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Protocol

import structlog

from diem.fanout.change_map import ChangeMap
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import MapReader
from diem.kafka.topics import check_room, used_partitions
from diem.protocol.partition_map import Phase
from services.data.publisher.backlog import PublisherState
from services.data.publisher.log import Log
from services.data.publisher.log_monitor import LogMonitor
from services.data.publisher.senders import PartitionSenders
from services.data.store.tables import Cursor

MAX_CHANGES: Final = 2000
"""Changes taken from the store at once."""
CHECK_EVERY_S: Final = 10.0
LOOK_EVERY_S: Final = 2.0
"""Between two looks whether the topic is still the same."""
KEEP_EVERY_S: Final = 1.0
MARK_EVERY_S: Final = 2.0
"""Between two marks in a partition; bridges that have seen one do without for 6 s."""
ACKNOWLEDGED: Final = frozenset({Phase.PREPARE, Phase.RETIRE})
"""Phases that end when the publisher has said so."""
TICK_S: Final = 0.1
START_SPREAD_S: Final = 60.0
PASS_EVERY_S: Final = 6 * 3600.0
PASS_SPREAD_S: Final = 3600.0


class PublishedStore(Protocol):
    """What is published: the store of the Data Service."""

    cursor: Cursor | None

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint."""
        ...

    def keep_cursor(self, cursor: Cursor) -> None:
        """Remember, with one of the next commits, how far the log is."""
        ...


def names(store: PublishedStore) -> list[bytes]:
    """All endpoints of a store, in the order of their latest changes."""
    return [change.endpoint for change in store.changes.after(0, len(store.changes))]


class PublisherSession:
    """One connection's worth of publishing. Every task of it ends with an exception, and all end then."""

    def __init__(
        self,
        store: PublishedStore,
        progress: PublisherState,
        log: Log,
        reader: MapReader,
        *,
        new: asyncio.Event,
        hot: Collection[bytes] = (),
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._progress = progress
        self._backlog = progress.backlog
        self._log = log
        self._reader = reader
        self._map_changed = asyncio.Event()
        reader.on_changed = self._map_changed.set
        self._new = new
        self._hot = hot
        self._on_written = on_written
        self._landed = asyncio.Event()
        self._lanes = PartitionSenders(log, progress, store.changes, self._on_landed)
        self._checks = LogMonitor(log, progress, self._lanes)

    async def run(self) -> None:
        """Publish until something is wrong.

        Raises:
            LogReplaced: start over with another log.
            WrongTopic: a topic would lose updates, or the map uses partitions that the log has not.
            KafkaError, KafkaUnavailable, LeaderMoved, OSError, TimeoutError: connect again.
        """
        for lane in self._backlog.lanes:
            lane.failed()
        # Before anything of ours: a record that comes from elsewhere after this is noticed.
        await self._compare()
        self._checks.warn_of_another_store()
        work = [self._lanes.run(number) for number in range(len(self._backlog.lanes))]
        work += [self._take_in(), self._mark(), self._check(), self._look(), self._keep(), self._passes()]
        work += [self._reader.run(), self._follow(), self._acknowledge(), self._check_settings()]
        tasks = [asyncio.create_task(one) for one in (*work, self._checks.watch_leaders())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_in(self) -> None:
        while True:
            self._new.clear()
            while found := self._store.changes.after(self._backlog.read, MAX_CHANGES):
                self._lanes.wake(self._backlog.take_in(found))
                await asyncio.sleep(0)
            await self._new.wait()

    async def _follow(self) -> None:
        """Write by a newer map as soon as all of it was read."""
        while True:
            await self._map_changed.wait()
            self._map_changed.clear()
            newer = self._reader.map
            if newer is None or not self._reader.caught_up or newer == self._backlog.map:
                continue
            if used_partitions(newer) > len(self._backlog.lanes) - 1:
                # The topic has grown for this map, as a rule: it is opened again at once, with all of them.
                await self._checks.same()
            check_room(self._log.topic, len(self._backlog.lanes) - 1, newer)
            self._lanes.wake(self._backlog.follow(newer, names(self._store)))
            self._landed.set()
            structlog.get_logger("publisher").info("following another map", **newer.head._asdict())

    def _on_landed(self) -> None:
        self._landed.set()
        self._on_written()

    async def _acknowledge(self) -> None:
        """Say of every epoch that the log has what it asks for: whoever moves endpoints waits for that."""
        said: int | None = None
        while True:
            self._landed.clear()
            head = self._backlog.map.head
            if head.phase in ACKNOWLEDGED and head.epoch != said and self._backlog.settled:
                await self._log.acknowledge(head.epoch, self._backlog.unknown(self._is_known))
                said = head.epoch
                structlog.get_logger("publisher").info("acknowledged the partition map", **head._asdict())
            await self._landed.wait()

    def _is_known(self, endpoint: bytes) -> bool:
        return endpoint in self._hot or self._store.changes.get(endpoint) is not None

    async def _mark(self) -> None:
        """Say in every lane that it has all that was accepted: what a bridge's beats stand on."""
        while True:
            self._lanes.mark()
            await asyncio.sleep(MARK_EVERY_S)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._checks.same()

    async def _check_settings(self) -> None:
        """Whether the topics are still such that nothing is lost in them: first soon after they were opened."""
        pause = LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause)
            # What the brokers do not say now is asked again; that they are away is noticed elsewhere.
            with suppress(KafkaUnavailable):
                await self._log.check_settings()
            pause = CHECK_EVERY_S

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await self._compare()

    async def _compare(self) -> None:
        if lanes := await self._checks.foreign():
            self._repeat([name for name in names(self._store) if not lanes.isdisjoint(self._backlog.homes(name))])

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            cursor = Cursor(self._progress.source, self._backlog.cursor)
            if cursor != self._store.cursor:
                self._store.keep_cursor(cursor)

    async def _passes(self) -> None:
        """Everything once more after a start, and every 6 h: a late request of a dead publisher does not stay last."""
        if self._progress.repeat:
            await self._pass(START_SPREAD_S)
            self._progress.repeat = False
        while True:
            await asyncio.sleep(PASS_EVERY_S * random.uniform(0.9, 1.1))  # noqa: S311  # jitter is no secret
            await self._pass(PASS_SPREAD_S)

    async def _pass(self, seconds: float) -> None:
        all_ = names(self._store)
        share = max(1, round(len(all_) * TICK_S / seconds))
        for start in range(0, len(all_), share):
            self._repeat(all_[start : start + share])
            await asyncio.sleep(TICK_S)

    def _repeat(self, endpoints: Collection[bytes]) -> None:
        self._lanes.wake(self._backlog.again(endpoints))
