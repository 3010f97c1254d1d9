import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.topology import (
    BadTopology,
    KafkaTopology,
    Mode,
    Options,
    Planned,
    Ports,
    Programs,
    ProxyMode,
    Readiness,
    Sizes,
    Slot,
    Topology,
    Traffic,
    assign_ports,
    compose,
    fixed_ports,
    moved_ports,
    overridden,
    parse_settings,
    sizes,
    sizes_of,
    slots,
)
from deploy.topology.compose import shared
from deploy.topology.ports import OWN_RANGE, start_at_default, start_at_random
from diem.process.listeners import PortInUse

STATE = Path("/state")
PROGRAMS = Programs(("python", "-m", "deploy"), {"nginx": ("guard", "nginx"), "kafka-1": ("guard", "java")})
NGINX = [mode for mode in Mode if mode.behind_nginx]
KAFKA = [mode for mode in Mode if mode.uses_kafka]
CLUSTER = KafkaTopology(bootstrap_servers="h:1")


def all_but(*taken: int) -> Callable[[int], bool]:
    return lambda port: port not in taken


def slots_of(mode: Mode, servers: int = 1, max_servers: int | None = None, brokers: int = 0) -> tuple[Slot, ...]:
    return slots(mode, sizes(mode, servers, max_servers, brokers))


def topology(mode: Mode, servers: int = 1, max_servers: int | None = None, **others: Any) -> Topology:
    options = Options(mode, STATE, servers, max_servers=max_servers, **others)
    wanted = slots(mode, sizes_of(options))
    return compose(options, assign_ports(wanted, {}, start_at_default, all_but()), PROGRAMS)


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
    prefix = mode.edge.upper()
    assert json.loads(env(two, "data")["DIEM_DATA_TRUSTED_PROXIES"]) == ["127.0.0.1/32"]
    own = env(two, f"{mode.edge}-8")
    assert json.loads(own[f"DIEM_{prefix}_TRUSTED_PROXIES"]) == ["127.0.0.1/32"]
    assert json.loads(own[f"DIEM_{prefix}_ORIGINS"]) == [
        "http://localhost:8000",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
    ]
    assert own[f"DIEM_{prefix}_PAGE_PORT"] == "8080"
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
        for each in topology(mode, 1, kafka=CLUSTER).processes:
            told = any(name.startswith("DIEM_KAFKA_") for name in each.env)
            users = {"data", "bridge", "metadata", "composite", "websocket", "proxy"}
            assert told == (mode.uses_kafka and each.process in users)
        for each in topology(mode, 1, kafka=CLUSTER, traffic=Traffic.FILES).processes:
            told = any(name.startswith("DIEM_KAFKA_") for name in each.env)
            assert told == (mode.uses_kafka and each.process in {"data", "bridge", "metadata", "composite"})


@pytest.mark.parametrize("mode", Mode)
def test_traffic_is_recorded_by_whoever_has_clients_or_a_fan_out_or_answers(mode: Mode) -> None:
    for each in topology(mode, 1).processes:
        sink = each.env.get("DIEM_TRAFFIC_SINK")
        expected = "kafka" if mode.uses_kafka else "files"
        recording = {"websocket", "proxy", "composite", "data"}
        assert sink == (expected if each.process in recording else None)
        assert ("DIEM_TRAFFIC_SALT_FILE" in each.env) == (sink is not None)
    off = topology(mode, 1, traffic=Traffic.OFF)
    assert {each.env.get("DIEM_TRAFFIC_SINK", "off") for each in off.processes} == {"off"}


def test_traffic_goes_to_kafka_only_where_it_is() -> None:
    with pytest.raises(BadTopology, match="mode single uses no Kafka"):
        topology(Mode.SINGLE, traffic=Traffic.KAFKA)


