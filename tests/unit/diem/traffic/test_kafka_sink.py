"""The sink of recorded traffic without a Kafka; tests/integration/kafka/test_traffic.py has one."""

import pytest

from diem.kafka.config import KafkaOptions
from diem.traffic.kafka_sink import KafkaSink
from diem.traffic.sinks import SinkUnavailable
from tests.support.ports import free_port


async def test_only_events_need_a_broker() -> None:
    sink = KafkaSink(KafkaOptions(f"127.0.0.1:{free_port()}"), "websocket-1")
    await sink.write([])
    with pytest.raises(SinkUnavailable, match="Connect call failed"):
        await sink.write([b"{}"])
    await sink.close()
