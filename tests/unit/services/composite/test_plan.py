import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from diem.process.environment import Ports, StopStage
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.partition_map import Head, PartitionMap
from diem.protocol.traffic import is_edge
from proxy.routing import Router
from proxy.settings import Allowed
from services.composite.plan import Child, CompositePlan, child_names, children

PLAN = CompositePlan(3, "xz", "shared", "0.0.0.0", 8603, 4.0, {"ORIGINS": "[]", "PAGE_PORT": "8080"})
PLACES = {name: Ports(20_000 + n, 21_000 + n) for n, name in enumerate(child_names(3))}


def planned(pairs: int) -> dict[str, Child]:
    return {child.name: child for child in children(PLAN, pairs, PLACES.__getitem__)}


def own(child: Child) -> Mapping[str, str]:
    prefix = f"DIEM_{child.process.upper()}_"
    return {name.removeprefix(prefix): value for name, value in child.env.items() if name.startswith(prefix)}


def test_composite_is_pairs_with_a_metadata_service_and_a_proxy() -> None:
    assert list(planned(2)) == ["metadata", "bridge-1", "bridge-2", "websocket-1", "websocket-2", "proxy"]
    assert tuple(planned(3)) == child_names(3)
    assert all(child.env["DIEM_SUPERVISED"] == "1" for child in planned(3).values())


def test_children_are_told_where_sockets_for_links_among_them_are_or_nothing() -> None:
    assert all("DIEM_INTERNAL_SOCKETS" not in child.env for child in planned(1).values())
    plan = replace(PLAN, sockets=Path("/state/sockets"))
    made = children(plan, 1, PLACES.__getitem__)
    assert all(child.env["DIEM_INTERNAL_SOCKETS"] == "/state/sockets" for child in made)


def test_children_of_several_composites_have_names_of_their_own_in_traffic() -> None:
    edges = [child.env["DIEM_TRAFFIC_EDGE"] for child in planned(2).values() if child.process in {"websocket", "proxy"}]
    assert edges == ["composite-3.websocket-1", "composite-3.websocket-2", "composite-3.proxy"]
    assert all(map(is_edge, edges))


def test_bridge_is_a_member_of_the_composites_own_group_and_names_its_server() -> None:
    bridge = planned(2)["bridge-2"]
    assert own(bridge) == {
        "INTERNAL_HOST": "127.0.0.1",
        "INTERNAL_PORT": str(PLACES["bridge-2"].internal),
        "NUMBER": "2",
        "CLONE": "3",
        "SERVER_INTERNAL_URL": f"ws://127.0.0.1:{PLACES['websocket-2'].internal}/ws",
        "SERVER_PUBLIC_URL": f"ws://127.0.0.1:{PLACES['websocket-2'].internal}/ws",
    }
    assert bridge.internal_url == f"http://127.0.0.1:{PLACES['bridge-2'].internal}"


def test_servers_of_a_composite_name_each_other_so_that_its_proxy_can_tell_them_apart() -> None:
    """A hint that means several members means none of them: the proxy would wait instead of following it."""
    made = [own(child) for name, child in planned(3).items() if name.startswith("bridge-")]
    members = {
        each["NUMBER"]: Owner(each["NUMBER"], each["SERVER_INTERNAL_URL"], each["SERVER_PUBLIC_URL"]) for each in made
    }
    routes = Router(1, Allowed(["127.0.0.1/32"]))
    routes.apply(Snapshot(PartitionMap(Head(3, 0)), {1: Clone(STABLE, members, {})}))
    assert len(members) == 3
    for owner in members.values():
        assert routes.hinted(owner.public) == owner.internal


def test_server_reads_its_own_bridge_and_is_open_to_this_machine_alone() -> None:
    told = own(planned(2)["websocket-2"])
    assert told["FEED_URL"] == f"ws://127.0.0.1:{PLACES['bridge-2'].internal}/feed"
    assert (told["NUMBER"], told["MODE"], told["HOST"]) == ("2", "xz", "127.0.0.1")
    assert told["PORT"] == str(PLACES["websocket-2"].public)


def test_metadata_service_watches_the_composites_group_alone() -> None:
    told = own(planned(1)["metadata"])
    assert json.loads(told["CLONES"]) == [3]
    assert (told["HOST"], told["PORT"]) == ("127.0.0.1", str(PLACES["metadata"].public))


def test_proxy_has_the_public_port_and_the_rules_for_clients() -> None:
    proxy = planned(1)["proxy"]
    assert own(proxy) == {
        "NUMBER": "3",
        "CLONE": "3",
        "MODE": "shared",
        "SCALING": "xz",
        "HOST": "0.0.0.0",
        "PORT": "8603",
        "INTERNAL_HOST": "127.0.0.1",
        "INTERNAL_PORT": str(PLACES["proxy"].internal),
        "METADATA_URLS": f'["ws://127.0.0.1:{PLACES["metadata"].internal}/watch"]',
        "ALLOWED": '["127.0.0.1/32"]',
        "ORIGINS": "[]",
        "PAGE_PORT": "8080",
    }


def test_clients_leave_first_and_the_proxy_takes_half_of_the_time_at_most() -> None:
    stages = {child.process: child.stage for child in planned(1).values()}
    assert sorted(stages, key=stages.__getitem__, reverse=True) == ["proxy", "websocket", "bridge", "metadata"]
    assert planned(1)["proxy"].env["DIEM_DRAIN_SECONDS"] == "2.0"
    assert planned(1)["bridge-1"].env["DIEM_DRAIN_SECONDS"] == "4.0"
    assert stages["proxy"] is StopStage.EDGE
