"""Sink of events in Kafka's topic ``<prefix>traffic``: batches without keys, acknowledged by the leader alone."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, KafkaError

from diem.errors import DiemError
from diem.kafka.client import abort_producer, silence_library_log
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import TimestampsRefused
from diem.kafka.topic_config import CODEC, TRAFFIC_BATCH_BYTES
from diem.kafka.topics import ensure_traffic
from diem.traffic.sinks import SinkUnavailable

PRODUCER: Final[dict[str, Any]] = {
    # Events are aggregated by the million: one lost with a broker, or duplicated, is not worth waiting for replicas.
    "acks": 1,
    "enable_idempotence": False,
    "max_batch_size": TRAFFIC_BATCH_BYTES,
    "compression_type": CODEC,
    "request_timeout_ms": 5000,
    "metadata_max_age_ms": 10_000,
}
WRITE_TIMEOUT_S: Final = 10.0
"""Timeout of a batch and of the producer's start, after which the producer is replaced."""


class KafkaSink:
    """Writes to Kafka; creates a missing topic if permitted. After any failure, the producer is replaced."""

    def __init__(self, options: KafkaOptions, edge: str) -> None:
        self._options = options
        self._edge = edge
        self._producer: AIOKafkaProducer | None = None
        self._partitions: list[int] = []

    async def write(self, events: Sequence[bytes]) -> None:
        """Write batches to random partitions: the times of the events give their order.

        Raises:
            SinkUnavailable: ``kafka``; some events may have been written.
        """
        if not events:
            return
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                producer = self._producer or await self._open()
                await self._send(producer, events)
        except (KafkaError, DiemError, OSError, TimeoutError) as error:
            await self.close()
            if isinstance(error, InvalidTimestampError):
                text = str(TimestampsRefused(self._options.names.traffic))
            else:
                text = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__} {error}"
            raise SinkUnavailable("kafka", text) from error
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop the producer without waiting for batches in flight."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abort_producer(producer)

    async def _open(self) -> AIOKafkaProducer:
        silence_library_log()
        self._partitions = await ensure_traffic(self._options)
        client_id = f"{self._options.topic_prefix}traffic-{self._edge}"
        producer = AIOKafkaProducer(client_id=client_id, **PRODUCER, **self._options.client_arguments())
        self._producer = producer
        await producer.start()
        return producer

    async def _send(self, producer: AIOKafkaProducer, events: Sequence[bytes]) -> None:
        done = 0
        while done < len(events):
            batch = producer.create_batch()
            begun = done
            while done < len(events) and batch.append(key=None, value=events[done], timestamp=None) is not None:
                done += 1
            if done == begun:
                raise SinkUnavailable("kafka", f"an event of {len(events[done])} bytes fits into no batch")
            partition = random.choice(self._partitions)  # noqa: S311 - spreads load
            await (await producer.send_batch(batch, self._options.names.traffic, partition=partition))
