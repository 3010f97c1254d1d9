"""The store over its life: identity, migrations, reads, the cache, and one process per file."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from diem.process.clock import ManualClock
from diem.protocol import update
from services.data.datasets import Dataset, Point, build
from services.data.errors import DataError, Gone, StoreInUse, Unavailable, Unknown
from services.data.store import Store
from services.data.store.cache import Cache, Stored
from services.data.store.cursor import Cursor
from services.data.store.migrate import upgrade
from services.data.store.tables import METADATA


def dataset(endpoint: str, value: float = 1) -> Dataset:
    return build(endpoint, "MW", "PT1H", [Point(0, value)])


def url(path: Path) -> str:
    return f"sqlite:///{path / 'data.db'}"


async def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    store = await Store.open(url(tmp_path), clock=ManualClock())
    async with store.serving():
        await store.put([dataset("/a"), dataset("/b")], source="market")
        await store.delete("/b")
        await store.put([dataset("/a", 2)])
    again = await Store.open(url(tmp_path), clock=ManualClock())
    async with again.serving():
        assert again.id == store.id
        assert again.source == store.id
        assert again.changes.sequence == 4
        assert again.changes.after(0, 9) == store.changes.after(0, 9)
        assert again.heads() == store.heads()
        assert (await again.read("/a")).content == dataset("/a", 2).content


async def test_a_wiped_store_is_another_store_with_greater_versions(tmp_path: Path) -> None:
    clock = ManualClock()
    first = await Store.open(url(tmp_path / "one"), clock=clock)
    async with first.serving():
        (before,) = await first.put([dataset("/a")])
    clock.advance(1)
    second = await Store.open(url(tmp_path / "two"), clock=clock)
    async with second.serving():
        (after,) = await second.put([dataset("/a")])
    assert first.id != second.id
    assert after.version > before.version


async def test_the_changes_are_what_clients_receive(tmp_path: Path) -> None:
    store = await Store.open(url(tmp_path), clock=ManualClock(wall_ms=1_700_000_000_000))
    async with store.serving():
        await store.put([dataset("/a")])
        await store.delete("/a")
    (change,) = store.changes.after(0, 9)
    assert change == update.Change(
        2,
        b"/a",
        1_700_000_000_001,
        update.GONE,
        update.encode("/a", 1_700_000_000_001, 1_700_000_000_000, gone=True),
    )


async def test_reading_what_is_not_there(tmp_path: Path) -> None:
    store = await Store.open(url(tmp_path))
    async with store.serving():
        with pytest.raises(Unknown):
            await store.read("/a")
        await store.put([dataset("/a")])
        await store.read("/a")
        await store.delete("/a")
        with pytest.raises(Gone):
            await store.read("/a")


async def test_a_read_after_a_write_sees_it_cached_or_not(tmp_path: Path) -> None:
    store = await Store.open(url(tmp_path))
    async with store.serving():
        for value in range(3):
            (accepted,) = await store.put([dataset("/a", value)])
            stored = await store.read("/a")
            assert (stored.version, stored.content) == (accepted.version, dataset("/a", value).content)


async def test_two_processes_cannot_have_the_same_store(tmp_path: Path) -> None:
    store = await Store.open(url(tmp_path))
    async with store.serving():
        with pytest.raises(StoreInUse, match="in use by another process"):
            await Store.open(url(tmp_path))
    async with (await Store.open(url(tmp_path))).serving():
        pass


@pytest.mark.parametrize("bad", ["postgresql://host/db", "sqlite://", "sqlite:///:memory:", "nonsense"])
async def test_a_url_of_no_file_is_refused(bad: str) -> None:
    with pytest.raises(DataError, match="sqlite:///path/to/file"):
        await Store.open(bad)


async def test_a_file_that_is_no_database_is_refused_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_bytes(b"this is no database, and it is long enough to be sure of that" * 20)
    with pytest.raises(Unavailable, match="cannot be opened: file is not a database"):
        await Store.open(url(tmp_path))


async def test_a_store_that_was_replaced_by_an_older_copy_says_so_for_good(tmp_path: Path) -> None:
    store = await Store.open(url(tmp_path))
    async with store.serving():
        assert store.failure is None
        store.went_back(1)
        await store.put([dataset("/a"), dataset("/b")])
        assert store.failure is not None
        assert "older copy" in store.failure


def test_the_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    def describe(connection: Connection) -> dict[str, object]:
        found = inspect(connection)
        return {
            table: (
                [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)],
                found.get_pk_constraint(table)["constrained_columns"],
                sorted((i["name"] or "", tuple(i["column_names"]), i["unique"]) for i in found.get_indexes(table)),
            )
            for table in sorted(found.get_table_names())
            if table != "alembic_version"
        }

    described = []
    for name in ("migrated", "created"):
        engine = create_engine(f"sqlite:///{tmp_path / name}")
        with engine.begin() as connection:
            if name == "migrated":
                upgrade(connection)
                upgrade(connection)  # a second start finds nothing to do
                assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "0002"
            else:
                METADATA.create_all(connection)
            described.append(describe(connection))
        engine.dispose()
    assert described[0] == described[1]


def test_the_cache_is_bounded_in_bytes_and_keeps_what_was_used_last() -> None:
    cache = Cache(100)
    for name in "abc":
        cache.put(name, Stored(1, 0, b"x" * 40))
        cache.get("a")
    assert "a" in cache
    assert "b" not in cache
    assert "c" in cache
    cache.put("big", Stored(1, 0, b"x" * 200))
    assert len(cache) == 0


def test_the_cache_never_goes_back_to_an_older_version() -> None:
    cache = Cache(100)
    cache.put("a", Stored(2, 0, b"new"))
    cache.put("a", Stored(1, 0, b"old"))
    assert cache.get("a") == Stored(2, 0, b"new")
    cache.drop("a")
    cache.drop("a")
    assert cache.get("a") is None


async def test_the_publishers_cursor_outlives_the_process_with_writes_and_without(tmp_path: Path) -> None:
    where = url(tmp_path)
    store = await Store.open(where)
    async with store.serving():
        assert store.cursor is None
        store.keep_cursor(Cursor("log-1", 1))
        await store.put([dataset("/a")])
        store.keep_cursor(Cursor("log-1", 7))
    again = await Store.open(where)
    async with again.serving():
        assert again.cursor == Cursor("log-1", 7)
        again.keep_cursor(Cursor("log-2", 3))
    last = await Store.open(where)
    async with last.serving():
        assert last.cursor == Cursor("log-2", 3)


async def test_a_cursor_is_written_while_nothing_else_is(tmp_path: Path) -> None:
    store = await Store.open(url(tmp_path))
    async with store.serving():
        store.keep_cursor(Cursor("log-1", 7))
        async with asyncio.timeout(5):
            while True:
                with sqlite3.connect(tmp_path / "data.db") as connection:
                    found = connection.execute("SELECT source, sequence FROM publisher").fetchall()
                connection.close()
                if found == [("log-1", 7)]:
                    break
                await asyncio.sleep(0.02)
