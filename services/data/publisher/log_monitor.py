"""Looks at the log from outside: is it the same, did anybody else write to it, do requests hang at a lost leader."""

import asyncio
import math
from collections.abc import Collection
from typing import Final

import structlog

from services.data.publisher.backlog import LeaderMoved, LogReplaced, PublisherState
from services.data.publisher.log import Log
from services.data.publisher.senders import PartitionSenders

SLOW_S: Final = 2.0
"""A request that takes longer may be one to a broker that hangs."""
GIVE_UP_S: Final = 8.0
"""So long a request may take after its partition has a new leader."""
PAUSE_S: Final = 10.0
MAX_TIMES: Final = 6
"""Doublings of the pause between two times that a partition is sent again: up to 10 min."""
FORGIVEN_S: Final = 1200.0


class LogMonitor:
    """What is looked at beside the publishing to one open log."""

    def __init__(self, log: Log, progress: PublisherState, lanes: PartitionSenders) -> None:
        self._log = log
        self._progress = progress
        self._lanes = lanes
        self._patience: dict[int, tuple[int, float]] = {}
        """Partitions that were sent again: how often in a row, and until when they are left alone."""
        self._logger = structlog.get_logger("publisher")

    async def same(self, avoid: Collection[int] = ()) -> dict[int, int]:
        """The leader of each lane.

        Raises:
            LogReplaced: the log is another one, or is gone; or its map is.
            KafkaUnavailable: the brokers do not say; those to ``avoid`` are asked last.
        """
        place = await self._log.look(avoid)
        for what, now, before in (
            ("the log", place.source, self._progress.source),
            ("the partition map", place.map, self._progress.map),
        ):
            if now != before:
                raise LogReplaced(f"{what} is gone" if now is None else f"{what} is another one")
        # Fewer: a broker that does not know of the new ones yet.
        if place.partitions > len(self._progress.backlog.lanes) - 1:
            raise LogReplaced(f"the topic has {place.partitions} partitions now")
        return place.leaders

    async def foreign(self) -> set[int]:
        """Compare the ends of the lanes with our acknowledgements: those with records that are not ours.

        Each is named once, however many records there are, and less and less often: somebody who keeps on writing
        cannot keep us busy.
        """
        lanes, ledgers = self._progress.backlog.lanes, self._lanes.ledgers
        quiet = [number for number, lane in enumerate(lanes) if number not in self._lanes.sent]
        before = {number: ledgers[number].next for number in quiet}
        for number, end in (await self._log.ends(quiet)).items():
            # What was written while the brokers were asked is compared the next time.
            if number not in self._lanes.sent and ledgers[number].next == before[number]:
                ledgers[number].ends(end)
        now = asyncio.get_running_loop().time()
        found = {n for n, ledger in enumerate(ledgers) if ledger.foreign and now >= self._patience.get(n, (0, 0.0))[1]}
        for number in found:
            ledgers[number].foreign = False
            times, since = self._patience.get(number, (0, -math.inf))
            times = min(times + 1, MAX_TIMES) if now - since < FORGIVEN_S else 0
            self._patience[number] = (times, now + PAUSE_S * (2**times - 1))
        if found:
            self._progress.foreign += len(found)
            names = [self._log.name(number) for number in sorted(found)]
            self._logger.warning("records that are not ours: sending partitions again", partitions=names)
        return found

    def warn_of_another_store(self) -> None:
        """What the log has and this store has not is never told to be gone: only its operator knows if it is."""
        if self._progress.stranger and any(ledger.next for ledger in self._lanes.ledgers):
            self._logger.warning(
                "the topic has records, and this store has never published to it: if the store was replaced, delete "
                "the topic, and it is made again from this store",
                topic=self._log.topic,
            )
        self._progress.stranger = False

    async def watch_leaders(self) -> None:
        """Leave brokers that hang, once others lead their partitions: the old connection never says so.

        Raises:
            LeaderMoved: that did not help; connect again, and send what is current then.
        """
        loop, sent = asyncio.get_running_loop(), self._lanes.sent
        led, left = await self.same(), set[int]()
        while True:
            await asyncio.sleep(SLOW_S / 2)
            slow = [number for number, since in sent.items() if loop.time() - since > SLOW_S]
            if not slow:
                if left:
                    led, left = await self.same(left), set()
                continue
            now = await self.same({led.get(number, -1) for number in slow})
            # One that was answered meanwhile has found its new leader by itself.
            stuck = {number: loop.time() - sent[number] for number in slow if sent.get(number, math.inf) < math.inf}
            moved = [n for n, seconds in stuck.items() if seconds > SLOW_S and now.get(n, -1) not in {-1, led.get(n)}]
            if any(stuck[number] > GIVE_UP_S for number in moved):
                raise LeaderMoved(
                    f"{', '.join(map(self._log.name, moved))} have new leaders, and requests to the old ones hang"
                )
            hanging = {led[number] for number in moved}
            for node in hanging:
                left.add(node)
                self._logger.warning("a broker hangs: its partitions have new leaders, and it is left", broker=node)
                self._log.leave(node)
