"""The plan of a group of writes: versions, sequences, independent refusals, Idempotency-Keys."""

from collections import Counter
from collections.abc import Sequence

import pytest

from diem.protocol.endpoints import collection_of, is_collection
from diem.protocol.update import GONE
from services.data.errors import EndpointDeleted, IdempotencyKeyReused, TooManyEndpoints, UnknownEndpoint, WrongUnit
from services.data.kinds.series import Dataset, Point, build
from services.data.store.index import EndpointHead
from services.data.store.write_plan import (
    Accepted,
    Basis,
    Deletion,
    EndpointBound,
    IdempotencyKey,
    IdempotentReply,
    Write,
    WritePlan,
    plan,
)

NOW = 1_700_000_000_000


def dataset(endpoint: str, value: float = 1, unit: str = "MW", resolution: str = "PT1H", title: str = "") -> Dataset:
    return build(endpoint, unit, resolution, [Point(0, value)], title)


class Fake:
    """A store in memory that executes plans."""

    def __init__(self, max_endpoints: int = 100) -> None:
        self.heads: dict[str, EndpointHead] = {}
        self.remembered: dict[tuple[str, str], IdempotentReply] = {}
        self.sequence = 0
        self.now_ms = NOW
        self._max = max_endpoints

    def do(self, *writes: Write) -> WritePlan:
        collections = sorted(filter(is_collection, self.heads))
        names = sorted(self.heads.keys() - {*collections})
        members = Counter(collection_of(name) for name, head in self.heads.items() if not head.gone)
        basis = Basis(
            self.heads,
            self.remembered,
            self.sequence,
            len(names),
            self._max,
            self.now_ms,
            count_of=members.__getitem__,
            collections=len(collections),
            names=names,
            collection_names=collections,
        )
        planned = plan(writes, basis)
        assert len(planned.outcomes) == len(writes)
        self.heads |= planned.heads
        self.remembered |= planned.requests
        self.sequence = planned.sequence
        return planned


def put(*datasets: Dataset, key: IdempotencyKey | None = None) -> Write:
    return Write(datasets, key=key)


def versions(planned: WritePlan) -> list[Sequence[Accepted]]:
    assert all(isinstance(outcome, list) for outcome in planned.outcomes)
    return [outcome for outcome in planned.outcomes if isinstance(outcome, list)]


def test_a_new_endpoint_has_the_time_as_its_version() -> None:
    store = Fake()
    assert versions(store.do(put(dataset("/a")))) == [[Accepted("/a", NOW, True)]]
    assert store.sequence == 1


def test_versions_grow_when_the_clock_steps_back() -> None:
    store = Fake()
    store.do(put(dataset("/a", 1)))
    store.now_ms = NOW - 3_600_000
    assert versions(store.do(put(dataset("/a", 2)))) == [[Accepted("/a", NOW + 1, True)]]


def test_unchanged_data_keeps_its_version_and_sequence() -> None:
    store = Fake()
    store.do(put(dataset("/a")))
    store.now_ms += 1000
    planned = store.do(put(dataset("/a")))
    assert versions(planned) == [[Accepted("/a", NOW, False)]]
    assert (planned.sequence, planned.heads) == (1, {})


def test_two_writes_of_a_group_to_one_endpoint_have_two_versions_and_leave_the_last() -> None:
    store = Fake()
    planned = store.do(put(dataset("/a", 1)), put(dataset("/a", 2)))
    assert versions(planned) == [[Accepted("/a", NOW, True)], [Accepted("/a", NOW + 1, True)]]
    assert (store.heads["/a"].version, store.heads["/a"].sequence) == (NOW + 1, 2)
    assert planned.contents["/a"] == dataset("/a", 2).content


def test_an_endpoint_twice_in_a_write_gets_two_versions_and_the_last_data() -> None:
    store = Fake()
    store.do(put(dataset("/a", 1)))
    planned = store.do(put(dataset("/a", 2), dataset("/a", 1)))
    assert versions(planned) == [[Accepted("/a", NOW + 1, True), Accepted("/a", NOW + 2, True)]]
    assert planned.contents["/a"] == dataset("/a", 1).content
    assert (planned.replaced, [head.version for head, _ in planned.superseded]) == (["/a"], [NOW + 1])


