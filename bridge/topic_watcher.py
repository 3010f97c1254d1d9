"""Watches the topics of the feed: existence, replacement, and number of partitions."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from diem.errors import ConfigurationError
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import Cluster, describe
from diem.process.backoff import Backoff, wait

POLL_S: Final = 10.0
MIN_POLL_S: Final = 1.0
RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0


class TopicWatcher:
    """Source and streams of the feed, kept current: the topics of updates and hot updates, optionally the map's."""

    def __init__(self, options: KafkaOptions, *, with_map: bool = False) -> None:
        self.source: str | None = None
        """Cluster and topics that positions belong to; None while one of the topics does not exist."""
        self.names: tuple[str, ...] = ()
        """The streams of all partitions of the updates, then that of the hot updates."""
        self.leaderless: frozenset[str] = frozenset()
        """The streams of partitions without a leader."""
        self.why_not: str | None = "Kafka has not been queried yet"
        """The fault of Kafka or of the topics; None if there is none."""
        self._options = options
        topics = options.names
        self._topics = (topics.updates, topics.hot, *([topics.partition_map] if with_map else []))
        self._check_now = asyncio.Event()
        self._missing = False
        self._log = structlog.get_logger("bridge")

    @property
    def partitions(self) -> int:
        """Number of partitions of the updates."""
        return max(0, len(self.names) - 1)

    def check_now(self) -> None:
        """Poll again within a second, after something unexpected."""
        self._check_now.set()

    async def run(self, on_changed: Callable[[], None]) -> None:
        """Poll every 10 s until cancelled; call ``on_changed`` after a change of source or streams."""
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S)
        while True:
            try:
                async with connected_client(self._options) as client:
                    while True:
                        if self.update(await describe(client, *self._topics)):
                            on_changed()
                        await self._wait()
                        backoff.reset()
            except (KafkaUnavailable, ConfigurationError) as error:
                # The TLS files were valid at the start, so they are being replaced.
                self._set_fault(str(error))
            await asyncio.sleep(backoff.next_delay())

    async def _wait(self) -> None:
        await asyncio.sleep(MIN_POLL_S)
        await wait(self._check_now, MIN_POLL_S if self.source is None or self._missing else POLL_S - MIN_POLL_S)
        self._check_now.clear()

    def update(self, cluster: Cluster) -> bool:
        """Apply a broker's metadata; return whether the source or the streams changed."""
        found = [cluster.topics[name] for name in self._topics if name in cluster.topics]
        existing = {topic.name for topic in found if topic.partitions}
        if missing := [name for name in self._topics if name not in existing]:
            return self._on_missing(missing[0])
        self._missing = False
        updates, hot = found[:2]
        source = "/".join((cluster.id, *(topic.id for topic in found)))
        names = (*(f"{updates.name}/{number}" for number in sorted(updates.partitions)), f"{hot.name}/0")
        self.leaderless = frozenset(
            f"{topic.name}/{n}" for topic in (updates, hot) for n, part in topic.partitions.items() if part.leader < 0
        )
        self._set_fault(None)
        # Kafka never removes partitions: a broker with fewer has old metadata.
        return (source != self.source or len(names) > len(self.names)) and self._set(source, names)

    def _on_missing(self, topic: str) -> bool:
        """Handle a missing topic, from the second time on: a broker just started may not know it yet."""
        confirmed, self._missing = self._missing, True
        if confirmed or self.source is None:
            self._set_fault(f"topic {topic} does not exist")
        return confirmed and self.source is not None and self._set(None, ())

    def _set(self, source: str | None, names: tuple[str, ...]) -> bool:
        if self.source is not None and source != self.source:
            self._log.warning("topic replaced or deleted", was=self.source, source=source)
        self.source, self.names = source, names
        return True

    def _set_fault(self, why_not: str | None) -> None:
        if why_not != self.why_not:
            if why_not is None:
                self._log.info("Kafka answers", topics=self._topics)
            else:
                self._log.warning("Kafka cannot be used now", error=why_not)
        self.why_not = why_not
