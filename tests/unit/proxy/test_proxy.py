"""Which snapshots a proxy routes by when services of different age tell it theirs."""

from typing import cast

import pytest

from diem.links.edge import Admission, Edge, EdgeRules
from diem.links.epochs import BELIEVE_AFTER_S
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Entry, Head, PartitionMap
from proxy.proxy import Proxy
from proxy.upstream_pool import UpstreamPool
from tests.unit.proxy.world import PARTITIONS, Client, World, name_of

MOVED = name_of(0)


class NoLinks:
    """As ``UpstreamPool``: the world has the links."""

    open = ("ws://127.0.0.1:9101/ws",)

    def keep(self, urls: object) -> None: ...


class Told:
    """A world whose proxy is told snapshots: at epoch 0 an endpoint is in partition 0, later in 1."""

    def __init__(self) -> None:
        self.world = World().start()
        edge = Edge(self.world.fanout, cast("Admission", None), EdgeRules("proxy-1", "z-proxy"), self.world.shared)
        self.proxy = Proxy(
            edge=edge,
            router=self.world.router,
            pool=cast("UpstreamPool", NoLinks()),
            service=self.world.shared,
            clock=self.world.clock,
        )

    def tell(self, epoch: int, partitions: int = PARTITIONS) -> bool:
        snapshot = self.world.router.snapshot
        assert snapshot is not None
        entries = {MOVED.encode(): Entry(1)} if epoch else {}
        return self.proxy.apply_snapshot(Snapshot(PartitionMap(Head(partitions, epoch), entries), snapshot.clones))

    @property
    def epoch(self) -> int | None:
        snapshot = self.world.router.snapshot
        return snapshot.map.head.epoch if snapshot else None

    def place(self) -> str | None:
        return self.world.router.owner(MOVED)


@pytest.fixture
def told() -> Told:
    return Told()


def test_an_older_map_of_another_service_moves_nobody_back(told: Told) -> None:
    old, new = told.world.servers
    assert told.tell(7)
    assert told.place() == new
    client = Client(told.world)
    client.subscribe(MOVED)
    assert not told.tell(0)
    assert (told.place(), told.epoch) == (new, 7)
    assert not any(kind == "subscribe" for kind, _, _ in told.world.servers[old].asked)
    assert told.tell(8)
    assert told.epoch == 8


def test_the_same_epoch_is_taken_again_because_owners_change(told: Told) -> None:
    assert told.tell(7)
    assert told.tell(7)


def test_with_another_number_of_partitions_it_is_another_map_and_no_older_one(told: Told) -> None:
    assert told.tell(7)
    assert told.tell(0, partitions=3)
    assert told.epoch == 0


def test_when_nobody_knows_a_newer_map_for_long_the_older_one_is_believed(told: Told) -> None:
    assert told.tell(7)
    assert not told.tell(0)
    told.world.clock.advance(BELIEVE_AFTER_S - 1)
    assert not told.tell(0)
    told.world.clock.advance(2)
    assert told.tell(0)
    assert told.epoch == 0


def test_the_time_of_believing_begins_anew_with_every_snapshot_that_is_taken(told: Told) -> None:
    assert told.tell(7)
    assert not told.tell(0)
    told.world.clock.advance(BELIEVE_AFTER_S - 1)
    assert told.tell(7)
    told.world.clock.advance(2)
    assert not told.tell(0)
