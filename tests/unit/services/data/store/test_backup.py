"""Backups of a store in use, on both databases; what is not all of one is not restored."""

import asyncio
import gzip
from pathlib import Path

import orjson
import pytest

from services.data.errors import DataError
from services.data.store import Store
from services.data.store.backup import backup, restore
from services.data.store.backup_file import BadBackup, check
from services.data.store.database import database_at
from tests.support.databases import Databases
from tests.support.patience import PATIENCE_S
from tests.unit.services.data.filled import LATER, dataset, filled


async def test_a_backup_is_one_state_while_writes_go_on(databases: Databases, tmp_path: Path) -> None:
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
            contents = {(await copy.reads.current(name)).content for name in names}
        assert len(contents) == 1, "a transaction is in the backup in part"


async def test_two_backups_to_one_file_at_once_are_each_complete(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await asyncio.gather(*(backup(databases.url(), tmp_path / "file", LATER) for _ in range(3)))
    check(tmp_path / "file")
    assert [path.name for path in tmp_path.glob("*file*")] == ["file"]


async def test_a_backup_follows_no_name_that_somebody_else_has_put_there(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    (tmp_path / "theirs").touch()
    (tmp_path / "file.part").symlink_to(tmp_path / "theirs")
    (tmp_path / "file").symlink_to(tmp_path / "theirs")
    await backup(databases.url(), tmp_path / "file", LATER)
    assert (tmp_path / "theirs").read_bytes() == b""
    check(tmp_path / "file")


async def test_tables_of_others_are_neither_saved_nor_changed(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    database = database_at(databases.url(), 5)
    async with database.writing() as connection:
        await connection.exec_driver_sql("CREATE TABLE theirs (name VARCHAR(9), paid NUMERIC(9, 2))")
        await connection.exec_driver_sql("INSERT INTO theirs VALUES ('a', 1.25)")
        await connection.commit()
    await database.close()
    await backup(databases.url(), tmp_path / "file", LATER)
    assert b"theirs" not in gzip.decompress((tmp_path / "file").read_bytes())
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    assert databases.rows("SELECT name, paid FROM theirs") == ["a|1.25"]


async def test_a_store_of_a_later_release_is_not_saved_in_part(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    database = database_at(databases.url(), 5)
    async with database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        await connection.commit()
    await database.close()
    with pytest.raises(DataError, match="of a later release"):
        await backup(databases.url(), tmp_path / "file", LATER)
    assert not (tmp_path / "file").exists()


def _damaged(content: bytes) -> bytes:
    """A file whose compressed data begins with a block of a kind that there is not."""
    header = 10
    return content[:header] + b"\x07" + content[header + 1 :]


async def test_a_file_that_is_not_all_of_a_backup_changes_nothing(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    good = tmp_path / "good"
    await backup(databases.url(), good, LATER)
    assert oct(good.stat().st_mode)[-3:] == "600"
    lines = gzip.decompress(good.read_bytes()).splitlines(keepends=True)
    changed = [*lines[:-1], lines[-1].replace(orjson.loads(lines[-1])["digest"].encode(), b"0" * 32)]
    without_a_row = [line for line in lines if b'"/b"' not in line]
    bad: dict[str, tuple[bytes, str]] = {
        "damaged": (_damaged(good.read_bytes()), "while decompressing"),
        "cut": (good.read_bytes()[:-100], "ended before"),
        "no end": (gzip.compress(b"".join(lines[:-1])), "end is missing"),
        "changed": (gzip.compress(b"".join(changed)), "digest is wrong"),
        "without a row": (gzip.compress(b"".join(without_a_row)), "digest is wrong"),
        "something else": (b"no gzip at all", "Not a gzipped file"),
        "another format": (gzip.compress(b'{"format":"x"}\n'), "does not begin with"),
        "of nothing": (gzip.compress(b'{"format":"diem.backup/1"}\n'), "what it is of"),
        "rows of no table": (gzip.compress(lines[0] + b'[1]\n{"rows":{}}\n'), "end is missing"),
        "empty": (gzip.compress(b""), "does not begin with"),
    }
    for name, (content, why) in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadBackup, match=why):
            await restore(databases.url(), tmp_path / name, LATER, replace=True)
    with pytest.raises(BadBackup, match="no such file"):
        await restore(databases.url(), tmp_path / "nowhere", LATER, replace=True)
    store = await Store.open(databases.url())
    async with store.serving():
        assert len(sorted(store.index.heads.values())) == 3


async def test_a_backup_of_nothing_is_refused_and_leaves_no_file(databases: Databases, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no"):
        await backup(databases.url(), tmp_path / "file", LATER)
    with pytest.raises(DataError):
        await backup(databases.url(), tmp_path / "no" / "directory", LATER)
    assert list(tmp_path.glob("*file*")) == []
    if databases.backend == "sqlite":
        assert not databases.file().exists(), "it was made by looking at it"
