import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.topology import (
    BadTopology,
    KafkaTopology,
    Mode,
    Ports,
    PublicAddress,
    Readiness,
    Traffic,
    overridden,
    parse_settings,
)
from deploy.topology.compose import shared
from services.data.settings import Settings as DataSettings
from tests.unit.deploy.topology.topologies import CLUSTER, SERVED, env, options_of, process, topology

NGINX = [mode for mode in Mode if mode.behind_nginx]


def test_single_has_one_server_that_reads_the_data_service() -> None:
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
    ("mode", "kinds"),
    [
        (Mode.SINGLE, ["data", "bridge", "websocket"]),
        (Mode.X, ["data", "bridge", "nginx", "websocket"]),
        (Mode.Z_CLIENT, ["data", "metadata", "bridge", "websocket"]),
        (Mode.Z_PROXY, ["data", "metadata", "bridge", "websocket", "proxy"]),
    ],
)
def test_topic_is_read_by_bridges_alone_and_the_data_service_asks_the_servers(mode: Mode, kinds: list[str]) -> None:
    served = topology(mode, max_servers=1, kafka=SERVED)
    assert [process.process for process in served.processes] == kinds
    data, bridge, server = (env(served, name) for name in ("data", "bridge-1", "websocket-1"))
    kafka = {name: value for name, value in data.items() if name.startswith("DIEM_KAFKA_")}
    assert kafka == {"DIEM_KAFKA_TOPIC": "orders"}
    assert data["DIEM_DATA_RETAINED_BY"] == '["http://127.0.0.1:9101"]'
    assert (bridge["DIEM_KAFKA_TOPIC"], bridge["DIEM_KAFKA_TOPIC_KEY"]) == ("orders", "{id}")
    assert bridge["DIEM_KAFKA_BOOTSTRAP_SERVERS"] == "h:1"
    assert server["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9201/feed"
    # Nothing is written to a cluster of others.
    assert server["DIEM_TRAFFIC_SINK"] == "files"


@pytest.mark.parametrize(
    ("mode", "feed"),
    [
        (Mode.ALL_TO_ALL, "ws://127.0.0.1:9080/feed"),
        (Mode.X_BROADCAST, "ws://127.0.0.1:9300/feed"),
        (Mode.X, "ws://127.0.0.1:9202/feed"),
    ],
)
def test_every_server_gets_its_feed_and_its_ports(mode: Mode, feed: str) -> None:
    own = env(topology(mode, 3), "websocket-2")
    assert own["DIEM_WEBSOCKET_FEED_URL"] == feed
    assert own["DIEM_WEBSOCKET_MODE"] == mode
    assert own["DIEM_WEBSOCKET_NUMBER"] == "2"
    assert own["DIEM_WEBSOCKET_PORT"] == "8102"
    assert own["DIEM_WEBSOCKET_INTERNAL_PORT"] == "9102"


@pytest.mark.parametrize("mode", Mode)
def test_edges_read_the_keys_of_tokens_where_the_data_service_writes_them(mode: Mode) -> None:
    composed = topology(mode)
    for planned in composed.processes:
        if planned.process in {"websocket", "proxy", "composite", "metadata"}:
            (file,) = json.loads(planned.env[f"DIEM_{planned.process.upper()}_TOKEN_KEYS"])
            assert Path(file) == Path(env(composed, "data")["DIEM_STATE_DIR"]) / "token-keys.json"
    name = DataSettings.model_fields["token_document_file"].default_factory({"state_dir": Path("/s")})  # type: ignore[call-arg, misc]
    assert name == Path("/s/token-keys.json")


@pytest.mark.parametrize("mode", NGINX)
def test_clients_and_pages_come_through_nginx(mode: Mode) -> None:
    two = topology(mode, 2)
    assert (two.page_url, two.rest_url) == ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1")
    assert two.websocket_urls == ("ws://127.0.0.1:8000/ws",)
    assert json.loads(env(two, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"port": 8000, "path": "/ws", "href": "ws"}]
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


@pytest.mark.parametrize("mode", Mode)
def test_front_proxies_are_trusted_by_whoever_is_behind_them(mode: Mode) -> None:
    front = ("10.0.0.0/8", "192.0.2.1/32")
    composed = topology(mode, front_proxies=front)
    names = [each.name for each in composed.processes if each.process in {"data", "metadata", mode.edge}]
    assert {"data"} < set(names)
    expected = ["127.0.0.1/32"] if mode.behind_nginx else list(front)
    for name in names:
        own = env(composed, name)
        assert json.loads(own[f"DIEM_{process(composed, name).process.upper()}_TRUSTED_PROXIES"]) == expected


SECURE = PublicAddress("192.0.2.1", Path("/c.pem"), Path("/k.pem"), names=("diem.example",))


@pytest.mark.parametrize("mode", Mode)
def test_certificate_is_of_the_listeners_that_clients_connect_to_and_of_no_other(mode: Mode) -> None:
    composed = topology(mode, public=SECURE)
    public = (
        {"nginx"} if mode.behind_nginx else {"data", mode.edge} | ({"metadata"} if mode is Mode.Z_CLIENT else set())
    )
    for each in composed.processes:
        prefix = f"DIEM_{each.process.upper()}"
        secure = {name: value for name, value in each.env.items() if "_TLS_" in name}
        assert each.reloads == (each.process in public)
        if each.process in public - {"nginx"}:
            assert secure == {f"{prefix}_TLS_CERTIFICATE": "/c.pem", f"{prefix}_TLS_KEY": "/k.pem"}
            assert each.env[f"{prefix}_HOST"] == "192.0.2.1"
        else:
            assert not secure
            assert each.env.get(f"{prefix}_HOST", "127.0.0.1") == "127.0.0.1"
        if each.public_url is not None:
            assert each.public_url.startswith(("https://192.0.2.1:", "wss://192.0.2.1:")) == (each.process in public)
        assert each.internal_url is None or each.internal_url.startswith("http://127.0.0.1:")
    page = 8000 if mode.behind_nginx else 8080
    assert (composed.page_url, composed.rest_url) == (f"https://192.0.2.1:{page}/", f"https://192.0.2.1:{page}/v1")
    assert all(url.startswith("wss://192.0.2.1:") for url in composed.websocket_urls)
    assert all(url.startswith("https://192.0.2.1:") for url in composed.metadata_urls)
    edge = next(each for each in composed.processes if each.process == mode.edge)
    origins = [f"https://diem.example:{page}", f"https://192.0.2.1:{page}"]
    assert json.loads(edge.env[f"DIEM_{mode.edge.upper()}_ORIGINS"]) == origins
    assert json.loads(env(composed, "data")["DIEM_DATA_HOSTS"]) == ["diem.example", "192.0.2.1"]


@pytest.mark.parametrize("mode", [Mode.SINGLE, Mode.X, Mode.Z_PROXY])
def test_pages_behind_a_front_proxy_connect_to_its_name(mode: Mode) -> None:
    public = PublicAddress(origins=("https://app.example",))
    composed = topology(mode, public=public, front_proxies=("127.0.0.1/32",))
    assert json.loads(env(composed, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [
        {"url": "wss://app.example/ws", "href": "ws"}
    ]
    assert json.loads(env(composed, "data")["DIEM_DATA_HOSTS"]) == ["app.example"]


@pytest.mark.parametrize("mode", [Mode.SINGLE, Mode.X, Mode.Z_PROXY])
def test_a_front_proxy_of_this_machine_is_tried_by_its_local_name(mode: Mode) -> None:
    own, dev = "https://localhost:8443", "http://localhost:5173"
    public = PublicAddress(origins=(own, dev), behind_proxy=True)
    data = env(topology(mode, public=public, front_proxies=("127.0.0.1/32",)), "data")
    assert json.loads(data["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"url": "wss://localhost:8443/ws", "href": "ws"}]
    assert json.loads(data["DIEM_DATA_HOSTS"]) == ["localhost"]
    assert json.loads(data["DIEM_DATA_CORS_ORIGINS"]) == [dev]
    assert {own, dev} <= set(json.loads(data["DIEM_DATA_CLIENT_ORIGINS"]))


@pytest.mark.parametrize("mode", Mode)
def test_pages_of_other_origins_may_connect_and_read_and_their_refusals_are_explained(mode: Mode) -> None:
    dev = "http://localhost:5173"
    composed = topology(mode, public=PublicAddress(origins=(dev,)), origins=("https://b.example",))
    data = env(composed, "data")
    assert json.loads(data["DIEM_DATA_CORS_ORIGINS"]) == [dev]
    admitted = json.loads(data["DIEM_DATA_CLIENT_ORIGINS"])
    page = 8000 if mode.behind_nginx else 8080
    assert {dev, "https://b.example", f"http://localhost:{page}"} <= set(admitted)
    for each in composed.processes:
        if each.process in {mode.edge, "metadata"}:
            assert json.loads(each.env[f"DIEM_{each.process.upper()}_ORIGINS"]) == admitted
    environ = {"DIEM_WEBSOCKET_ORIGINS": "https://b.example", "DIEM_DATA_CORS_ORIGINS": "https://c.example"}
    assert overridden(composed, environ) == []


def test_answers_do_not_vary_by_origin_for_the_page_of_a_public_system_alone() -> None:
    def readers(*origins: str) -> list[str] | None:
        public = PublicAddress(origins=origins)
        data = env(topology(Mode.SINGLE, public=public, front_proxies=("127.0.0.1/32",)), "data")
        return json.loads(data["DIEM_DATA_CORS_ORIGINS"]) if "DIEM_DATA_CORS_ORIGINS" in data else None

    assert readers("https://app.example") is None
    assert readers("https://app.example", "https://b.example") == ["https://b.example"]
    assert readers("http://localhost:5173", "https://app.example") == ["http://localhost:5173"]


@pytest.mark.parametrize("mode", Mode)
def test_clients_of_this_machine_have_the_limits_of_an_address_only_where_that_was_set(mode: Mode) -> None:
    def limited(**options: Any) -> str:
        composed = topology(mode, **options)
        edge = next(each for each in composed.processes if each.process == mode.edge)
        return edge.env[f"DIEM_{mode.edge.upper()}_LIMIT_LOOPBACK"]

    assert limited() == "false"
    assert limited(per_address=50) == "true"
    assert limited(front_proxies=("127.0.0.1/32",)) == "true"
    assert limited(public=PublicAddress("::1")) == "false"
    # A TCP relay of this machine would make all clients look like its own.
    assert limited(public=SECURE) == "true"


def test_broadcast_node_is_between_data_service_and_servers() -> None:
    three = topology(Mode.X_BROADCAST, 3)
    assert env(three, "broadcast")["DIEM_BROADCAST_FEED_URL"] == "ws://127.0.0.1:9080/feed"
    node = process(three, "broadcast")
    assert node.public_url is None
    assert not any(name in node.env for name in ("DIEM_BROADCAST_PORT", "DIEM_BROADCAST_HOST"))
    assert node.internal_url == "http://127.0.0.1:9300"


def test_kafka_settings_are_passed_only_to_processes_that_use_it() -> None:
    x = topology(Mode.X, 2)
    for name in ("data", "bridge-1", "bridge-8"):
        assert env(x, name)["DIEM_KAFKA_BOOTSTRAP_SERVERS"] == "127.0.0.1:9092"
        assert env(x, name)["DIEM_KAFKA_REPLICATION"] == "1"
    assert env(x, "bridge-8")["DIEM_BRIDGE_NUMBER"] == "8"
    assert env(x, "bridge-8")["DIEM_BRIDGE_INTERNAL_PORT"] == "9208"
    for mode in Mode:
        for each in topology(mode, 1, kafka=CLUSTER).processes:
            has_kafka = any(name.startswith("DIEM_KAFKA_") for name in each.env)
            users = {"data", "bridge", "metadata", "composite", "websocket", "proxy"}
            assert has_kafka == (mode.uses_kafka and each.process in users)
        for each in topology(mode, 1, kafka=CLUSTER, traffic=Traffic.FILES).processes:
            has_kafka = any(name.startswith("DIEM_KAFKA_") for name in each.env)
            assert has_kafka == (mode.uses_kafka and each.process in {"data", "bridge", "metadata", "composite"})


@pytest.mark.parametrize("mode", Mode)
def test_traffic_is_recorded_by_servers_proxies_and_data_service(mode: Mode) -> None:
    for each in topology(mode, 1).processes:
        sink = each.env.get("DIEM_TRAFFIC_SINK")
        expected = "kafka" if mode.uses_kafka else "files"
        recording = {"websocket", "proxy", "composite", "data"}
        assert sink == (expected if each.process in recording else None)
        assert ("DIEM_TRAFFIC_SALT_FILE" in each.env) == (sink is not None)
    off = topology(mode, 1, traffic=Traffic.OFF)
    assert {each.env.get("DIEM_TRAFFIC_SINK", "off") for each in off.processes} == {"off"}


def test_traffic_goes_to_kafka_only_in_modes_with_kafka() -> None:
    with pytest.raises(BadTopology, match="mode single uses no Kafka"):
        topology(Mode.SINGLE, traffic=Traffic.KAFKA)


def test_cluster_elsewhere_has_no_local_brokers_and_its_login_is_passed_on() -> None:
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


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.uses_kafka])
def test_each_kind_of_process_is_a_user_of_its_own_at_local_brokers(mode: Mode) -> None:
    kafka = KafkaTopology(security_protocol="SSL", ca_file=Path("/ca"))
    for each in topology(mode, 1, kafka=kafka).processes:
        found = {name: value for name, value in each.env.items() if re.match("DIEM_KAFKA_(SASL|SEC|CA|CERT|KEY)", name)}
        user = {"websocket": "edge", "proxy": "edge"}.get(each.process, each.process)
        expected = {
            "DIEM_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "DIEM_KAFKA_SASL_MECHANISM": "SCRAM-SHA-256",
            "DIEM_KAFKA_SASL_USERNAME": f"diem-{user}",
            "DIEM_KAFKA_SASL_PASSWORD_FILE": f"/state/kafka/users/{user}.password",
        }
        assert found == ({} if each.process in {"kafka", "nginx"} else expected)


def test_three_brokers_have_separate_ports_and_three_replicas() -> None:
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
            assert each.env["DIEM_HEALTH_PORT"] == "", "one port of the environment for all of them"
            assert each.env["DIEM_STATE_DIR"] == "/state"
            assert each.env["DIEM_INTERNAL_KEY_FILE"] == "/state/internal.key"
            assert each.env["DIEM_INTERNAL_SOCKETS"] == "/state/sockets"
            assert each.argv == ("python", "-m", "deploy", "run", each.process)


def test_no_sockets_are_used_if_their_paths_are_too_long() -> None:
    assert "DIEM_INTERNAL_SOCKETS" not in shared(options_of(Mode.SINGLE, state_dir=Path("/") / ("d" * 100)))


@pytest.mark.parametrize("mode", Mode)
def test_every_listener_is_bound_to_loopback(mode: Mode) -> None:
    hosts = {value for each in topology(mode).processes for name, value in each.env.items() if name.endswith("_HOST")}
    assert hosts - {"localhost"} == {"127.0.0.1"}


@pytest.mark.parametrize("mode", Mode)
def test_listeners_of_clients_are_at_both_addresses_of_localhost(mode: Mode) -> None:
    for each in topology(mode).processes:
        found = {value for name, value in each.env.items() if name == f"DIEM_{each.process.upper()}_HOST"}
        assert found <= {"localhost" if options_of(mode).admits(each.process) else "127.0.0.1"}


def test_configuration_file_is_passed_on_if_there_is_one() -> None:
    assert "DIEM_DATA_CONFIG" not in env(topology(Mode.SINGLE), "data")
    assert env(topology(Mode.SINGLE, config=Path("/d.toml")), "data")["DIEM_DATA_CONFIG"] == "/d.toml"


def test_limit_of_an_address_is_passed_on_only_if_given() -> None:
    variable = "DIEM_WEBSOCKET_CONNECTIONS_PER_ADDRESS"
    assert variable not in env(topology(Mode.X_BROADCAST), "websocket-1")
    assert env(topology(Mode.X_BROADCAST, per_address=9), "websocket-1")[variable] == "9"


def test_only_overridden_variables_are_named() -> None:
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


def test_a_short_variable_is_compared_with_every_process_that_reads_it() -> None:
    composed = topology(Mode.X_BROADCAST, 2)
    # Ports are 8080 of the Data Service, 8101 and 8102 of the servers.
    for port in ("8080", "8101", "8102"):
        assert overridden(composed, {"DIEM_PORT": port}) == ["DIEM_PORT"]
        assert overridden(composed, {"DIEM_WEBSOCKET_PORT": port}) == ["DIEM_WEBSOCKET_PORT"]
    assert overridden(composed, {"DIEM_MODE": "x-broadcast"}) == []
    assert overridden(composed, {"DIEM_MODE": "x"}) == ["DIEM_MODE"]
    # No process reads these names.
    assert overridden(composed, {"DIEM_LEVEL": "x", "DIEM_KEY_FILE": "x"}) == []


def test_a_short_variable_is_not_read_beside_the_long_one() -> None:
    environ = {"DIEM_DATA_MODE": "single", "DIEM_WEBSOCKET_MODE": "single", "DIEM_MODE": "x"}
    assert overridden(topology(Mode.SINGLE), environ) == []
    assert overridden(topology(Mode.SINGLE), environ | {"DIEM_DATA_MODE": ""}) == ["DIEM_MODE"]


def test_setting_for_one_process_overrides_the_topology_for_it_only() -> None:
    settings = parse_settings(["websocket-2:DIEM_WEBSOCKET_FEED_URL=ws://h/f?a=b", "websocket-2:A=", "data:A=1"])
    two = topology(Mode.X_BROADCAST, 2, settings=settings)
    assert env(two, "websocket-2")["DIEM_WEBSOCKET_FEED_URL"] == "ws://h/f?a=b"
    assert env(two, "websocket-2")["A"] == ""
    assert env(two, "websocket-1")["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9300/feed"
    assert "A" not in env(two, "websocket-1")


def test_setting_for_an_unknown_process_is_refused() -> None:
    with pytest.raises(BadTopology, match=r"no process is called 'bridge-1' here: there are data, websocket-1$"):
        topology(Mode.SINGLE, settings={"bridge-1": {"A": "b"}})


def test_clones_have_consecutive_names_and_ports() -> None:
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


def test_z_client_has_addresses_of_metadata_service_and_running_servers() -> None:
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


def test_z_proxy_exposes_only_the_proxy_which_may_dial_all_servers() -> None:
    two = topology(Mode.Z_PROXY, 2, 3, kafka=CLUSTER, per_address=9)
    assert two.client_urls(3) == ("ws://127.0.0.1:8501/ws",)
    assert two.metadata_urls == ()
    assert json.loads(env(two, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"port": 8501, "path": "/ws"}]
    assert "DIEM_DATA_METADATA_SERVICES" not in env(two, "data")
    proxy = env(two, "proxy-1")
    assert (proxy["DIEM_PROXY_PORT"], proxy["DIEM_PROXY_INTERNAL_PORT"]) == ("8501", "9501")
    assert json.loads(proxy["DIEM_PROXY_METADATA_URLS"]) == ["ws://127.0.0.1:9400/watch"]
    assert json.loads(proxy["DIEM_PROXY_ALLOWED"]) == [f"127.0.0.1/32:{port}" for port in (9101, 9102, 9103)]
    assert (proxy["DIEM_PROXY_PAGE_PORT"], proxy["DIEM_PROXY_CONNECTIONS_PER_ADDRESS"]) == ("8080", "9")
    metadata = env(two, "metadata")
    assert json.loads(metadata["DIEM_METADATA_CLONES"]) == [1]
    assert metadata["DIEM_METADATA_ALLOWED"] == proxy["DIEM_PROXY_ALLOWED"]


def test_composite_gets_its_number_its_pairs_and_kafka() -> None:
    one = topology(Mode.Z_COMPOSITE, 3, kafka=CLUSTER)
    assert one.client_urls(3) == ("ws://127.0.0.1:8601/ws",)
    assert one.page_url == "http://127.0.0.1:8080/"
    variables = env(one, "composite-1")
    assert (variables["DIEM_COMPOSITE_NUMBER"], variables["DIEM_COMPOSITE_PAIRS"]) == ("1", "3")
    assert variables["DIEM_COMPOSITE_MODE"] == "z-composite"
    assert (variables["DIEM_COMPOSITE_PORT"], variables["DIEM_COMPOSITE_INTERNAL_PORT"]) == ("8601", "9601")
    assert variables["DIEM_KAFKA_BOOTSTRAP_SERVERS"] == "h:1"
    xz = topology(Mode.XZ, 3, clones=2, kafka=CLUSTER)
    assert (variables["DIEM_COMPOSITE_MAX_PAIRS"], env(xz, "composite-1")["DIEM_COMPOSITE_MAX_PAIRS"]) == ("8", "3")
    assert [env(xz, f"composite-{n}")["DIEM_COMPOSITE_PAIRS"] for n in (1, 2, 8)] == ["3", "3", "3"]
    assert env(xz, "composite-2")["DIEM_COMPOSITE_MODE"] == "xz"
    assert xz.client_urls(2) == ("ws://127.0.0.1:8000/ws",)


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.partitioned])
def test_hot_endpoints_are_passed_to_the_publisher(mode: Mode) -> None:
    hot = topology(mode, kafka=CLUSTER, hot=("/a", "/b"))
    assert json.loads(env(hot, "data")["DIEM_DATA_HOT"]) == ["/a", "/b"]
    assert "DIEM_DATA_HOT" not in env(topology(mode, kafka=CLUSTER), "data")


@pytest.mark.parametrize("mode", NGINX)
def test_servers_share_a_port_without_nginx(mode: Mode) -> None:
    of = topology(mode, 2 if mode is not Mode.ALL_TO_ALL else 1, balancers=0)
    edges = [each for each in of.processes if each.process == mode.edge]
    port = 8601 if mode is Mode.XZ else 8101
    assert {each.ports.public for each in edges} == {port}
    assert len({each.ports.internal for each in edges}) == len(edges) == 8
    assert {each.env[f"DIEM_{mode.edge.upper()}_SHARED_PORT"] for each in edges} == {"true"}
    assert "nginx" not in {each.process for each in of.processes}
    assert (of.page_url, of.websocket_urls) == ("http://127.0.0.1:8080/", (f"ws://127.0.0.1:{port}/ws",))
    assert json.loads(env(of, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"port": port, "path": "/ws"}]
    assert of.client_urls(1) == of.websocket_urls


def test_no_process_shares_a_port_behind_nginx() -> None:
    assert not [name for each in topology(Mode.X).processes for name in each.env if name.endswith("_SHARED_PORT")]
