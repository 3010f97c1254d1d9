"""Old versions: bounded by number and age, unchanged, and deleted in batches."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.process.clock import ManualClock
from services.data.errors import EndpointDeleted, UnknownEndpoint, VersionNotKept
from services.data.kinds.series import Dataset, Point, build
from services.data.limits import HistoryLimits
from services.data.store import IdempotencyKey, retention
from services.data.store.index import EndpointHead
from services.data.store.retention import BATCH, OVERDUE, SLACK, Retention
from services.data.store.store import Store
from services.data.store.tables import HISTORY
from services.data.store.write_plan import Write, WritePlan
from services.data.store.writer import MAX_GROUP
from tests.support.databases import Databases
from tests.unit.services.data import stores


def dataset(value: float, endpoint: str = "/a") -> Dataset:
    return stores.dataset(endpoint, value)


async def open_store(databases: Databases, clock: ManualClock | None = None, **limits: Any) -> Store:
    return await stores.open_store(databases, clock, history=HistoryLimits(**limits))


async def count_old(connection: AsyncConnection) -> int:
    """Count all rows of the history, over the store's own connection: of a program that does it 60 times, 60 start."""
    return (await connection.execute(select(func.count()).select_from(HISTORY))).scalar_one()


async def test_each_accepted_version_can_be_read_as_it_was(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        accepted = [(await store.writer.put([dataset(value)]))[0].version for value in range(3)]
        deleted = await store.writer.delete("/a")
        (again,) = await store.writer.put([dataset(9)])
        listed = await store.reader.versions("/a")
        assert [each.version for each in listed] == [again.version, deleted.version, *reversed(accepted)]
        assert [each.kind for each in listed] == [0, 1, 0, 0, 0]
        for value, version in enumerate(accepted):
            assert (await store.reader.version("/a", version)).content == dataset(value).content
        assert (await store.reader.version("/a", again.version)).content == dataset(9).content
        with pytest.raises(EndpointDeleted):
            await store.reader.version("/a", deleted.version)
        with pytest.raises(VersionNotKept, match="is not kept"):
            await store.reader.version("/a", accepted[0] - 1)
        with pytest.raises(UnknownEndpoint):
            await store.reader.versions("/b")
        with pytest.raises(UnknownEndpoint):
            await store.reader.version("/b", 1)


async def test_unchanged_data_makes_no_version_and_no_history(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        for title in ("", "one", "two"):
            await store.writer.put([replace(dataset(1), title=title)])
        assert len(await store.reader.versions("/a")) == 1


async def test_a_version_replaced_within_its_transaction_is_retained(databases: Databases) -> None:
    store = await open_store(databases)
    await_all = [store.writer.submit(Write([dataset(value)])) for value in range(4)]
    waiting = [asyncio.ensure_future(each) for each in await_all]
    await asyncio.sleep(0)
    async with store.serving():
        versions = [(await each)[0].version for each in waiting]
        assert store.writer.counts.commits == 1
        assert [each.version for each in await store.reader.versions("/a")] == versions[::-1]
        for value, version in enumerate(versions):
            assert (await store.reader.version("/a", version)).content == dataset(value).content


async def test_the_number_of_versions_is_bounded_and_few_more_are_stored(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    store = await open_store(databases, versions=3)
    async with store.serving():
        for value in range(60):
            await store.writer.put([dataset(value)])
            assert await store.transact(count_old) <= 2 + SLACK
        listed = await store.reader.versions("/a")
        assert [each.content for each in listed] == [dataset(value).content for value in (59, 58, 57)]


async def test_a_start_with_a_smaller_limit_deletes_the_excess_versions(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    store = await open_store(databases)
    async with store.serving():
        for value in range(20):
            await store.writer.put([dataset(value), dataset(value, "/b")])
    store = await open_store(databases, versions=1)
    async with store.serving():
        assert len(await store.reader.versions("/a")) == 1
        await store.writer.put([dataset(99)])
        assert databases.rows("SELECT count(*) FROM history") == ["0"]


async def test_without_history_nothing_is_written_to_it(databases: Databases) -> None:
    store = await open_store(databases, versions=1)
    async with store.serving():
        for value in range(5):
            await store.writer.put([dataset(value)])
        assert databases.rows("SELECT count(*) FROM history") == ["0"]


async def test_expired_versions_are_hidden_and_then_deleted(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORGET_EVERY", 0)
    clock = ManualClock()
    store = await open_store(databases, clock, days=1)
    async with store.serving():
        for value in range(3):
            await store.writer.put([dataset(value)])
        clock.advance(25 * 3600)
        # The current version is never too old.
        assert [each.content for each in await store.reader.versions("/a")] == [dataset(2).content]
        await store.writer.put([dataset(7)])
        assert databases.rows("SELECT count(*) FROM history") == ["0"]


async def test_a_clock_that_is_ahead_for_many_writes_deletes_neither_history_nor_idempotency_keys(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORGET_EVERY", 0)
    clock, key = ManualClock(), IdempotencyKey("import", b"digest")
    days = 8 * 24 * 3600
    store = await open_store(databases, clock)
    async with store.serving():
        (imported,) = await store.writer.put([dataset(1, "/imported")], key=key)
        for value in range(20):
            clock.advance(1)
            await store.writer.put([dataset(value), dataset(value, "/imported")])
        before = await store.reader.versions("/imported")
        clock.step_wall(days)
        for value in range(55):
            clock.advance(1)
            await store.writer.put([dataset(value, "/b")])
    # A restart in between, as after a crash: the store knows what time it was.
    store = await open_store(databases, clock)
    async with store.serving():
        for value in range(55):
            clock.advance(1)
            await store.writer.put([dataset(value, "/c")])
        assert await store.reader.versions("/imported") == before
        clock.step_wall(-days)
        assert await store.reader.versions("/imported") == before
        # A repeated request is answered as before, and not stored over the later value.
        assert await store.writer.put([dataset(1, "/imported")], key=key) == [imported]
        assert (await store.reader.current("/imported")).content == dataset(19, "/imported").content


async def test_keys_of_requests_that_a_clock_ahead_has_made_do_not_displace_later_ones(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORGET_EVERY", 0)
    clock = ManualClock()
    store = await stores.open_store(databases, clock, max_keys=3)
    async with store.serving():
        await store.writer.put([dataset(0)])
        clock.step_wall(8 * 24 * 3600)
        for number in range(3):
            clock.advance(1)
            await store.writer.put([dataset(number)], key=IdempotencyKey(f"ahead-{number}", b""))
        clock.step_wall(-8 * 24 * 3600)
        for number in range(3):
            clock.advance(60)
            await store.writer.put([dataset(number)], key=IdempotencyKey(f"later-{number}", b""))
        kept = databases.rows("SELECT key FROM requests ORDER BY key")
        assert kept == ["later-0", "later-1", "later-2"]


async def test_hidden_versions_are_not_served(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock, versions=3, days=1)
    async with store.serving():
        versions = [(await store.writer.put([dataset(value)]))[0].version for value in range(5)]
        assert databases.rows("SELECT count(*) FROM history") == ["4"]
        for too_many in versions[:2]:
            with pytest.raises(VersionNotKept):
                await store.reader.version("/a", too_many)
        assert (await store.reader.version("/a", versions[2])).content == dataset(2).content
        clock.advance(25 * 3600)
        with pytest.raises(VersionNotKept):
            await store.reader.version("/a", versions[2])
        assert (await store.reader.version("/a", versions[4])).content == dataset(4).content


async def test_expired_versions_are_deleted_as_fast_as_new_ones_arrive(databases: Databases) -> None:
    clock, names = ManualClock(), [f"/{number}" for number in range(MAX_GROUP)]
    store = await open_store(databases, clock, versions=1000, days=1)
    async with store.serving():
        for value in range(12):
            await store.writer.put([dataset(value, name) for name in names])
            clock.advance(25 * 3600)
        (count,) = databases.rows("SELECT count(*) FROM history")
        assert int(count) <= 2 * len(names)


async def test_the_sqlite_file_does_not_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    databases = Databases(tmp_path, None)
    monkeypatch.setattr(retention, "BATCH", 1)
    points = [Point(3600 * hour, 0) for hour in range(200)]
    store = await open_store(databases, versions=3)
    pages: list[int] = []
    async with store.serving():
        for value in range(120):
            await store.writer.put([build("/a", "MW", "PT1H", [Point(0, value), *points[1:]])])
            pages.append(int(databases.rows("PRAGMA page_count")[0]))
    assert pages[-1] == pages[40], "deleted pages were not used again"


def test_nothing_is_due_until_a_deletion_is_worthwhile() -> None:
    retention = Retention(HistoryLimits(versions=3), {})
    names = [f"/{number}" for number in range(BATCH)]
    for _ in range(2 + SLACK):
        assert retention.due() == []
        retention.add(names)
    assert retention.due() == names
    retention.reset_counts(names[1:])
    assert retention.due() == []
    retention.add(names)
    assert retention.due() == []


async def test_a_single_endpoint_is_pruned(databases: Databases) -> None:
    store = await open_store(databases, versions=3)
    async with store.serving():
        for value in range(60):
            await store.writer.put([dataset(value)])
            assert await store.transact(count_old) <= 2 + OVERDUE
        assert len(await store.reader.versions("/a")) == 3


def test_few_overdue_endpoints_are_pruned() -> None:
    retention = Retention(HistoryLimits(versions=3), {"/a": 2 + OVERDUE - 1, "/b": 2 + SLACK, "/c": 2})
    assert retention.due() == []
    retention.add(["/a"])
    assert retention.due() == ["/a", "/b"]
    retention.reset_counts(["/a", "/b"])
    retention.add(["/a"])
    assert retention.due() == []


def test_retention_starts_from_the_stored_counts() -> None:
    counts = {f"/{number}": 100 for number in range(10 * BATCH)}
    assert len(Retention(HistoryLimits(), counts).due()) == 4 * BATCH


def test_versions_of_missed_commits_are_counted() -> None:
    retention = Retention(HistoryLimits(versions=3), {"/a": 2 + OVERDUE - 1})
    lost = EndpointHead("/a", 7, 7, 0, 0, "MW", "PT1H", "", "", b"")
    retention.committed(WritePlan(7, 7, missed=[lost]))
    assert retention.due() == ["/a"]
