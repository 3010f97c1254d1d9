"""Keeps publishing: finds or creates the topics, reopens them after a fault, starts over when they are replaced."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import structlog
from aiokafka.errors import KafkaError

from diem.errors import ConfigurationError, DiemError
from diem.kafka.client import connected_client, raised_in_library, silence_library_log
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import WrongTopic
from diem.kafka.map_reader import MapReader, read_map
from diem.kafka.map_writer import begin_map
from diem.kafka.metadata import Cluster, ReplicaFaults, describe
from diem.kafka.topics import check_room, ensure, used_partitions
from diem.process import metrics
from diem.process.backoff import Backoff
from diem.process.metrics import Sample
from diem.process.tracing import TracedUpdates
from diem.protocol.partition_map import HOT, PartitionMap
from services.data.publisher.backlog import Backlog, LogReplaced, PublisherState
from services.data.publisher.log import open_log
from services.data.publisher.offsets import OffsetTracker, decode_extents, encode_extents
from services.data.publisher.session import CHECK_EVERY_S, PublisherSession, all_endpoints
from services.data.publisher.store_view import PublishedStore
from services.data.store.tables import Cursor


class Topics(NamedTuple):
    """The topics to publish to, and the partition map."""

    cluster: Cluster
    partitions: int
    """Number of partitions of the updates topic."""
    source: str
    """Id that positions belong to: cluster and topics."""
    map_source: str
    map: PartitionMap
    map_is_new: bool = False
    """True if the map was just written: endpoints may be elsewhere than by an earlier map."""


async def find_topics(options: KafkaOptions, hot: Collection[str], before: PublisherState | None) -> Topics:
    """Find or create the topics and the map: the stored map, else the one in use, else epoch 0 with ``hot``.

    Raises:
        KafkaUnavailable: the cluster does not answer, or denies access.
        WrongTopic: a topic has wrong settings, or fewer partitions than the map uses.
    """
    names = options.names
    cluster = await _cluster(options, before)
    partitions = len(cluster.topics[names.updates].partitions)
    source, map_source = str(cluster.source(*names.log)), str(cluster.source(names.partition_map))
    if before is not None and before.map == map_source:
        # If there is a newer map, the session switches to it.
        map_, is_new = before.backlog.map, False
    else:
        current = await read_map(options)
        map_ = current or await begin_map(options, partitions, hot, before.backlog.map if before else None)
        is_new = current is None and before is None
    check_room(names.updates, partitions, map_)
    return Topics(cluster, partitions, source, map_source, map_, is_new)


async def _cluster(options: KafkaOptions, before: PublisherState | None) -> Cluster:
    """Return the cluster with its topics, created or checked unless the same as in ``before``."""
    names = options.names
    if before is None:
        return await ensure(options)
    async with connected_client(options) as client:
        cluster = await describe(client, *names.topics)
    if (cluster.source(*names.log), cluster.source(names.partition_map)) == (before.source, before.map):
        return cluster
    # The configured number was checked at the start; plans may have added partitions since.
    return await ensure(replace(options, partitions=None), used_partitions(before.backlog.map))


def warn_of_differences(options: KafkaOptions, hot: Collection[str], topics: Topics) -> None:
    """Log differences of the existing map from the settings and the topic."""
    logger, map_ = structlog.get_logger("publisher"), topics.map
    configured = {name.encode() for name in hot}
    marked = {name for name, entry in map_.entries.items() if HOT in entry}
    if configured and marked != configured:
        logger.warning(
            "the hot endpoints differ from DIEM_DATA_HOT, which counts only when the partition map is first created",
            not_hot=sorted(name.decode() for name in configured - marked),
            not_configured=sorted(name.decode() for name in marked - configured),
        )
    if topics.partitions > (used := used_partitions(map_)):
        logger.warning(
            "the topic has more partitions than the partition map: the others are empty until a plan uses them",
            topic=options.names.updates,
            partitions=topics.partitions,
            used=used,
        )


RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0
STARTUP_S: Final = 15.0
"""Time within which a wrong topic or configuration ends the process; later, the REST service continues."""


class Publisher:
    """Keeps the updates topic current with a store. Call :meth:`changed` after every commit; :meth:`run` does the work.

    A store has one publisher, because its process holds the store's lock. ``hot`` endpoints are published to the topic
    read by every bridge, if the partition map does not exist yet. Updates among ``traces`` carry their contexts.
    """

    def __init__(
        self,
        store: PublishedStore,
        options: KafkaOptions,
        hot: Collection[str] = (),
        traces: TracedUpdates | None = None,
    ) -> None:
        self._store = store
        self._options = options
        self._hot = hot
        self._traces = traces
        self._changed = asyncio.Event()
        self._state: PublisherState | None = None
        self._log = structlog.get_logger("publisher")
        self.publishing = False
        self.failure: str | None = "Kafka has not answered yet"
        self.opened = 0
        """Times the topic was opened."""
        self._written = 0
        """Acknowledged requests."""

    def changed(self) -> None:
        """Wake the publisher: the store has new changes."""
        self._changed.set()

    async def run(self) -> None:
        """Publish until cancelled, through outages of Kafka of any length.

        Raises:
            WrongTopic: a topic has wrong settings, found soon after the start.
            ConfigurationError: the options cannot be used, found soon after the start.
        """
        silence_library_log()
        loop = asyncio.get_running_loop()
        started, backoff = loop.time(), Backoff(RETRY_BASE_S, RETRY_CAP_S)
        while True:
            written = self._written
            try:
                await self._publish()
            except LogReplaced as error:
                self._log.warning("starting over", reason=str(error))
            except Exception as error:
                wrong = isinstance(error, WrongTopic)
                if wrong:
                    self._invalidate()
                # Later, an operator may correct the fault while the REST service continues.
                early = not self.opened and loop.time() - started < STARTUP_S
                if early and isinstance(error, ConfigurationError):
                    raise
                self._failed(error)
                if wrong:
                    await asyncio.sleep(CHECK_EVERY_S)
            if self._written > written:
                backoff.reset()
            await asyncio.sleep(backoff.next_delay())

    async def _publish(self) -> None:
        """Publish to the current topics until a fault. Always ends with an exception."""
        found = await find_topics(self._options, self._hot, self._state)
        state = self._resume_or_start(found)
        # Only live brokers: connecting to a hung one first would take long.
        alive = ",".join(f"{host}:{port}" for host, port in found.cluster.brokers.values())
        options = replace(self._options, bootstrap_servers=alive)
        async with open_log(options, len(state.backlog.queues)) as log:
            self.opened += 1
            try:
                reader = MapReader(options)
                hot = frozenset(name.encode() for name in self._hot)
                await PublisherSession(
                    self._store,
                    state,
                    log,
                    reader,
                    changed=self._changed,
                    hot=hot,
                    on_written=self._on_written,
                    traces=self._traces,
                ).run()
            finally:
                self.publishing = False

    def _invalidate(self) -> None:
        """Forget cursor and map: the topics may have lost updates, so all are resent once the topics are correct.

        The map is reread as well: a topic may be wrong for a newer map only.
        """
        old = self._state
        if old is not None:
            backlog = Backlog(len(old.backlog.queues) - 1, 0, old.backlog.map)
            backlog.resume_phase(all_endpoints(self._store))
            for tracker in old.trackers:
                tracker.invalidate()
            self._state = replace(old, map=None, backlog=backlog)
        # Stored for the next process, too: no watermarks before everything is resent.
        if (stored := self._store.cursor) is not None and stored.sequence:
            extents = {
                number: each._replace(complete_from=None) for number, each in decode_extents(stored.logs).items()
            }
            self._store.keep_cursor(Cursor(stored.source, 0, encode_extents(extents)))

    def _on_written(self) -> None:
        # Only now: an opened topic may still refuse writes.
        self._written += 1
        if not self.publishing and self._state is not None:
            self.publishing, self.failure = True, None
            self._log.info("publishing", topic=self._options.names.updates, source=self._state.source, lag=self.lag)

    def _resume_or_start(self, found: Topics) -> PublisherState:
        old = self._state
        if old is not None and old.source == found.source and len(old.backlog.queues) == found.partitions + 1:
            old.map = found.map_source
            old.backlog.switch_map(found.map, all_endpoints(self._store))
            return old
        warn_of_differences(self._options, self._hot, found)
        stored = self._store.cursor
        # Positions are valid only with their own log and map: otherwise everything is sent at full speed.
        valid = stored is not None and stored.source == found.source
        cursor = min(stored.sequence, self._store.changes.sequence) if stored and valid and not found.map_is_new else 0
        extents = decode_extents(stored.logs) if stored and valid else {}
        if old is not None and old.source == found.source:
            extents = old.extents
        # If only the hot topic was replaced, the store has published here before.
        ours = str(found.cluster.source(self._options.names.updates))
        new_store = stored is None or not stored.source.startswith(ours)
        backlog = Backlog(found.partitions, cursor, found.map)
        backlog.resume_phase(all_endpoints(self._store))
        numbers = [*range(found.partitions), HOT]
        self._state = PublisherState(
            found.source,
            found.map_source,
            backlog,
            resend_all=cursor > 0,
            new_store=new_store,
            trackers=[OffsetTracker(extents.get(number)) for number in numbers],
            unread={n: extents[number].next for n, number in enumerate(numbers) if number in extents and old is None},
        )
        if old is not None:
            self._state.published, self._state.foreign = old.published, old.foreign
        return self._state

    def _failed(self, error: Exception) -> None:
        known = isinstance(error, (DiemError, KafkaError, OSError, TimeoutError))
        reason = str(error) or type(error).__name__
        if not known and raised_in_library(error):
            known, reason = True, f"{type(error).__name__} {error}".strip()
        if reason != self.failure:
            self._log.error("not publishing", reason=reason, exc_info=None if known else error)
            self.failure = reason

    @property
    def lag(self) -> int:
        """Number of the store's changes not confirmed in the log."""
        stored = self._store.cursor.sequence if self._store.cursor else 0
        return self._store.changes.sequence - (self._state.backlog.cursor if self._state else stored)

    def status(self) -> dict[str, Any]:
        """Return the publisher's part of ``/status``."""
        state = self._state
        return {
            "state": "publishing" if self.publishing else "waiting",
            "failure": (state and state.refusals.failure()) or self.failure,
            "warnings": [*state.refusals.warnings(), *state.lesser_faults] if state else [],
            "topic": self._options.names.updates,
            "source": state.source if state else None,
            "epoch": state.backlog.map.head.epoch if state else None,
            "partitions": state.backlog.map.head.partitions if state else None,
            "lag": self.lag,
            "published": state.published if state else 0,
            "foreign": state.foreign if state else 0,
            "opened": self.opened,
            "replicas": (state.replicas if state else ReplicaFaults())._asdict(),
        }

    def samples(self) -> Iterable[Sample]:
        """Return the publisher's metrics."""
        status = self.status()
        yield metrics.PUBLISHER_UP.sample(self.publishing)
        yield metrics.PUBLISHER_LAG.sample(self.lag)
        yield metrics.PUBLISHED.sample(status["published"])
        yield metrics.PUBLISHER_FOREIGN.sample(status["foreign"])
        yield metrics.PUBLISHER_OPENED.sample(self.opened)
        yield metrics.KAFKA_LEADERLESS.sample(status["replicas"]["leaderless"])
        yield metrics.KAFKA_UNDER_REPLICATED.sample(status["replicas"]["under_replicated"])
