"""Which groups are read: those of the own clones, and while a move is prepared those of all clones."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import GroupLoadInProgressError, NodeNotReadyError

from diem.kafka.config import KafkaOptions
from diem.protocol.assignment import client_id
from diem.protocol.partition_map import Entry, Head, PartitionMap, Phase
from metadata.assignments import Assignments
from metadata.directory import Directory
from tests.unit.metadata.snapshots import server

OPTIONS = KafkaOptions("k:9092", topic_prefix="t.")
PREPARED = PartitionMap(Head(2, 1, Phase.PREPARE), {b"/a": Entry(0, 2)})


class Cluster:
    """Groups in Kafka, each with one member that has this many partitions."""

    def __init__(self, **groups: int) -> None:
        self.groups = {name.replace("_", "-"): partitions for name, partitions in groups.items()}
        self.described: list[str] = []
        self.fault: Exception | None = None

    async def list_consumer_groups(self) -> list[tuple[str, str]]:
        if self.fault:
            raise self.fault
        return [(f"t.{name}", "consumer") for name in self.groups]

    async def describe_consumer_groups(self, groups: list[str]) -> list[Any]:
        (group,) = groups
        self.described.append(group)
        name = group.removeprefix("t.")
        partitions = ConsumerProtocolMemberAssignment(0, [("t.updates", list(range(self.groups[name])))], b"")
        member = ("id", client_id(server(1)), "/host", b"", partitions.encode())
        members = [member] if self.groups[name] else []
        description = (0, group, "Stable" if members else "Empty", "consumer", "range", members)
        return [SimpleNamespace(groups=[description])]


class Clock:
    def monotonic(self) -> float:
        return 1.0

    def wall_ms(self) -> int:
        return 0


@pytest.fixture
def directory() -> Directory:
    return Directory([1])


@pytest.fixture
def assignments(directory: Directory) -> Assignments:
    return Assignments(OPTIONS, directory, Clock())


async def test_the_groups_of_all_clones_are_read_while_a_move_is_prepared(
    directory: Directory, assignments: Assignments
) -> None:
    cluster: Any = Cluster(z_1=3, z_2=2, z_7=0, z_02=1, x_001=2, pipeline=0)
    await assignments._read_all(cluster)
    assert cluster.described == ["t.z-1"], "nothing moves"
    directory.update_map(PREPARED)
    await assignments._read_all(cluster)
    assert cluster.described[1:] == ["t.z-1", "t.z-2", "t.z-7"]
    assert directory.unassigned(PREPARED) == "the servers of clone 2 to take partitions 2"
    cluster.groups["z-2"] = 3
    await assignments._read_all(cluster)
    assert directory.unassigned(PREPARED) is None


@pytest.mark.parametrize("fault", [GroupLoadInProgressError(), NodeNotReadyError(), OSError("reset")])
async def test_a_move_waits_while_the_groups_cannot_be_listed(
    directory: Directory, assignments: Assignments, fault: Exception
) -> None:
    cluster: Any = Cluster(z_1=3)
    cluster.fault = fault
    directory.update_map(PREPARED)
    await assignments._read_all(cluster)
    assert directory.unassigned(PREPARED) == "Kafka to report the clones"
    assert type(fault).__name__ in str(assignments.failure)
    cluster.fault = None
    await assignments._read_all(cluster)
    assert (directory.unassigned(PREPARED), assignments.failure) == (None, None)
