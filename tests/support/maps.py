"""A partition map in the form of a bridge's records."""

from diem.protocol.partition_map import HEAD_KEY, START_KEY, PartitionMap, encode_entry, encode_head
from diem.protocol.update import Change


def changes_of(map_: PartitionMap) -> list[Change]:
    """Return the records of a whole map, from its start to its head, at offsets from 0."""
    entries = ((name, encode_entry(entry)) for name, entry in map_.entries.items())
    records = [(START_KEY, b""), *entries, (HEAD_KEY, encode_head(map_.head))]
    return [Change(offset, key, 0, 0, value) for offset, (key, value) in enumerate(records)]
