"""Watches the topics themselves: are they there, are they still the same, and which partitions do they have."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka.client import AIOKafkaClient

from diem.kafka.client import connected
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import Cluster, describe
from diem.process.backoff import full_jitter
from diem.process.faults import ConfigurationError

EVERY: Final = 10.0
HURRIED: Final = 1.0
"""Seconds: the least time between two looks."""
RETRY_BASE: Final = 0.2
RETRY_CAP: Final = 3.0


class TopicWatcher:
    """Knows the source and the names of the feed. ``on_changed()`` is called after either has changed.

    It watches the topics of updates and of hot updates, and the one of the partition map if that is on the feed, too.
    """

    def __init__(
        self, options: KafkaOptions, on_changed: Callable[[], None] = lambda: None, *, with_map: bool = False
    ) -> None:
        self.source: str | None = None
        """Cluster and topics that positions belong to; None while one of the topics is not there."""
        self.names: tuple[str, ...] = ()
        """All partitions of the updates, and at the end that of the hot ones, as the feed names them."""
        self.leaderless: frozenset[str] = frozenset()
        """Partitions that no broker leads now."""
        self.why_not: str | None = "Kafka has not been asked yet"
        """What is wrong with Kafka or the topics, None if nothing is."""
        self.on_changed = on_changed
        self._options = options
        topics = options.names
        self._topics = (topics.updates, topics.hot, *([topics.partition_map] if with_map else []))
        self._hurry = asyncio.Event()
        self._missing = False
        self._log = structlog.get_logger("bridge")

    @property
    def partitions(self) -> int:
        """Partitions of the updates."""
        return max(0, len(self.names) - 1)

    def hurry(self) -> None:
        """Look again now: something is odd."""
        self._hurry.set()

    async def run(self) -> None:
        """Look every 10 s until cancelled, whatever becomes of Kafka."""
        attempt = 0
        while True:
            try:
                async with connected(self._options) as client:
                    while True:
                        await self._look(client)
                        attempt = 0
            except (KafkaUnavailable, ConfigurationError) as error:
                # The files of the TLS set-up were fine at the start: they are being replaced.
                self._say(str(error))
            await asyncio.sleep(full_jitter(attempt, RETRY_BASE, RETRY_CAP))
            attempt += 1

    async def _look(self, client: AIOKafkaClient) -> None:
        self.learn(await describe(client, *self._topics))
        await asyncio.sleep(HURRIED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HURRIED if self.source is None or self._missing else EVERY - HURRIED):
                await self._hurry.wait()
        self._hurry.clear()

    def learn(self, cluster: Cluster) -> None:
        """Take what a broker says."""
        found = [cluster.topics[name] for name in self._topics if name in cluster.topics]
        there = {topic.name for topic in found if topic.partitions}
        if lacking := [name for name in self._topics if name not in there]:
            self._lacking(lacking[0])
            return
        self._missing = False
        updates, hot = found[:2]
        source = "/".join((cluster.id, *(topic.id for topic in found)))
        names = (*(f"{updates.name}/{number}" for number in sorted(updates.partitions)), f"{hot.name}/0")
        self.leaderless = frozenset(
            f"{topic.name}/{n}" for topic in (updates, hot) for n, part in topic.partitions.items() if part.leader < 0
        )
        self._say(None)
        # Partitions are never taken away: a broker that knows fewer of them is behind the others.
        if source != self.source or len(names) > len(self.names):
            self._set(source, names)

    def _lacking(self, topic: str) -> None:
        """A broker that has just started may not know a topic yet: it is missing when that is said twice."""
        if self._missing or self.source is None:
            self._say(f"topic {topic} does not exist")
            if self.source is not None:
                self._set(None, ())
        self._missing = True

    def _set(self, source: str | None, names: tuple[str, ...]) -> None:
        if self.source is not None and source != self.source:
            self._log.warning("a topic is another one", was=self.source, source=source)
        self.source, self.names = source, names
        self.on_changed()

    def _say(self, why_not: str | None) -> None:
        if why_not != self.why_not:
            if why_not is None:
                self._log.info("Kafka answers", topics=self._topics)
            else:
                self._log.warning("Kafka cannot be used now", error=why_not)
        self.why_not = why_not
