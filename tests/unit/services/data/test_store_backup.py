"""Backups of a store in use, on both databases and from one into the other; a restored store is a new one."""

import asyncio
import gzip
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

import orjson
import pytest

from diem.process.clock import ManualClock
from services.data.access import records
from services.data.access.keys import new_key
from services.data.datasets import Dataset, Point, build
from services.data.errors import DataError, StoreInUse
from services.data.store import IdempotencyKey, Store
from services.data.store.backup import BadBackup, NotEmpty, backup, check, restore
from services.data.store.cursor import Cursor
from services.data.store.database import database_at
from services.data.store.migrate import downgrade
from tests.support.databases import Databases

NOW = 1_700_000_000_000
LATER = NOW + 3_600_000


def dataset(endpoint: str, value: float = 1) -> Dataset:
    return build(endpoint, "°C", "PT1H", [Point(0, value)])


async def filled(url: str, clock: ManualClock | None = None) -> Store:
    """A store with everything in it, and closed again."""
    store = await Store.open(url, clock=clock or ManualClock(wall_ms=NOW))
    async with store.serving():
        await store.put([dataset("/a", 1), dataset("/gone")])
        await store.put([replace(dataset("/b"), title="Tität", area="GR", quantity="load")])
        await store.put([dataset("/a", 2)], source="market", key=IdempotencyKey("k", b"\x00\xff"))
        await store.delete("/gone")
        store.keep_cursor(Cursor("log", 3))
    return store


async def test_a_restored_store_has_the_same_data_as_a_new_store(databases: Databases, tmp_path: Path) -> None:
    before = await filled(databases.url())
    header, endpoints = await backup(databases.url(), tmp_path / "file", LATER)
    assert (header.store, header.sequence, endpoints) == (before.id, 5, 3)
    restored = await restore(databases.url("other"), tmp_path / "file", LATER)
    store = await Store.open(databases.url("other"), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        assert store.id == restored.store != before.id
        assert store.cursor is None
        heads = {head.endpoint: head for head in store.heads()}
        for old in before.heads():
            new = heads[old.endpoint]
            assert new.version >= LATER > old.version
            assert new.sequence > before.changes.sequence
            assert new._replace(sequence=0, version=0, changed_ms=0) == old._replace(
                sequence=0, version=0, changed_ms=0
            )
        assert [head.endpoint for head in sorted(heads.values(), key=lambda head: head.sequence)] == [
            "/b",
            "/a",
            "/gone",
        ]
        assert (await store.read("/a")).content == dataset("/a", 2).content
        # What was there is history, and can be asked for.
        assert [each.content for each in await store.versions("/a")] == [
            dataset("/a", 2).content, dataset("/a", 2).content, dataset("/a", 1).content
        ]  # fmt: skip
        # An answered request is still answered; new changes follow on.
        (answered,) = await store.put([dataset("/a", 2)], key=IdempotencyKey("k", b"\x00\xff"))
        assert answered.version == NOW + 1
        (accepted,) = await store.put([dataset("/a", 3)])
        assert accepted.version > heads["/a"].version
        assert store.changes.sequence == 9


async def test_a_backup_of_one_database_is_restored_into_the_other(databases: Databases, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'lite.db'}"
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "there", LATER)
    await restore(other, tmp_path / "there", LATER)
    await backup(other, tmp_path / "back", LATER)
    await restore(databases.url(), tmp_path / "back", LATER, replace=True)
    store = await Store.open(databases.url())
    async with store.serving():
        assert (await store.read("/b")).content == dataset("/b").content
        assert store.head("/b") is not None
        assert [head.title for head in store.heads()] == ["", "Tität", ""]


async def test_a_backup_is_one_state_while_writes_go_on(databases: Databases, tmp_path: Path) -> None:
    names = [f"/e{number}" for number in range(40)]
    store = await Store.open(databases.url())
    async with store.serving():
        stop = False

        async def write() -> None:
            value = 0
            while not stop:
                value += 1
                await store.put([dataset(name, value) for name in names])

        writing = asyncio.create_task(write())
        try:
            for number in range(3):
                reached = store.changes.sequence
                async with asyncio.timeout(20):
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
            contents = {(await copy.read(name)).content for name in names}
        assert len(contents) == 1, "a transaction is in the backup in part"


async def test_two_backups_to_one_file_at_once_are_each_complete(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await asyncio.gather(*(backup(databases.url(), tmp_path / "file", LATER) for _ in range(3)))
    check(tmp_path / "file")
    assert [path.name for path in tmp_path.glob("*file*")] == ["file"]


async def test_keys_of_a_store_without_endpoints_are_not_replaced_unasked(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    store = await Store.open(databases.url("other"))
    async with store.serving():
        await store.transact(partial(records.add_key, key=new_key("a", "free", NOW)[0]))
    with pytest.raises(NotEmpty, match="has 1 API keys"):
        await restore(databases.url("other"), tmp_path / "file", LATER)
    assert databases.rows("SELECT count(*) FROM api_keys", "other") == ["1"]
    await restore(databases.url("other"), tmp_path / "file", LATER, replace=True)
    assert databases.rows("SELECT count(*) FROM api_keys", "other") == ["0"]


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


async def test_a_restore_under_a_running_service_is_refused(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    store = await Store.open(databases.url())
    async with store.serving():
        with pytest.raises(StoreInUse):
            await restore(databases.url(), tmp_path / "file", LATER, replace=True)
        assert store.id == check(tmp_path / "file").store


async def test_versions_are_greater_than_those_that_are_replaced(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    ahead = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER * 2))
    async with ahead.serving():
        (newest,) = await ahead.put([dataset("/a", 9)])
    with pytest.raises(NotEmpty, match="has 3 endpoints: say --replace"):
        await restore(databases.url(), tmp_path / "file", LATER)
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        assert min(head.version for head in store.heads()) > newest.version
        assert (await store.read("/a")).content == dataset("/a", 2).content
    restored = await restore(databases.url(), tmp_path / "file", LATER, replace=True, least_version=LATER * 9)
    assert restored.version == LATER * 9 + 1


async def test_a_backup_of_an_earlier_release_is_brought_to_this_one(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    database = database_at(databases.url(), 5)
    await database.claim()
    async with database.writing() as connection:
        await connection.run_sync(downgrade, "0002")
        await connection.commit()
    await database.close()
    header, _ = await backup(databases.url(), tmp_path / "file", LATER)
    assert header.revision == "0002"
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url())
    async with store.serving():
        assert (await store.read("/a")).content == dataset("/a", 2).content


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
        assert len(store.heads()) == 3


async def test_a_backup_of_a_later_release_changes_nothing(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    lines = gzip.decompress((tmp_path / "file").read_bytes()).splitlines(keepends=True)
    lines[0] = lines[0].replace(b'"revision":"', b'"revision":"9')
    end = orjson.loads(lines.pop())
    end["digest"] = blake2b(b"".join(lines), digest_size=16).hexdigest()
    (tmp_path / "file").write_bytes(gzip.compress(b"".join([*lines, orjson.dumps(end)])))
    with pytest.raises(DataError, match="of a later release"):
        await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url())
    async with store.serving():
        assert len(store.heads()) == 3


async def test_a_backup_of_nothing_is_refused_and_leaves_no_file(databases: Databases, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no"):
        await backup(databases.url(), tmp_path / "file", LATER)
    with pytest.raises(DataError):
        await backup(databases.url(), tmp_path / "no" / "directory", LATER)
    assert list(tmp_path.glob("*file*")) == []
    if databases.backend == "sqlite":
        assert not databases.file().exists(), "it was made by looking at it"
