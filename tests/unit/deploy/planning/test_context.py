from typing import Any

import pytest
import typer

from deploy.planning.context import (
    BadMetadataUrl,
    MigrationInProgress,
    NoMetadataService,
    NoPartitions,
    System,
    find_system,
    parse_server_counts,
    parse_share,
    parse_window,
    require_stable,
    system_from_status,
)
from deploy.system.state_dir import StateDir
from deploy.topology import Mode, ProxyMode
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Head, PartitionMap, Phase
from metadata.statistics.window import BadWindow, Window


def process(name: str, url: str = "", report: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "process": name.partition("-")[0], "urls": {"internal": url}, "report": report}


def test_metadata_service_and_proxies_of_what_runs_are_found() -> None:
    status = {
        "mode": "z-proxy",
        "processes": [process("metadata", "http://m"), process("proxy-1", report={"mode": "passthrough"})],
    }
    assert system_from_status(status) == System(("http://m",), Mode.Z_PROXY, ProxyMode.PASSTHROUGH, 1)


def test_those_inside_of_composites_are_found() -> None:
    composites = [
        process(f"composite-{n}", report={"children": [process("metadata", f"http://{n}"), process("proxy")]})
        for n in (1, 2)
    ]
    found = system_from_status({"mode": "xz", "processes": composites})
    assert found == System(("http://1", "http://2"), Mode.XZ, None, 2)


def test_mode_without_partitions_is_refused_by_name() -> None:
    with pytest.raises(NoPartitions, match=r"mode x has no partitions \(those that have: z-client"):
        system_from_status({"mode": "x", "processes": []})


def test_metadata_service_that_does_not_run_is_missed() -> None:
    with pytest.raises(NoMetadataService, match="no metadata service runs in this z-client now"):
        system_from_status({"mode": "z-client", "processes": [process("data")]})


async def test_system_elsewhere_is_known_by_its_url(tmp_path: Any) -> None:
    assert await find_system(StateDir(tmp_path), "http://other:9400/") == System(("http://other:9400",))
    for url in ("other:9400", "ftp://other", "http://other/v1", "http://other:x", "http://[::1"):
        with pytest.raises(BadMetadataUrl):
            await find_system(StateDir(tmp_path), url)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.MOVE, Phase.RETIRE])
def test_nothing_is_planned_while_endpoints_move(phase: Phase) -> None:
    require_stable(Snapshot(PartitionMap(Head(8, 3)), {}))
    with pytest.raises(MigrationInProgress, match=phase):
        require_stable(Snapshot(PartitionMap(Head(8, 3, phase)), {}))


@pytest.mark.parametrize(("text", "found"), [("0.5%", 0.005), (" 5 %", 0.05), ("100%", 1.0), ("0%", 0.0)])
def test_share_is_a_percentage(text: str, found: float) -> None:
    assert parse_share(text, "--movement") == pytest.approx(found)


@pytest.mark.parametrize("text", ["5", "0.05", "101%", "-1%", "%", "many"])
def test_share_without_a_sign_could_be_anything(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--movement is a percentage"):
        parse_share(text, "--movement")


def test_numbers_of_servers_are_sorted_and_distinct() -> None:
    assert parse_server_counts("8, 2,8,4") == (2, 4, 8)


@pytest.mark.parametrize("text", ["", "0", "2,", "1001", "a"])
def test_wrong_numbers_of_servers_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--servers is numbers"):
        parse_server_counts(text)


def test_window_is_a_length_or_two_times() -> None:
    assert parse_window(None, None, None) is None
    assert parse_window("90s", None, None) == 90_000
    assert parse_window(None, "1970-01-01T00:00:01Z", "1970-01-01T00:00:03Z") == Window(1000, 3000)
    assert parse_window("1s", None, "1970-01-01T00:00:03Z") == Window(2000, 3000)


def test_wrong_window_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="--from needs --to"):
        parse_window(None, "2026-01-01", None)
    with pytest.raises(BadWindow, match="is no length of time"):
        parse_window("soon", None, None)
