"""Routing by snapshots, and the allow-list of servers."""

from collections import Counter

from diem.process.allow_list import AllowList
from diem.protocol.assignment import STABLE, UNKNOWN, Clone, Owner, Snapshot
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap
from diem.protocol.partitioners import partition_of
from proxy.routing import Router

A = Owner("b001", "ws://127.0.0.1:9101/ws", "ws://127.0.0.1:8101/ws")
B = Owner("b002", "ws://127.0.0.1:9102/ws", "ws://127.0.0.1:8102/ws")
FOREIGN = Owner("b003", "ws://10.0.0.1:9102/ws", "ws://10.0.0.1:8102/ws")


def snapshot(*owners: Owner, hot: tuple[bytes, ...] = (), partitions: int = 2) -> Snapshot:
    """Return a snapshot in which the n-th owner has partition n."""
    map_ = PartitionMap(Head(partitions, 0), {name: Entry(HOT) for name in hot})
    group = Clone(STABLE, {o.server: o for o in owners}, {n: o.server for n, o in enumerate(owners)})
    return Snapshot(map_, {1: group})


def router_with(*allowed: str) -> Router:
    return Router(1, AllowList(allowed or ("127.0.0.0/8",)))


def name_of(partition: int) -> str:
    return next(f"/e/{n}" for n in range(100) if partition_of(f"/e/{n}".encode(), 2) == partition)


def test_endpoint_is_routed_to_the_owner_of_its_partition() -> None:
    router = router_with()
    assert router.owner(name_of(0)) is None
    router.apply(snapshot(A, B))
    assert [router.owner(name_of(n)) for n in (0, 1)] == [A.internal, B.internal]
    router.apply(snapshot(B, A))
    assert [router.owner(name_of(n)) for n in (0, 1)] == [B.internal, A.internal]


def test_endpoint_of_an_unassigned_partition_has_no_owner() -> None:
    router = router_with()
    router.apply(snapshot(A))
    assert router.owner(name_of(1)) is None


def test_hot_endpoint_prefers_its_current_server_then_the_least_loaded_used_one() -> None:
    router = router_with()
    router.apply(snapshot(A, B, hot=(b"/hot",)))
    assert router.owner("/hot") == A.internal
    assert router.owner("/hot", used=Counter({B.internal: 1})) == B.internal
    assert router.owner("/hot", used=Counter({A.internal: 2, B.internal: 1})) == B.internal
    assert router.owner("/hot", current=A.internal, used=Counter({B.internal: 1})) == A.internal
    assert router.owner("/hot", current=A.internal, dead={A.internal}) == B.internal
    assert router.owner("/hot", current=A.internal, dead={A.internal, B.internal}) == A.internal


def test_server_outside_of_the_allow_list_is_ignored() -> None:
    router = router_with()
    router.apply(snapshot(A, FOREIGN, hot=(b"/hot",)))
    assert len(router.refused) == 1
    assert router.owner(name_of(1)) is None
    assert set(router.members) == {A.internal}
    assert router.resolve_hint(FOREIGN.public) is None
    assert router.owner("/hot") == A.internal


def test_hints_resolve_to_members_only() -> None:
    router = router_with()
    assert router.resolve_hint(A.public) is None
    router.apply(snapshot(A, B))
    assert router.resolve_hint(B.public) == router.resolve_hint(B.internal) == B.internal
    assert router.resolve_hint("ws://127.0.0.1:9999/ws") is None
    assert router.resolve_hint(None) is None


def test_public_url_of_several_members_resolves_to_none() -> None:
    """The members of a composite have one public URL, which is the composite's own."""
    router = router_with()
    shared = [owner._replace(public="ws://127.0.0.1:8601/ws") for owner in (A, B)]
    router.apply(snapshot(*shared))
    assert router.resolve_hint("ws://127.0.0.1:8601/ws") is None
    assert [router.resolve_hint(owner.internal) for owner in shared] == [A.internal, B.internal]


def test_public_url_shared_with_a_refused_server_resolves_to_none() -> None:
    router = router_with()
    router.apply(snapshot(A, FOREIGN._replace(public=A.public)))
    assert router.resolve_hint(A.public) is None


def test_internal_url_resolves_to_its_server_even_if_it_is_the_public_url_of_another() -> None:
    router = router_with()
    router.apply(snapshot(A, B._replace(public=A.internal)))
    assert router.resolve_hint(A.internal) == A.internal


def test_unknown_group_keeps_its_previous_routes() -> None:
    router = router_with()
    router.apply(snapshot(A, B))
    router.apply(Snapshot(PartitionMap(Head(2, 1)), {1: Clone(UNKNOWN, {}, {})}))
    assert router.owner(name_of(0)) == A.internal
    router.apply(Snapshot(PartitionMap(Head(2, 2)), {}))
    assert router.owner(name_of(0)) == A.internal
