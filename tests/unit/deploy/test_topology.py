import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.topology import (
    BadTopology,
    Mode,
    Options,
    Ports,
    Topology,
    assign_ports,
    compose,
    fixed_ports,
    moved_ports,
    overridden,
    slots,
)
from diem.process.listeners import PortTaken

STATE = Path("/state")


def documented(default: int) -> int:
    return default


def all_but(*taken: int) -> Callable[[int], bool]:
    return lambda port: port not in taken


def topology(mode: Mode, servers: int = 1, config: Path | None = None) -> Topology:
    wanted = slots(mode, servers)
    ports = assign_ports(wanted, {}, documented, all_but())
    return compose(Options(mode, STATE, servers, config), ports, ("python", "-m", "deploy"))


def env(of: Topology, name: str) -> dict[str, str]:
    (process,) = [process for process in of.processes if process.name == name]
    return dict(process.env)


@pytest.mark.parametrize("mode", [Mode.SINGLE, Mode.ALL_TO_ALL])
def test_one_server_reads_the_data_service_itself(mode: Mode) -> None:
    one = topology(mode)
    assert [process.name for process in one.processes] == ["data", "websocket-1"]
    assert env(one, "websocket-1")["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9080/feed"
    assert env(one, "websocket-1")["DIEM_WEBSOCKET_MODE"] == mode
    assert env(one, "data")["DIEM_DATA_MODE"] == mode


def test_x_broadcast_puts_a_node_between_data_service_and_servers() -> None:
    three = topology(Mode.X_BROADCAST, 3)
    assert [process.name for process in three.processes] == [
        "data",
        "broadcast",
        "websocket-1",
        "websocket-2",
        "websocket-3",
    ]
    assert env(three, "broadcast")["DIEM_BROADCAST_FEED_URL"] == "ws://127.0.0.1:9080/feed"
    for number in (1, 2, 3):
        own = env(three, f"websocket-{number}")
        assert own["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9300/feed"
        assert own["DIEM_WEBSOCKET_NUMBER"] == str(number)
        assert own["DIEM_WEBSOCKET_PORT"] == str(8100 + number)
        assert own["DIEM_WEBSOCKET_INTERNAL_PORT"] == str(9100 + number)


def test_stages_rise_from_the_data_service_to_the_edge() -> None:
    stages = {process.process: process.stage for process in topology(Mode.X_BROADCAST, 2).processes}
    assert stages["data"] < stages["broadcast"] < stages["websocket"]


def test_page_is_told_every_server_and_servers_the_port_of_the_page() -> None:
    two = topology(Mode.X_BROADCAST, 2)
    assert json.loads(env(two, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [
        {"port": 8101, "path": "/ws"},
        {"port": 8102, "path": "/ws"},
    ]
    assert env(two, "websocket-2")["DIEM_WEBSOCKET_PAGE_PORT"] == "8080"
    assert two.page_url == "http://127.0.0.1:8080/"
    assert two.rest_url == "http://127.0.0.1:8080/v1"
    assert two.websocket_urls == ("ws://127.0.0.1:8101/ws", "ws://127.0.0.1:8102/ws")


def test_every_process_is_supervised_and_keeps_its_keys_in_files() -> None:
    for process in topology(Mode.X_BROADCAST, 2).processes:
        assert process.env["DIEM_SUPERVISED"] == "1"
        assert process.env["DIEM_STATE_DIR"] == "/state"
        assert process.env["DIEM_INTERNAL_KEY_FILE"] == "/state/internal.key"
        assert process.argv == ("python", "-m", "deploy", "run", process.process)


def test_every_listener_is_bound_to_loopback() -> None:
    for process in topology(Mode.X_BROADCAST, 2).processes:
        hosts = {value for name, value in process.env.items() if name.endswith("HOST")}
        assert hosts == {"127.0.0.1"}


def test_node_has_no_public_listener() -> None:
    node = topology(Mode.X_BROADCAST, 1).processes[1]
    assert node.public_url is None
    assert not any(name in node.env for name in ("DIEM_BROADCAST_PORT", "DIEM_BROADCAST_HOST"))
    assert node.internal_url == "http://127.0.0.1:9300"


def test_configuration_file_is_handed_on_only_when_there_is_one() -> None:
    assert "DIEM_DATA_CONFIG" not in env(topology(Mode.SINGLE), "data")
    assert env(topology(Mode.SINGLE, config=Path("/d.toml")), "data")["DIEM_DATA_CONFIG"] == "/d.toml"


@pytest.mark.parametrize(
    ("mode", "servers"), [(Mode.SINGLE, 2), (Mode.ALL_TO_ALL, 0), (Mode.X_BROADCAST, 0), (Mode.X_BROADCAST, 65)]
)
def test_number_of_servers_must_fit_the_mode(mode: Mode, servers: int) -> None:
    with pytest.raises(BadTopology, match="WebSocket server"):
        slots(mode, servers)


def test_taken_ports_are_replaced_by_free_ones_and_said() -> None:
    wanted = slots(Mode.X_BROADCAST, 2)
    chosen = assign_ports(wanted, {}, documented, all_but(8080, 8100, 8101, 9300))
    assert chosen["data"] == Ports(8120, 9080)
    assert chosen["websocket-1"].public == 8121
    assert chosen["broadcast"] == Ports(None, 9320)
    assert moved_ports(wanted, chosen) == [
        "port 8080 is taken: data listens on 8120",
        "port 8101 is taken: websocket-1 listens on 8121",
    ]


def test_no_port_is_given_twice() -> None:
    wanted = slots(Mode.X_BROADCAST, 30)
    chosen = assign_ports(wanted, {"websocket-1": 9300}, documented, all_but())
    given = [port for ports in chosen.values() for port in ports if port is not None]
    assert len(set(given)) == len(given) == 63
    assert chosen["websocket-1"].public == 9300


def test_fixed_port_is_used_or_refused_but_never_replaced() -> None:
    wanted = slots(Mode.SINGLE, 1)
    assert assign_ports(wanted, {"data": 80}, documented, all_but())["data"].public == 80
    with pytest.raises(PortTaken, match="port 80 "):
        assign_ports(wanted, {"data": 80}, documented, all_but(80))


def test_search_for_a_port_ends() -> None:
    with pytest.raises(PortTaken):
        assign_ports(slots(Mode.SINGLE, 1), {}, documented, lambda _port: False)


def test_asked_for_ports_count_up_over_the_servers() -> None:
    wanted = slots(Mode.X_BROADCAST, 2)
    assert fixed_ports(wanted, None, None) == {}
    assert fixed_ports(wanted, 80, 7000) == {"data": 80, "websocket-1": 7000, "websocket-2": 7001}


@pytest.mark.parametrize(("page", "websocket"), [(7001, 7000), (None, 65535)])
def test_asked_for_ports_must_be_possible(page: int | None, websocket: int) -> None:
    with pytest.raises(BadTopology, match="overlap or are too high"):
        fixed_ports(slots(Mode.X_BROADCAST, 2), page, websocket)


def test_variables_that_the_plan_overrides_are_named_and_others_are_not() -> None:
    one = topology(Mode.SINGLE)
    environ = {
        "DIEM_DATA_PORT": "1",
        "DIEM_WEBSOCKET_PORT": "8101",
        "DIEM_LOG_LEVEL": "debug",
        "DIEM_DATA_READ_RATE": "5",
    }
    assert overridden(one, environ) == ["DIEM_DATA_PORT"]
