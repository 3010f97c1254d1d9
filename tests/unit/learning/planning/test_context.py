from typing import Any

import pytest

from deploy.clients.data_service import BadUrl
from deploy.system.state_dir import StateDir
from deploy.topology import Mode
from diem.errors import DiemError
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Head, PartitionMap, Phase
from learning.planning.context import (
    RunningSystem,
    find_system,
    require_stable,
    system_from_status,
)


def process(name: str, url: str = "", report: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "process": name.partition("-")[0], "urls": {"internal": url}, "report": report}


def test_metadata_service_and_proxies_of_the_running_system_are_found() -> None:
    status = {
        "mode": "z-proxy",
        "processes": [process("metadata", "http://m"), process("proxy-1")],
    }
    assert system_from_status(status) == RunningSystem(("http://m",), Mode.Z_PROXY, 1)


def test_updates_that_are_written_together_are_those_of_the_running_data_service() -> None:
    data = process("data", report={"changes": 6000, "commits": 100})
    found = system_from_status({"mode": "z-client", "processes": [process("metadata", "http://m"), data]})
    assert found.batch == 60


def test_capacity_is_the_least_of_the_running_servers() -> None:
    servers = [
        process(f"websocket-{n}", report=its) for n, its in enumerate([{"capacity": 500}, {"capacity": 400}, None])
    ]
    running = [process("metadata", "http://m"), process("data", report={"capacity": 1}), *servers]
    assert system_from_status({"mode": "z-client", "processes": running}).capacity == 400
    assert system_from_status({"mode": "z-client", "processes": running[:2]}).capacity is None


def test_children_of_composites_are_found() -> None:
    composites = [
        process(f"composite-{n}", report={"children": [process("metadata", f"http://{n}"), process("proxy")]})
        for n in (1, 2)
    ]
    found = system_from_status({"mode": "xz", "processes": composites})
    assert found == RunningSystem(("http://1", "http://2"), Mode.XZ, 2)


def test_mode_without_partitions_is_an_error() -> None:
    with pytest.raises(DiemError, match=r"mode x has no partitions \(those that have: z-client"):
        system_from_status({"mode": "x", "processes": []})


def test_missing_metadata_service_is_an_error() -> None:
    with pytest.raises(DiemError, match="no metadata service runs in this z-client now"):
        system_from_status({"mode": "z-client", "processes": [process("data")]})


async def test_system_elsewhere_has_only_its_url(tmp_path: Any) -> None:
    assert await find_system(StateDir(tmp_path), "http://other:9400/") == RunningSystem(("http://other:9400",))
    for url in ("other:9400", "ftp://other", "http://other/v1", "http://other:x", "http://[::1"):
        with pytest.raises(BadUrl, match="--metadata is http"):
            await find_system(StateDir(tmp_path), url)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.MOVE, Phase.RETIRE])
def test_nothing_is_planned_while_endpoints_move(phase: Phase) -> None:
    require_stable(Snapshot(PartitionMap(Head(8, 3)), {}))
    with pytest.raises(DiemError, match=phase):
        require_stable(Snapshot(PartitionMap(Head(8, 3, phase)), {}))
