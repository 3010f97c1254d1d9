"""Monitors the log for replacement, foreign records, and requests hung at a former leader."""

import asyncio
import math
from collections.abc import Collection
from typing import Final

import structlog

from services.data.publisher.backlog import LeaderMoved, LogReplaced, PublisherState
from services.data.publisher.log import Log
from services.data.publisher.senders import PartitionSenders

SLOW_S: Final = 2.0
"""Time in flight after which a request is suspected of hanging at its broker."""
GIVE_UP_S: Final = 8.0
"""Longest time in flight once the partition has a new leader."""
PAUSE_S: Final = 10.0
"""Unit of the pause before a partition is resent again: ``PAUSE_S * (2**doublings - 1)``."""
MAX_DOUBLINGS: Final = 6
"""Doublings of the pause between two resends of a partition: up to about 10 min."""
BACKOFF_RESET_S: Final = 1200.0


class LogMonitor:
    """Checks of one open log, concurrent with the publishing to it."""

    def __init__(self, log: Log, state: PublisherState, senders: PartitionSenders) -> None:
        self._log = log
        self._state = state
        self._senders = senders
        self._backoffs: dict[int, tuple[int, float]] = {}
        """Doublings and end of the pause of each resent partition.

        No :class:`~diem.process.backoff.Backoff`: the pause is a rate limit, to which jitter would add nothing.
        """
        self._logger = structlog.get_logger("publisher")

    async def check_topics(self, avoid: Collection[int] = ()) -> dict[int, int]:
        """Check that log and map were not replaced; return the leader of each partition.

        Raises:
            LogReplaced: log or map were replaced or deleted, or there are more partitions.
            KafkaUnavailable: no broker answers; those to ``avoid`` are tried last.
        """
        found = await self._log.describe(avoid)
        self._state.replicas = found.replicas
        for what, now, before in (
            ("the log", found.source, self._state.source),
            ("the partition map", found.map, self._state.map),
        ):
            if now != before:
                raise LogReplaced(f"{what} is gone" if now is None else f"{what} is another one")
        # Fewer: the broker does not know the new ones yet.
        if found.partitions > len(self._state.backlog.queues) - 1:
            raise LogReplaced(f"the topic has {found.partitions} partitions now")
        return found.leaders

    async def find_incomplete(self) -> set[int]:
        """Compare the bounds of the logs with the known extents; return the partitions to resend.

        One with foreign records is returned once per pause, regardless of their number, and pauses grow, so that a
        foreign writer cannot keep the publisher busy. One with lost records is always returned: it has no watermarks
        until everything is resent.
        """
        trackers = self._state.trackers
        quiet = [number for number in range(len(trackers)) if number not in self._senders.in_flight_since]
        before = {number: trackers[number].next for number in quiet}
        ends, begins = await asyncio.gather(self._log.end_offsets(quiet), self._log.begin_offsets(range(len(trackers))))
        for number, end in ends.items():
            # Partitions written during the query are compared next time.
            if number not in self._senders.in_flight_since and trackers[number].next == before[number]:
                trackers[number].compare_end(end)
        for number, begin in begins.items():
            trackers[number].compare_begin(begin)
        known = {number for number, tracker in enumerate(trackers) if tracker.next is not None}
        lost = {number for number in known if trackers[number].complete_from is None}
        if old := [number for number in lost if trackers[number].next]:
            self._logger.warning("logs may lack updates, publishing them again", partitions=self._names(old))
        return lost | self._with_foreign(known - lost)

    def _with_foreign(self, numbers: Collection[int]) -> set[int]:
        trackers, now = self._state.trackers, asyncio.get_running_loop().time()
        due = {number for number in numbers if now >= self._backoffs.get(number, (0, 0.0))[1]}
        found = {number for number in due if trackers[number].foreign}
        for number in found:
            doublings, since = self._backoffs.get(number, (0, -math.inf))
            doublings = min(doublings + 1, MAX_DOUBLINGS) if now - since < BACKOFF_RESET_S else 0
            self._backoffs[number] = (doublings, now + PAUSE_S * (2**doublings - 1))
        if found:
            self._state.foreign += len(found)
            self._logger.warning(
                "records of others in the topic: publishing their partitions again", partitions=self._names(found)
            )
        return found

    def _names(self, numbers: Collection[int]) -> list[str]:
        return [self._log.name(number) for number in sorted(numbers)]

    def warn_of_another_store(self) -> None:
        """Warn if the log has records of another store; only the operator can decide to delete them."""
        if self._state.new_store and any(tracker.next for tracker in self._state.trackers):
            self._logger.warning(
                "the topic has records, and this store has never published to it: if the store was replaced, delete "
                "the topic: it is recreated from this store",
                topic=self._log.topic,
            )
        self._state.new_store = False

    async def watch_leaders(self) -> None:
        """Disconnect from hung brokers once others lead their partitions: the connections would stay open.

        Raises:
            LeaderMoved: requests still hang; reconnect, then send the current updates.
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
            # A request answered meanwhile has found the new leader by itself.
            stuck = {number: loop.time() - sent[number] for number in slow if sent.get(number, math.inf) < math.inf}
            moved = [n for n, seconds in stuck.items() if seconds > SLOW_S and now.get(n, -1) not in {-1, led.get(n)}]
            if any(stuck[number] > GIVE_UP_S for number in moved):
                raise LeaderMoved(
                    f"{', '.join(map(self._log.name, moved))} have new leaders, and requests to the old ones hang"
                )
            hanging = {led[number] for number in moved}
            for node in hanging:
                disconnected.add(node)
                self._logger.warning("a broker hangs: its partitions have new leaders, reconnecting", broker=node)
                self._log.disconnect(node)
