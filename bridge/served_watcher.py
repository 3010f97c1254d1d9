"""Watches a served topic in place of ``topic_watcher``: its partitions and bounds, and the epoch that they make.

Any bridge that finds a change proposes the next epoch; each serves the one in force (docs/adr/0037).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient

from bridge.consumer import FAULTS, bounds, consuming
from bridge.topic_records import TopicRecords
from bridge.topic_watcher import TopicWatcher
from diem.errors import ConfigurationError
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions, ServedTopic
from diem.kafka.epochs import EpochLog, ensure_epochs, map_of
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import MapRecord
from diem.kafka.metadata import Cluster, describe
from diem.kafka.topics import settings_in_force
from diem.process.backoff import Backoff
from diem.protocol.partition_map import HEAD_KEY, PartitionMap, encode_head
from diem.protocol.served_topic import Epoch, Observed, next_epoch

RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0


class EpochMap:
    """The partition map of the epoch in force, as a ``MapSource`` of the bridge's group."""

    def __init__(self, served: ServedTopic) -> None:
        self.on_changed: Callable[[], None] = lambda: None
        self.records: dict[bytes, MapRecord] = {}
        self.next = 0
        self.caught_up = False
        self.map: PartitionMap | None = None
        self._served = served

    def use(self, epoch: Epoch) -> None:
        """Use the map of this epoch from now on."""
        self.map, self.next, self.caught_up = map_of(self._served, epoch), epoch.number + 1, True
        self.records = {HEAD_KEY: MapRecord(epoch.number, encode_head(self.map.head))}
        self.on_changed()

    def is_current(self) -> bool:
        """Return True: a bridge whose epoch is replaced closes its link."""
        return True


class ServedTopicWatcher(TopicWatcher):
    """Source and streams of the feed, and the epoch.

    Args:
        options: the cluster.
        served: the topic.
        records: encodes by the epoch in force.
        reached: returns the reader's offsets by stream.
    """

    def __init__(
        self,
        options: KafkaOptions,
        served: ServedTopic,
        records: TopicRecords,
        reached: Callable[[], Mapping[str, int]],
    ) -> None:
        super().__init__(options)
        self.epoch: Epoch | None = None
        """The epoch of :attr:`source`."""
        self.map = EpochMap(served)
        self._records = records
        self._topics = (served.name,)
        self._served = served
        self._reached = reached
        self._ends: tuple[int, ...] = ()
        """The ends of the partitions when they were last observed."""
        self._has_epochs = False
        """The topic of the epochs has been made, or found to keep them."""
        self._is_cut = False
        """The last look found that a partition has lost its end."""
        self._compacted: str | None = None
        """Id of the topic found to be compacted."""

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.names)

    async def run(self, on_changed: Callable[[], None]) -> None:
        """Poll every 10 s until cancelled; call ``on_changed`` after a change of source or streams."""
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S)
        while True:
            try:
                async with connected_client(self._options) as client, consuming(self._options, None, 1) as consumer:
                    log = EpochLog(self._options, consumer)
                    while True:
                        if await self._poll(client, consumer, log):
                            on_changed()
                        await self._wait()
                        backoff.reset()
            except (*FAULTS, KafkaUnavailable, ConfigurationError) as error:
                self._has_epochs = False
                self._set_fault(str(error) or type(error).__name__)
            await asyncio.sleep(backoff.next_delay())

    async def _poll(self, client: AIOKafkaClient, consumer: AIOKafkaConsumer, log: EpochLog) -> bool:
        cluster = await describe(client, self._served.name)
        topic = cluster.topics.get(self._served.name)
        if topic is None or not topic.partitions:
            return self._on_missing(self._served.name)
        self._missing = False
        if (fault := await self._check_policy(client, topic.id)) is not None:
            self._set_fault(fault)
            return self.source is not None and self._set(None, ())
        names = tuple(f"{topic.name}/{number}" for number in sorted(topic.partitions))
        self.leaderless = frozenset(f"{topic.name}/{n}" for n, part in topic.partitions.items() if part.leader < 0)
        # Before the bounds, which a busy reader has passed by the time that they arrive.
        reached = self._reached()
        found = await bounds(consumer, names)
        if found.keys() != set(names):
            # Without its bounds, nobody knows what a partition has lost.
            self._set_fault(None)
            return False
        observed = Observed(topic.id, *zip(*(found[name] for name in names), strict=True))
        if not self._has_epochs:
            await ensure_epochs(client, self._options)
            self._has_epochs = True
        return await self._settle(cluster, observed, log, reached)

    async def _settle(self, cluster: Cluster, observed: Observed, log: EpochLog, reached: Mapping[str, int]) -> bool:
        """Use the epoch for what was observed, and agree on one where there is none."""
        names = tuple(f"{self._served.name}/{number}" for number in range(len(observed.ends)))
        before, self._ends = self._ends, observed.ends
        # Offsets count only in the topic that was read.
        same = self.epoch is not None and self.epoch.topic == observed.topic
        known = [max(end, reached.get(name, 0)) for name, end in zip(names, before, strict=False)] if same else []
        cut = [name for name, end, least in zip(names, observed.ends, known, strict=False) if end < least]
        if cut and not self._is_cut:
            # Confirmed by a second look: a broker that leads no more may have answered.
            self._is_cut, self._ends = True, before
            self.check_now()
            return False
        self._is_cut = False
        now_ms = int(time.time() * 1000)

        def propose(current: Epoch | None) -> Epoch | None:
            if current is None and self.epoch is not None:
                # The topic of the epochs was lost, and this bridge knows the last one.
                return replace(self.epoch, number=self.epoch.number + 1)
            # Others may have found the cut first.
            is_new = bool(cut) and current == self.epoch
            return next_epoch(current, observed, now_ms, before=before if same else (), cut=is_new)

        epoch = await log.agree(propose)
        if cut:
            self._log.warning("the topic has lost its end, a new epoch begins", partitions=cut)
        self._set_fault(None)
        if epoch != self.epoch:
            self.epoch = epoch
            self._records.use(epoch)
            self.map.use(epoch)
        source = f"{cluster.id}/{observed.topic}/{epoch.number}-{epoch.base}"
        return source != self.source and self._set(source, names[: epoch.partitions])

    async def _check_policy(self, client: AIOKafkaClient, topic_id: str) -> str | None:
        """Return the fault of a topic that is not compacted: values would disappear from it."""
        if topic_id == self._compacted:
            return None
        name = self._served.name
        try:
            (settings, *_) = await settings_in_force(client, name)
        except KafkaUnavailable as error:
            self._log.warning("cannot check that the topic is compacted", topic=name, reason=str(error))
        else:
            if "compact" not in (policy := settings[name].get("cleanup.policy", "")):
                return f"topic {name} is no state: its cleanup.policy is {policy}, it must be compact"
            if "delete" in policy:
                self._log.warning("values disappear from the topic: its cleanup.policy is compact,delete", topic=name)
        self._compacted = topic_id
        return None
