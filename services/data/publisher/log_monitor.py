"""Monitor the log: was it replaced, did another writer append to it, do requests hang at a lost leader."""

import asyncio
import math
from collections.abc import Collection
from typing import Final

import structlog

from services.data.publisher.backlog import LeaderMoved, LogReplaced, PublisherState
from services.data.publisher.log import Log
from services.data.publisher.senders import PartitionSenders

SLOW_S: Final = 2.0
"""A request in flight for longer may hang at its broker."""
GIVE_UP_S: Final = 8.0
"""Longest time in flight after the partition has a new leader."""
PAUSE_S: Final = 10.0
MAX_DOUBLINGS: Final = 6
"""Doublings of the pause between two times that a partition is sent again: up to 10 min."""
BACKOFF_RESET_S: Final = 1200.0


class LogMonitor:
    """Checks of one open log, beside the publishing to it."""

    def __init__(self, log: Log, state: PublisherState, queues: PartitionSenders) -> None:
        self._log = log
        self._state = state
        self._senders = queues
        self._backoffs: dict[int, tuple[int, float]] = {}
        """Doublings and end of the pause of each partition that was sent again."""
        self._logger = structlog.get_logger("publisher")

    async def check_topics(self, avoid: Collection[int] = ()) -> dict[int, int]:
        """Check that log and map were not replaced; return the leader of each partition.

        Raises:
            LogReplaced: the log is another one, or is gone; or its map is.
            KafkaUnavailable: the brokers do not answer; those to ``avoid`` are asked last.
        """
        place = await self._log.locate(avoid)
        for what, now, before in (
            ("the log", place.source, self._state.source),
            ("the partition map", place.map, self._state.map),
        ):
            if now != before:
                raise LogReplaced(f"{what} is gone" if now is None else f"{what} is another one")
        # Fewer: a broker that does not know of the new ones yet.
        if place.partitions > len(self._state.backlog.queues) - 1:
            raise LogReplaced(f"the topic has {place.partitions} partitions now")
        return place.leaders

    async def find_foreign(self) -> set[int]:
        """Compare end offsets with our acknowledgements; return the partitions with foreign records.

        Each is returned once, however many records there are, and at growing intervals: a foreign writer cannot keep
        the publisher busy.
        """
        queues, trackers = self._state.backlog.queues, self._senders.trackers
        quiet = [number for number, queue in enumerate(queues) if number not in self._senders.in_flight_since]
        before = {number: trackers[number].next for number in quiet}
        for number, end in (await self._log.end_offsets(quiet)).items():
            # What was written while the brokers were asked is compared the next time.
            if number not in self._senders.in_flight_since and trackers[number].next == before[number]:
                trackers[number].compare_end(end)
        now = asyncio.get_running_loop().time()
        due = {number for number in range(len(queues)) if now >= self._backoffs.get(number, (0, 0.0))[1]}
        found = {number for number in due if trackers[number].foreign}
        for number in found:
            trackers[number].foreign = False
            doublings, since = self._backoffs.get(number, (0, -math.inf))
            doublings = min(doublings + 1, MAX_DOUBLINGS) if now - since < BACKOFF_RESET_S else 0
            self._backoffs[number] = (doublings, now + PAUSE_S * (2**doublings - 1))
        if found:
            self._state.foreign += len(found)
            names = [self._log.name(number) for number in sorted(found)]
            self._logger.warning("records that are not ours: sending partitions again", partitions=names)
        return found

    def warn_of_another_store(self) -> None:
        """Warn if the log has records of another store: they are never deleted here, only their operator knows."""
        if self._state.new_store and any(tracker.next for tracker in self._senders.trackers):
            self._logger.warning(
                "the topic has records, and this store has never published to it: if the store was replaced, delete "
                "the topic, and it is made again from this store",
                topic=self._log.topic,
            )
        self._state.new_store = False

    async def watch_leaders(self) -> None:
        """Disconnect from hanging brokers once others lead their partitions: the old connection never notices.

        Raises:
            LeaderMoved: that did not help; connect again, and send what is current then.
        """
        loop, sent = asyncio.get_running_loop(), self._senders.in_flight_since
        led, disconnected = await self.check_topics(), set[int]()
        while True:
            await asyncio.sleep(SLOW_S / 2)
            slow = [number for number, since in sent.items() if loop.time() - since > SLOW_S]
            if not slow:
                if disconnected:
                    led, disconnected = await self.check_topics(disconnected), set()
                continue
            now = await self.check_topics({led.get(number, -1) for number in slow})
            # One that was answered meanwhile has found its new leader by itself.
            stuck = {number: loop.time() - sent[number] for number in slow if sent.get(number, math.inf) < math.inf}
            moved = [n for n, seconds in stuck.items() if seconds > SLOW_S and now.get(n, -1) not in {-1, led.get(n)}]
            if any(stuck[number] > GIVE_UP_S for number in moved):
                raise LeaderMoved(
                    f"{', '.join(map(self._log.name, moved))} have new leaders, and requests to the old ones hang"
                )
            hanging = {led[number] for number in moved}
            for node in hanging:
                disconnected.add(node)
                self._logger.warning("a broker hangs: its partitions have new leaders, and it is left", broker=node)
                self._log.disconnect(node)
