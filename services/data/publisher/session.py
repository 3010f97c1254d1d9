"""Tasks of one connection to the log: ingest, send, watermarks, map, checks, cursor, regular resync."""

import asyncio
import random
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from typing import Final

import structlog
from aiokafka.errors import TopicAuthorizationFailedError

from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import MapReader
from diem.kafka.topics import check_room, used_partitions
from diem.process.tasks import run_until
from diem.process.tracing import TracedUpdates
from diem.protocol.partition_map import Phase
from diem.protocol.update import UPDATE
from services.data.publisher.backlog import LogReplaced, PublisherState, StorePutBack
from services.data.publisher.forgetting import Forgetter
from services.data.publisher.log import Log
from services.data.publisher.log_monitor import LogMonitor
from services.data.publisher.senders import PartitionSenders
from services.data.publisher.store_view import PublishedStore

MAX_CHANGES: Final = 2000
"""Changes ingested in one step of the event loop."""
CHECK_EVERY_S: Final = 10.0
BOUNDS_EVERY_S: Final = 5.0
"""Interval of comparing the bounds of the logs with the records written."""
TOPIC_CHECK_EVERY_S: Final = 2.0
"""Interval of checks for a replaced topic."""
CURSOR_EVERY_S: Final = 1.0
OFFSETS_EVERY_S: Final = 600.0
"""Interval of persisting offsets changed only by watermarks and resends."""
WATERMARK_EVERY_S: Final = 2.0
"""Interval of watermarks in each partition; a bridge stays live for 6 s after one."""
ACKNOWLEDGED: Final = frozenset({Phase.PREPARE, Phase.RETIRE})
"""Phases ended by the publisher's acknowledgement."""
TICK_S: Final = 0.1
START_SPREAD_S: Final = 60.0
RESYNC_EVERY_S: Final = 6 * 3600.0
RESYNC_SPREAD_S: Final = 3600.0


def all_endpoints(store: PublishedStore) -> list[bytes]:
    """Return all endpoints of the store, in the order of their latest changes."""
    return [change.endpoint for change in store.changes.after(0, len(store.changes))]


