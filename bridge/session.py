"""Serves one reader from Kafka, from its ``resume`` to the end of its link, which may outlive several consumers."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from bridge.consumer import (
    FAULTS,
    FetchedBatches,
    OffsetCommitter,
    assign,
    bounds,
    consuming,
    name_of,
    partition_of,
    poll,
    refresh_leaders,
)
from bridge.group_member import Membership
from bridge.link import BridgeLink
from bridge.partition_state import LogChanged, PartitionTable, ReaderOutdated
from bridge.records import RecordEncoder, TracedRecord, noting_traces
from bridge.side_channels import MapFeed, MapSource, OwnersFeed
from bridge.topic_watcher import TopicWatcher
from diem.kafka.config import KafkaOptions
from diem.process.backoff import Backoff
from diem.process.tracing import Tracer
from diem.protocol import feed
from diem.protocol.codes import Close

RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0
TURN_RECORDS: Final = 1000
"""Records after which a session writes, and lets pings be answered: a poll may return a hundred thousand."""
TICK_S: Final = 1.0
"""Interval of heartbeats, commits and the watchdog."""
BOUNDS_WAIT_S: Final = 0.25
"""Pause of reading to look up the bounds of newly assigned logs, so that usually all are assigned in one step."""

Lookup = asyncio.Task[dict[str, tuple[int, int]]]
"""A request for the bounds of logs."""


@dataclass(slots=True)
class GroupState:
    """Additional state of a bridge in a group: its membership, and the map to forward."""

    membership: Membership
    map: MapSource


@dataclass(slots=True)
class BridgeState:
    """Everything that outlives a session."""

    options: KafkaOptions
    own_group: str | None
    """Consumer group to commit positions to, unless it is the membership's."""
    watcher: TopicWatcher
    records: RecordEncoder
    group: GroupState | None = None
    """None: this bridge reads all partitions."""
    partitions: PartitionTable = field(default_factory=PartitionTable)
    """Partitions of the last reader, which the next one inherits from."""
    commits: OffsetCommitter = field(default_factory=OffsetCommitter)
    tracer: Tracer | None = None
    """None: records' contexts of traces are not read."""
    generation: int = 0
    """Readers whose source has a lesser one start over: they may have missed deletions that the log has forgotten."""
    recreated: int = 0
    """Consumers replaced while a reader was served."""
    heartbeat_at: float = float("-inf")
    """When the last heartbeat was sent."""
    fault: str | None = None
    """Why the current reader is not served."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The streams to read; None until the group has assigned partitions."""
        return self.watcher.names if self.group is None else self.group.membership.names


