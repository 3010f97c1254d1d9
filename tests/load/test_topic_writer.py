import asyncio
from pathlib import Path
from random import Random

from diem.protocol.partitioners import partition_of
from tests.load.brokers import Brokers
from tests.load.system import System
from tests.load.topic_writer import TopicWriter
from tests.load.trace import Write

NAMES = [f"/{number}" for number in range(40)]
PARTITIONS = 4


class Producer:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[str]]] = []
        self.stopped = False

    def create_batch(self) -> "Batch":
        return Batch()

    async def send_batch(self, batch: "Batch", topic: str, *, partition: int) -> "asyncio.Future[None]":
        assert topic == "updates"
        self.batches.append((partition, batch.keys))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def stop(self) -> None:
        self.stopped = True


class Batch:
    """A batch of a producer."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def append(self, *, key: bytes, value: bytes, timestamp: None) -> object:
        assert key in value
        assert timestamp is None
        self.keys.append(key.decode())
        return self


async def test_write_is_one_batch_for_each_partition_and_what_is_watched_is_recorded(tmp_path: Path) -> None:
    writer = TopicWriter(Brokers(System("x", tmp_path)), NAMES, NAMES[:10], Random(1))
    producer = Producer()
    writer.use(producer, "updates", PARTITIONS)
    await writer.replay([Write(0.0, tuple(NAMES[:20])), Write(0.01, tuple(NAMES[5:25]))])
    assert sorted(key for _, keys in producer.batches for key in keys) == sorted(NAMES[:20] + NAMES[5:25])
    assert all(
        partition == partition_of(key.encode(), PARTITIONS) for partition, keys in producer.batches for key in keys
    )
    assert len(producer.batches) == 2 * PARTITIONS
    assert sorted(change.endpoint for change in writer.accepted) == sorted(NAMES[:10] + NAMES[5:10])
    assert writer.changed_since(0.0) == 40
    newest = await writer.final()
    assert newest == writer.newest()
    assert newest.keys() == {*NAMES[:10]}
    await writer.close()
    assert producer.stopped
