"""Deleted endpoints: forgotten once their history has expired, and no sooner; they make room for others."""

from pathlib import Path

import pytest

from diem.process.clock import ManualClock
from services.data.errors import StoreUnavailable, TooManyEndpoints, UnknownEndpoint
from services.data.limits import StoreLimits, WriterLimits
from services.data.store import retention, writer
from services.data.store.index import EndpointHead
from services.data.store.retention import Retention
from services.data.store.store import Store
from services.data.store.tables import Cursor
from services.data.store.write_plan import LAST_VERSION, EndpointBound, Write
from tests.support.databases import Databases
from tests.support.patience import until
from tests.unit.services.data.stores import dataset, lose_answers, lose_answers_to_groups, open_store

WEEK_S = 7 * 24 * 3600


async def delete_and_wait(store: Store, clock: ManualClock, *names: str) -> int:
    """Make and delete endpoints, the last changes of all; return the version of the last one when it is due."""
    await store.writer.put([dataset(name) for name in names])
    for name in names:
        version = (await store.writer.delete(name)).version
    clock.advance(WEEK_S + 1)
    return version


async def assert_as_stored(store: Store, databases: Databases, clock: ManualClock) -> None:
    """Check that the index of a closed store is that of its database."""
    again = await open_store(databases, clock)
    async with again.serving():
        index = again.index
        assert (store.index.heads, store.index.gone, store.index.names) == (index.heads, index.gone, index.names)
        assert (store.index.forgotten, store.changes.sequence) == (index.forgotten, index.changes.sequence)
        assert [change.endpoint for change in store.changes.after(0, 99)] == [
            change.endpoint for change in index.changes.after(0, 99)
        ]


