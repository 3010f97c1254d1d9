"""The snapshots that a proxy applies when the maps of metadata services differ in age."""

from typing import cast
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from diem.links.edge import Admission, Edge, EdgeRules
from diem.links.epochs import ACCEPT_OLDER_AFTER_S
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.partition_map import Entry, Head, PartitionMap
from proxy.proxy import Proxy
from proxy.upstream_pool import UpstreamPool
from tests.unit.proxy.world import PARTITIONS, Client, World, name_of

MOVED = name_of(0)


class FakePool:
    """A fake ``UpstreamPool``: the world has the links."""

    open: tuple[str, ...] = ("ws://127.0.0.1:9101/ws",)

    def keep(self, urls: object) -> None: ...


class Harness:
    """A world with a proxy that is sent snapshots: at epoch 0 an endpoint is in partition 0, later in 1."""

    def __init__(self) -> None:
        self.world = World().start()
        edge = Edge(self.world.fanout, cast("Admission", Mock()), EdgeRules("proxy-1", "z-proxy"), self.world.shared)
        self.proxy = Proxy(
            edge=edge,
            router=self.world.router,
            pool=cast("UpstreamPool", FakePool()),
            service=self.world.shared,
            clock=self.world.clock,
        )

    def apply(self, epoch: int, partitions: int = PARTITIONS) -> bool:
        snapshot = self.world.router.snapshot
        assert snapshot is not None
        entries = {MOVED.encode(): Entry(1)} if epoch else {}
        return self.proxy.apply_snapshot(Snapshot(PartitionMap(Head(partitions, epoch), entries), snapshot.clones))

    @property
    def epoch(self) -> int | None:
        snapshot = self.world.router.snapshot
        return snapshot.map.head.epoch if snapshot else None

    def owner(self) -> str | None:
        return self.world.router.owner(MOVED)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_older_map_of_another_service_is_rejected(harness: Harness) -> None:
    old, new = harness.world.servers
    assert harness.apply(7)
    assert harness.owner() == new
    client = Client(harness.world)
    client.subscribe(MOVED)
    assert not harness.apply(0)
    assert (harness.owner(), harness.epoch) == (new, 7)
    assert not any(kind == "subscribe" for kind, _, _ in harness.world.servers[old].requests)
    assert harness.apply(8)
    assert harness.epoch == 8


def test_snapshot_of_the_same_epoch_is_applied_because_owners_change(harness: Harness) -> None:
    assert harness.apply(7)
    assert harness.apply(7)


def test_map_with_another_number_of_partitions_is_applied_whatever_its_epoch(harness: Harness) -> None:
    assert harness.apply(7)
    assert harness.apply(0, partitions=3)
    assert harness.epoch == 0


def test_older_map_is_accepted_after_a_long_time_without_a_newer_one(harness: Harness) -> None:
    assert harness.apply(7)
    assert not harness.apply(0)
    harness.world.clock.advance(ACCEPT_OLDER_AFTER_S - 1)
    assert not harness.apply(0)
    harness.world.clock.advance(2)
    assert harness.apply(0)
    assert harness.epoch == 0


def test_waiting_time_for_an_older_map_restarts_with_every_applied_snapshot(harness: Harness) -> None:
    assert harness.apply(7)
    assert not harness.apply(0)
    harness.world.clock.advance(ACCEPT_OLDER_AFTER_S - 1)
    assert harness.apply(7)
    harness.world.clock.advance(2)
    assert not harness.apply(0)


def snapshot_of(*urls: str) -> Snapshot:
    members = {f"b{number:03d}": Owner(f"b{number:03d}", url, url) for number, url in enumerate(urls, 1)}
    return Snapshot(PartitionMap(Head(PARTITIONS, 0)), {1: Clone(STABLE, members, {0: "b001"})})


def test_servers_outside_of_the_allow_list_are_named_once_with_the_setting(harness: Harness) -> None:
    ours, foreign, later = "ws://127.0.0.1:9101/ws", "ws://10.0.0.9:9101/ws", "ws://10.0.0.10:9101/ws"
    with capture_logs() as lines:
        for urls in [(ours, foreign)] * 3 + [(ours, foreign, later)] * 2 + [(ours, later)]:
            assert harness.proxy.apply_snapshot(snapshot_of(*urls))
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["servers"] for line in warnings] == [[foreign], [later, foreign]]
    assert all("DIEM_PROXY_ALLOWED" in line["event"] for line in warnings)
    assert harness.proxy.status()["servers_refused"] == [later]


def test_a_proxy_that_may_dial_no_server_is_not_ready_and_says_why() -> None:
    world = World()
    edge = Edge(world.fanout, cast("Admission", Mock()), EdgeRules("proxy-1", "z-proxy"), world.shared)
    pool = FakePool()
    proxy = Proxy(
        edge=edge, router=world.router, pool=cast("UpstreamPool", pool), service=world.shared, clock=world.clock
    )
    pool.open = ()
    assert proxy.apply_snapshot(snapshot_of("ws://10.0.0.9:9101/ws"))
    assert (edge.ready, proxy.why_not_ready()) == (False, "all 1 servers are outside of DIEM_PROXY_ALLOWED")
    proxy.apply_snapshot(snapshot_of("ws://127.0.0.1:9101/ws"))
    pool.open = ("ws://127.0.0.1:9101/ws",)
    proxy.check()
    assert (edge.ready, proxy.why_not_ready()) == (True, None)


def test_a_draining_proxy_is_not_ready_whatever_else_is_missing(harness: Harness) -> None:
    assert harness.proxy.why_not_ready() == "no server can be reached"
    harness.proxy.edge.draining = True
    assert harness.proxy.why_not_ready() == "draining"
