import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.topology import (
    BadTopology,
    KafkaOptions,
    Mode,
    Options,
    Planned,
    Ports,
    Programs,
    Readiness,
    Sizes,
    Slot,
    Topology,
    assign_ports,
    compose,
    fixed_ports,
    moved_ports,
    overridden,
    parse_settings,
    sizes,
    slots,
)
from diem.process.listeners import PortTaken

STATE = Path("/state")
PROGRAMS = Programs(("python", "-m", "deploy"), {"nginx": ("guard", "nginx"), "kafka-1": ("guard", "java")})
NGINX = [mode for mode in Mode if mode.behind_nginx]


def documented(default: int) -> int:
    return default


def all_but(*taken: int) -> Callable[[int], bool]:
    return lambda port: port not in taken


def slots_of(mode: Mode, servers: int = 1, max_servers: int | None = None, brokers: int = 0) -> tuple[Slot, ...]:
    return slots(mode, sizes(mode, servers, max_servers, brokers))


def topology(mode: Mode, servers: int = 1, max_servers: int | None = None, **others: Any) -> Topology:
    options = Options(mode, STATE, servers, max_servers=max_servers, **others)
    wanted = slots_of(mode, servers, max_servers, options.kafka.local_brokers)
    return compose(options, assign_ports(wanted, {}, documented, all_but()), PROGRAMS)


def process(of: Topology, name: str) -> Planned:
    (found,) = [process for process in of.processes if process.name == name]
    return found


def env(of: Topology, name: str) -> Mapping[str, str]:
    return process(of, name).env


def test_single_is_a_server_that_reads_the_data_service_itself_without_nginx() -> None:
    one = topology(Mode.SINGLE)
    assert [process.name for process in one.processes] == ["data", "websocket-1"]
    assert env(one, "websocket-1")["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9080/feed"
    assert env(one, "websocket-1")["DIEM_WEBSOCKET_MODE"] == "single"
    assert env(one, "data")["DIEM_DATA_MODE"] == "single"
    assert (one.page_url, one.rest_url) == ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1")
    assert one.websocket_urls == ("ws://127.0.0.1:8101/ws",)
    assert json.loads(env(one, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"port": 8101, "path": "/ws"}]
    assert not {"DIEM_WEBSOCKET_TRUSTED_PROXIES", "DIEM_WEBSOCKET_ORIGINS"} & set(env(one, "websocket-1"))
    assert "DIEM_DATA_TRUSTED_PROXIES" not in env(one, "data")


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        (Mode.ALL_TO_ALL, ["data", "nginx", "websocket-1", "websocket-2"]),
        (Mode.X_BROADCAST, ["data", "broadcast", "nginx", "websocket-1", "websocket-2"]),
        (Mode.X, ["kafka-1", "data", "bridge-1", "bridge-2", "nginx", "websocket-1", "websocket-2"]),
    ],
)
def test_processes_that_run_are_those_of_the_servers_that_are_asked_for(mode: Mode, names: list[str]) -> None:
    two = topology(mode, 2)
    assert [process.name for process in two.active(2)] == names
    assert two.max_servers == 8
    assert [process.name for process in two.active(3) if process not in two.active(2)] == (
        ["bridge-3", "websocket-3"] if mode is Mode.X else ["websocket-3"]
    )
    assert two.active(8) == two.processes


@pytest.mark.parametrize(
    ("mode", "feed"),
    [
        (Mode.ALL_TO_ALL, "ws://127.0.0.1:9080/feed"),
        (Mode.X_BROADCAST, "ws://127.0.0.1:9300/feed"),
        (Mode.X, "ws://127.0.0.1:9202/feed"),
    ],
)
def test_every_server_is_told_its_feed_and_its_ports(mode: Mode, feed: str) -> None:
    own = env(topology(mode, 3), "websocket-2")
    assert own["DIEM_WEBSOCKET_FEED_URL"] == feed
    assert own["DIEM_WEBSOCKET_MODE"] == mode
    assert own["DIEM_WEBSOCKET_NUMBER"] == "2"
    assert own["DIEM_WEBSOCKET_PORT"] == "8102"
    assert own["DIEM_WEBSOCKET_INTERNAL_PORT"] == "9102"


