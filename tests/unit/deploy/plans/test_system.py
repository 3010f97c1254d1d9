from typing import Any

import pytest

from deploy.plans.system import (
    BadMetadataUrl,
    MigrationInProgress,
    NoMetadataService,
    NoPartitions,
    System,
    find,
    must_rest,
    of_status,
)
from deploy.statedir import StateDir
from deploy.topology import Mode, ProxyMode
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Head, PartitionMap, Phase


def process(name: str, url: str = "", report: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "process": name.partition("-")[0], "urls": {"internal": url}, "report": report}


def test_metadata_service_and_proxies_of_what_runs_are_found() -> None:
    status = {
        "mode": "z-proxy",
        "processes": [process("metadata", "http://m"), process("proxy-1", report={"mode": "passthrough"})],
    }
    assert of_status(status) == System(("http://m",), Mode.Z_PROXY, ProxyMode.PASSTHROUGH, 1)


def test_those_inside_of_composites_are_found() -> None:
    composites = [
        process(f"composite-{n}", report={"children": [process("metadata", f"http://{n}"), process("proxy")]})
        for n in (1, 2)
    ]
    assert of_status({"mode": "xz", "processes": composites}) == System(("http://1", "http://2"), Mode.XZ, None, 2)


def test_mode_without_partitions_is_refused_by_name() -> None:
    with pytest.raises(NoPartitions, match=r"mode x has no partitions \(those that have: z-client"):
        of_status({"mode": "x", "processes": []})


def test_metadata_service_that_does_not_run_is_missed() -> None:
    with pytest.raises(NoMetadataService, match="no metadata service runs in this z-client now"):
        of_status({"mode": "z-client", "processes": [process("data")]})


async def test_system_elsewhere_is_known_by_its_url(tmp_path: Any) -> None:
    assert await find(StateDir(tmp_path), "http://other:9400/") == System(("http://other:9400",))
    for url in ("other:9400", "ftp://other", "http://other/v1", "http://other:x", "http://[::1"):
        with pytest.raises(BadMetadataUrl):
            await find(StateDir(tmp_path), url)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.MOVE, Phase.RETIRE])
def test_nothing_is_planned_while_endpoints_move(phase: Phase) -> None:
    must_rest(Snapshot(PartitionMap(Head(8, 3)), {}))
    with pytest.raises(MigrationInProgress, match=phase):
        must_rest(Snapshot(PartitionMap(Head(8, 3, phase)), {}))
