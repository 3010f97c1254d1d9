"""The edges of a system, and the endpoints of a canary."""

from typing import Any

import pytest

from diem.protocol import endpoints
from diem.protocol.endpoints import CANARY
from diem.protocol.partition_map import partition_of
from tests.unit.deploy.scripted_service import running
from tools.canary.edges import EdgeAddress, EdgeKind, canary_endpoints, edges_of_groups, edges_of_system, named_edges


@pytest.mark.parametrize("partitions", [1, 12, 100])
def test_each_partition_has_one_endpoint_below_the_reserved_prefix(partitions: int) -> None:
    names = canary_endpoints(partitions)
    assert list(names.values()) == list(range(partitions))
    for name, partition in names.items():
        assert endpoints.check(name).startswith(CANARY)
        assert partition_of(name.encode(), partitions) == partition
    assert canary_endpoints(partitions) == names


def process(name: str, public: str | None = None) -> dict[str, Any]:
    return {"name": name, "process": name.partition("-")[0], "urls": {"public": public, "internal": None}}


def target(port: int, **labels: str) -> dict[str, Any]:
    return {"targets": [f"127.0.0.1:{port}"], "labels": labels}


def test_servers_are_watched_at_their_internal_listeners_and_proxies_at_their_public_ones() -> None:
    processes = {"mode": "z-proxy", "processes": [process("websocket-1", "ws://x/ws"), process("proxy-1", "ws://p/ws")]}
    targets = [
        target(9101, process="websocket", number="1", mode="z-proxy"),
        target(9201, process="bridge", number="1", mode="z-proxy"),
    ]
    assert list(edges_of_system(processes, targets)) == [
        EdgeAddress("websocket-1", "ws://127.0.0.1:9101/ws", EdgeKind.MEMBER),
        EdgeAddress("proxy-1", "ws://p/ws", EdgeKind.PUBLIC),
    ]


def test_servers_of_composites_are_named_with_their_composite() -> None:
    processes = {"mode": "xz", "processes": [process("composite-2", "ws://c/ws")]}
    targets = [target(1, process="websocket", number="1", clone="2", mode="xz")]
    found = list(edges_of_system(processes, targets))
    assert [each.name for each in found] == ["composite-2/websocket-1", "composite-2"]
    assert [each.is_partial for each in found] == [True, False]


def test_clones_of_mode_x_have_all_partitions() -> None:
    (found,) = edges_of_system({"mode": "x"}, [target(1, process="websocket", number="1", mode="x")])
    assert not found.is_partial


def test_members_of_groups_are_found_through_the_metadata_service() -> None:
    found = list(edges_of_groups(running(servers=2)))
    assert found == [EdgeAddress(f"clone-1/b{n}", "ws://i", EdgeKind.MEMBER) for n in (0, 1)]


def test_edges_can_be_named_by_url() -> None:
    assert list(named_edges(["wss://a/ws"], ["http://10.0.0.2:9101"])) == [
        EdgeAddress("wss://a/ws", "wss://a/ws", EdgeKind.PUBLIC),
        EdgeAddress("http://10.0.0.2:9101", "ws://10.0.0.2:9101/ws", EdgeKind.SERVER),
    ]
