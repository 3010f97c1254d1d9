"""The Kafka under a system, for its faults: leaders, in-sync replicas, records of another producer."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

from aiokafka import AIOKafkaProducer

from deploy.cli.options import find_cluster
from deploy.system.state_dir import StateDir
from deploy.topology.kafka_users import KafkaUser
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import Topic, describe
from tests.load.processes import Process
from tests.load.system import NotUp, System

IN_SYNC_SECONDS = 60.0
POLL_SECONDS = 0.2
_FIRST_CONTROLLER = "Performing controller activation"
"""Logged by the controller that creates a new cluster's metadata, not by its successors."""

Record = tuple[int, bytes | None, bytes | None]
"""Partition, key, value."""


class Brokers:
    """``options`` name a cluster; without them it is the system's own."""

    def __init__(self, system: System, options: KafkaOptions | None = None) -> None:
        self._system = system
        self._options = options

    @property
    def options(self) -> KafkaOptions:
        """Options of the cluster."""
        if self._options:
            return self._options
        return find_cluster(StateDir(self._system.state), {}, KafkaUser.OPERATOR).options

    def processes(self) -> list[Process]:
        """Return the brokers that the system runs."""
        return [process for process in self._system.processes() if process.name.startswith("kafka-")]

    async def topic(self) -> Topic | None:
        """Return the present updates topic. Raises ``KafkaUnavailable``."""
        options = self.options
        async with connected_client(options) as client:
            return (await describe(client, options.names.updates)).topics.get(options.names.updates)

    async def leader_of_most(self) -> str:
        """Return the name of the broker that leads most partitions of the updates topic."""
        topic = await self.topic()
        if topic is None:
            raise NotUp("there is no updates topic")
        leaders = Counter(partition.leader for partition in topic.partitions.values())
        return f"kafka-{leaders.most_common(1)[0][0]}"

    def controller(self) -> str:
        """Return the name of the broker that was the first active controller."""
        for broker in self.processes():
            log = self._system.state / "logs" / f"{broker.name}.log"
            if _FIRST_CONTROLLER in log.read_text(encoding="utf-8"):
                return broker.name
        raise NotUp("no broker says that it is the controller")

    async def until_in_sync(self, within: float = IN_SYNC_SECONDS) -> None:
        """Wait until every replica of the updates topic is in sync. Raises ``NotUp`` after a time-out."""
        limit = monotonic() + within
        while monotonic() < limit:
            with suppress(KafkaUnavailable):
                topic = await self.topic()
                if topic and all(set(part.isr) == set(part.replicas) for part in topic.partitions.values()):
                    return
            await asyncio.sleep(POLL_SECONDS)
        raise NotUp(f"the replicas were not in sync within {within:.0f} s")

    async def delete_topic(self) -> None:
        """Delete the updates topic."""
        options = self.options
        async with admin_client(options) as admin:
            await admin.delete_topics([options.names.updates])

    async def write(self, records: Iterable[Record]) -> list[int]:
        """Write records as another producer would; return their offsets."""
        options = self.options
        producer = AIOKafkaProducer(acks="all", **options.client_arguments())
        await producer.start()
        try:
            sending = [
                await producer.send(options.names.updates, value, key=key, partition=partition)
                for partition, key, value in records
            ]
            return [(await sent).offset for sent in sending]
        finally:
            await producer.stop()