class FeedSession:
    """Feeds one reader: replaces failed consumers, and continues at the positions that were written to the link."""

    def __init__(self, link: BridgeLink, source: str, resume: feed.Resume, bridge: BridgeState) -> None:
        self.source = source
        self.partitions = PartitionTable()
        """Empty until the first assignment."""
        self._link = link
        self._bridge = bridge
        self._with_data = resume.data
        self._tracer = bridge.tracer if resume.traces else None
        of, generation = feed.split_source(resume.source or "")
        resumes = of == source and generation >= bridge.generation
        self._resume_positions = resume.positions if resumes else {}
        self._generation = generation if resumes else bridge.generation
        self._assigned = asyncio.Event()
        self._reassigned = False
        self._interrupt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = False
        self._lookup: Lookup | None = None
        self._map: MapFeed | None = None
        self._owners: OwnersFeed | None = None
        if bridge.group is not None:
            self._map = MapFeed(link, f"{bridge.options.names.partition_map}/0", bridge.group.map)
            self._owners = OwnersFeed(link, bridge.options, bridge.group.membership)
        self._log = structlog.get_logger("bridge")

    def on_assignment(self, names: tuple[str, ...]) -> None:
        """Read ``names`` from now on: the group has assigned partitions, or the topic has gained some."""
        self._assigned.set()
        if names != self.partitions.names:
            self._reassigned = True
            if not self._interrupt.done():
                self._interrupt.set_result(None)
        if self._owners is not None:
            self._owners.on_assignment()

    def leave(self) -> None:
        """Leave the group but keep serving the reader, which is sent the owners once others have its partitions."""
        if self._bridge.group is not None and self._owners is not None:
            self._owners.on_leave()
            self._bridge.group.membership.leave()

    async def run(self) -> None:
        """Serve until cancelled."""
        bridge = self._bridge
        while (names := bridge.names) is None:
            self._assigned.clear()
            await self._assigned.wait()
        served = None if bridge.options.served is None else self.source
        self.partitions = bridge.partitions = PartitionTable(
            names, self._resume_positions, bridge.partitions, served=served
        )
        self._send_hello()
        side_channels = [asyncio.create_task(each.run()) for each in (self._map, self._owners) if each is not None]
        for task in side_channels:
            task.add_done_callback(self._on_side_channel_end)
        try:
            await self._consume_forever()
        finally:
            for task in side_channels:
                task.cancel()
            if side_channels:
                await asyncio.wait(side_channels)

    def _send_hello(self) -> None:
        map_ = () if self._map is None else (self._map.name,)
        self._link.send(feed.Hello(feed.store_source(self.source, self._generation), (*self.partitions.names, *map_)))

    def _on_side_channel_end(self, task: asyncio.Task[None]) -> None:
        """Close the link: without map updates, a server would use an outdated map forever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("part of a session failed, link closed", exc_info=error)
            self._link.connection.close(Close.RESTART, "part of the session failed")

    # Consumers

    async def _consume_forever(self) -> None:
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S, stable_s=RETRY_CAP_S)
        while True:
            began = time.monotonic()
            self._reading = False
            try:
                async with consuming(
                    self._bridge.options, self._bridge.own_group, self._bridge.watcher.partitions + 1
                ) as consumer:
                    await self._consume(consumer)
            except OffsetOutOfRangeError:
                # The log was replaced or truncated: the reader reconnects and is served the current one.
                self._log.warning("offset out of range, link closed", positions=self.partitions.positions)
                self._bridge.watcher.check_now()
                self._link.connection.close(Close.RESTART, "offset out of range")
                return
            except ReaderOutdated as error:
                self._log.warning("reader starts over", reason=str(error), positions=self.partitions.positions)
                self._bridge.generation = self._generation + 1
                self._link.connection.close(Close.RESTART, "deleted endpoints were forgotten")
                return
            except LogChanged as error:
                self._log.warning("reading from the beginning", reason=str(error), positions=self.partitions.positions)
            except FAULTS as error:
                self._on_fault(f"{type(error).__name__} {error}".strip())
            except Exception as error:  # noqa: BLE001  # the client library raises more than its own errors
                self._log.exception("consumer failed")
                self._on_fault(type(error).__name__)
            await asyncio.sleep(backoff.next_delay(time.monotonic() - began))

    def _on_fault(self, fault: str) -> None:
        if self._bridge.fault is None:
            self._log.warning("Kafka cannot be read, retrying", error=fault)
        self._bridge.fault = fault
        self._bridge.watcher.check_now()
        if self._reading:
            self._bridge.recreated += 1

    async def _consume(self, consumer: AIOKafkaConsumer) -> None:
        """Read with one consumer until it stalls.

        Raises:
            KafkaError: or any other error of the client library.
        """
        partitions = self.partitions
        self._apply_assignment()
        partitions.begin(await bounds(consumer, partitions.names), time.monotonic())
        assign(consumer, partitions.positions)
        self._reading = True
        self._send_caught_up(consumer)
        tick_at = time.monotonic() + TICK_S
        try:
            while True:
                await self._wait_writable()
                while self._reassigned:
                    self._apply_assignment()
                    await self._open_gained(consumer)
                self._open_found(consumer)
                if self._interrupt.done():
                    self._interrupt = asyncio.get_running_loop().create_future()
                await self._send_all(
                    await poll(consumer, max(0.0, tick_at - time.monotonic()), self._interrupt), consumer
                )
                if time.monotonic() >= tick_at:
                    tick_at = time.monotonic() + TICK_S
                    self._find_missing(consumer)
                    if self._tick(consumer):
                        return
        finally:
            if self._lookup is not None:
                self._lookup.cancel()
                self._lookup = None
            await self._bridge.commits.close()

    async def _send_all(self, fetches: list[FetchedBatches], consumer: AIOKafkaConsumer) -> None:
        """Write what a poll has fetched, until the assignment changes.

        All partitions are one write, so that the server reads them together, and writes once to each client.
        """
        records = 0
        for fetched in fetches:
            if self._reassigned:
                # Fetched again from its position if still assigned.
                break
            records += fetched.next - self.partitions[name_of(fetched.partition)].position
            confirmed = await self._send(fetched)
            self._send_caught_up(consumer)
            if confirmed:
                self._send_first_heartbeat(consumer)
            if records >= TURN_RECORDS:
                records = 0
                self._link.connection.flush()
                await asyncio.sleep(0)
        self._link.connection.flush()

    async def _wait_writable(self) -> None:
        if self._link.paused:
            await self._link.wait_writable()
            self.partitions.watched_since = time.monotonic()

    async def _send(self, fetched: FetchedBatches) -> bool:
        """Write a fetch to the link, its last batch with the next message.

        Return whether it brought its partition's first valid watermark.
        """
        name = name_of(fetched.partition)
        state = self.partitions[name]
        records, traced, start_ns = fetched.records, dict[bytes, TracedRecord](), 0
        if self._tracer is not None:
            start_ns = time.time_ns()
            records = noting_traces(records, state.position, start_ns // 1_000_000, traced)
        (*batches, last), resyncs, watermarks = self._bridge.records.encode(
            name,
            state.position,
            fetched.next,
            records,
            resumable=None if state.served else state.resumable,
            with_data=self._with_data,
        )
        await self._wait_writable()
        if traced and self._tracer is not None:
            self._send_traces(self._tracer, fetched.partition, traced, start_ns)
        for batch in batches:
            await self._wait_writable()
            self._link.connection.send_binary(batch)
        for text in resyncs:
            self._link.connection.send_text(text)
        await self._wait_writable()
        self._link.connection.hold_binary(last)
        now, confirmed = time.monotonic(), state.confirmed
        state.advance(fetched.next, now)
        for watermark in watermarks:
            state.apply_watermark(watermark.offset, watermark.proof, now)
        return state.confirmed and not confirmed

    def _send_traces(
        self, tracer: Tracer, partition: TopicPartition, traced: dict[bytes, TracedRecord], start_ns: int
    ) -> None:
        """Send the contexts of traced updates ahead of them, each with a span from the fetch until now."""
        for endpoint, record in traced.items():
            if not tracer.is_sampled(record.traceparent):
                # Another program's record.
                continue
            attributes: dict[str, str | int] = {
                "messaging.system": "kafka",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": partition.topic,
                "messaging.destination.partition.id": str(partition.partition),
                "messaging.kafka.offset": record.offset,
                "diem.endpoint": endpoint.decode(),
                "diem.version": record.version,
            }
            span = tracer.start(
                f"process {partition.topic}",
                record.traceparent,
                attributes,
                kind="CONSUMER",
                start_ns=start_ns,
                links=record.merged,
            )
            span.end()
            self._link.send(feed.Traced(endpoint.decode(), record.version, tracer.context_of(span)))

    def _send_caught_up(self, consumer: AIOKafkaConsumer) -> None:
        names = self.partitions.pop_caught_up()
        for name in names:
            self._link.send(feed.CaughtUp(name))
        if names and self.partitions.caught_up:
            self._send_first_heartbeat(consumer)

    def _send_first_heartbeat(self, consumer: AIOKafkaConsumer) -> None:
        """Send a heartbeat at once: a server that just caught up would report ``live: false`` to its clients."""
        self._observe(consumer)
        self._send_heartbeat()

    def _observe(self, consumer: AIOKafkaConsumer) -> None:
        """Record the brokers' last answers."""
        now = time.monotonic()
        for name in self.partitions.positions:
            partition = partition_of(name)
            timestamp, end = consumer.last_poll_timestamp(partition), consumer.highwater(partition)
            self.partitions[name].observe(timestamp, end, now)

    def _send_heartbeat(self) -> None:
        now = time.monotonic()
        map_is_current = self._map is None or self._map.is_current
        if self.partitions.is_live(now) and map_is_current and not self._link.paused:
            self._link.connection.send_text(feed.HEARTBEAT)
            self._bridge.heartbeat_at = now

    def _tick(self, consumer: AIOKafkaConsumer) -> bool:
        """Run the tasks of every second; return whether the consumer must be replaced."""
        now, partitions, bridge = time.monotonic(), self.partitions, self._bridge
        self._observe(consumer)
        self._send_heartbeat()
        if partitions.is_slow(now):
            refresh_leaders(consumer)
        if partitions.has_truncated_log or partitions.is_unanswered(now) or partitions.missing:
            bridge.watcher.check_now()
        if not partitions.is_unanswered(now):
            # Not before: a bridge without permission to read may still learn the bounds of the logs.
            bridge.fault = None
        partitions.tick()
        self._commit(consumer)
        stalled = partitions.stalled(now, bridge.watcher.leaderless)
        if stalled:
            self._log.warning("consumer stalled, replaced", names=stalled)
            bridge.recreated += 1
        return bool(stalled)

    def _commit(self, consumer: AIOKafkaConsumer) -> None:
        """Commit positions for lag monitors, if possible now."""
        bridge = self._bridge
        if bridge.group is None:
            bridge.commits.commit(consumer, self.partitions)
        elif (member := bridge.group.membership.consumer) is not None:
            # A member may not commit positions of the hot updates: they are not assigned to it.
            bridge.commits.commit(member, self.partitions, bridge.options.names.updates)

    # Assignment

    def _apply_assignment(self) -> None:
        """Continue with the currently assigned names, and announce them if changed."""
        self._reassigned = False
        if (names := self._bridge.names) is not None:
            lost, gained = self.partitions.assign(names)
            if lost or gained:
                self._log.info("assignment changed", lost=lost, gained=gained)
                self._send_hello()

    async def _open_gained(self, consumer: AIOKafkaConsumer) -> None:
        """Start reading gained partitions, if their bounds are found in time, and stop reading lost ones."""
        if lookup := self._find_missing(consumer):
            await asyncio.wait([lookup], timeout=BOUNDS_WAIT_S)
        if not self._open_found(consumer):
            assign(consumer, self.partitions.positions)

    def _find_missing(self, consumer: AIOKafkaConsumer) -> Lookup | None:
        """Request the bounds of unread logs, unless a request is in flight."""
        wanted = sorted(self.partitions.missing - self._bridge.watcher.leaderless)
        if wanted and self._lookup is None:
            self._lookup = asyncio.create_task(bounds(consumer, wanted))
            self._lookup.add_done_callback(self._on_found)
        return self._lookup

    def _on_found(self, lookup: Lookup) -> None:
        """End the poll; :meth:`_open_found` handles the result, unless the consumer was closed meanwhile."""
        if not lookup.cancelled():
            lookup.exception()
        if not self._interrupt.done():
            self._interrupt.set_result(None)

    def _open_found(self, consumer: AIOKafkaConsumer) -> bool:
        """Start reading the logs whose bounds were found; return whether there are any."""
        if self._lookup is None or not self._lookup.done():
            return False
        lookup, self._lookup = self._lookup, None
        if lookup.cancelled() or lookup.exception() is not None:
            # No broker answers: the next tick tries again.
            return False
        # They may have been lost meanwhile.
        found = {name: ends for name, ends in lookup.result().items() if name in self.partitions.missing}
        if found:
            self.partitions.add(found, time.monotonic())
            assign(consumer, self.partitions.positions)
            self._send_caught_up(consumer)
        return bool(found)