@pytest.mark.parametrize(("unit", "resolution"), [("EUR/MWh", "PT1H"), ("MW", "P1D")])
def test_unit_and_resolution_of_an_endpoint_do_not_change(unit: str, resolution: str) -> None:
    store = Fake()
    store.do(put(dataset("/a")))
    (refusal,) = store.do(put(dataset("/a", 2, unit, resolution))).outcomes
    assert isinstance(refusal, WrongUnit)


def test_a_refused_write_does_not_affect_others_of_its_group() -> None:
    store = Fake()
    store.do(put(dataset("/a")))
    planned = store.do(
        put(dataset("/b"), dataset("/a", 5, "%")),
        put(dataset("/c")),
        Write([Deletion("/never")]),
    )
    first, second, third = planned.outcomes
    assert isinstance(first, WrongUnit)
    assert second == [Accepted("/c", NOW, True)]
    assert isinstance(third, UnknownEndpoint)
    assert set(planned.heads) == {"/c"}
    assert planned.sequence == 2


def test_a_deletion_has_a_version_of_its_own_and_so_has_the_re_creation() -> None:
    store = Fake()
    store.do(put(dataset("/a")))
    assert versions(store.do(Write([Deletion("/a")]))) == [[Accepted("/a", NOW + 1, True)]]
    assert store.heads["/a"].kind == GONE
    assert isinstance(store.do(Write([Deletion("/a")])).outcomes[0], EndpointDeleted)
    # The same data as before is a change nevertheless, and a gone endpoint may come back as something else.
    assert versions(store.do(put(dataset("/a", 1, "%", "P1D")))) == [[Accepted("/a", NOW + 2, True)]]
    assert store.sequence == 3


def test_the_same_key_and_request_have_the_same_answer() -> None:
    store = Fake()
    key = IdempotencyKey("k", b"digest")
    first = store.do(put(dataset("/a"), key=key))
    store.do(put(dataset("/a", 2)))
    again = store.do(put(dataset("/a"), key=key))
    assert versions(again) == versions(first)
    assert again.heads == {}


def test_an_idempotency_key_applies_within_its_group() -> None:
    key = IdempotencyKey("k", b"digest")
    planned = Fake().do(put(dataset("/a"), key=key), put(dataset("/a"), key=key))
    assert planned.outcomes[0] == planned.outcomes[1]
    assert planned.sequence == 1


def test_the_same_key_with_another_request_is_refused() -> None:
    store = Fake()
    store.do(put(dataset("/a"), key=IdempotencyKey("k", b"one")))
    (refusal,) = store.do(put(dataset("/a", 2), key=IdempotencyKey("k", b"other"))).outcomes
    assert isinstance(refusal, IdempotencyKeyReused)


def test_a_refused_request_does_not_use_up_its_key() -> None:
    store = Fake()
    store.do(put(dataset("/a")))
    key = IdempotencyKey("k", b"one")
    store.do(put(dataset("/a", 2, "%"), key=key))
    assert store.remembered == {}


def test_endpoints_are_bounded_and_gone_ones_count() -> None:
    store = Fake(max_endpoints=2)
    store.do(put(dataset("/a")), put(dataset("/b")))
    store.do(Write([Deletion("/a")]))
    (refusal,) = store.do(put(dataset("/c"))).outcomes
    assert isinstance(refusal, TooManyEndpoints)
    assert versions(store.do(put(dataset("/a", 2))))


def test_endpoints_are_bounded_within_a_group() -> None:
    planned = Fake(max_endpoints=2).do(put(dataset("/a")), put(dataset("/b")), put(dataset("/c")))
    assert isinstance(planned.outcomes[2], TooManyEndpoints)


