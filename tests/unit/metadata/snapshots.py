"""Snapshots, queries and loads for tests of the metadata service."""

from collections.abc import Mapping

from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot, member_id
from diem.protocol.partition_map import Entry, Head, PartitionMap
from metadata.locate import LocateQuery


def server(number: int) -> Owner:
    return Owner(member_id(number), f"ws://internal:{number}/ws", f"ws://public:{number}/ws")


def clone(*numbers: int, partitions: int = 4, state: str = STABLE) -> Clone:
    """A group whose servers own the partitions in turn."""
    owners = {part: member_id(numbers[part % len(numbers)]) for part in range(partitions)} if numbers else {}
    return Clone(state, {member_id(number): server(number) for number in numbers}, owners)


def a_map(epoch: int = 0, partitions: int = 4, entries: Mapping[bytes, Entry] | None = None) -> PartitionMap:
    return PartitionMap(Head(partitions, epoch), {b"/hot": Entry(-1)} if entries is None else entries)


def snapshot(**clones: Clone) -> Snapshot:
    """The clones ``c1=...`` under the map of epoch 0."""
    return Snapshot(a_map(), {int(name[1:]): group for name, group in clones.items()})


def query(*names: str, clone: int | None = None) -> LocateQuery:
    return LocateQuery(names, (), 0, clone)


class FixedLoads:
    """Numbers of clients by server: ``s1=...``."""

    def __init__(self, **clients: int) -> None:
        self.clients = {server(int(name[1:])).public: count for name, count in clients.items()}

    def of(self, public: str) -> int | None:
        return self.clients.get(public)

    def redirected(self, public: str) -> None:
        if public in self.clients:
            self.clients[public] += 1
