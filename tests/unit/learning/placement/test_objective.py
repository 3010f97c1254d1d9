from typing import Any, cast

import numpy as np
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from learning.placement.objective import clients_of_servers, server_of_endpoint, server_of_leaf
from tests.unit.learning.placement.instances import SECONDS, backend, instance


class _Cluster:
    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, _: str) -> set[int]:
        return set(range(self._partitions))


@pytest.mark.parametrize(("leaves", "servers"), [(48, 16), (48, 5), (7, 3), (3, 5), (1, 1), (60, 7)])
def test_servers_have_the_leaves_that_the_range_assignor_of_bridges_assigns(leaves: int, servers: int) -> None:
    members = {f"server-{each:03}": RangePartitionAssignor.metadata(["t"]) for each in range(servers)}
    found = RangePartitionAssignor.assign(cast("Any", _Cluster(leaves)), members)
    of_leaf = server_of_leaf(leaves, servers)
    for number, member in enumerate(sorted(members)):
        given = [leaf for _, each in found[member].assignment for leaf in each]
        assert given == np.flatnonzero(of_leaf == number).tolist()


def test_hot_endpoints_have_no_server() -> None:
    assert server_of_endpoint(np.array([0, -1, 3, 2], np.int32), 4, 2).tolist() == [0, -1, 1, 1]


@pytest.mark.parametrize(("hot_only", "clients"), [(0, [8, 3, 1]), (1, [8, 3, 2]), (3, [8, 3.5, 3.5]), (15, [9, 9, 9])])
def test_clients_of_hot_endpoints_only_go_where_the_fewest_are(hot_only: int, clients: list[float]) -> None:
    second = int(SECONDS)
    sets = [([0], 6 * second), ([0, 1, 3], 2 * second), ([1], second), ([2], second), ([3], hot_only * second)]
    made = instance([1.0] * 4, *(each for each in sets if each[1]))
    found = clients_of_servers(made, backend(made), np.array([0, 1, 2, -1], np.int32), 3)
    assert found.tolist() == clients