class PublisherSession:
    """The tasks of one connection. Each ends only with an exception; the first ends all."""

    def __init__(
        self,
        store: PublishedStore,
        state: PublisherState,
        log: Log,
        reader: MapReader,
        *,
        changed: asyncio.Event,
        hot: Collection[bytes] = (),
        on_written: Callable[[], None] = lambda: None,
        traces: TracedUpdates | None = None,
    ) -> None:
        self._store = store
        self._state = state
        self._backlog = state.backlog
        self._log = log
        self._reader = reader
        self._map_changed = asyncio.Event()
        reader.on_changed = self._map_changed.set
        self._changed = changed
        self._hot = hot
        self._on_written = on_written
        self._acknowledged = asyncio.Event()
        self._senders = PartitionSenders(log, state, store, self._on_acknowledged, traces)
        self._log_monitor = LogMonitor(log, state, self._senders)
        self._forgetter = Forgetter(store, state, log, self._senders)

    async def run(self) -> None:
        """Publish until a fault.

        Raises:
            LogReplaced: start over with another log.
            WrongTopic: a topic would lose updates, or the map uses partitions missing in the log.
            StorePutBack: the log has later versions than the store.
            KafkaError, KafkaUnavailable, LeaderMoved, OSError, TimeoutError: reconnect.
        """
        for queue in self._backlog.queues:
            queue.requeue()
        await self._check_store()
        # Before the first request, to detect foreign records from here on.
        await self._compare()
        self._log_monitor.warn_of_another_store()
        work = [self._senders.run(number) for number in range(len(self._backlog.queues))]
        work += [self._ingest(), self._write_watermarks(), self._write_cursor(), self._resync_regularly()]
        work.append(self._forgetter.run())
        work += [self._compare_ends(), self._check_topics()]
        work += [self._reader.run(), self._follow_map(), self._acknowledge_epochs(), self._check_settings()]
        await run_until(asyncio.FIRST_EXCEPTION, [*work, self._log_monitor.watch_leaders()])

    async def _check_store(self) -> None:
        """Compare the store, once per process, with the log beyond the offsets kept in the store.

        The rollback guard's file may have been restored with the store; the log was not. Updates are stored before
        publishing, so a later version in the log proves that the store has lost it.
        """
        if not self._state.unread:
            return
        try:
            await self._compare_store()
        except TopicAuthorizationFailedError:
            structlog.get_logger("publisher").warning(
                "the log may not be read, so a store that was put back with its guard stays unnoticed: grant Read",
                topic=self._log.topic,
            )
        self._state.unread.clear()

    async def _compare_store(self) -> None:
        changes = self._store.changes
        async for number, update in self._log.updates(self._state.unread):
            known = changes.get(update.endpoint)
            forgotten = known is None and update.version <= self._store.version_floor
            if (known is None and update.kind == UPDATE and not forgotten) or (
                known is not None and update.version > known.version
            ):
                name = update.endpoint.decode()
                self._store.log_is_ahead(name, update.version)
                raise StorePutBack(f"{self._log.name(number)} has a later version of {name} than the store")

    async def _ingest(self) -> None:
        while True:
            self._changed.clear()
            while found := self._store.changes.after(self._backlog.ingested, MAX_CHANGES):
                self._senders.wake(self._backlog.ingest(found))
                await asyncio.sleep(0)
            await self._changed.wait()

    async def _follow_map(self) -> None:
        """Switch to a newer map as soon as it is read completely."""
        while True:
            await self._map_changed.wait()
            self._map_changed.clear()
            newer = self._reader.map
            if self._reader.caught_up and (self._reader.is_cut or not self._reader.is_complete):
                self._state.map = None
                raise LogReplaced("records of the partition map are missing: writing it again")
            if newer is None or not self._reader.caught_up or newer == self._backlog.map:
                continue
            if used_partitions(newer) > len(self._backlog.queues) - 1:
                # As a rule the topic has grown for this map: LogReplaced reopens it with all partitions.
                await self._log_monitor.check_topics()
            check_room(self._log.topic, len(self._backlog.queues) - 1, newer)
            self._senders.wake(self._backlog.switch_map(newer, all_endpoints(self._store)))
            self._acknowledged.set()
            structlog.get_logger("publisher").info("following another map", **newer.head._asdict())

    def _on_acknowledged(self) -> None:
        self._acknowledged.set()
        self._forgetter.on_acknowledged()
        self._on_written()

    async def _acknowledge_epochs(self) -> None:
        """Acknowledge every epoch once the log is complete for it, as awaited by migrations."""
        acknowledged_epoch: int | None = None
        while True:
            self._acknowledged.clear()
            head = self._backlog.map.head
            if head.phase in ACKNOWLEDGED and head.epoch != acknowledged_epoch and self._backlog.stable:
                await self._log.acknowledge(head.epoch, self._backlog.unknown(self._is_known))
                acknowledged_epoch = head.epoch
                structlog.get_logger("publisher").info("acknowledged the partition map", **head._asdict())
            await self._acknowledged.wait()

    def _is_known(self, endpoint: bytes) -> bool:
        return endpoint in self._hot or self._store.changes.get(endpoint) is not None

    async def _write_watermarks(self) -> None:
        """Write watermarks once all accepted changes are in the log; bridges report live only while they arrive."""
        while True:
            self._senders.request_watermarks()
            await asyncio.sleep(WATERMARK_EVERY_S)

    async def _check_topics(self) -> None:
        while True:
            await asyncio.sleep(TOPIC_CHECK_EVERY_S)
            await self._log_monitor.check_topics()

    async def _check_settings(self) -> None:
        """Check regularly, first soon after opening, that the topics' settings lose no updates."""
        pause = TOPIC_CHECK_EVERY_S
        while True:
            await asyncio.sleep(pause)
            # Retried at the next interval; other tasks notice that brokers are unavailable.
            with suppress(KafkaUnavailable):
                lesser = await self._log.check_settings()
                if lesser and lesser != self._state.lesser_faults:
                    structlog.get_logger("publisher").warning("topics have other settings than ours", faults=lesser)
                self._state.lesser_faults = lesser
            pause = CHECK_EVERY_S

    async def _compare_ends(self) -> None:
        while True:
            await asyncio.sleep(BOUNDS_EVERY_S)
            await self._compare()

    async def _compare(self) -> None:
        if queues := await self._log_monitor.find_incomplete():
            # Before anything is ingested, everything is about to be.
            queues = await self._forgetter.find_forgotten(queues)
            every = all_endpoints(self._store) if self._backlog.ingested else []
            self._resend([name for name in every if not queues.isdisjoint(self._backlog.homes(name))])
            for number in queues:
                self._state.trackers[number].resending()

    async def _write_cursor(self) -> None:
        kept: Hashable = None
        while True:
            await asyncio.sleep(CURSOR_EVERY_S)
            # Rarely for watermarks alone: an idle store writes little, and the next process reads the rest.
            period = asyncio.get_running_loop().time() // OFFSETS_EVERY_S
            current = self._state.source, self._backlog.cursor, self._state.proven, period
            if current != kept:
                kept = current
                self._store.keep_cursor(self._state.cursor)

    async def _resync_regularly(self) -> None:
        """Resend everything after a start and every 6 h, lest a dead publisher's late request stay last."""
        if self._state.resend_all:
            await self._full_resync(START_SPREAD_S)
            self._state.resend_all = False
        while True:
            await asyncio.sleep(RESYNC_EVERY_S * random.uniform(0.9, 1.1))  # noqa: S311  # jitter is no secret
            await self._full_resync(RESYNC_SPREAD_S)

    async def _full_resync(self, seconds: float) -> None:
        everything = all_endpoints(self._store)
        share = max(1, round(len(everything) * TICK_S / seconds))
        for start in range(0, len(everything), share):
            self._resend(everything[start : start + share])
            await asyncio.sleep(TICK_S)

    def _resend(self, endpoints: Collection[bytes]) -> None:
        self._senders.wake(self._backlog.resend(endpoints))
