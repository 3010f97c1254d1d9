"""Backups of a store in use and their restore as a new store, on both databases and between them."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

import orjson
import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.process.clock import ManualClock
from services.data.access import records
from services.data.access.keys import Key, Keyring, new_key
from services.data.errors import DataError, StoreInUse
from services.data.store import IdempotencyKey, Store
from services.data.store.backup import NotEmpty, backup, restore
from services.data.store.backup_file import BadBackup, check
from services.data.store.database import database_at
from services.data.store.tables import API_KEYS, downgrade
from tests.support.databases import Databases
from tests.support.patience import PATIENCE_S
from tests.unit.services.data.stores import LATER, NOW, dataset, filled


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


async def test_concurrent_backups_to_one_file_are_each_complete(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await asyncio.gather(*(backup(databases.url(), tmp_path / "file", LATER) for _ in range(3)))
    check(tmp_path / "file")
    assert [path.name for path in tmp_path.glob("*file*")] == ["file"]


async def test_a_backup_does_not_follow_a_planted_symlink(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    (tmp_path / "theirs").touch()
    (tmp_path / "file.part").symlink_to(tmp_path / "theirs")
    (tmp_path / "file").symlink_to(tmp_path / "theirs")
    await backup(databases.url(), tmp_path / "file", LATER)
    assert (tmp_path / "theirs").read_bytes() == b""
    check(tmp_path / "file")


async def test_foreign_tables_are_neither_saved_nor_changed(databases: Databases, tmp_path: Path) -> None:
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


async def test_a_store_of_a_later_release_is_not_backed_up(databases: Databases, tmp_path: Path) -> None:
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
    """Return a file whose compressed data begins with a block of an invalid type."""
    header = 10
    return content[:header] + b"\x07" + content[header + 1 :]


async def test_an_incomplete_backup_changes_nothing(databases: Databases, tmp_path: Path) -> None:
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


async def test_a_backup_without_a_store_is_refused_and_leaves_no_file(databases: Databases, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no"):
        await backup(databases.url(), tmp_path / "file", LATER)
    with pytest.raises(DataError):
        await backup(databases.url(), tmp_path / "no" / "directory", LATER)
    assert list(tmp_path.glob("*file*")) == []
    if databases.backend == "sqlite":
        assert not databases.file().exists(), "it was made by looking at it"


async def test_a_restored_store_has_the_same_data_as_a_new_store(databases: Databases, tmp_path: Path) -> None:
    before = await filled(databases.url())
    header, endpoints = await backup(databases.url(), tmp_path / "file", LATER)
    assert (header.store, header.sequence, endpoints) == (before.id, 5, 3)
    restored = await restore(databases.url("other"), tmp_path / "file", LATER)
    store = await Store.open(databases.url("other"), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        assert store.id == restored.store != before.id
        assert store.cursor is None
        heads = {head.endpoint: head for head in sorted(store.index.heads.values())}
        for old in sorted(before.index.heads.values()):
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
        assert (await store.reader.current("/a")).content == dataset("/a", 2).content
        # The restored versions are in the history, and can be read.
        assert [each.content for each in await store.reader.versions("/a")] == [
            dataset("/a", 2).content, dataset("/a", 2).content, dataset("/a", 1).content
        ]  # fmt: skip
        # An answered request is still answered; new changes follow on.
        (answered,) = await store.writer.put([dataset("/a", 2)], key=IdempotencyKey("k", b"\x00\xff"))
        assert answered.version == NOW + 1
        (accepted,) = await store.writer.put([dataset("/a", 3)])
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
        assert (await store.reader.current("/b")).content == dataset("/b").content
        assert store.index.heads.get("/b") is not None
        assert [head.title for head in sorted(store.index.heads.values())] == ["", "Tität", ""]


async def test_a_restore_does_not_replace_keys_without_the_option(databases: Databases, tmp_path: Path) -> None:
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


async def test_a_restore_under_a_running_service_is_refused(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    store = await Store.open(databases.url())
    async with store.serving():
        with pytest.raises(StoreInUse):
            await restore(databases.url(), tmp_path / "file", LATER, replace=True)
        assert store.id == check(tmp_path / "file").store


async def test_restored_versions_are_greater_than_the_replaced_ones(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    ahead = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER * 2))
    async with ahead.serving():
        (newest,) = await ahead.writer.put([dataset("/a", 9)])
    with pytest.raises(NotEmpty, match="has 3 endpoints: say --replace"):
        await restore(databases.url(), tmp_path / "file", LATER)
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        assert min(head.version for head in sorted(store.index.heads.values())) > newest.version
        assert (await store.reader.current("/a")).content == dataset("/a", 2).content
    restored = await restore(databases.url(), tmp_path / "file", LATER, replace=True, least_version=LATER * 9)
    assert restored.version == LATER * 9 + 1


async def test_a_backup_of_an_earlier_release_is_migrated(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    database = database_at(databases.url(), 5)
    await database.lock()
    async with database.writing() as connection:
        await connection.run_sync(downgrade, "0002")
        await connection.commit()
    await database.close()
    header, _ = await backup(databases.url(), tmp_path / "file", LATER)
    assert header.revision == "0002"
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url())
    async with store.serving():
        assert (await store.reader.current("/a")).content == dataset("/a", 2).content


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
        assert len(sorted(store.index.heads.values())) == 3


Change = Callable[[AsyncConnection], Awaitable[object]]


async def keep(url: str, *changes: Change) -> list[Key]:
    """Apply changes to the keys of a store; return the keys, by name."""
    store = await Store.open(url)
    async with store.serving():
        for change in changes:
            await store.transact(change)
        return sorted(await store.transact(records.read_keys), key=lambda key: key.name)


def planned(key: Key, plan: str) -> Change:
    return lambda connection: connection.execute(update(API_KEYS).where(API_KEYS.c.id == key.id).values(plan=plan))


async def test_keys_revoked_after_the_backup_stay_revoked(databases: Databases, tmp_path: Path) -> None:
    (one, shown), (two, _), (three, _) = (new_key(name, "free", NOW) for name in ("1", "2", "3"))
    await filled(databases.url())
    await keep(databases.url(), *(partial(records.add_key, key=key) for key in (one, two, three)))
    await backup(databases.url(), tmp_path / "file", LATER)
    gone, new = new_key("gone", "free", NOW)[0], new_key("new", "free", NOW)[0]
    one, gone = replace(one, revoked_ms=LATER + 1), replace(gone, revoked_ms=LATER + 2)
    await keep(
        databases.url(),
        partial(records.add_key, key=gone),
        partial(records.add_key, key=new),
        partial(records.keep_revocation, key=one),
        planned(two, "plus"),
    )
    restored = await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    # Those that the backup has not are gone but for what forbids them: a later backup may have them.
    assert await keep(databases.url()) == [one, replace(two, plan="plus"), three, gone]
    assert Keyring(await keep(databases.url())).verify(shown) is None
    assert restored.keys == 0


async def test_a_restore_reports_the_keys_that_become_valid_again(databases: Databases, tmp_path: Path) -> None:
    good, revoked = (new_key(name, "free", NOW)[0] for name in ("1", "2"))
    revoked = replace(revoked, revoked_ms=NOW + 1)
    await filled(databases.url())
    await keep(databases.url(), *(partial(records.add_key, key=key) for key in (good, revoked)))
    await backup(databases.url(), tmp_path / "file", LATER)
    restored = await restore(databases.url("other"), tmp_path / "file", LATER)
    assert (restored.keys, restored.created) == (1, "2023-11-14T23:13:20.000Z")
    assert await keep(databases.url("other")) == [good, revoked]
    again = await restore(databases.url("other"), tmp_path / "file", LATER, replace=True)
    assert again.keys == 0


async def test_a_store_from_before_api_keys_is_replaced(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    database = database_at(databases.url(), 5)
    await database.lock()
    async with database.writing() as connection:
        await connection.run_sync(downgrade, "0003")
        await connection.commit()
    await database.close()
    assert (await restore(databases.url(), tmp_path / "file", LATER, replace=True)).endpoints == 3