@pytest.mark.parametrize("mode", NGINX)
def test_clients_and_pages_come_through_nginx(mode: Mode) -> None:
    two = topology(mode, 2)
    assert (two.page_url, two.rest_url) == ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1")
    assert two.websocket_urls == ("ws://127.0.0.1:8000/ws",)
    assert json.loads(env(two, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"port": 8000, "path": "/ws"}]
    for name, prefix in (("data", "DATA"), ("websocket-8", "WEBSOCKET")):
        assert json.loads(env(two, name)[f"DIEM_{prefix}_TRUSTED_PROXIES"]) == ["127.0.0.1/32"]
    own = env(two, "websocket-8")
    assert json.loads(own["DIEM_WEBSOCKET_ORIGINS"]) == [
        "http://localhost:8000",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
    ]
    assert own["DIEM_WEBSOCKET_PAGE_PORT"] == "8080"
    nginx = process(two, "nginx")
    assert nginx.argv == ("guard", "nginx")
    assert nginx.sweep
    assert nginx.readiness is Readiness.HTTP
    assert (nginx.public_url, nginx.internal_url) == ("http://127.0.0.1:8000/", None)


def test_node_stands_between_data_service_and_servers() -> None:
    three = topology(Mode.X_BROADCAST, 3)
    assert env(three, "broadcast")["DIEM_BROADCAST_FEED_URL"] == "ws://127.0.0.1:9080/feed"
    node = process(three, "broadcast")
    assert node.public_url is None
    assert not any(name in node.env for name in ("DIEM_BROADCAST_PORT", "DIEM_BROADCAST_HOST"))
    assert node.internal_url == "http://127.0.0.1:9300"


def test_stages_are_such_that_clients_leave_through_what_still_runs() -> None:
    x = {process.process: process.stage for process in topology(Mode.X, 2).processes}
    assert sorted(x, key=x.__getitem__, reverse=True) == ["websocket", "nginx", "bridge", "data", "kafka"]
    node = {process.process: process.stage for process in topology(Mode.X_BROADCAST, 2).processes}
    assert sorted(node, key=node.__getitem__, reverse=True) == ["websocket", "nginx", "broadcast", "data"]


def test_kafka_is_told_to_those_that_use_it_and_nobody_else() -> None:
    x = topology(Mode.X, 2)
    for name in ("data", "bridge-1", "bridge-8"):
        assert env(x, name)["DIEM_KAFKA_BOOTSTRAP_SERVERS"] == "127.0.0.1:9092"
        assert env(x, name)["DIEM_KAFKA_REPLICATION"] == "1"
    assert env(x, "bridge-8")["DIEM_BRIDGE_NUMBER"] == "8"
    assert env(x, "bridge-8")["DIEM_BRIDGE_INTERNAL_PORT"] == "9208"
    for mode in Mode:
        for each in topology(mode, 1, kafka=KafkaOptions(bootstrap_servers="h:1")).processes:
            told = any(name.startswith("DIEM_KAFKA_") for name in each.env)
            assert told == (mode is Mode.X and each.process in {"data", "bridge"})


def test_cluster_elsewhere_runs_no_brokers_here_and_is_told_with_its_login() -> None:
    kafka = KafkaOptions(
        bootstrap_servers="k1:9093,k2:9093",
        topic_prefix="grid.",
        partitions=24,
        security_protocol="SASL_SSL",
        sasl_username="diem",
        sasl_password_file=Path("/p"),
        ca_file=Path("/ca"),
    )
    x = topology(Mode.X, kafka=kafka)
    assert not any(process.process == "kafka" for process in x.processes)
    assert {name: value for name, value in env(x, "bridge-1").items() if name.startswith("DIEM_KAFKA_")} == {
        "DIEM_KAFKA_BOOTSTRAP_SERVERS": "k1:9093,k2:9093",
        "DIEM_KAFKA_TOPIC_PREFIX": "grid.",
        "DIEM_KAFKA_PARTITIONS": "24",
        "DIEM_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "DIEM_KAFKA_SASL_USERNAME": "diem",
        "DIEM_KAFKA_SASL_PASSWORD_FILE": "/p",
        "DIEM_KAFKA_CA_FILE": "/ca",
    }


