"""Topologies whose processes have addresses of several hosts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.topology import (
    BadTopology,
    ClientAccess,
    Mode,
    Ports,
    PublicAddress,
    Topology,
    compose,
    sizes_of,
    slots,
)
from tests.unit.deploy.topology.topologies import CLUSTER, PROGRAMS, env, options_of, process

PUBLIC = PublicAddress("0.0.0.0", Path("/c.pem"), Path("/k.pem"), names=("diem.example",))


def spread(mode: Mode, hosts: dict[str, int], public: PublicAddress = PUBLIC, **others: Any) -> Topology:
    """Return a topology with each named process on the host 10.0.0.N, which clients know as hN.example."""
    cluster = {"kafka": CLUSTER} if mode.uses_kafka else {}
    options = options_of(mode, Path("/state"), is_local=False, public=public, **{**cluster, **others})
    ports = {
        slot.name: Ports(slot.public, slot.internal, f"10.0.0.{hosts[slot.name]}", f"h{hosts[slot.name]}.example")
        for slot in slots(mode, sizes_of(options))
    }
    return compose(options, ports, PROGRAMS)


X = {"data": 1, "nginx": 1, "bridge-1": 2, "websocket-1": 2, "bridge-2": 3, "websocket-2": 3}
PROXY = {"data": 1, "metadata": 1, "proxy-1": 1, "proxy-2": 3, **{k: v for k, v in X.items() if "-" in k}}


def test_servers_listen_on_their_host_and_believe_nginx_on_another() -> None:
    of = spread(Mode.X, X, servers=2, max_servers=2)
    server = env(of, "websocket-2")
    assert server["DIEM_WEBSOCKET_HOST"] == server["DIEM_WEBSOCKET_INTERNAL_HOST"] == "10.0.0.3"
    assert server["DIEM_WEBSOCKET_FEED_URL"] == "ws://10.0.0.3:9202/feed"
    assert json.loads(server["DIEM_WEBSOCKET_TRUSTED_PROXIES"]) == ["10.0.0.1/32"]
    assert server["DIEM_WEBSOCKET_READS_URL"] == "http://10.0.0.1:9080/v1/keys/reads"
    assert server["DIEM_WEBSOCKET_INTEREST_URL"] == "ws://10.0.0.1:9080/interest"
    assert server["DIEM_WEBSOCKET_ANONYMOUS"] == "off"
    assert env(of, "data")["DIEM_DATA_HOST"] == "10.0.0.1"
    assert env(of, "bridge-2")["DIEM_BRIDGE_INTERNAL_HOST"] == "10.0.0.3"
    assert process(of, "bridge-2").internal_url == "http://10.0.0.3:9202"
    assert json.loads(env(of, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == [{"port": 8000, "path": "/ws", "href": "ws"}]


def test_processes_of_hosts_have_no_supervisor_whose_end_they_notice_and_no_unix_sockets() -> None:
    for each in spread(Mode.X, X, servers=2, max_servers=2).processes:
        assert not {"DIEM_SUPERVISED", "DIEM_INTERNAL_SOCKETS"} & set(each.env)


def test_keys_of_tokens_are_a_file_beside_the_data_service_and_a_url_elsewhere() -> None:
    of = spread(Mode.X, {**X, "bridge-1": 1, "websocket-1": 1}, servers=2, max_servers=2)
    keys = [json.loads(env(of, f"websocket-{n}")["DIEM_WEBSOCKET_TOKEN_KEYS"]) for n in (1, 2)]
    assert keys == [["/state/token-keys.json"], ["https://diem.example:8000/v1/tokens/keys"]]


def test_keys_of_tokens_that_nobody_could_read_safely_are_an_error_unless_clients_need_no_token() -> None:
    given: dict[str, Any] = {"servers": 2, "max_servers": 2, "front_proxies": ("10.0.0.9/32",)}
    with pytest.raises(BadTopology, match="add --origin https://NAME, or --anonymous on"):
        spread(Mode.X, X, PublicAddress(), **given)
    of = spread(Mode.X, X, PublicAddress(), **given, access=ClientAccess({"ANONYMOUS": "on"}))
    assert json.loads(env(of, "websocket-1")["DIEM_WEBSOCKET_TOKEN_KEYS"]) == []
    of = spread(Mode.X, X, PublicAddress(origins=("https://app.example",)), **given)
    assert json.loads(env(of, "websocket-1")["DIEM_WEBSOCKET_TOKEN_KEYS"]) == ["https://app.example/v1/tokens/keys"]


def test_proxies_of_several_hosts_dial_exactly_the_servers_and_clients_find_all_proxies() -> None:
    of = spread(Mode.Z_PROXY, PROXY, servers=2, max_servers=2, proxies=2)
    proxy = env(of, "proxy-2")
    allowed = ["10.0.0.2/32:9101", "10.0.0.3/32:9102"]
    assert (
        json.loads(proxy["DIEM_PROXY_ALLOWED"]) == json.loads(env(of, "metadata")["DIEM_METADATA_ALLOWED"]) == allowed
    )
    assert json.loads(proxy["DIEM_PROXY_METADATA_URLS"]) == ["ws://10.0.0.1:9400/watch"]
    assert (proxy["DIEM_PROXY_HOST"], proxy["DIEM_PROXY_PORT"]) == ("0.0.0.0", "8502")
    assert env(of, "websocket-1")["DIEM_WEBSOCKET_HOST"] == "127.0.0.1", "clients do not connect to it"
    assert env(of, "bridge-2")["DIEM_BRIDGE_SERVER_INTERNAL_URL"] == "ws://10.0.0.3:9102/ws"
    servers = [{"url": "wss://h1.example:8501/ws"}, {"url": "wss://h3.example:8502/ws"}]
    assert json.loads(env(of, "data")["DIEM_DATA_WEBSOCKET_SERVERS"]) == servers


def test_clients_of_z_client_find_servers_and_the_metadata_service_by_the_names_of_their_hosts() -> None:
    hosts = {name: number for name, number in PROXY.items() if not name.startswith("proxy")}
    of = spread(Mode.Z_CLIENT, hosts, servers=2, max_servers=2)
    assert env(of, "bridge-2")["DIEM_BRIDGE_SERVER_PUBLIC_URL"] == "wss://h3.example:8102/ws"
    metadata = [{"url": "https://h1.example:8400/v1"}]
    assert json.loads(env(of, "data")["DIEM_DATA_METADATA_SERVICES"]) == metadata


def test_readers_of_a_feed_know_the_stand_by_and_both_data_services_wait_for_the_store() -> None:
    hosts = {"data": 1, "data-2": 2, "broadcast": 1, "nginx": 1, "nginx-2": 2, "websocket-1": 2}
    of = spread(Mode.X_BROADCAST, hosts, standbys=1, balancers=2, max_servers=1)
    assert env(of, "broadcast")["DIEM_BROADCAST_FEED_URL"] == "ws://10.0.0.1:9080/feed,ws://10.0.0.2:9080/feed"
    assert {env(of, name)["DIEM_DATA_STANDBY"] for name in ("data", "data-2")} == {"true"}
    reads = "http://10.0.0.1:9080/v1/keys/reads,http://10.0.0.2:9080/v1/keys/reads"
    assert env(of, "websocket-1")["DIEM_WEBSOCKET_READS_URL"] == reads
    interest = "ws://10.0.0.1:9080/interest,ws://10.0.0.2:9080/interest"
    assert env(of, "websocket-1")["DIEM_WEBSOCKET_INTEREST_URL"] == interest
    assert env(of, "data-2")["DIEM_DATA_HOST"] == "10.0.0.2"
    trusted = json.loads(env(of, "data")["DIEM_DATA_TRUSTED_PROXIES"])
    assert trusted == ["10.0.0.1/32", "10.0.0.2/32"]
    # The file of one Data Service is stale while the other one has the store.
    assert json.loads(env(of, "websocket-1")["DIEM_WEBSOCKET_TOKEN_KEYS"]) == [
        "https://diem.example:8000/v1/tokens/keys"
    ]


def test_single_with_a_stand_by_has_a_server_beside_each_data_service() -> None:
    of = spread(Mode.SINGLE, {"data": 1, "data-2": 2, "websocket-1": 1, "websocket-2": 2}, standbys=1)
    urls = json.loads(env(of, "data-2")["DIEM_DATA_WEBSOCKET_SERVERS"])
    assert urls == [{"url": "wss://h1.example:8101/ws"}, {"url": "wss://h2.example:8102/ws"}]
    feeds = {env(of, f"websocket-{n}")["DIEM_WEBSOCKET_FEED_URL"] for n in (1, 2)}
    assert feeds == {"ws://10.0.0.1:9080/feed,ws://10.0.0.2:9080/feed"}


def test_reads_without_a_key_are_as_the_command_was_told_because_services_do_not_inherit_its_environment() -> None:
    for reads in ("auto", "on", "off"):
        access = replace(ClientAccess(), anonymous_reads=reads)
        of = spread(Mode.X, X, servers=2, max_servers=2, access=access)
        assert env(of, "data")["DIEM_DATA_ANONYMOUS_READS"] == reads


def test_addresses_of_ipv6_are_in_brackets() -> None:
    options = options_of(Mode.Z_PROXY, Path("/s"), is_local=False, public=PUBLIC, kafka=CLUSTER, max_servers=1)
    ports = {
        slot.name: Ports(slot.public, slot.internal, "2001:db8::1", "h1.example")
        for slot in slots(Mode.Z_PROXY, sizes_of(options))
    }
    of = compose(options, ports, PROGRAMS)
    assert env(of, "websocket-1")["DIEM_WEBSOCKET_FEED_URL"] == "ws://[2001:db8::1]:9201/feed"
    assert env(of, "websocket-1")["DIEM_WEBSOCKET_INTERNAL_HOST"] == "2001:db8::1"
    assert json.loads(env(of, "proxy-1")["DIEM_PROXY_ALLOWED"]) == ["[2001:db8::1/128]:9101"]
