"""The life of a store: identity, migrations, reads, the cache, and one process per file."""

import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from diem.process.clock import ManualClock
from diem.protocol import update
from services.data.errors import DataError, EndpointDeleted, StoreInUse, StoreUnavailable, UnknownEndpoint
from services.data.kinds import SERIES
from services.data.kinds.kind import envelope
from services.data.kinds.series import Dataset, Point, build
from services.data.limits import InlineLimits, StoreLimits
from services.data.store import StoredVersion
from services.data.store.database import database_at
from services.data.store.reader import Cache
from services.data.store.store import Store
from services.data.store.tables import Cursor
from tests.support.databases import Databases
from tests.support.patience import until
from tests.unit.services.data.stores import dataset


async def test_data_survives_a_restart(databases: Databases) -> None:
    store = await Store.open(databases.url(), clock=ManualClock())
    async with store.serving():
        await store.writer.put([dataset("/a"), dataset("/b")], source="market")
        await store.writer.delete("/b")
        await store.writer.put([dataset("/a", 2)])
    again = await Store.open(databases.url(), clock=ManualClock())
    async with again.serving():
        assert again.id == store.id
        assert again.source == store.id
        assert again.changes.sequence == 4
        assert again.changes.after(0, 9) == store.changes.after(0, 9)
        assert sorted(again.index.heads.values()) == sorted(store.index.heads.values())
        assert (await again.reader.current("/a")).content == dataset("/a", 2).content


async def test_a_wiped_store_gets_another_id_and_greater_versions(databases: Databases) -> None:
    clock = ManualClock()
    first = await Store.open(databases.url("one"), clock=clock)
    async with first.serving():
        (before,) = await first.writer.put([dataset("/a")])
    clock.advance(1)
    second = await Store.open(databases.url("two"), clock=clock)
    async with second.serving():
        (after,) = await second.writer.put([dataset("/a")])
    assert first.id != second.id
    assert after.version > before.version


async def test_the_changes_are_what_clients_receive(databases: Databases) -> None:
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=1_700_000_000_000))
    async with store.serving():
        await store.writer.put([dataset("/a")])
        await store.writer.delete("/a")
    (change,) = store.changes.after(0, 9)
    assert change == update.Change(
        2,
        b"/a",
        1_700_000_000_001,
        update.GONE,
        update.encode("/a", 1_700_000_000_001, 1_700_000_000_000, gone=True),
    )


async def test_reads_of_unknown_or_deleted_endpoints_are_refused(databases: Databases) -> None:
    store = await Store.open(databases.url())
    async with store.serving():
        with pytest.raises(UnknownEndpoint):
            await store.reader.current("/a")
        await store.writer.put([dataset("/a")])
        await store.reader.current("/a")
        await store.writer.delete("/a")
        with pytest.raises(EndpointDeleted):
            await store.reader.current("/a")


async def test_a_read_sees_the_write_before_it_cached_or_not(databases: Databases) -> None:
    store = await Store.open(databases.url())
    async with store.serving():
        for value in range(3):
            (accepted,) = await store.writer.put([dataset("/a", value)])
            stored = await store.reader.current("/a")
            assert (stored.version, stored.content) == (accepted.version, dataset("/a", value).content)


async def test_two_processes_cannot_open_the_same_store(databases: Databases) -> None:
    store = await Store.open(databases.url())
    async with store.serving():
        with pytest.raises(StoreInUse, match="in use by another process"):
            await Store.open(databases.url(), wait=False)
    async with (await Store.open(databases.url())).serving():
        pass


@pytest.mark.parametrize("bad", ["mysql://host/db", "postgresql://host", "sqlite://", "sqlite:///:memory:", "nonsense"])
async def test_a_database_url_without_a_file_is_refused(bad: str) -> None:
    with pytest.raises(DataError, match="sqlite:///path/to/file"):
        await Store.open(bad)


async def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_bytes(b"this is no database, and it is long enough to be sure of that" * 20)
    with pytest.raises(StoreUnavailable, match="cannot be opened: file is not a database"):
        await Store.open(f"sqlite:///{tmp_path / 'data.db'}")


async def test_a_store_replaced_by_an_older_copy_stays_failed(databases: Databases) -> None:
    store = await Store.open(databases.url())
    async with store.serving():
        assert store.failure is None
        store.went_back(1)
        await store.writer.put([dataset("/a"), dataset("/b")])
        assert store.failure is not None
        assert "older copy" in store.failure


