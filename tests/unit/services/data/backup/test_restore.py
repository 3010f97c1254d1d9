"""Restore of a backup as a new store, on both databases and between them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import orjson
import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.process.clock import ManualClock
from diem.protocol.update import GREATEST_VERSION
from services.data.access import records
from services.data.access.keys import ApiKeys, Key, WriteTerms, new_key
from services.data.backup.errors import NotEmpty, UnconfirmedKeys
from services.data.errors import DataError, StoreInUse, VersionsUsedUp, WrongClock
from services.data.kinds import DOCUMENT, NOTICE, Representation, seal
from services.data.store import IdempotencyKey, postgres
from services.data.store.store import Store
from services.data.store.tables import API_KEYS, ENDPOINTS
from tests.support.backups import backup, lines_of, restore, write_lines
from tests.support.databases import Databases
from tests.support.patience import until
from tests.unit.services.data.stores import LATER, NOW, dataset, filled

FORMATS = Path(__file__).parent


def with_value(lines: list[bytes], table: str, column: str, value: object) -> list[bytes]:
    """Return the lines of a backup with another value in the first row of a table."""
    rows = [orjson.loads(line) for line in lines]
    at = next(number for number, row in enumerate(rows) if isinstance(row, dict) and row.get("table") == table)
    rows[at + 1][rows[at]["columns"].index(column)] = value
    return [orjson.dumps(row) + b"\n" for row in rows]


async def test_a_backup_that_is_refused_changes_nothing(databases: Databases, tmp_path: Path) -> None:
    store = await filled(databases.url())
    key = (await keep(databases.url(), partial(records.add_key, key=new_key("a", "free", NOW)[0])))[0]
    await backup(databases.url(), tmp_path / "good", LATER)
    lines = lines_of(tmp_path / "good")[:-1]
    (tmp_path / "cut").write_bytes((tmp_path / "good").read_bytes()[:-1])
    write_lines(tmp_path / "end", lines, end=False)
    write_lines(tmp_path / "column", [line.replace(b'"labels"', b'"label"') for line in lines])
    write_lines(tmp_path / "empty", with_value(lines, "endpoints", "endpoint", None))
    write_lines(tmp_path / "text", with_value(lines, "endpoints", "version", "x"))
    write_lines(tmp_path / "key", with_value(lines, "api_keys", "prefixes", "x"))
    why = {
        "cut": "the rest is missing",
        "end": "its end is missing",
        "column": "the table 'endpoints' is unknown, or has unknown columns",
        "empty": "endpoint",
        "text": "its rows are none of a store|invalid input",
        "key": "its rows are none of a store",
    }
    for name, reason in why.items():
        with pytest.raises(DataError, match=f"({reason}).*; nothing was changed"):
            await restore(databases.url("new"), tmp_path / name, LATER)
        if name != "key":  # which keeps what it has in the replaced store
            with pytest.raises(DataError, match=f"({reason}).*; nothing was changed"):
                await restore(databases.url(), tmp_path / name, LATER, replace=True)
    async with (await Store.open(databases.url("new"))).serving() as new:
        assert (new.index.names, await new.transact(records.read_keys)) == ([], [])
    after = await Store.open(databases.url())
    async with after.serving():
        assert (after.id, after.index.heads) == (store.id, store.index.heads)
    assert await keep(databases.url()) == [key]


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


async def test_a_restore_under_a_running_service_is_refused(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(databases.url())
    header, _ = await backup(databases.url(), tmp_path / "file", LATER)
    store = await Store.open(databases.url())
    async with store.serving():
        with monkeypatch.context() as patch, pytest.raises(StoreInUse):
            patch.setattr(postgres, "LOCK_TIMEOUT_S", 0.1)
            await restore(databases.url(), tmp_path / "file", LATER, replace=True)
        assert store.id == header.store


async def test_restored_versions_are_greater_than_the_replaced_ones(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    ahead = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER * 2))
    async with ahead.serving():
        (newest,) = await ahead.writer.put([dataset("/a", 9)])
    with pytest.raises(NotEmpty, match="has 3 endpoints: add --replace"):
        await restore(databases.url(), tmp_path / "file", LATER)
    await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        assert min(head.version for head in sorted(store.index.heads.values())) > newest.version
        assert (await store.reader.current("/a")).content == dataset("/a", 2).content
    restored = await restore(databases.url(), tmp_path / "file", LATER, replace=True, least_version=LATER * 5)
    assert restored.version == LATER * 5 + 1


async def test_an_endpoint_that_the_backup_does_not_have_begins_again_above_what_clients_hold(
    databases: Databases, tmp_path: Path
) -> None:
    await filled(databases.url())
    await backup(databases.url(), tmp_path / "file", LATER)
    # Written while the clock was ahead.
    ahead = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER * 2))
    async with ahead.serving():
        (held,) = await ahead.writer.put([dataset("/new")])
    for _ in range(2):  # the second time, it is the replaced store that has lost it
        await restore(databases.url(), tmp_path / "file", LATER, replace=True)
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        (again,) = await store.writer.put([dataset("/new")])
        assert again.version > held.version
    # A backup of that store knows it, too.
    await backup(databases.url(), tmp_path / "later", LATER)
    await restore(databases.url("other"), tmp_path / "later", LATER)
    store = await Store.open(databases.url("other"), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        (again,) = await store.writer.put([dataset("/newer")])
        assert again.version > held.version


async def test_an_endpoint_that_the_store_has_forgotten_begins_again_above_what_clients_hold(
    databases: Databases, tmp_path: Path
) -> None:
    week_s = 7 * 24 * 3600
    clock = ManualClock(wall_ms=NOW)
    store = await Store.open(databases.url(), clock=clock)
    async with store.serving():
        await store.writer.put([dataset("/a"), dataset("/b")])
        clock.step_wall(week_s)
        held = await store.writer.delete("/a")
        clock.advance(2 * week_s)
        await store.writer.put([dataset("/b", 2)])
        assert store.source == f"{store.id}.3"
    await backup(databases.url(), tmp_path / "file", LATER)
    restored = await restore(databases.url("other"), tmp_path / "file", LATER)
    store = await Store.open(databases.url("other"), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        assert (store.source, store.index.names) == (restored.store, ["/b"])
        (again,) = await store.writer.put([dataset("/a")])
        assert again.version > held.version


async def test_versions_that_no_reader_can_parse_end_with_a_restore(databases: Databases, tmp_path: Path) -> None:
    await filled(databases.url())
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        await store.writer.put([dataset("/a", 8)])
        head = store.index.heads["/a"]._replace(version=GREATEST_VERSION + 1)
        beyond = update(ENDPOINTS).where(ENDPOINTS.c.endpoint == "/a").values(version=head.version)
        await store.transact(lambda connection: connection.execute(beyond))
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        with pytest.raises(VersionsUsedUp, match=r"/a has no versions left.*`diem restore --replace`"):
            await store.writer.put([dataset("/b", 9), dataset("/a", 9)])
        assert (await store.reader.current("/b")).content == dataset("/b").content
    await backup(databases.url(), tmp_path / "file", LATER)
    restored = await restore(
        databases.url(), tmp_path / "file", LATER, replace=True, least_version=GREATEST_VERSION + 1
    )
    assert restored.version == LATER
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        (accepted,) = await store.writer.put([dataset("/a", 9)])
        assert accepted.version == LATER + 1
        assert [each.version for each in await store.reader.versions("/a")][:2] == [LATER + 1, LATER]


async def test_a_restore_by_a_clock_that_is_wrong_changes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'data.db'}"
    await filled(url)
    await backup(url, tmp_path / "file", LATER)
    with pytest.raises(WrongClock, match="in the year 2286"):
        await restore(url, tmp_path / "file", GREATEST_VERSION + 1, replace=True)
    async with (store := await Store.open(url)).serving():
        assert store.index.version < LATER


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
    assert ApiKeys(await keep(databases.url())).verify(shown, 0) is None
    assert restored.keys == ()


async def test_a_restore_reports_the_keys_that_become_valid_again(databases: Databases, tmp_path: Path) -> None:
    good, revoked = (new_key(name, "free", NOW)[0] for name in ("1", "2"))
    revoked = replace(revoked, revoked_ms=NOW + 1)
    await filled(databases.url())
    await keep(databases.url(), *(partial(records.add_key, key=key) for key in (good, revoked)))
    await backup(databases.url(), tmp_path / "file", LATER)
    restored = await restore(databases.url("other"), tmp_path / "file", LATER)
    assert (restored.keys, restored.created) == ((good,), "2023-11-14T23:13:20.000Z")
    assert await keep(databases.url("other")) == [good, revoked]
    again = await restore(databases.url("other"), tmp_path / "file", LATER, replace=True)
    assert again.keys == ()


async def test_keys_become_valid_only_when_they_are_accepted(databases: Databases, tmp_path: Path) -> None:
    one, revoked = (new_key(name, "free", NOW)[0] for name in ("1", "2"))
    forged = replace(one, digest=new_key("1", "free", NOW)[0].digest)
    await filled(databases.url())
    await keep(databases.url(), partial(records.add_key, key=forged), partial(records.add_key, key=revoked))
    await backup(databases.url(), tmp_path / "file", LATER)
    with pytest.raises(UnconfirmedKeys, match="2 API keys of the backup would become valid") as caught:
        await restore(databases.url("other"), tmp_path / "file", LATER, accept_keys=False)
    assert {key.id for key in caught.value.keys} == {one.id, revoked.id}
    await filled(databases.url("other"))
    revoked = replace(revoked, revoked_ms=LATER)
    kept = await keep(databases.url("other"), partial(records.add_key, key=one), partial(records.add_key, key=revoked))
    # A key with the id of another one, but not with its secret, is a new key.
    with pytest.raises(UnconfirmedKeys) as caught:
        await restore(databases.url("other"), tmp_path / "file", LATER, replace=True, accept_keys=False)
    assert caught.value.keys == (forged,)
    assert await keep(databases.url("other")) == kept
    assert (await restore(databases.url("other"), tmp_path / "file", LATER, replace=True)).keys == (forged,)
    again = await restore(databases.url("other"), tmp_path / "file", LATER, replace=True, accept_keys=False)
    assert again.keys == ()


async def test_write_keys_and_the_expiry_of_keys_are_in_a_backup(databases: Databases, tmp_path: Path) -> None:
    writer = new_key("writer", "", NOW, expires_ms=LATER, writes=WriteTerms(("/dam",), 600))[0]
    reader = replace(new_key("reader", "free", NOW, expires_ms=LATER)[0], last_used_ms=NOW)
    await filled(databases.url())
    await keep(databases.url(), *(partial(records.add_key, key=key) for key in (writer, reader)))
    await backup(databases.url(), tmp_path / "file", LATER)
    await restore(databases.url("other"), tmp_path / "file", LATER)
    assert sorted(await keep(databases.url("other")), key=lambda key: key.name) == [reader, writer]


async def test_every_kind_is_restored_and_collections_have_no_history(databases: Databases, tmp_path: Path) -> None:
    made = [
        dataset("/game/load"),
        seal("/game/42", DOCUMENT, b'{"home":2}', "Ajax"),
        seal("/game/logo", "image/png", b"\x89PNG\0"),
        seal("/game/gone", "text/plain", b""),
        Representation("/orders/7", NOTICE, b'{"url":"https://shop.example/7"}', b""),
    ]
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=NOW))
    async with store.serving():
        await store.writer.put(made)
        await store.writer.delete("/game/gone")
    _, saved = await backup(databases.url(), tmp_path / "file", LATER)
    restored = await restore(databases.url("other"), tmp_path / "file", LATER)
    assert (saved, restored.endpoints) == (5, 5)
    store = await Store.open(databases.url("other"), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        for each in made:
            head = store.index.heads[each.endpoint]
            assert (head.media_type, head.gone) == (each.media_type, each.endpoint == "/game/gone")
            if not head.gone:
                assert (await store.reader.current(each.endpoint)).content == each.content
                assert [old.content for old in await store.reader.versions(each.endpoint)] == [each.content] * 2
        assert store.index.heads["/game/42"].title == "Ajax"
        assert store.index.content_of("/game/") == b'{"members":["/game/42","/game/load","/game/logo"]}'
        assert store.index.heads["/game/"].version >= LATER
    assert databases.rows("SELECT count(*) FROM history WHERE endpoint LIKE '%/'", "other") == ["0"]


async def test_what_has_expired_since_the_backup_is_deleted_after_the_restore(
    databases: Databases, tmp_path: Path
) -> None:
    store = await Store.open(databases.url(), clock=ManualClock(wall_ms=NOW))
    async with store.serving():
        await store.writer.put([seal("/soon", DOCUMENT, b"1").expiring(60_000), seal("/kept", DOCUMENT, b"1")])
        await store.writer.put([seal("/later", DOCUMENT, b"1").expiring(2 * (LATER - NOW))])
    await backup(databases.url(), tmp_path / "file", NOW)
    await restore(databases.url("other"), tmp_path / "file", LATER)
    store = await Store.open(databases.url("other"), clock=ManualClock(wall_ms=LATER))
    async with store.serving():
        await until(lambda: store.index.heads["/soon"].gone)
        assert not store.index.heads["/kept"].gone
        assert store.index.heads["/later"].expires_ms == NOW + 2 * (LATER - NOW)


async def test_a_backup_of_another_release_changes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'data.db'}"
    await filled(url)
    await backup(url, tmp_path / "file", LATER)
    lines = lines_of(tmp_path / "file")[:-1]
    write_lines(tmp_path / "file", [lines[0].replace(b'"revision":"', b'"revision":"9'), *lines[1:]])
    with pytest.raises(DataError, match="of another release"):
        await restore(url, tmp_path / "file", LATER, replace=True)
    async with (await Store.open(url)).serving() as store:
        assert len(store.index.heads) == 3