def test_cluster_elsewhere_runs_no_brokers_here_and_is_told_with_its_login() -> None:
    kafka = KafkaTopology(
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
    three = topology(Mode.X, kafka=KafkaTopology(brokers=3))
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
            assert each.env["DIEM_INTERNAL_SOCKETS"] == "/state/sockets"
            assert each.argv == ("python", "-m", "deploy", "run", each.process)


def test_where_paths_are_too_long_for_sockets_nobody_is_told_of_any() -> None:
    assert "DIEM_INTERNAL_SOCKETS" not in shared(Options(Mode.SINGLE, state_dir=Path("/") / ("d" * 100)))


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


def test_no_port_is_given_twice() -> None:
    wanted = slots_of(Mode.X, 64, brokers=3)
    chosen = assign_ports(wanted, {"websocket-1": 9300}, start_at_default, all_but())
    given = [port for ports in chosen.values() for port in ports if port is not None]
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
    kafka = KafkaTopology(topic_prefix="x.")
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


@pytest.mark.parametrize(
    ("mode", "names", "more"),
    [
        (
            Mode.Z_CLIENT,
            ["data", "metadata", "bridge-1", "bridge-2", "websocket-1", "websocket-2"],
            ["bridge-3", "websocket-3"],
        ),
        (
            Mode.Z_PROXY,
            ["data", "metadata", "bridge-1", "bridge-2", "websocket-1", "websocket-2", "proxy-1"],
            ["bridge-3", "websocket-3"],
        ),
        (Mode.Z_COMPOSITE, ["data", "composite-1"], []),
        (Mode.XZ, ["data", "nginx", "composite-1", "composite-2"], ["composite-3"]),
    ],
)
def test_partitioned_modes_have_these_processes(mode: Mode, names: list[str], more: list[str]) -> None:
    two = topology(mode, 2, kafka=CLUSTER)
    assert (two.servers, two.max_servers) == (2, 8)
    assert [process.name for process in two.active(2)] == names
    assert [process.name for process in two.active(3) if process not in two.active(2)] == more
    with_brokers = topology(mode, 2, kafka=KafkaTopology(brokers=3))
    assert [process.name for process in with_brokers.active(2)] == ["kafka-1", "kafka-2", "kafka-3", *names]


def test_clones_are_groups_of_their_own_whose_names_and_ports_run_on() -> None:
    three = topology(Mode.Z_CLIENT, 2, 4, clones=3, kafka=CLUSTER)
    assert (three.servers, three.max_servers, three.clones) == (2, 4, 3)
    numbers = [1, 2, 5, 6, 9, 10]
    assert [process.name for process in three.active(2)] == [
        "data",
        "metadata",
        *(f"bridge-{k}" for k in numbers),
        *(f"websocket-{k}" for k in numbers),
    ]
    bridge = env(three, "bridge-6")
    assert (bridge["DIEM_BRIDGE_CLONE"], bridge["DIEM_BRIDGE_NUMBER"]) == ("2", "2")
    assert bridge["DIEM_BRIDGE_SERVER_INTERNAL_URL"] == "ws://127.0.0.1:9106/ws"
    assert bridge["DIEM_BRIDGE_SERVER_PUBLIC_URL"] == "ws://127.0.0.1:8106/ws"
    assert bridge["DIEM_BRIDGE_INTERNAL_PORT"] == "9206"
    server = env(three, "websocket-6")
    assert (server["DIEM_WEBSOCKET_NUMBER"], server["DIEM_WEBSOCKET_MODE"]) == ("6", "z-client")
    assert server["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9206/feed"
    assert json.loads(env(three, "metadata")["DIEM_METADATA_CLONES"]) == [1, 2, 3]


def test_clients_of_z_client_ask_the_metadata_service_and_dial_the_servers_that_run() -> None:
    two = topology(Mode.Z_CLIENT, 2, 3, kafka=CLUSTER)
    assert two.page_url == "http://127.0.0.1:8080/"
    assert two.metadata_urls == ("http://127.0.0.1:8400/v1",)
    assert two.client_urls(2) == ("ws://127.0.0.1:8101/ws", "ws://127.0.0.1:8102/ws")
    assert two.client_urls(3) == (*two.client_urls(2), "ws://127.0.0.1:8103/ws")
    data = env(two, "data")
    assert json.loads(data["DIEM_DATA_METADATA_SERVICES"]) == [{"port": 8400, "path": "/v1"}]
    assert [server["port"] for server in json.loads(data["DIEM_DATA_WEBSOCKET_SERVERS"])] == [8101, 8102, 8103]
    assert env(two, "metadata")["DIEM_METADATA_PAGE_PORT"] == env(two, "websocket-1")["DIEM_WEBSOCKET_PAGE_PORT"]
    assert "DIEM_WEBSOCKET_ORIGINS" not in env(two, "websocket-1")


def test_clients_of_z_proxy_see_the_proxy_alone_which_may_dial_the_servers_that_may_run() -> None:
    two = topology(Mode.Z_PROXY, 2, 3, kafka=CLUSTER, proxy=ProxyMode.PASSTHROUGH, clients_per_address=9)
    assert two.client_urls(3) == ("ws://127.0.0.1:8501/ws",)
    assert two.metadata_urls == ()
    assert json.loads(env(two, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"port": 8501, "path": "/ws"}]
    assert "DIEM_DATA_METADATA_SERVICES" not in env(two, "data")
    proxy = env(two, "proxy-1")
    assert proxy["DIEM_PROXY_MODE"] == "passthrough"
    assert (proxy["DIEM_PROXY_PORT"], proxy["DIEM_PROXY_INTERNAL_PORT"]) == ("8501", "9501")
    assert json.loads(proxy["DIEM_PROXY_METADATA_URLS"]) == ["ws://127.0.0.1:9400/watch"]
    assert json.loads(proxy["DIEM_PROXY_ALLOWED"]) == [f"127.0.0.1/32:{port}" for port in (9101, 9102, 9103)]
    assert (proxy["DIEM_PROXY_PAGE_PORT"], proxy["DIEM_PROXY_CONNECTIONS_PER_ADDRESS"]) == ("8080", "9")
    assert json.loads(env(two, "metadata")["DIEM_METADATA_CLONES"]) == [1]


def test_composite_is_told_its_number_its_pairs_and_kafka() -> None:
    one = topology(Mode.Z_COMPOSITE, 3, kafka=CLUSTER)
    assert one.client_urls(3) == ("ws://127.0.0.1:8601/ws",)
    assert one.page_url == "http://127.0.0.1:8080/"
    told = env(one, "composite-1")
    assert (told["DIEM_COMPOSITE_NUMBER"], told["DIEM_COMPOSITE_PAIRS"]) == ("1", "3")
    assert (told["DIEM_COMPOSITE_MODE"], told["DIEM_COMPOSITE_PROXY"]) == ("z-composite", "shared")
    assert (told["DIEM_COMPOSITE_PORT"], told["DIEM_COMPOSITE_INTERNAL_PORT"]) == ("8601", "9601")
    assert told["DIEM_KAFKA_BOOTSTRAP_SERVERS"] == "h:1"
    xz = topology(Mode.XZ, 3, clones=2, kafka=CLUSTER)
    assert [env(xz, f"composite-{n}")["DIEM_COMPOSITE_PAIRS"] for n in (1, 2, 8)] == ["3", "3", "3"]
    assert env(xz, "composite-2")["DIEM_COMPOSITE_MODE"] == "xz"
    assert xz.client_urls(2) == ("ws://127.0.0.1:8000/ws",)


def test_names_of_what_runs_include_the_children_of_composites() -> None:
    inside = ("metadata", "bridge-1", "websocket-1", "proxy")
    composite = topology(Mode.Z_COMPOSITE, 1, kafka=CLUSTER)
    assert composite.names(1) == ("data", "composite-1", *(f"composite-1/{name}" for name in inside))
    assert set(composite.names(2)) - set(composite.names(1)) == {"composite-1/bridge-2", "composite-1/websocket-2"}
    xz = topology(Mode.XZ, 1, kafka=CLUSTER)
    assert set(xz.names(3)) - set(xz.names(2)) == {"composite-3", *(f"composite-3/{name}" for name in inside)}
    assert topology(Mode.X).names(1) == ("kafka-1", "data", "bridge-1", "nginx", "websocket-1")


def test_clients_leave_before_what_serves_them_and_owners_are_known_until_the_servers_are_gone() -> None:
    proxied = {process.process: process.stage for process in topology(Mode.Z_PROXY, 2).processes}
    order = ["proxy", "websocket", "bridge", "metadata", "data", "kafka"]
    assert sorted(proxied, key=proxied.__getitem__, reverse=True) == order
    xz = {process.process: process.stage for process in topology(Mode.XZ, 2).processes}
    assert sorted(xz, key=xz.__getitem__, reverse=True) == ["composite", "nginx", "data", "kafka"]


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.partitioned])
def test_hot_endpoints_are_told_to_the_publisher(mode: Mode) -> None:
    hot = topology(mode, kafka=CLUSTER, hot=("/a", "/b"))
    assert json.loads(env(hot, "data")["DIEM_DATA_HOT"]) == ["/a", "/b"]
    assert "DIEM_DATA_HOT" not in env(topology(mode, kafka=CLUSTER), "data")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": Mode.X, "clones": 2}, "--clones is for --mode z-client and xz: x has none"),
        ({"mode": Mode.Z_PROXY, "clones": 1}, "--clones is for --mode z-client and xz: z-proxy has none"),
        ({"mode": Mode.SINGLE, "clones": 1}, "--clones is for --mode z-client and xz: single has none"),
        ({"mode": Mode.Z_CLIENT, "clones": 0}, "z-client runs 1 to 64 clones and servers of them, not 0 times 1"),
        ({"mode": Mode.Z_CLIENT, "clones": 65}, "z-client runs 1 to 64 clones and servers of them, not 65 times 1"),
        ({"mode": Mode.Z_CLIENT, "servers": 9, "clones": 8}, "clones and servers of them, not 8 times 9"),
        ({"mode": Mode.Z_CLIENT, "max_servers": 9, "clones": 8}, "--max-servers is between --servers .1. and 8, not 9"),
        ({"mode": Mode.XZ, "clones": 3, "max_servers": 2}, "--max-servers is between --clones .3. and 64, not 2"),
        ({"mode": Mode.XZ, "servers": 65}, "xz runs 1 to 64 WebSocket servers, not 65"),
        ({"mode": Mode.Z_CLIENT, "proxy": ProxyMode.SHARED}, "--proxy is for --mode z-proxy, z-composite, xz"),
        ({"mode": Mode.X, "proxy": ProxyMode.SHARED}, "--proxy is for --mode z-proxy, z-composite, xz: x has no proxy"),
        ({"mode": Mode.X, "hot": ("/a",)}, "--hot is for partitioned modes: every server of x has every endpoint"),
    ],
)
def test_options_that_do_not_fit_the_mode_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadTopology, match=text):
        sizes_of(Options(state_dir=STATE, **options))


@pytest.mark.parametrize(
    ("clones", "servers", "most"), [(None, 1, 8), (8, 1, 8), (9, 1, 7), (8, 8, 8), (64, 1, 1), (3, 20, 20)]
)
def test_all_servers_of_all_clones_have_a_place_from_the_start(clones: int | None, servers: int, most: int) -> None:
    assert sizes(Mode.Z_CLIENT, servers, clones=clones) == Sizes(servers, most, 0, clones or 1)


def test_number_of_brokers_is_checked_in_every_mode_with_kafka() -> None:
    for mode in KAFKA:
        with pytest.raises(BadTopology, match="1 or 3 brokers, not 2"):
            sizes(mode, 1, None, 2)


@pytest.mark.parametrize("mode", KAFKA)
def test_no_port_of_any_mode_is_given_twice(mode: Mode) -> None:
    clones = {Mode.Z_CLIENT: 4, Mode.XZ: 64}.get(mode)
    chosen = assign_ports(slots(mode, sizes(mode, 16, brokers=3, clones=clones)), {}, start_at_default, all_but())
    given = [port for ports in chosen.values() for port in ports if port is not None]
    assert len(set(given)) == len(given)


def test_asked_for_port_is_that_of_what_clients_dial() -> None:
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
