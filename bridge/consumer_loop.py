"""Reads for one link with one consumer, whatever names it has to read, until the consumer is of no use any more."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer

from bridge.consumer import assign, bounds, name_of, partition_of
from bridge.fetched import FetchedBatches, ask_who_leads, poll, wake
from bridge.link import BridgeLink
from bridge.state import BridgeState
from bridge.stream_state import StreamState
from diem.protocol import feed

LOOK_EVERY: Final = 1.0
FOUND_WITHIN: Final = 0.25
"""Seconds that the ends of logs that are new here hold up the other logs, so that all are read on together."""

Finding = asyncio.Task[dict[str, tuple[int, int]]]


class ConsumerLoop:
    """One consumer's work. ``may_beat`` says whether what is not read by it has caught up, too."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        link: BridgeLink,
        told: StreamState,
        shared: BridgeState,
        may_beat: Callable[[], bool],
    ) -> None:
        self.begun = False
        """Whether the logs were found."""
        self._consumer = consumer
        self._link = link
        self._told = told
        self._positions = told.positions
        self._shared = shared
        self._may_beat = may_beat
        self._renamed = False
        self._finding: Finding | None = None

    def names_changed(self) -> None:
        """Go on with other names."""
        self._renamed = True
        if self.begun:
            wake(self._consumer)

    async def run(self) -> None:
        """Read until the consumer is found to be stalled.

        Raises:
            KafkaError: and all else that the client library raises.
        """
        self._told.begin(await bounds(self._consumer, self._told.names))
        assign(self._consumer, self._positions.next)
        self.begun = True
        self._tell_caught_up()
        look = time.monotonic() + LOOK_EVERY
        try:
            while True:
                await self._writable()
                while self._renamed:
                    await self._read_other_names()
                self._read_what_was_found()
                for fetched in await poll(self._consumer, max(0.0, look - time.monotonic())):
                    if self._renamed:
                        # It is fetched again from where it was, if it is still read here.
                        break
                    await self._send(fetched)
                    self._tell_caught_up()
                    # A poll may hold a hundred thousand records: pings are answered in between.
                    await asyncio.sleep(0)
                if time.monotonic() >= look:
                    look = time.monotonic() + LOOK_EVERY
                    self._find_missing()
                    if self._look():
                        return
        finally:
            if self._finding is not None:
                self._finding.cancel()
            await self._shared.commits.close()

    async def _writable(self) -> None:
        if self._link.paused:
            await self._link.writable()
            self._positions.watched_since = time.monotonic()

    async def _send(self, fetched: FetchedBatches) -> None:
        name = name_of(fetched.partition)
        position = self._positions.tracks[name].position
        records = self._shared.records
        marks = records.counts.marks
        resyncs, batches = records.take(name, position, fetched.next, fetched.records)
        if records.counts.marks > marks:
            self._positions.marked(name, time.monotonic())
        await self._writable()
        for text in resyncs:
            self._link.connection.send_text(text)
        for batch in batches:
            await self._writable()
            self._link.connection.send_binary(batch)
        self._told.moved(name, fetched.next)

    def _tell_caught_up(self) -> None:
        if self._told.caught_up():
            # Without a beat a server that has just caught up would tell its first clients that it is not live.
            self._hear()
            self._beat()

    def _hear(self) -> None:
        now, consumer = time.monotonic(), self._consumer
        for name in self._positions.tracks:
            partition = partition_of(name)
            self._positions.heard(name, consumer.last_poll_timestamp(partition), consumer.highwater(partition), now)

    def _beat(self) -> None:
        now = time.monotonic()
        if self._positions.alive(now) and self._may_beat() and not self._link.paused:
            self._link.connection.send_text(feed.BEAT)
            self._shared.beaten = now

    def _look(self) -> bool:
        """What is done every second; whether the consumer is to be replaced."""
        now, positions, shared = time.monotonic(), self._positions, self._shared
        self._hear()
        self._beat()
        if positions.slow(now):
            ask_who_leads(self._consumer)
        if positions.went_back or positions.unanswered(now) or positions.missing:
            shared.watch.hurry()
        if not positions.unanswered(now):
            # Only now: that a log has ends may be known to whom may not read it.
            shared.fault = None
        positions.look()
        shared.mark(self._consumer, positions.next)
        stalled = positions.stalled(now, shared.watch.leaderless)
        if stalled:
            structlog.get_logger("bridge").warning("consumer stands still, replaced", names=stalled)
            shared.recreated += 1
        return bool(stalled)

    async def _read_other_names(self) -> None:
        """Go on with the names that are read now: each where it is, new ones at their beginning."""
        self._renamed = False
        if (names := self._shared.names) is not None:
            self._told.rename(names)
        if finding := self._find_missing():
            await asyncio.wait([finding], timeout=FOUND_WITHIN)
        if not self._read_what_was_found():
            assign(self._consumer, self._positions.next)

    def _find_missing(self) -> Finding | None:
        """Ask for the logs that are not read yet, unless that is under way; the others are read on meanwhile."""
        wanted = sorted(self._positions.missing - self._shared.watch.leaderless)
        if wanted and self._finding is None:
            self._finding = asyncio.create_task(bounds(self._consumer, wanted))
            self._finding.add_done_callback(self._found)
        return self._finding

    def _found(self, finding: Finding) -> None:
        """Go on reading; what went wrong is looked at there, unless this has ended meanwhile."""
        if not finding.cancelled():
            finding.exception()
        wake(self._consumer)

    def _read_what_was_found(self) -> bool:
        """Read logs whose ends have been found; whether there were any."""
        if self._finding is None or not self._finding.done():
            return False
        finding, self._finding = self._finding, None
        if finding.cancelled() or finding.exception() is not None:
            # No broker says anything: it is asked again in a second.
            return False
        # Somebody else may own them by now.
        found = {name: ends for name, ends in finding.result().items() if name in self._positions.missing}
        if found:
            self._positions.add(found, self._told.next, time.monotonic())
            assign(self._consumer, self._positions.next)
            self._tell_caught_up()
        return bool(found)
