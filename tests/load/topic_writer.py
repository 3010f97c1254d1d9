"""A writer of the updates topic itself: more updates a second than a Data Service accepts, as records like its own."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from random import Random
from time import monotonic, time
from typing import Final

from aiokafka import AIOKafkaProducer

from diem.protocol.partitioners import partition_of
from diem.protocol.update import encode
from services.data.publisher.log import PRODUCER
from tests.load.brokers import Brokers
from tests.load.system import NotUp
from tests.load.writes import Writer
from tests.oracle.history import Accepted, Event

MAX_WRITE: Final = 2_000
"""Records of a write: those of one partition are one batch, which has a limit of bytes."""


class TopicWriter(Writer):
    """Writes updates without data, for each write one batch per partition; accepted is what the topic acknowledged.

    The Data Service knows nothing of them. Only changes of ``watched`` endpoints are recorded: nobody is sent others.
    """

    def __init__(self, brokers: Brokers, endpoints: Sequence[str], watched: Collection[str], random: Random) -> None:
        super().__init__("http://127.0.0.1", "", endpoints, random, rate=1.0)
        self._brokers = brokers
        self._watched = frozenset(watched)
        self._producer: AIOKafkaProducer | None = None
        self._topic = ""
        self._partition: dict[str, int] = {}
        self._version = int(time() * 1000)
        self._written: list[tuple[float, int]] = []

    async def close(self) -> None:
        """Close the connections."""
        await super().close()
        if self._producer is not None:
            await self._producer.stop()

    def use(self, producer: AIOKafkaProducer, topic: str, partitions: int) -> None:
        """Write with a producer, which ``close`` stops."""
        self._producer, self._topic = producer, topic
        # Once: the hash is slow in Python.
        self._partition = {name: partition_of(name.encode(), partitions) for name in self.endpoints}

    async def put_all(self) -> None:
        """Change every endpoint once. Raises ``NotUp`` if there is no topic."""
        topic = await self._brokers.topic()
        if topic is None:
            raise NotUp("there is no updates topic")
        options = self._brokers.options
        producer = AIOKafkaProducer(**PRODUCER, **options.client_arguments())
        self.use(producer, options.names.updates, len(topic.partitions))
        await producer.start()
        for start in range(0, len(self.endpoints), MAX_WRITE):
            await self._put(self.endpoints[start : start + MAX_WRITE], due=monotonic())

    async def final(self) -> dict[str, int]:
        """Return the newest versions: there is no other source of them."""
        return self.newest()

    async def read_all(self) -> tuple[list[Event], dict[int, tuple[str, ...]]]:
        """Return nothing: REST has no data."""
        return [], {}

    def changed_since(self, time: float) -> int:
        """Return the number of changes accepted since ``time``, including those that nobody watches."""
        return sum(number for at, number in self._written if at >= time)

    async def _put(self, endpoints: Sequence[str], *, due: float, repeats: bool = True) -> int:
        """Write records; return the number of the write, from 1."""
        self.requests += 1
        number = self.requests
        parts: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        for endpoint in endpoints:
            self._version += 1
            parts[self._partition[endpoint]].append((endpoint, self._version))
        await asyncio.gather(*(self._send(partition, part) for partition, part in parts.items()))
        now = monotonic()
        self.latencies.append(now - due)
        self._written.append((now, len(endpoints)))
        watched = self._watched
        self.accepted += [
            Accepted(endpoint, version, now)
            for part in parts.values()
            for endpoint, version in part
            if endpoint in watched
        ]
        return number

    async def _send(self, partition: int, part: Sequence[tuple[str, int]]) -> None:
        assert self._producer is not None
        batch = self._producer.create_batch()
        for endpoint, version in part:
            value = encode(endpoint, version, version)
            if batch.append(key=endpoint.encode(), value=value, timestamp=None) is None:
                raise ValueError(f"{len(part)} records of one partition are more than a batch")
        await (await self._producer.send_batch(batch, self._topic, partition=partition))
