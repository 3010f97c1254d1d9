from typing import Any

import pytest

from deploy.admin.diagram import MAX_GROUPS, MAX_PAIRS, Diagram, diagram
from deploy.admin.health import HealthLevel
from tests.unit.deploy.admin.statuses import composites, data, dead, process, replace, server, status, z_client


def drawn(of: dict[str, Any]) -> Diagram:
    return diagram(of, 10, 2.5)


def ways(of: Diagram, *, control: bool = False) -> set[str]:
    return {f"{link.source}>{link.target}" for link in of.links if link.control == control}


def broken(of: Diagram) -> set[str]:
    return {f"{link.source}>{link.target}" for link in of.links if not link.flows}


@pytest.mark.parametrize(
    ("of", "stages", "expected"),
    [
        (
            status("single", data(), server("websocket-1")),
            ["sources", "data", "servers", "clients"],
            {"sources>data", "data>websocket-1", "websocket-1>clients"},
        ),
        (
            status(
                "x-broadcast", data(), process("broadcast", {"readers": 1}), process("nginx", {}), server("websocket-1")
            ),
            ["sources", "data", "log", "servers", "nginx", "clients"],
            {"sources>data", "data>broadcast", "broadcast>websocket-1", "websocket-1>nginx", "nginx>clients"},
        ),
        (
            z_client(1),
            ["sources", "data", "log", "bridges", "servers", "clients"],
            {"sources>data", "data>kafka", "kafka>bridge-1", "bridge-1>websocket-1", "websocket-1>clients"},
        ),
        (
            status(
                "z-proxy",
                data(sources=[]),
                process("bridge-1", {"live": True}),
                server("websocket-1"),
                process("proxy-1", {"clients": 3}),
            ),
            ["data", "log", "bridges", "servers", "edge", "clients"],
            {"data>kafka", "kafka>bridge-1", "bridge-1>websocket-1", "websocket-1>proxy-1", "proxy-1>clients"},
        ),
    ],
    ids=["single", "x-broadcast", "z-client", "z-proxy"],
)
def test_updates_go_from_stage_to_stage(of: dict[str, Any], stages: list[str], expected: set[str]) -> None:
    found = drawn(of)
    assert found.stages == stages
    assert ways(found) == expected
    assert not broken(found)


def test_owners_go_from_kafka_through_the_metadata_service_to_who_needs_them() -> None:
    assert ways(drawn(z_client()), control=True) == {"kafka>metadata", "metadata>clients"}


def test_pairs_are_in_one_row_each_and_what_is_alone_is_in_the_middle() -> None:
    places = {node.id: (node.stage, node.row) for node in drawn(z_client(2)).nodes}
    assert places["bridge-1"] == ("bridges", 0)
    assert places["websocket-1"] == ("servers", 0)
    assert places["bridge-2"][1] == places["websocket-2"][1] == 1
    assert places["metadata"] == ("bridges", 2)
    assert places["data"][1] == places["kafka"][1] == places["clients"][1] == 1


def test_dead_server_interrupts_its_own_way_only() -> None:
    found = drawn(replace(z_client(), dead("websocket-1")))
    assert broken(found) == {"bridge-1>websocket-1", "websocket-1>clients"}
    (node,) = (node for node in found.nodes if node.id == "websocket-1")
    assert (node.level, node.detail) == (HealthLevel.CRITICAL, "down")


def test_brokers_are_one_node_with_the_number_that_is_down() -> None:
    brokers = [process(f"kafka-{n}", {}) for n in (1, 2)]
    found = drawn(
        status("x", data(), *brokers, dead("kafka-3"), process("bridge-1", {"live": True}), server("websocket-1"))
    )
    (node,) = (node for node in found.nodes if node.stage == "log")
    assert (node.detail, node.level) == ("1 of 3 down", HealthLevel.CRITICAL)


def test_kafka_of_another_system_is_as_reachable_as_the_publisher_finds_it() -> None:
    for failure, detail in ((None, "of another system"), ("no broker", "unreachable")):
        of = status(
            "x", data(publisher={"failure": failure}), process("bridge-1", {"live": True}), server("websocket-1")
        )
        assert [node.detail for node in drawn(of).nodes if node.stage == "log"] == [detail]


def test_large_systems_are_bounded_and_show_what_is_wrong() -> None:
    found = drawn(replace(z_client(40), dead("websocket-33")))
    servers = [node for node in found.nodes if node.stage == "servers"]
    assert len(servers) == MAX_PAIRS + 1
    assert [node.detail for node in servers if node.id in {"more", "websocket-33"}] == ["down", "28 more, all ready"]
    assert {"kafka>more", "more>clients"} <= ways(found)


def test_composites_are_frames_and_those_beyond_the_bound_are_nodes() -> None:
    found = drawn(composites(2))
    assert {node.group for node in found.nodes} == {"", "composite-1", "composite-2"}
    assert {"composite-1/websocket-1>composite-1/proxy", "composite-2/proxy>nginx", "nginx>clients"} <= ways(found)
    assert "composite-1/websocket-1>composite-2/proxy" not in ways(found)
    assert ways(found, control=True) >= {"composite-1/metadata>composite-1/proxy"}
    # The topic of hot endpoints, which every server has, is none of its share.
    assert {node.detail for node in found.nodes if "websocket" in node.id} == {"2 partitions"}

    many = replace(composites(7), dead("composite-6"))
    found = drawn(many)
    assert len({node.group for node in found.nodes} - {""}) == MAX_GROUPS
    alone = {node.id: node.detail for node in found.nodes if node.id.startswith("composite") and not node.group}
    assert alone == {"composite-5": "2 servers", "composite-6": "down", "composite-7": "2 servers"}
    assert "composite-7>nginx" in ways(found)


def test_failing_sources_are_counted() -> None:
    sources = [{"name": "a", "ok": True}, {"name": "b", "ok": False, "error": "no such file"}]
    (node,) = (node for node in drawn(status("single", data(sources=sources))).nodes if node.id == "sources")
    assert (node.detail, node.level) == ("1 of 2 fail", HealthLevel.WARNING)
