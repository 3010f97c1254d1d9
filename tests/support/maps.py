"""Partition maps: begun in Kafka, and in the form of a bridge's records."""

from collections.abc import Collection

from diem.kafka.config import KafkaOptions
from diem.kafka.map_writer import begin_map
from diem.kafka.topics import ensure
from diem.protocol.partition_map import HEAD_KEY, START_KEY, PartitionMap, encode_entry, encode_head
from diem.protocol.update import Change


def changes_of(map_: PartitionMap) -> list[Change]:
    """Return the records of a whole map, from its start to its head, at offsets from 0."""
    entries = ((name, encode_entry(entry)) for name, entry in map_.entries.items())
    records = [(START_KEY, b""), *entries, (HEAD_KEY, encode_head(map_.head))]
    return [Change(offset, key, 0, 0, value) for offset, (key, value) in enumerate(records)]


async def ensure_map(
    options: KafkaOptions, partitions: int, hot: Collection[str] = (), known: PartitionMap | None = None
) -> PartitionMap:
    """Create missing topics, and the map where there is none."""
    await ensure(options, partitions)
    return await begin_map(options, partitions, hot, known)