def test_three_brokers_have_ports_of_their_own_and_keep_three_copies() -> None:
    three = topology(Mode.X, kafka=KafkaOptions(brokers=3))
    assert [process(three, f"kafka-{n}").ports for n in (1, 2, 3)] == [
        Ports(9092, 9096),
        Ports(9093, 9097),
        Ports(9094, 9098),
    ]
    assert env(three, "data")["DIEM_KAFKA_BOOTSTRAP_SERVERS"] == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert env(three, "data")["DIEM_KAFKA_REPLICATION"] == "3"
    broker = process(three, "kafka-1")
    assert (broker.public_url, broker.internal_url, broker.readiness) == (None, None, Readiness.CONNECT)
    assert broker.argv == ("guard", "java")


def test_every_process_of_ours_is_supervised_and_keeps_its_keys_in_files() -> None:
    for each in topology(Mode.X_BROADCAST, 2).processes:
        if each.process != "nginx":
            assert each.env["DIEM_SUPERVISED"] == "1"
            assert each.env["DIEM_STATE_DIR"] == "/state"
            assert each.env["DIEM_INTERNAL_KEY_FILE"] == "/state/internal.key"
            assert each.argv == ("python", "-m", "deploy", "run", each.process)


@pytest.mark.parametrize("mode", Mode)
def test_every_listener_is_bound_to_loopback(mode: Mode) -> None:
    hosts = {value for each in topology(mode).processes for name, value in each.env.items() if name.endswith("_HOST")}
    assert hosts == {"127.0.0.1"}


def test_configuration_file_is_handed_on_only_when_there_is_one() -> None:
    assert "DIEM_DATA_CONFIG" not in env(topology(Mode.SINGLE), "data")
    assert env(topology(Mode.SINGLE, config=Path("/d.toml")), "data")["DIEM_DATA_CONFIG"] == "/d.toml"


def test_limit_of_an_address_is_handed_on_only_when_it_is_asked_for() -> None:
    variable = "DIEM_WEBSOCKET_CONNECTIONS_PER_ADDRESS"
    assert variable not in env(topology(Mode.X_BROADCAST), "websocket-1")
    assert env(topology(Mode.X_BROADCAST, clients_per_address=9), "websocket-1")[variable] == "9"


@pytest.mark.parametrize(
    ("mode", "servers", "most", "text"),
    [
        (Mode.SINGLE, 2, None, "single runs one WebSocket server, not 2"),
        (Mode.SINGLE, 1, 4, "single runs one WebSocket server, not 4"),
        (Mode.ALL_TO_ALL, 0, None, "all-to-all runs 1 to 64 WebSocket servers, not 0"),
        (Mode.X_BROADCAST, 65, None, "x-broadcast runs 1 to 64 WebSocket servers, not 65"),
        (Mode.X, 3, 2, "--max-servers is between --servers .3. and 64, not 2"),
        (Mode.X, 3, 65, "--max-servers is between --servers .3. and 64, not 65"),
    ],
)
def test_number_of_servers_must_fit_the_mode(mode: Mode, servers: int, most: int | None, text: str) -> None:
    with pytest.raises(BadTopology, match=text):
        sizes(mode, servers, most)


def test_number_of_brokers_is_one_or_three_where_there_are_any() -> None:
    with pytest.raises(BadTopology, match="1 or 3 brokers, not 2"):
        sizes(Mode.X, 1, None, 2)
    assert sizes(Mode.X_BROADCAST, 1, None, 2).brokers == 0


@pytest.mark.parametrize(("servers", "most"), [(1, 8), (8, 8), (9, 9), (64, 64)])
def test_there_is_room_for_more_servers_unless_it_is_said_how_much(servers: int, most: int) -> None:
    assert sizes(Mode.X, servers) == Sizes(servers, most, 0)
    assert sizes(Mode.X, servers, servers).max_servers == servers


