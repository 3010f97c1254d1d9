import random

import pytest

from deploy.topology import BadTopology, Mode, Ports, assign_ports, fixed_ports, moved_ports, protectable, sizes, slots
from deploy.topology.ports import OWN_RANGE, next_free, start_at_default, start_at_random
from diem.process.listeners import PortInUse
from tests.unit.deploy.topology.topologies import KAFKA, all_but, slots_of


def test_ports_in_use_are_replaced_and_reported_for_running_servers() -> None:
    wanted = slots_of(Mode.X_BROADCAST, 2)
    chosen = assign_ports(wanted, {}, start_at_default, all_but(8000, 8080, 8100, 8101, 8103, 9300))
    assert chosen["data"] == Ports(8120, 9080)
    assert chosen["websocket-1"].public == 8121
    assert chosen["websocket-3"].public == 8123
    assert chosen["broadcast"] == Ports(None, 9320)
    assert chosen["nginx"] == Ports(8020, None)
    assert moved_ports(wanted, chosen, 2) == [
        "port 8080 is taken: data listens on 8120",
        "port 8000 is taken: nginx listens on 8020",
        "port 8101 is taken: websocket-1 listens on 8121",
    ]


def test_ports_of_all_processes_but_the_brokers_are_protectable() -> None:
    wanted = slots_of(Mode.X, 2, brokers=1)
    chosen = assign_ports(wanted, {}, start_at_default, all_but())
    found = protectable(wanted, chosen)
    assert {8000, 8080, 9080, 8101, 9101, 9201} < set(found)
    assert not {9092, 9096} & set(found), "Java does not set SO_REUSEPORT"


def test_no_port_is_assigned_twice() -> None:
    wanted = slots_of(Mode.X, 64, brokers=3)
    chosen = assign_ports(wanted, {"websocket-1": 9300}, start_at_default, all_but())
    given = [port for ports in chosen.values() for port in ports[:2] if port is not None]
    assert len(set(given)) == len(given) == 64 * 3 + 3 * 2 + 2 + 1
    assert chosen["websocket-1"].public == 9300


def test_fixed_port_is_used_or_refused_but_never_replaced() -> None:
    wanted = slots_of(Mode.SINGLE)
    assert assign_ports(wanted, {"data": 80}, start_at_default, all_but())["data"].public == 80
    with pytest.raises(PortInUse, match="port 80 "):
        assign_ports(wanted, {"data": 80}, start_at_default, all_but(80))


def test_search_for_a_port_ends() -> None:
    with pytest.raises(PortInUse):
        assign_ports(slots_of(Mode.SINGLE), {}, start_at_default, lambda _port: False)
    with pytest.raises(PortInUse):
        next_free(8090, start_at_default, lambda _port: False)


def test_next_free_port_is_in_the_same_steps() -> None:
    assert next_free(8090, start_at_default, all_but()) == 8090
    assert next_free(8090, start_at_default, all_but(8090, 8110)) == 8130


def test_requested_ports_count_up_over_the_servers() -> None:
    wanted = slots_of(Mode.X_BROADCAST, 2, 2)
    assert fixed_ports(wanted, None, None) == {}
    assert fixed_ports(wanted, 80, 7000) == {"nginx": 80, "websocket-1": 7000, "websocket-2": 7001}
    assert fixed_ports(slots_of(Mode.SINGLE), 80, 7000) == {"data": 80, "websocket-1": 7000}


@pytest.mark.parametrize(("page", "websocket"), [(7001, 7000), (None, 65535)])
def test_requested_ports_must_be_valid(page: int | None, websocket: int) -> None:
    with pytest.raises(BadTopology, match="overlap or are above 65535"):
        fixed_ports(slots_of(Mode.X_BROADCAST, 2), page, websocket)


@pytest.mark.parametrize("mode", KAFKA)
def test_no_default_port_of_any_mode_is_used_twice(mode: Mode) -> None:
    clones = {Mode.Z_CLIENT: 4, Mode.XZ: 64}.get(mode)
    chosen = assign_ports(slots(mode, sizes(mode, 16, brokers=3, clones=clones)), {}, start_at_default, all_but())
    given = [port for ports in chosen.values() for port in ports[:2] if port is not None]
    assert len(set(given)) == len(given)


def test_requested_websocket_port_is_that_of_the_edge() -> None:
    assert fixed_ports(slots_of(Mode.Z_PROXY, 2, 2), 80, 7000) == {"data": 80, "proxy-1": 7000}
    assert fixed_ports(slots_of(Mode.Z_COMPOSITE, 2), None, 7000) == {"composite-1": 7000}
    clones = slots(Mode.Z_CLIENT, sizes(Mode.Z_CLIENT, 1, 1, clones=2))
    assert fixed_ports(clones, None, 7000) == {"websocket-1": 7000, "websocket-2": 7001}
    two = slots(Mode.XZ, sizes(Mode.XZ, 2, 2))
    assert fixed_ports(two, 80, 7000) == {"nginx": 80, "composite-1": 7000, "composite-2": 7001}


def test_search_starts_at_the_documented_port_or_at_random_in_our_range() -> None:
    assert start_at_default(8080) == 8080
    first = start_at_random(random.Random(1))
    starts = {first(8080) for _ in range(20)}
    assert len(starts) > 10
    assert all(start in OWN_RANGE for start in starts)


def test_processes_that_share_a_port_are_assigned_it_once() -> None:
    wanted = slots(Mode.X_BROADCAST, sizes(Mode.X_BROADCAST, 2)._replace(balancers=0))
    chosen = assign_ports(wanted, {}, start_at_default, all_but(8101))
    assert {own.public for name, own in chosen.items() if name.startswith("websocket-")} == {8121}
    assert moved_ports(wanted, chosen, 2) == ["port 8101 is taken: websocket-1 listens on 8121"]
    assert protectable(wanted, chosen).count(8121) == 1
    fixed = fixed_ports(wanted, 80, 81)
    assert fixed == {"data": 80, "websocket-1": 81}
    assert assign_ports(wanted, fixed, start_at_default, all_but())["websocket-8"].public == 81
