"""A restored store is a new one with the data of a backup, on both databases and from one into the other."""

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
from services.data.store.backup_file import check
from services.data.store.database import database_at
from services.data.store.tables import API_KEYS, downgrade
from tests.support.databases import Databases
from tests.unit.services.data.filled import LATER, NOW, dataset, filled


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
        assert (await store.reads.current("/a")).content == dataset("/a", 2).content
        # What was there is history, and can be asked for.
        assert [each.content for each in await store.reads.versions("/a")] == [
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
        assert (await store.reads.current("/b")).content == dataset("/b").content
        assert store.index.heads.get("/b") is not None
        assert [head.title for head in sorted(store.index.heads.values())] == ["", "Tität", ""]


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
        (newest,) = await ahead.writer.put([dataset("/a", 9)])
    with pytest.raises(NotEmpty, match="has 3 endpoints: say --replace"):
        await restore(databases.url(), tmp_path / "file", LATER)
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        assert min(head.version for head in sorted(store.index.heads.values())) > newest.version
        assert (await store.reads.current("/a")).content == dataset("/a", 2).content
    restored = await restore(databases.url(), tmp_path / "file", LATER, replace=True, least_version=LATER * 9)
    assert restored.version == LATER * 9 + 1


async def test_a_backup_of_an_earlier_release_is_brought_to_this_one(databases: Databases, tmp_path: Path) -> None:
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
        assert (await store.reads.current("/a")).content == dataset("/a", 2).content


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
    """Do what is to be done with the keys of a store; returns those that it has then, by name."""
    store = await Store.open(url)
    async with store.serving():
        for change in changes:
            await store.transact(change)
        return sorted(await store.transact(records.read_keys), key=lambda key: key.name)


def planned(key: Key, plan: str) -> Change:
    return lambda connection: connection.execute(update(API_KEYS).where(API_KEYS.c.id == key.id).values(plan=plan))


async def test_keys_that_were_revoked_after_the_backup_stay_revoked(databases: Databases, tmp_path: Path) -> None:
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


async def test_it_is_said_how_many_keys_a_restore_brings_back(databases: Databases, tmp_path: Path) -> None:
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


async def test_a_store_of_before_there_were_keys_is_replaced(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    database = database_at(databases.url(), 5)
    await database.lock()
    async with database.writing() as connection:
        await connection.run_sync(downgrade, "0003")
        await connection.commit()
    await database.close()
    assert (await restore(databases.url(), tmp_path / "file", LATER, replace=True)).endpoints == 3
