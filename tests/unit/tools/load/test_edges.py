"""The edges of a system, and the endpoints of a canary."""

from typing import Any

import pytest

from diem.protocol import endpoints
from diem.protocol.endpoints import CANARY
from diem.protocol.partitioners import partition_of
from tests.unit.deploy.scripted_service import running
from tools.load.edges import EdgeAddress, canary_endpoints, edges_of_groups, edges_of_system


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


def target(name: str, **labels: str) -> dict[str, Any]:
    return {"targets": ["127.0.0.1:1"], "labels": {"process": name, "number": "1", **labels}}


def server(name: str, *, is_partial: bool) -> EdgeAddress:
    return EdgeAddress(name, "ws://127.0.0.1:1/ws", is_server=True, is_partial=is_partial)


@pytest.mark.parametrize(
    ("mode", "clone", "expected"),
    [
        ("x", {}, server("websocket-1", is_partial=False)),
        ("z-proxy", {}, server("websocket-1", is_partial=True)),
        ("xz", {"clone": "2"}, server("composite-2/websocket-1", is_partial=True)),
    ],
)
def test_servers_are_watched_at_their_internal_listeners_and_proxies_at_their_public_ones(
    mode: str, clone: dict[str, str], expected: EdgeAddress
) -> None:
    processes = {"processes": [process("websocket-1", "ws://x"), process("proxy-1", "ws://p"), process("composite-2")]}
    targets = [target("websocket", mode=mode, **clone), target("bridge", mode=mode)]
    assert list(edges_of_system(processes, targets)) == [expected, EdgeAddress("proxy-1", "ws://p")]


def test_members_of_groups_are_found_through_the_metadata_service() -> None:
    assert list(edges_of_groups(running(servers=2))) == [
        EdgeAddress(f"clone-1/b{number}", "ws://i", is_server=True, is_partial=True) for number in (0, 1)
    ]
