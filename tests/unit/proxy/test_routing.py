"""Whom the proxy asks, and whom it never dials."""

from collections import Counter

import pytest

from diem.protocol.assignment import STABLE, UNKNOWN, Clone, Owner, Snapshot
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, partition_of
from proxy.routing import Router
from proxy.settings import Allowed

A = Owner("b001", "ws://127.0.0.1:9101/ws", "ws://127.0.0.1:8101/ws")
B = Owner("b002", "ws://127.0.0.1:9102/ws", "ws://127.0.0.1:8102/ws")
FOREIGN = Owner("b003", "ws://10.0.0.1:9102/ws", "ws://10.0.0.1:8102/ws")


def snapshot(*owners: Owner, hot: tuple[bytes, ...] = (), partitions: int = 2) -> Snapshot:
    """Partition n belongs to the n-th of the owners."""
    map_ = PartitionMap(Head(partitions, 0), {name: Entry(HOT) for name in hot})
    group = Clone(STABLE, {o.server: o for o in owners}, {n: o.server for n, o in enumerate(owners)})
    return Snapshot(map_, {1: group})


def router(*allowed: str) -> Router:
    return Router(1, Allowed(allowed or ("127.0.0.0/8",)))


def name_of(partition: int) -> str:
    return next(f"/e/{n}" for n in range(100) if partition_of(f"/e/{n}".encode(), 2) == partition)


def test_an_endpoint_is_asked_for_at_the_owner_of_its_partition() -> None:
    routes = router()
    assert routes.owner(name_of(0)) is None
    routes.apply(snapshot(A, B))
    assert [routes.owner(name_of(n)) for n in (0, 1)] == [A.internal, B.internal]
    routes.apply(snapshot(B, A))
    assert [routes.owner(name_of(n)) for n in (0, 1)] == [B.internal, A.internal]


def test_a_partition_without_an_owner_has_none() -> None:
    routes = router()
    routes.apply(snapshot(A))
    assert routes.owner(name_of(1)) is None


def test_a_hot_endpoint_stays_where_it_is_else_joins_what_is_used_else_takes_the_least_busy() -> None:
    routes = router()
    routes.apply(snapshot(A, B, hot=(b"/hot",)))
    load = Counter({A.internal: 1})
    assert routes.owner("/hot", load=load) == B.internal
    assert routes.owner("/hot", used={A.internal}, load=load) == A.internal
    assert routes.owner("/hot", current=A.internal, used={B.internal}) == A.internal
    assert routes.owner("/hot", current=A.internal, dead={A.internal}) == B.internal
    assert routes.owner("/hot", current=A.internal, dead={A.internal, B.internal}) == A.internal


def test_a_server_outside_of_the_allow_list_does_not_exist() -> None:
    routes = router()
    routes.apply(snapshot(A, FOREIGN, hot=(b"/hot",)))
    assert routes.refused == 1
    assert routes.owner(name_of(1)) is None
    assert set(routes.members) == {A.internal}
    assert routes.hinted(FOREIGN.public) is None
    assert routes.owner("/hot") == A.internal


def test_hints_are_followed_to_members_only() -> None:
    routes = router()
    assert routes.hinted(A.public) is None
    routes.apply(snapshot(A, B))
    assert routes.hinted(B.public) == routes.hinted(B.internal) == B.internal
    assert routes.hinted("ws://127.0.0.1:9999/ws") is None
    assert routes.hinted(None) is None


def test_a_hint_that_several_members_share_means_none_of_them() -> None:
    """The members of a composite have one public URL, which is the composite's own."""
    routes = router()
    shared = [owner._replace(public="ws://127.0.0.1:8601/ws") for owner in (A, B)]
    routes.apply(snapshot(*shared))
    assert routes.hinted("ws://127.0.0.1:8601/ws") is None
    assert [routes.hinted(owner.internal) for owner in shared] == [A.internal, B.internal]


def test_a_hint_that_a_member_shares_with_one_outside_of_the_allow_list_means_neither() -> None:
    routes = router()
    routes.apply(snapshot(A, FOREIGN._replace(public=A.public)))
    assert routes.hinted(A.public) is None


def test_a_hint_at_an_internal_url_means_that_server_whatever_others_call_themselves() -> None:
    routes = router()
    routes.apply(snapshot(A, B._replace(public=A.internal)))
    assert routes.hinted(A.internal) == A.internal


def test_a_group_that_nobody_knows_stays_as_it_was() -> None:
    routes = router()
    routes.apply(snapshot(A, B))
    routes.apply(Snapshot(PartitionMap(Head(2, 1)), {1: Clone(UNKNOWN, {}, {})}))
    assert routes.owner(name_of(0)) == A.internal
    routes.apply(Snapshot(PartitionMap(Head(2, 2)), {}))
    assert routes.owner(name_of(0)) == A.internal


@pytest.mark.parametrize(
    ("rule", "url", "admitted"),
    [
        ("127.0.0.0/8", "ws://127.0.0.1:9101/ws", True),
        ("127.0.0.0/8:9101", "ws://127.0.0.1:9101/ws", True),
        ("127.0.0.0/8:9101", "ws://127.0.0.1:9102/ws", False),
        ("127.0.0.0/8:9101-9109", "ws://127.0.0.1:9109/ws", True),
        ("127.0.0.0/8:9101-9109", "ws://127.0.0.1:9110/ws", False),
        ("10.0.0.0/8", "ws://127.0.0.1:9101/ws", False),
        ("::1/128", "ws://[::1]:9101/ws", True),
        ("[::1/128]:9101", "ws://[::1]:9101/ws", True),
        ("[::1/128]:9101", "ws://[::1]:9102/ws", False),
        ("127.0.0.0/8", "ws://localhost:9101/ws", False),
        ("127.0.0.0/8", "ws://127.1:9101/ws", False),
        ("127.0.0.0/8", "ws://2130706433:9101/ws", False),
        ("127.0.0.0/8", "ws://127.0.0.1/ws", False),
        ("127.0.0.0/8", "wss://127.0.0.1:9101/ws", False),
        ("127.0.0.0/8", "ws://user@127.0.0.1:9101/ws", False),
        ("127.0.0.0/8", "ws://127.0.0.1:9101/ws?x=1", False),
        ("127.0.0.0/8", "http://127.0.0.1:9101/ws", False),
        ("127.0.0.0/8", "ws://127.0.0.1:99999/ws", False),
        ("127.0.0.0/8", "nonsense", False),
    ],
)
def test_only_literal_addresses_within_the_rules_are_dialled(rule: str, url: str, *, admitted: bool) -> None:
    assert Allowed([rule]).admits(url) is admitted


@pytest.mark.parametrize(
    "rule", ["", "nonsense", "127.0.0.1/8", "127.0.0.0/8:x", "127.0.0.0/8:9-1", "127.0.0.0/8:70000"]
)
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Allowed([rule])
