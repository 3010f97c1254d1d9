"""Group commit: shared and bounded, and recovery of a store that cannot commit."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy.exc import OperationalError

from diem.process.clock import ManualClock
from diem.protocol.media_types import DOCUMENT, MERGE_PATCH
from services.data.errors import IdempotencyKeyReused, StoreUnavailable, WrongUnit
from services.data.kinds import Body, seal
from services.data.store import IdempotencyKey, Patch, Write, retention, transaction, writer
from services.data.store.group import Group
from services.data.store.store import Store
from services.data.store.write_plan import EARLIEST_MS, LATEST_MS, WritePlan
from tests.support.databases import Databases
from tests.support.patience import until as become
from tests.unit.services.data.stores import Commit, dataset, lose_answers_to_groups, open_store, replace_commit


async def test_queued_writes_share_a_commit_and_are_answered_separately(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        await store.writer.put([dataset("/a")])
        commits = store.writer.counts.commits
        writes = [
            asyncio.ensure_future(store.writer.put(datasets))
            for datasets in ([dataset("/b")], [dataset("/a", 2, "%")], [dataset("/c"), dataset("/d")])
        ]
        await asyncio.sleep(0)
        assert store.writer.in_progress == 3
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert store.writer.in_progress == 0
    assert isinstance(answers[1], WrongUnit)
    assert not isinstance(answers[0], BaseException)
    assert not isinstance(answers[2], BaseException)
    assert store.writer.counts.commits == commits + 1
    assert [change.endpoint for change in store.changes.after(1, 10)] == [b"/b", b"/c", b"/d"]


async def test_listeners_are_called_after_changes_were_applied(databases: Databases) -> None:
    store = await open_store(databases)
    heard: list[int] = []
    forget = store.index.subscribe(lambda: heard.append(store.changes.sequence))
    async with store.serving():
        await store.writer.put([dataset("/a"), dataset("/b")])
        await store.writer.put([dataset("/a")])
        forget()
        await store.writer.put([dataset("/a", 2)])
    assert heard == [2]


async def test_a_failing_listener_affects_neither_the_write_nor_other_listeners(databases: Databases) -> None:
    store = await open_store(databases)
    heard: list[int] = []

    def broken() -> None:
        raise ZeroDivisionError

    store.index.subscribe(broken)
    store.index.subscribe(lambda: heard.append(store.changes.sequence))
    async with store.serving():
        assert (await store.writer.put([dataset("/a")]))[0].changed
    assert heard == [1]


async def test_the_queue_is_bounded_in_requests_and_bytes(databases: Databases) -> None:
    store = await open_store(databases, queued_requests=2)
    waiting = [asyncio.ensure_future(store.writer.put([dataset(f"/{i}")])) for i in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="too many writes"):
        await store.writer.put([dataset("/c")])
    async with store.serving():
        assert len(await asyncio.gather(*waiting)) == 2
    small = await open_store(databases, queued_bytes=10)
    with pytest.raises(StoreUnavailable, match="too many writes"):
        await small.writer.put([dataset("/c")])
    async with small.serving():
        pass


async def test_queued_writes_are_committed_at_the_end_and_later_ones_refused(databases: Databases) -> None:
    store = await open_store(databases)
    waiting = asyncio.ensure_future(store.writer.put([dataset("/a")]))
    await asyncio.sleep(0)
    async with store.serving():
        pass
    assert (await waiting)[0].changed
    with pytest.raises(StoreUnavailable, match="stopping"):
        await store.writer.put([dataset("/b")])


async def test_a_write_whose_client_disconnected_in_the_queue_is_dropped(databases: Databases) -> None:
    store = await open_store(databases)
    waiting = asyncio.ensure_future(store.writer.put([dataset("/a")]))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with store.serving():
        await store.writer.put([dataset("/b")])
    assert store.index.heads.get("/a") is None


async def test_a_store_that_cannot_commit_refuses_writes_and_recovers_by_itself(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True
    real_probe = transaction.probe

    def fail_if_broken() -> None:
        if broken:
            raise OperationalError("INSERT secret", {}, Exception("database or disk is full"))

    def failing(real: Commit) -> Commit:
        async def commit(database: Any, group: Group) -> WritePlan:
            fail_if_broken()
            return await real(database, group)

        return commit

    async def probe(*args: object) -> object:
        fail_if_broken()
        return await real_probe(*args)  # type: ignore[arg-type]

    replace_commit(monkeypatch, failing)
    monkeypatch.setattr(transaction, "probe", probe)
    store = await open_store(databases)
    async with store.serving():
        with pytest.raises(StoreUnavailable, match="disk is full") as caught:
            await store.writer.put([dataset("/a")])
        assert "secret" not in str(caught.value)
        assert store.failure == "database or disk is full"
        assert len(store.changes) == 0
        broken = False
        await become(lambda: store.failure is None)
        assert (await store.writer.put([dataset("/a")]))[0].changed


async def test_a_commit_whose_answer_was_lost_is_applied_by_the_next(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(databases)
    async with store.serving():
        with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
            lose_answers_to_groups(patch)
            await store.writer.put([dataset("/a")])
        await store.writer.put([dataset("/b")])
        assert [change.endpoint for change in store.changes.after(0, 9)] == [b"/a", b"/b"]


async def test_a_defect_is_not_reported_as_an_outage(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_args: object) -> WritePlan:
        raise ZeroDivisionError

    store = await open_store(databases)
    async with store.serving():
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(writer, "plan", defect)
            await store.writer.put([dataset("/a")])
        assert (await store.writer.put([dataset("/a")]))[0].changed


async def test_an_idempotency_key_belongs_to_the_writer_that_used_it(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        key, of_another = IdempotencyKey("import", b"one"), IdempotencyKey("import", b"two", "abcdefg1")
        own = await store.writer.put([dataset("/a")], key=key)
        other = await store.writer.put([dataset("/b")], key=of_another)
        assert await store.writer.put([dataset("/a")], key=key) == own
        assert await store.writer.put([dataset("/b")], key=of_another) == other
        with pytest.raises(IdempotencyKeyReused):
            await store.writer.put([dataset("/b", 2)], key=of_another._replace(digest=b"one"))


async def test_idempotency_keys_of_one_writer_displace_none_of_another(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORGET_EVERY", 0)
    clock = ManualClock()
    store = await open_store(databases, clock, max_keys=2)
    async with store.serving():
        await store.writer.put([dataset("/a")], key=IdempotencyKey("first", b"x"))
        for number in range(10):
            clock.advance(1)
            await store.writer.put([dataset("/b", number)], key=IdempotencyKey(f"{number}", b"x", "abcdefg1"))
        assert databases.rows("SELECT key FROM requests ORDER BY key") == ["8", "9", "first"]


async def test_forgotten_idempotency_keys_make_room(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FORGET_EVERY", 0)
    clock = ManualClock()
    store = await open_store(databases, clock, max_keys=2)
    async with store.serving():
        for number in range(4):
            clock.advance(1)
            await store.writer.put([dataset("/a", number)], key=IdempotencyKey(str(number), b"x"))
        # Two are kept: the oldest has made room, and its key may be used for something else.
        await store.writer.put([dataset("/b")], key=IdempotencyKey("0", b"other"))
        with pytest.raises(IdempotencyKeyReused):
            await store.writer.put([dataset("/b", 2)], key=IdempotencyKey("3", b"other"))
        clock.advance(25 * 3600)
        await store.writer.put([dataset("/c")], key=IdempotencyKey("new", b"x"))
        await store.writer.put([dataset("/b", 2)], key=IdempotencyKey("3", b"other"))


@pytest.mark.parametrize("wrong_ms", [10**13, 10**12 - 1, 0, LATEST_MS, EARLIEST_MS - 1])
async def test_no_version_is_made_by_a_clock_that_cannot_be_right(databases: Databases, wrong_ms: int) -> None:
    clock = ManualClock()
    now_ms = clock.wall_ms()
    store = await open_store(databases, clock)
    async with store.serving():
        (before,) = await store.writer.put([dataset("/a")])
        clock.step_wall((wrong_ms - now_ms) / 1000)
        with pytest.raises(
            StoreUnavailable, match=r"clock of this machine is wrong \(it is in the year \d+\): correct it"
        ):
            await store.writer.put([dataset("/a", 2)])
        assert "clock of this machine is wrong" in (store.failure or "")
        clock.step_wall((now_ms - clock.wall_ms()) / 1000)
        await become(lambda: store.failure is None)
        (after,) = await store.writer.put([dataset("/a", 2)])
        assert before.version < after.version <= now_ms + 1
        assert store.index.version == after.version


async def test_an_idle_store_whose_clock_is_wrong_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECK_EVERY_S", 0.01)
    store = await Store.open(f"sqlite:///{tmp_path / 'data.db'}", clock=ManualClock(wall_ms=LATEST_MS))
    async with store.serving():
        await become(lambda: "clock" in (store.failure or ""))


async def test_patches_of_one_document_are_bounded_in_a_transaction_and_lose_nothing(databases: Databases) -> None:
    store = await open_store(databases)
    patches = [
        Write([Patch("/a", Body(b'{"%d":%d}' % (number, number), MERGE_PATCH), 1000)])
        for number in range(2 * writer.MAX_PATCHES + 1)
    ]
    async with store.serving():
        await store.writer.put([seal("/a", DOCUMENT, b"{}")])
        commits = store.writer.counts.commits
        await asyncio.gather(*map(store.writer.submit, patches))
        assert store.writer.counts.commits == commits + 3
        found = orjson.loads((await store.reader.current("/a")).content)
        assert sorted(found.values()) == [*range(len(patches))]