def test_collections_do_not_count_as_endpoints_and_are_bounded_themselves() -> None:
    store = Fake(max_endpoints=3)
    assert versions(store.do(put(dataset("/a/b/c/1"))))
    planned = store.do(put(dataset("/a/b/c/2")), put(dataset("/d/e/f/1")), put(dataset("/d/2")), put(dataset("/d/e/3")))
    refused = [isinstance(outcome, TooManyEndpoints) for outcome in planned.outcomes]
    assert refused == [False, False, True, True], "three endpoints"
    assert sum(map(is_collection, store.heads)) == 6
    for name in ("/a/b/c/1", "/a/b/c/2"):
        store.do(Write([Deletion(name)]))
    assert store.heads["/a/"].gone
    # As if endpoints had been forgotten, and their collections not yet.
    for name in ("/a/b/c/1", "/a/b/c/2"):
        del store.heads[name]
    (refusal,) = store.do(put(dataset("/g/1"))).outcomes
    assert "may hold 6 collections, deleted ones included until they are forgotten: use names with fewer" in str(
        refusal
    )
    assert versions(store.do(put(dataset("/a/1"))))


def test_a_write_key_with_long_names_leaves_the_store_to_others() -> None:
    store, bound = Fake(), EndpointBound(("/mal",), 3)
    planned = store.do(
        Write([dataset("/mal/a/b/c/d/e/1")], bound=bound),
        Write([dataset("/mal/a/f/1")], bound=bound),
        Write([dataset("/mal/a/2")], bound=bound),
    )
    assert [isinstance(outcome, TooManyEndpoints) for outcome in planned.outcomes] == [False, True, False]
    assert "there may be 6 collections below /mal for this write key" in str(planned.outcomes[1])
    (refusal,) = store.do(Write([dataset("/mal/g/1")], bound=bound)).outcomes
    assert isinstance(refusal, TooManyEndpoints)
    assert versions(store.do(put(dataset("/mal/g/1"), dataset("/x/y/z"))))


def test_a_new_title_makes_no_version() -> None:
    store = Fake()
    store.do(put(dataset("/a", title="Old")))
    planned = store.do(put(dataset("/a", title="New")))
    assert versions(planned) == [[Accepted("/a", NOW, False)]]
    assert (store.heads["/a"].title, planned.sequence) == ("New", 1)


def test_a_write_key_at_its_bound_leaves_the_store_to_others() -> None:
    store, bound = Fake(), EndpointBound(("/mal",), 3)
    store.do(put(dataset("/mal"), dataset("/malt"), dataset("/mal-x/a"), dataset("/ext/a")))
    planned = store.do(
        Write([dataset("/mal/a")], bound=bound),
        Write([dataset("/mal/b"), dataset("/mal/c")], bound=bound),
        Write([dataset("/mal/b")], bound=bound),
        Write([dataset("/mal/c")], bound=bound),
        put(dataset("/mal/by-another")),
        Write([dataset("/mal/a", 2)], bound=bound),
    )
    refused = [isinstance(outcome, TooManyEndpoints) for outcome in planned.outcomes]
    assert refused == [False, True, False, True, False, False]
    assert "fewer than 3 below /mal, deleted ones included" in str(planned.outcomes[1])
    # A deleted one still has its version, and its place; it may be made again.
    store.do(Write([Deletion("/mal/a")]))
    planned = store.do(Write([dataset("/mal/d")], bound=bound), Write([dataset("/mal/a")], bound=bound))
    assert isinstance(planned.outcomes[0], TooManyEndpoints)
    assert not isinstance(planned.outcomes[1], TooManyEndpoints)


@pytest.mark.parametrize(
    ("prefixes", "count"),
    [
        ((), 6),
        (("/a",), 3),
        (("/a/b",), 2),
        (("/a", "/a/b"), 3),
        (("/a/b", "/a", "/a"), 3),
        (("/a", "/c"), 4),
        (("/d",), 0),
        (("/a/b/c",), 1),
    ],
)
def test_endpoints_below_prefixes_are_counted_once(prefixes: tuple[str, ...], count: int) -> None:
    assert EndpointBound(prefixes, 1).count(["/a", "/a-b", "/a/b", "/a/b/c", "/a0", "/c/d"]) == count