async def test_a_deleted_endpoint_is_as_if_it_had_never_been_once_its_history_has_expired(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await store.writer.put([dataset("/kept")])
        before = await delete_and_wait(store, clock, "/a", "/b")
        revision, names = store.index.revision, store.index.names
        assert (store.source, names) == (store.id, ["/a", "/b", "/kept"])
        await store.writer.put([dataset("/kept")])
        assert (store.source, store.index.names) == (f"{store.id}.5", ["/kept"])
        assert store.index.revision > revision
        assert names == ["/a", "/b", "/kept"], "a list of names does not change"
        for read in (store.reader.current, store.reader.versions):
            with pytest.raises(UnknownEndpoint):
                await read("/a")
        assert databases.rows("SELECT endpoint FROM endpoints") == ["/kept"]
        assert databases.rows("SELECT endpoint FROM history") == []
        # By a clock that went back: readers hold the version of the deletion.
        clock.step_wall(-3 * WEEK_S)
        (again,) = await store.writer.put([dataset("/a")])
        assert again.version == before + 1
        assert [each.version for each in await store.reader.versions("/a")] == [again.version]
    await assert_as_stored(store, databases, clock)


async def test_a_store_whose_last_change_was_forgotten_is_no_older_copy_of_itself(
    databases: Databases, tmp_path: Path
) -> None:
    clock, mark = ManualClock(), tmp_path / "mark"
    store = await Store.open(databases.url(), clock=clock, mark=mark)
    async with store.serving():
        version = await delete_and_wait(store, clock, "/a")
        await store.writer.put([dataset("/b")])
        await store.writer.delete("/b")
        clock.advance(WEEK_S + 1)
        with pytest.raises(UnknownEndpoint):
            await store.writer.delete("/b")
        assert (store.changes.sequence, len(store.changes), store.index.forgotten) == (4, 0, 4)
    store = await Store.open(databases.url(), clock=clock, mark=mark)
    async with store.serving():
        assert store.failure is None
        clock.step_wall(-4 * WEEK_S)
        (again,) = await store.writer.put([dataset("/a")])
        assert again.version > version
        assert [change.sequence for change in store.changes.after(0, 9)] == [5]


async def test_a_full_store_and_a_full_key_have_room_again(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORGOTTEN_AT_ONCE", 1)
    clock, bound = ManualClock(), EndpointBound(("/mal",), 2)
    store = await open_store(databases, clock, max_endpoints=3)
    async with store.serving():
        await store.writer.put([dataset("/kept")])
        await delete_and_wait(store, clock, "/mal/a", "/mal/b")
        clock.step_wall(-2)
        with pytest.raises(TooManyEndpoints, match="deleted ones included until they are forgotten"):
            await store.writer.put([dataset("/c"), dataset("/d")])
        with pytest.raises(TooManyEndpoints, match="deleted ones included until they are forgotten"):
            await store.writer.submit(Write([dataset("/mal/c")], bound=bound))
        clock.advance(3)
        await store.writer.submit(Write([dataset("/mal/c"), dataset("/mal/d")], bound=bound))
        with pytest.raises(TooManyEndpoints):
            await store.writer.put([dataset("/e")])
    await assert_as_stored(store, databases, clock)


async def test_an_idle_store_forgets_too(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECK_EVERY_S", 0.01)
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await delete_and_wait(store, clock, "/a")
        await until(lambda: not store.index.heads)
        assert store.writer.failure is None


async def test_a_clock_that_is_ahead_forgets_nothing_at_once(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await store.writer.put([dataset("/a"), dataset("/b")])
        await store.writer.delete("/a")
        clock.step_wall(2 * WEEK_S)
        clock.advance(60)
        await store.writer.put([dataset("/b", 2)])
        clock.step_wall(-2 * WEEK_S)
        await store.writer.put([dataset("/b", 3)])
        assert store.index.names == ["/a", "/b"]
        clock.advance(WEEK_S)
        await store.writer.put([dataset("/b", 4)])
        assert store.index.names == ["/b"]


async def test_endpoints_are_forgotten_in_the_order_of_their_deletions(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await store.writer.put([dataset("/a"), dataset("/b"), dataset("/c")])
        await store.writer.delete("/a")
        await store.writer.delete("/b")
        await store.writer.put([dataset("/a")])
        clock.advance(WEEK_S)
        await store.writer.delete("/a")
        clock.advance(1)
        await store.writer.delete("/c")
        assert (store.index.names, list(store.index.gone)) == (["/a", "/c"], ["/a", "/c"])
    await assert_as_stored(store, databases, clock)


def test_one_that_is_not_due_or_has_no_versions_left_delays_those_after_it() -> None:
    limits = WriterLimits().history
    now_ms = int(limits.days * 24 * 3_600_000) + 10

    def gone(name: str, changed_ms: int, version: int = 1) -> EndpointHead:
        return EndpointHead(name, 0, version, 1, changed_ms, "MW", "PT1H", "", "", b"")

    forgettable = Retention(limits, {}).forgettable
    due, late, used_up = gone("/due", 9), gone("/late", 10), gone("/used-up", 9, LAST_VERSION)
    assert forgettable([due, late, due], now_ms) == [due]
    assert forgettable([due, used_up, due], now_ms) == [due]
    assert len(forgettable([due] * 2000, now_ms)) == retention.FORGOTTEN_AT_ONCE
    assert Retention(limits, {}, released=-1).forgettable([due], now_ms) == []


def test_of_a_forgotten_endpoint_no_count_is_left() -> None:
    counts = Retention(WriterLimits().history, {"/a": 99, "/b": 1})
    assert counts.due() == ["/a"]
    counts.forgotten(["/a", "/c"])
    assert (counts.due(), counts._counts) == ([], {"/b": 1})


@pytest.mark.parametrize("idle", [False, True])
async def test_what_a_transaction_has_forgotten_whose_answer_was_lost_is_read_back(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await delete_and_wait(store, clock, "/a", "/b")
        lose_answers(monkeypatch, "forget")
        with pytest.raises(StoreUnavailable):
            await store.writer.put([dataset("/c")])
        with pytest.raises(UnknownEndpoint):
            await store.reader.versions("/a")
        # Nothing is due by a clock that has gone back.
        clock.step_wall(-WEEK_S)
        if idle:
            await until(lambda: store.failure is None)
        else:
            await store.writer.put([dataset("/a", 2)])
        assert store.index.names == ([] if idle else ["/a"])
    await assert_as_stored(store, databases, clock)


async def test_an_endpoint_made_again_by_a_commit_whose_answer_was_lost_is_not_forgotten(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    # No probe in between.
    store = await Store.open(databases.url(), clock=clock, limits=StoreLimits(writer=WriterLimits(probe_every_s=60)))
    async with store.serving():
        await delete_and_wait(store, clock, "/a", "/b")
        clock.step_wall(-2)
        with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
            lose_answers_to_groups(patch)
            await store.writer.put([dataset("/a", 2)])
        clock.advance(3)
        await store.writer.put([dataset("/c")])
        assert store.index.names == ["/a", "/c"]
        assert (await store.reader.current("/a")).content == dataset("/a", 2).content
    await assert_as_stored(store, databases, clock)


async def test_a_published_store_forgets_what_its_publisher_has_released_and_keeps_its_cursor_first(
    databases: Databases,
) -> None:
    clock, cursor = ManualClock(), Cursor("log", 4, '{"0":[1,0,9,7]}')
    store = await open_store(databases, clock, published=True)
    async with store.serving():
        version = await delete_and_wait(store, clock, "/a", "/b")
        assert (store.expired, store.deleted(3), store.deleted(4)) == (4, [b"/a"], [b"/a", b"/b"])
        store.release_deleted(3, cursor)
        await store.writer.put([dataset("/c")])
        assert (store.index.names, store.expired) == (["/b", "/c"], 4)
        store.release_deleted(4, cursor)
        await store.writer.put([dataset("/c", 2)])
        assert (store.index.names, store.expired, store.version_floor) == (["/c"], 0, version)
    store = await open_store(databases, clock, published=True)
    async with store.serving():
        assert (store.cursor, store.version_floor, store.source) == (cursor, version, f"{store.id}.4")


@pytest.mark.parametrize("published", [False, True])
async def test_what_is_or_was_published_to_kafka_is_not_forgotten(databases: Databases, published: bool) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock, published=published)
    async with store.serving():
        if not published:
            store.keep_cursor(Cursor("log", 1))
        await delete_and_wait(store, clock, "/a")
    store = await open_store(databases, clock, published=published)
    async with store.serving():
        await store.writer.put([dataset("/b")])
        assert (store.index.names, store.source) == (["/a", "/b"], store.id)
