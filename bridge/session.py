"""Serves one reader from Kafka: consumers come and go, the link and the positions written to it stay."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import OffsetOutOfRangeError

from bridge.consumer import FAULTS, Commits, assign, bounds, consuming, name_of, partition_of
from bridge.fetched import Fetched, ask_who_leads, poll
from bridge.link import Link
from bridge.positions import Positions
from bridge.records import Records
from bridge.watch import Watch
from diem.kafka.options import KafkaOptions
from diem.process.backoff import full_jitter
from diem.protocol import feed
from diem.protocol.codes import Close

LOOK_EVERY: Final = 1.0
RETRY_BASE: Final = 0.2
RETRY_CAP: Final = 3.0


@dataclass(slots=True)
class Shared:
    """What outlives a reader."""

    options: KafkaOptions
    group: str
    watch: Watch
    records: Records
    commits: Commits = field(default_factory=Commits)
    recreated: int = 0
    """Consumers that were replaced while a reader was served."""
    marks: dict[str, float] = field(default_factory=dict)
    """When the publisher's last mark in each name was read."""
    beaten: float = float("-inf")
    """When the last beat was sent."""
    fault: str | None = None
    """Why the reader is not being served now, if so."""


class Session:
    """From a reader's ``resume`` to the end of its link."""

    def __init__(self, link: Link, source: str, resume: feed.Resume, shared: Shared) -> None:
        self.source = source
        self.positions = Positions(marks=shared.marks)
        self._link = link
        self._shared = shared
        self._names = shared.watch.names
        self._next = dict(resume.positions) if resume.source == source else {}
        self._caught_up: set[str] = set()
        self._reading = False
        self._log = structlog.get_logger("bridge")

    async def run(self) -> None:
        """Serve until cancelled, with one consumer after another if need be."""
        shared, attempt = self._shared, 0
        self._link.say(feed.Hello(self.source, self._names))
        while True:
            began, self._reading = time.monotonic(), False
            try:
                async with consuming(shared.options, shared.group, len(self._names)) as consumer:
                    await self._read(consumer)
            except OffsetOutOfRangeError:
                # The log is not the one that was read: the server dials again, and is served by what is there then.
                self._log.warning("offset out of range, link closed", positions=self._next)
                shared.watch.hurry()
                self._link.connection.close(Close.RESTART, "offset out of range")
                return
            except FAULTS as error:
                self._failed(f"{type(error).__name__} {error}".strip())
            except Exception as error:  # noqa: BLE001  # the client library fails in more ways than its own errors
                self._log.exception("consumer failed")
                self._failed(type(error).__name__)
            attempt = 0 if time.monotonic() - began > RETRY_CAP else attempt + 1
            await asyncio.sleep(full_jitter(attempt, RETRY_BASE, RETRY_CAP))

    def _failed(self, fault: str) -> None:
        if self._shared.fault is None:
            self._log.warning("Kafka cannot be read now, trying on", error=fault)
        self._shared.fault = fault
        self._shared.watch.hurry()
        if self._reading:
            self._shared.recreated += 1

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        """Read until the consumer is found to be stalled.

        Raises:
            KafkaError: and all else that the client library raises.
        """
        found = await bounds(consumer, self._names)
        missing = set(self._names) - set(found)
        self.positions.begin(found, self._next, self._caught_up, time.monotonic(), missing)
        assign(consumer, self.positions.next)
        self._reading = True
        self._tell_caught_up(consumer)
        look = time.monotonic() + LOOK_EVERY
        try:
            while True:
                await self._writable()
                for fetched in await poll(consumer, max(0.0, look - time.monotonic())):
                    await self._send(fetched)
                    self._tell_caught_up(consumer)
                    # A poll may hold a hundred thousand records: pings are answered in between.
                    await asyncio.sleep(0)
                if time.monotonic() >= look:
                    look = time.monotonic() + LOOK_EVERY
                    if len(self._shared.watch.names) > len(self._names):
                        self._grow()
                    if self.positions.missing - self._shared.watch.leaderless:
                        await self._add_missing(consumer)
                    if self._look(consumer):
                        return
        finally:
            await self._shared.commits.close()

    async def _writable(self) -> None:
        if self._link.paused:
            await self._link.writable()
            self.positions.watched_since = time.monotonic()

    async def _send(self, fetched: Fetched) -> None:
        name = name_of(fetched.partition)
        position = self.positions.tracks[name].position
        records = self._shared.records
        marks = records.counts.marks
        resyncs, batches = records.take(name, position, fetched.next, fetched.records)
        if records.counts.marks > marks:
            self.positions.marked(name, time.monotonic())
        await self._writable()
        for text in resyncs:
            self._link.connection.send_text(text)
        for batch in batches:
            await self._writable()
            self._link.connection.send_binary(batch)
        self.positions.moved(name, fetched.next, time.monotonic())
        self._next[name] = fetched.next

    def _tell_caught_up(self, consumer: AIOKafkaConsumer) -> None:
        names = self.positions.newly_caught_up()
        for name in names:
            self._caught_up.add(name)
            self._link.say(feed.CaughtUp(name))
        if names and self.positions.caught_up:
            # Without a beat a server that has just caught up would tell its first clients that it is not live.
            self._hear(consumer)
            self._beat()

    def _hear(self, consumer: AIOKafkaConsumer) -> None:
        now = time.monotonic()
        for name in self.positions.tracks:
            partition = partition_of(name)
            self.positions.heard(name, consumer.last_poll_timestamp(partition), consumer.highwater(partition), now)

    def _beat(self) -> None:
        now = time.monotonic()
        if self.positions.alive(now) and not self._link.paused:
            self._link.connection.send_text(feed.BEAT)
            self._shared.beaten = now

    def _look(self, consumer: AIOKafkaConsumer) -> bool:
        """What is done every second; whether the consumer is to be replaced."""
        now = time.monotonic()
        self._hear(consumer)
        self._beat()
        if self.positions.slow(now):
            ask_who_leads(consumer)
        if self.positions.went_back or self.positions.unanswered(now) or self.positions.missing:
            self._shared.watch.hurry()
        if not self.positions.unanswered(now):
            # Only now: that a log has ends may be known to whom may not read it.
            self._shared.fault = None
        self.positions.look()
        self._shared.commits.mark(consumer, self.positions.next)
        stalled = self.positions.stalled(now, self._shared.watch.leaderless)
        if stalled:
            self._log.warning("consumer stands still, replaced", names=stalled)
            self._shared.recreated += 1
        return bool(stalled)

    def _grow(self) -> None:
        """The topic has more partitions: they are read from their beginning."""
        names = self._shared.watch.names
        self._log.info("the topic has more partitions", partitions=len(names))
        self.positions.missing |= set(names) - set(self._names)
        self._names = names
        self._link.say(feed.Hello(self.source, names))

    async def _add_missing(self, consumer: AIOKafkaConsumer) -> None:
        """Read what could not be read before."""
        wanted = sorted(self.positions.missing - self._shared.watch.leaderless)
        found = await bounds(consumer, wanted)
        self.positions.add(found, self._next, time.monotonic())
        assign(consumer, self.positions.next)
        self._tell_caught_up(consumer)
