"""Watches the topic itself: is it there, is it still the same one, and which partitions does it have."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka.client import AIOKafkaClient

from diem.kafka.connecting import connected
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import Cluster, describe
from diem.kafka.options import KafkaOptions
from diem.process.backoff import full_jitter
from diem.process.faults import ConfigurationError

EVERY: Final = 10.0
HURRIED: Final = 1.0
"""Seconds: the least time between two looks."""
RETRY_BASE: Final = 0.2
RETRY_CAP: Final = 3.0


class Watch:
    """Knows the source and the names of the feed. ``on_changed()`` is called after either has changed."""

    def __init__(self, options: KafkaOptions, on_changed: Callable[[], None] = lambda: None) -> None:
        self.source: str | None = None
        """Cluster and topic that positions belong to; None while the topic is not there."""
        self.names: tuple[str, ...] = ()
        """All partitions, as the feed names them."""
        self.leaderless: frozenset[str] = frozenset()
        """Partitions that no broker leads now."""
        self.why_not: str | None = "Kafka has not been asked yet"
        """What is wrong with Kafka or the topic, None if nothing is."""
        self.on_changed = on_changed
        self._options = options
        self._topic = options.names.updates
        self._hurry = asyncio.Event()
        self._missing = False
        self._log = structlog.get_logger("bridge")

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
        self.learn(await describe(client, self._topic))
        await asyncio.sleep(HURRIED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HURRIED if self.source is None or self._missing else EVERY - HURRIED):
                await self._hurry.wait()
        self._hurry.clear()

    def learn(self, cluster: Cluster) -> None:
        """Take what a broker says."""
        found = cluster.topics.get(self._topic)
        if found is None or not found.partitions:
            self._lacking()
            return
        self._missing = False
        source = cluster.source(self._topic)
        names = tuple(f"{self._topic}/{number}" for number in sorted(found.partitions))
        self.leaderless = frozenset(f"{self._topic}/{n}" for n, part in found.partitions.items() if part.leader < 0)
        self._say(None)
        # Partitions are never taken away: a broker that knows fewer of them is behind the others.
        if source != self.source or len(names) > len(self.names):
            self._set(source, names)

    def _lacking(self) -> None:
        """A broker that has just started may not know a topic yet: it is missing when that is said twice."""
        if self._missing or self.source is None:
            self._say(f"topic {self._topic} does not exist")
            if self.source is not None:
                self._set(None, ())
        self._missing = True

    def _set(self, source: str | None, names: tuple[str, ...]) -> None:
        if self.source is not None and source != self.source:
            self._log.warning("the topic is another one", was=self.source, source=source)
        self.source, self.names = source, names
        self.on_changed()

    def _say(self, why_not: str | None) -> None:
        if why_not != self.why_not:
            if why_not is None:
                self._log.info("Kafka answers", topic=self._topic)
            else:
                self._log.warning("Kafka cannot be used now", error=why_not)
        self.why_not = why_not