def test_the_cache_is_bounded_in_bytes_and_evicts_the_least_recently_used() -> None:
    cache = Cache(100)
    for name in "abc":
        cache.put(name, StoredVersion(1, 0, 0, SERIES, b"x" * 40))
        cache.get("a")
    assert "a" in cache
    assert "b" not in cache
    assert "c" in cache
    cache.put("big", StoredVersion(1, 0, 0, SERIES, b"x" * 200))
    assert len(cache) == 0


def test_the_cache_never_replaces_a_version_by_an_older_one() -> None:
    cache = Cache(100)
    cache.put("a", StoredVersion(2, 0, 0, SERIES, b"new"))
    cache.put("a", StoredVersion(1, 0, 0, SERIES, b"old"))
    assert cache.get("a") == StoredVersion(2, 0, 0, SERIES, b"new")
    cache.drop("a")
    cache.drop("a")
    assert cache.get("a") is None


async def test_the_publishers_cursor_survives_a_restart_with_and_without_writes(databases: Databases) -> None:
    where = databases.url()
    store = await Store.open(where)
    async with store.serving():
        assert store.cursor is None
        store.keep_cursor(Cursor("log-1", 1))
        await store.writer.put([dataset("/a")])
        store.keep_cursor(Cursor("log-1", 7))
    again = await Store.open(where)
    async with again.serving():
        assert again.cursor == Cursor("log-1", 7)
        again.keep_cursor(Cursor("log-2", 3))
    last = await Store.open(where)
    async with last.serving():
        assert last.cursor == Cursor("log-2", 3)


async def test_a_cursor_is_written_while_nothing_else_is(databases: Databases) -> None:
    store = await Store.open(databases.url())
    async with store.serving():
        store.keep_cursor(Cursor("log-1", 7))
        await until(lambda: databases.rows("SELECT source, sequence FROM publisher") == ["log-1|7"])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pa%2Fss@host:5433/db?sslmode=require", "postgresql://me@host:5433/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db"),
    ],
)
def test_the_display_name_of_a_database_has_no_password(url: str, shown: str) -> None:
    assert database_at(url, 5).display_name == shown


def test_postgresql_without_its_driver_is_refused_naming_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "services.data.store.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(DataError, match=r"the extra `postgres`: pip install 'diem-realtime\[postgres\]'"):
        database_at("postgresql://me@host/db", 5)


def long(endpoint: str, points: int) -> Dataset:
    return build(endpoint, "MW", "PT1H", [Point(3600 * hour, hour) for hour in range(points)])


def carries(store: Store, endpoint: str) -> bool:
    change = store.changes.get(endpoint.encode())
    assert change is not None
    return update.has_data(change.endpoint, change.value)


async def test_an_update_carries_the_dataset_that_get_answers_if_it_is_short_enough(databases: Databases) -> None:
    limits = StoreLimits(inline=InlineLimits(500, {"/big": 3000, "/big/none": 0}))
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=1_700_000_000_000), limits=limits)
    async with store.serving():
        await store.writer.put([long("/a", 2), long("/b", 20), long("/big/a", 20), long("/big/none/a", 2)])
        expected = {"/a": True, "/b": False, "/big/a": True, "/big/none/a": False}
        assert {name: carries(store, name) for name in expected} == expected
        change, stored = store.changes.get(b"/a"), await store.reader.current("/a")
        assert change is not None
        body = envelope("/a", stored)
        assert orjson.loads(change.value)["data"] == orjson.loads(body)
        await store.writer.delete("/a")
        assert not carries(store, "/a")
    again = await Store.open(databases.url(), clock=ManualClock(), limits=limits)
    async with again.serving():
        assert again.changes.after(0, 9) == store.changes.after(0, 9), "a restarted feed has the same updates"


async def test_of_the_retained_data_that_of_the_latest_changes_is_kept_over_a_restart(databases: Databases) -> None:
    limits = StoreLimits(inline=InlineLimits(4096, {}, 4000))
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=1_700_000_000_000), limits=limits)
    async with store.serving():
        for name in ("/a", "/b", "/c"):
            await store.writer.put([long(name, 30)])
        kept = {name: carries(store, name) for name in ("/a", "/b", "/c")}
        assert kept == {"/a": False, "/b": True, "/c": True}
        assert store.changes.budget.evicted == 1
    again = await Store.open(databases.url(), clock=ManualClock(), limits=limits)
    async with again.serving():
        assert {name: carries(again, name) for name in kept} == kept
        assert again.changes.budget.bytes <= 4000


async def test_a_write_that_only_changes_a_title_keeps_the_data_of_the_update(databases: Databases) -> None:
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=1_700_000_000_000))
    async with store.serving():
        await store.writer.put([long("/a", 2)])
        await store.writer.put([replace(long("/a", 2), title="A title")])
        assert carries(store, "/a")