def test_taken_ports_are_replaced_by_free_ones_and_those_that_matter_now_are_said() -> None:
    wanted = slots_of(Mode.X_BROADCAST, 2)
    chosen = assign_ports(wanted, {}, documented, all_but(8000, 8080, 8100, 8101, 8103, 9300))
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


def test_no_port_is_given_twice() -> None:
    wanted = slots_of(Mode.X, 64, brokers=3)
    chosen = assign_ports(wanted, {"websocket-1": 9300}, documented, all_but())
    given = [port for ports in chosen.values() for port in ports if port is not None]
    assert len(set(given)) == len(given) == 64 * 3 + 3 * 2 + 2 + 1
    assert chosen["websocket-1"].public == 9300


def test_fixed_port_is_used_or_refused_but_never_replaced() -> None:
    wanted = slots_of(Mode.SINGLE)
    assert assign_ports(wanted, {"data": 80}, documented, all_but())["data"].public == 80
    with pytest.raises(PortTaken, match="port 80 "):
        assign_ports(wanted, {"data": 80}, documented, all_but(80))


def test_search_for_a_port_ends() -> None:
    with pytest.raises(PortTaken):
        assign_ports(slots_of(Mode.SINGLE), {}, documented, lambda _port: False)


def test_asked_for_ports_count_up_over_the_servers() -> None:
    wanted = slots_of(Mode.X_BROADCAST, 2, 2)
    assert fixed_ports(wanted, None, None) == {}
    assert fixed_ports(wanted, 80, 7000) == {"nginx": 80, "websocket-1": 7000, "websocket-2": 7001}
    assert fixed_ports(slots_of(Mode.SINGLE), 80, 7000) == {"data": 80, "websocket-1": 7000}


@pytest.mark.parametrize(("page", "websocket"), [(7001, 7000), (None, 65535)])
def test_asked_for_ports_must_be_possible(page: int | None, websocket: int) -> None:
    with pytest.raises(BadTopology, match="overlap or are too high"):
        fixed_ports(slots_of(Mode.X_BROADCAST, 2), page, websocket)


def test_variables_that_the_plan_overrides_are_named_and_others_are_not() -> None:
    environ = {
        "DIEM_DATA_PORT": "1",
        "DIEM_WEBSOCKET_PORT": "8101",
        "DIEM_LOG_LEVEL": "debug",
        "DIEM_DATA_READ_RATE": "5",
        "DIEM_KAFKA_TOPIC_PREFIX": "x.",
    }
    assert overridden(topology(Mode.SINGLE), environ) == ["DIEM_DATA_PORT", "DIEM_KAFKA_TOPIC_PREFIX"]
    kafka = KafkaOptions(topic_prefix="x.")
    assert overridden(topology(Mode.X, kafka=kafka), {"DIEM_KAFKA_TOPIC_PREFIX": "x."}) == []


def test_setting_for_one_process_wins_over_the_plan_and_is_for_that_one_alone() -> None:
    settings = parse_settings(["websocket-2:DIEM_WEBSOCKET_FEED_URL=ws://h/f?a=b", "websocket-2:A=", "data:A=1"])
    two = topology(Mode.X_BROADCAST, 2, settings=settings)
    assert env(two, "websocket-2")["DIEM_WEBSOCKET_FEED_URL"] == "ws://h/f?a=b"
    assert env(two, "websocket-2")["A"] == ""
    assert env(two, "websocket-1")["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9300/feed"
    assert "A" not in env(two, "websocket-1")


@pytest.mark.parametrize("text", ["", "data", "data:A", "data=A:b", ":A=b", "data:=b", "data:A B=c", "data:A=\0"])
def test_malformed_setting_is_refused(text: str) -> None:
    with pytest.raises(BadTopology, match="--set takes NAME:VARIABLE=VALUE"):
        parse_settings([text])


def test_setting_for_a_process_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadTopology, match=r"no process is called 'bridge-1' here: there are data, websocket-1$"):
        topology(Mode.SINGLE, settings={"bridge-1": {"A": "b"}})
