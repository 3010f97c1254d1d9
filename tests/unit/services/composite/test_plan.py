"""The children of a composite and their settings."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from diem.process.addresses import Ports
from diem.process.allow_list import AllowList
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.partition_map import Head, PartitionMap
from diem.protocol.traffic import is_edge
from proxy.routing import Router
from services.composite import main as composite
from services.composite.plan import Child, CompositePlan, child_names, children
from services.composite.settings import Settings

PLAN = CompositePlan(3, "xz", "0.0.0.0", 8603, 4.0, {"ORIGINS": "[]", "PAGE_PORT": "8080"})
PORTS = {name: Ports(20_000 + n, 21_000 + n) for n, name in enumerate(child_names(3))}


def planned(pairs: int) -> dict[str, Child]:
    return {child.name: child for child in children(PLAN, pairs, PORTS.__getitem__)}


def own(child: Child) -> Mapping[str, str]:
    prefix = f"DIEM_{child.process.upper()}_"
    return {name.removeprefix(prefix): value for name, value in child.env.items() if name.startswith(prefix)}


def internal(name: str, kind: str = "internal") -> str:
    return str(getattr(PORTS[name], kind))


SHARED = {"DIEM_SUPERVISED": "1", "DIEM_HEALTH_PORT": ""}  # health is the composite's own
EXPECTED = {
    "metadata": {"CLONES": "[3]", "ALLOWED": f'["127.0.0.1/32:{internal("websocket-1")}"]'},
    "bridge-1": {
        "NUMBER": "1",
        "CLONE": "3",
        "SERVER_INTERNAL_URL": f"ws://127.0.0.1:{internal('websocket-1')}/ws",
        "SERVER_PUBLIC_URL": f"ws://127.0.0.1:{internal('websocket-1')}/ws",
    },
    "websocket-1": {"NUMBER": "1", "MODE": "xz", "FEED_URL": f"ws://127.0.0.1:{internal('bridge-1')}/feed"},
    "proxy": {
        "NUMBER": "3",
        "CLONE": "3",
        "SCALING": "xz",
        "METADATA_URLS": f'["ws://127.0.0.1:{internal("metadata")}/watch"]',
        "ALLOWED": f'["127.0.0.1/32:{internal("websocket-1")}"]',
        "ORIGINS": "[]",
        "PAGE_PORT": "8080",
    },
}
"""Settings but for listeners, by child."""


def test_settings_of_the_children_are_all_that_connects_them() -> None:
    assert list(planned(1)) == list(EXPECTED)
    for name, child in planned(1).items():
        public = {"proxy": ("0.0.0.0", "8603"), "bridge-1": ()}.get(name, ("127.0.0.1", internal(name, "public")))
        listeners = {"INTERNAL_HOST": "127.0.0.1", "INTERNAL_PORT": internal(name)}
        assert own(child) == EXPECTED[name] | listeners | dict(zip(("HOST", "PORT"), public, strict=False))
        # With the number of the composite, as others have children of the same names.
        assert child.env.items() >= {**SHARED, "DIEM_TRAFFIC_EDGE": f"composite-3.{name}"}.items()
        assert is_edge(child.env["DIEM_TRAFFIC_EDGE"])
        # The proxy stops first, within half of the time.
        assert child.env["DIEM_DRAIN_SECONDS"] == ("2.0" if name == "proxy" else "4.0")
        assert child.internal_url == f"http://127.0.0.1:{internal(name)}"
    stages = {name: child.stage for name, child in planned(1).items()}
    assert sorted(stages, key=stages.__getitem__, reverse=True) == ["proxy", "websocket-1", "bridge-1", "metadata"]


def test_children_are_pairs_a_metadata_service_and_a_proxy() -> None:
    assert list(planned(2)) == ["metadata", "bridge-1", "bridge-2", "websocket-1", "websocket-2", "proxy"]
    assert tuple(planned(3)) == child_names(3)
    assert own(planned(2)["websocket-2"])["FEED_URL"] == f"ws://127.0.0.1:{internal('bridge-2')}/feed"


def test_children_get_the_directory_of_sockets_only_where_there_is_one() -> None:
    assert all("DIEM_INTERNAL_SOCKETS" not in child.env for child in planned(1).values())
    made = children(replace(PLAN, sockets=Path("/state/sockets")), 1, PORTS.__getitem__)
    assert all(child.env["DIEM_INTERNAL_SOCKETS"] == "/state/sockets" for child in made)


def test_servers_of_a_composite_redirect_by_urls_that_its_proxy_can_resolve() -> None:
    """A URL of several members resolves to none: the proxy would wait instead of following the redirect."""
    made = [own(child) for name, child in planned(3).items() if name.startswith("bridge-")]
    members = {
        each["NUMBER"]: Owner(each["NUMBER"], each["SERVER_INTERNAL_URL"], each["SERVER_PUBLIC_URL"]) for each in made
    }
    router = Router(1, AllowList(["127.0.0.1/32"]))
    router.apply(Snapshot(PartitionMap(Head(3, 0)), {1: Clone(STABLE, members, {})}))
    assert len(members) == 3
    for owner in members.values():
        assert router.resolve_hint(owner.public) == owner.internal


@pytest.mark.parametrize("pairs", [1, 3])
def test_metadata_service_and_proxy_dial_the_servers_that_there_may_ever_be_and_nothing_else(pairs: int) -> None:
    made = {child.name: own(child) for child in children(replace(PLAN, max_pairs=3), pairs, PORTS.__getitem__)}
    servers = [f"127.0.0.1/32:{PORTS[f'websocket-{number}'].internal}" for number in (1, 2, 3)]
    assert json.loads(made["metadata"]["ALLOWED"]) == json.loads(made["proxy"]["ALLOWED"]) == servers
    rules = AllowList(servers)
    assert rules.may_admit(made["bridge-1"]["SERVER_INTERNAL_URL"])
    assert not rules.may_admit(f"ws://127.0.0.1:{PORTS['bridge-1'].internal}/ws")


def test_ports_are_reserved_for_the_pairs_at_the_start_if_they_are_more() -> None:
    assert Settings(pairs=20).most_pairs == 20
    assert composite._plan(Settings(pairs=2, max_pairs=5), 8603).max_pairs == 5


def test_all_children_with_a_public_listener_ask_for_the_same_tokens() -> None:
    access = {"ANONYMOUS": "off", "TOKEN_KEYS": '["keys.json"]', "TOKEN_AUDIENCE": "diem", "TOKEN_ISSUERS": '["diem"]'}
    made = children(replace(PLAN, edge={**PLAN.edge, **access}), 2, PORTS.__getitem__)
    for child in made:
        given = {name: value for name, value in own(child).items() if name in access}
        assert given == ({} if child.process == "bridge" else access), child.name


@pytest.mark.parametrize(("host", "rule"), [("0.0.0.0", "off"), ("127.0.0.1", "auto")])
def test_servers_behind_a_proxy_on_a_public_address_serve_nobody_whom_it_would_not(host: str, rule: str) -> None:
    made = children(replace(PLAN, host=host, edge={"ANONYMOUS": "auto"}), 1, PORTS.__getitem__)
    rules = {child.process: own(child).get("ANONYMOUS") for child in made}
    assert rules == {"websocket": rule, "metadata": rule, "proxy": "auto", "bridge": None}


def test_settings_of_tokens_reach_the_children_as_they_were_given() -> None:
    settings = Settings(anonymous="off", token_keys=["/keys.json"], token_issuers=["a", "b"])
    edge = composite._plan(settings, 8603).edge
    assert (edge["ANONYMOUS"], edge["TOKEN_AUDIENCE"]) == ("off", "diem")
    assert (json.loads(edge["TOKEN_KEYS"]), json.loads(edge["TOKEN_ISSUERS"])) == (["/keys.json"], ["a", "b"])


def test_children_report_reads_to_the_data_service_and_its_stand_by_or_to_none() -> None:
    urls = ["http://a:9080/v1/keys/reads", "https://b:9080/v1/keys/reads"]
    assert json.loads(composite._plan(Settings(reads_url=urls), 8603).edge["READS_URL"]) == urls
    assert json.loads(composite._plan(Settings(), 8603).edge["READS_URL"]) == []
