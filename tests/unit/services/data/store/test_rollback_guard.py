"""A database replaced by an older copy is detected, at the start and while it is in use."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from diem.process.clock import ManualClock
from services.data.errors import StoreReplaced, StoreUnavailable
from services.data.store import writer
from services.data.store.index import StoreIndex
from services.data.store.rollback_guard import HighWaterMark, MarkFile, RollbackGuard
from services.data.store.store import Store
from tests.support.backups import backup, restore
from tests.support.databases import Databases
from tests.unit.services.data.stores import dataset


def put_back(databases: Databases) -> None:
    """Set the counter back, as in an older copy of the database."""
    sql = "UPDATE store SET sequence = 1"
    if databases.cluster is not None:
        databases.cluster.sql(sql, databases.database())
    else:
        with closing(sqlite3.connect(databases.file())) as connection:
            connection.execute(sql)
            connection.execute("DELETE FROM endpoints")
            connection.commit()


async def test_an_older_copy_is_detected_at_the_start(tmp_path: Path) -> None:
    live, copy, mark = tmp_path / "live.db", tmp_path / "copy.db", tmp_path / "mark"
    url = f"sqlite:///{live}"
    async with (store := await Store.open(url, mark=mark)).serving():
        await store.writer.put([dataset("/a", 1)])
    shutil.copy(live, copy)
    async with (store := await Store.open(url, mark=mark)).serving():
        assert store.failure is None
        (newest,) = await store.writer.put([dataset("/a", 2)])
    shutil.copy(copy, live)
    for _ in range(2):  # it does not forget
        async with (store := await Store.open(url, mark=mark)).serving():
            assert store.failure is not None
            assert "older copy of itself (it has been at position 2)" in store.failure
            assert "diem restore" in store.failure
    # The way out: what is there becomes a new store, beyond all versions that were.
    await backup(url, tmp_path / "file", 0)
    known = MarkFile(mark).read()
    assert known == HighWaterMark(store.id, 2, newest.version)
    await restore(url, tmp_path / "file", 1_700_000_000_000, replace=True, least_version=known.version)
    async with (store := await Store.open(url, mark=mark)).serving():
        assert store.failure is None
        head = store.index.heads.get("/a")
        assert head is not None
        assert head.version > newest.version


async def test_a_log_that_is_ahead_of_the_store_fails_it_and_a_restore_begins_above_the_log(tmp_path: Path) -> None:
    url, mark = f"sqlite:///{tmp_path / 'live.db'}", tmp_path / "mark"
    async with (store := await Store.open(url, mark=mark)).serving():
        (held,) = await store.writer.put([dataset("/a", 1)])
        # As after a whole state directory was put back, with the mark in it.
        store.log_is_ahead("/a", held.version + 7)
        store.log_is_ahead("/other", held.version + 9)
        assert store.failure is not None
        assert "older copy of itself" in store.failure
        assert f"the log has version {held.version + 7} of /a, the store has {held.version}" in store.failure
        assert "diem restore" in store.failure
    known = MarkFile(mark).read()
    assert known is not None
    assert known.version == held.version + 9
    await backup(url, tmp_path / "file", 0)
    restored = await restore(url, tmp_path / "file", 1_700_000_000_000, replace=True, least_version=known.version)
    assert restored.version > held.version + 9


async def test_a_store_that_is_created_in_place_of_a_lost_one_begins_above_its_mark(tmp_path: Path) -> None:
    url, mark = f"sqlite:///{tmp_path / 'live.db'}", tmp_path / "mark"
    MarkFile(mark).write(HighWaterMark("lost", 7, 3_000_000_000_000))
    async with (await Store.open(url, mark=mark)).serving():
        pass
    async with (store := await Store.open(url, mark=mark, clock=ManualClock())).serving():
        assert store.failure is None
        (accepted,) = await store.writer.put([dataset("/a", 1)])
        assert accepted.version == 3_000_000_000_001


async def test_the_mark_of_an_older_copy_keeps_the_position_that_proves_it(tmp_path: Path) -> None:
    mark = MarkFile(tmp_path / "mark")
    mark.write(HighWaterMark("id", 9, 5))
    guard = RollbackGuard(mark, "id", StoreIndex())
    guard.log_is_ahead("/a", 7)
    guard.write()
    assert mark.read() == HighWaterMark("id", 9, 7)
    assert "position 9" in (RollbackGuard(mark, "id", StoreIndex()).failure or "")


async def test_a_counter_that_went_back_ends_the_writer(databases: Databases) -> None:
    store = await Store.open(databases.url())
    with pytest.raises(StoreReplaced, match="was at 2 and is at 1"):
        async with store.serving():
            await store.writer.put([dataset("/a", 1)])
            await store.writer.put([dataset("/a", 2)])
            put_back(databases)
            with pytest.raises(StoreUnavailable, match="replaced"):
                await store.writer.put([dataset("/a", 3)])
            with pytest.raises(StoreReplaced):
                await store.wait_writer()
            with pytest.raises(StoreUnavailable):
                await store.writer.put([dataset("/a", 4)])
    assert store.failure is not None


async def test_an_idle_store_detects_that_its_file_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECK_EVERY_S", 0.01)
    live, copy = tmp_path / "live.db", tmp_path / "copy.db"
    store = await Store.open(f"sqlite:///{live}")
    with pytest.raises(StoreReplaced, match="is another one"):
        async with store.serving():
            await store.writer.put([dataset("/a", 1)])
            shutil.copy(live, copy)
            copy.replace(live)
            await store.wait_writer()


def test_a_lost_or_damaged_mark_is_ignored(tmp_path: Path) -> None:
    file = MarkFile(tmp_path / "mark")
    assert file.read() is None
    file.write(HighWaterMark("id", 7, 9))
    assert file.read() == HighWaterMark("id", 7, 9)
    (tmp_path / "mark").write_bytes(b'{"store":"id","sequence":7,"version":9}')
    assert file.read() == HighWaterMark("id", 7, 9), "as written by earlier releases"
    for damage in (b"", b"[]", b'{"store":"id"}', b'{"store":"id","sequence":"x","version":1}', b"\xff"):
        (tmp_path / "mark").write_bytes(damage)
        assert file.read() is None
    MarkFile(tmp_path / "no" / "directory").write(HighWaterMark("id", 7, 9))


def test_a_failed_write_of_the_mark_is_repeated(tmp_path: Path) -> None:
    state = StoreIndex()
    guard = RollbackGuard(MarkFile(tmp_path / "later" / "mark"), "id", state)
    guard.write()
    (tmp_path / "later").mkdir()
    guard.write()
    assert MarkFile(tmp_path / "later" / "mark").read() == HighWaterMark("id", 0, 0)
