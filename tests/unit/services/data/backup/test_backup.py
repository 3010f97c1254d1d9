"""Backups of a store in use, on both databases."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from services.data.errors import DataError
from services.data.kinds import seal
from services.data.store.database import database_at
from services.data.store.store import Store
from tests.support.backups import backup, lines_of, restore
from tests.support.databases import Databases
from tests.support.patience import PATIENCE_S
from tests.unit.services.data.stores import LATER, dataset, filled


async def test_a_backup_is_consistent_during_writes(databases: Databases, tmp_path: Path) -> None:
    names = [f"/e{number}" for number in range(40)]
    store = await Store.open(databases.url())
    async with store.serving():
        stop = False

        async def write() -> None:
            value = 0
            while not stop:
                value += 1
                await store.writer.put([dataset(name, value) for name in names])

        writing = asyncio.create_task(write())
        try:
            for number in range(3):
                reached = store.changes.sequence
                async with asyncio.timeout(PATIENCE_S):
                    while store.changes.sequence < reached + 3 * len(names):
                        await asyncio.sleep(0.005)
                await backup(databases.url(), tmp_path / f"{number}", LATER)
        finally:
            stop = True
            await writing
    for number in range(3):
        await restore(databases.url("copy"), tmp_path / f"{number}", LATER, replace=True)
        copy = await Store.open(databases.url("copy"))
        async with copy.serving():
            contents = {(await copy.reader.current(name)).content for name in names}
        assert len(contents) == 1, "a transaction is in the backup in part"


async def test_foreign_tables_are_neither_saved_nor_changed(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    database = database_at(databases.url(), PATIENCE_S)
    async with database.writing() as connection:
        await connection.exec_driver_sql("CREATE TABLE theirs (name VARCHAR(9), paid NUMERIC(9, 2))")
        await connection.exec_driver_sql("INSERT INTO theirs VALUES ('a', 1.25)")
        await connection.commit()
    await database.close()
    await backup(databases.url(), tmp_path / "file", LATER)
    assert b"theirs" not in b"".join(lines_of(tmp_path / "file"))
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    assert databases.rows("SELECT name, paid FROM theirs") == ["a|1.25"]


async def test_a_store_of_a_later_release_is_not_backed_up(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    database = database_at(databases.url(), PATIENCE_S)
    async with database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        await connection.commit()
    await database.close()
    with pytest.raises(DataError, match="of another release"):
        await backup(databases.url(), tmp_path / "file", LATER)
    assert (tmp_path / "file").read_bytes() == b""


async def test_a_backup_without_a_store_is_refused(databases: Databases, tmp_path: Path) -> None:
    url = databases.url()
    databases.file().unlink(missing_ok=True)
    with pytest.raises(DataError, match="there is no"):
        await backup(url, tmp_path / "file", LATER)
    if databases.backend == "sqlite":
        assert not databases.file().exists(), "it was made by looking at it"


async def test_large_contents_are_in_memory_a_few_at_a_time(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.data.backup.backup.BYTES_PER_BATCH", 1 << 20)
    contents = {f"/e{number}": bytes([number]) * (100_000 if number % 4 else 100) for number in range(200)}
    store = await Store.open(databases.url())
    async with store.serving():
        await store.writer.put([seal(name, "image/png", content) for name, content in contents.items()])
    tracemalloc.start()
    _, endpoints = await backup(databases.url(), tmp_path / "file", LATER)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert endpoints == len(contents)
    assert sum(map(len, contents.values())) > 14 << 20
    assert peak < 5 << 20
    await restore(databases.url("copy"), tmp_path / "file", LATER)
    copy = await Store.open(databases.url("copy"))
    async with copy.serving():
        assert {name: (await copy.reader.current(name)).content for name in contents} == contents
