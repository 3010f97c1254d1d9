"""Old versions of patched series: stored as undos, read as they were, whatever comes between."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select, update

from diem.process.clock import ManualClock
from diem.protocol.media_types import POINTS_PATCH, SERIES
from services.data.errors import VersionNotKept
from services.data.kinds import Body
from services.data.kinds.series import Dataset, Point, build, iso_seconds
from services.data.limits import DATASET_BYTES, HistoryLimits
from services.data.store import Patch, Write, undo
from services.data.store.store import Store
from services.data.store.tables import HISTORY
from tests.support.backups import backup, restore
from tests.support.databases import Databases
from tests.unit.services.data import stores

HOURS = 500
"""Points of a series that is worth an undo."""


def year(**values: float) -> Dataset:
    """Return a large series, with other values at some hours (``h7``)."""
    changed = {int(hour[1:]): value for hour, value in values.items()}
    return build("/a", "MW", "PT1H", [Point(hour * 3600, changed.get(hour, 1.5)) for hour in range(HOURS)])


async def patch(store: Store, body: dict[str, Any]) -> int:
    content = orjson.dumps(body)
    (accepted,) = await store.writer.submit(Write([Patch("/a", Body(content, POINTS_PATCH), DATASET_BYTES)]))
    assert accepted.changed
    return accepted.version


def point(hour: int, value: float | None) -> dict[str, Any]:
    return {"points": [{"time": iso_seconds(hour * 3600), "value": value}]}


async def rows(store: Store) -> list[tuple[int, str, int]]:
    """Return version, media type and size of the rows of the history."""
    async with store.reader._database.reading() as connection:
        found = await connection.execute(select(HISTORY.c.version, HISTORY.c.media_type, HISTORY.c.content))
        return sorted((row.version, row.media_type, len(row.content)) for row in found)


async def contents(store: Store, versions: Sequence[int]) -> list[bytes]:
    """Return the contents of versions, read one by one, which are those of all that are listed."""
    found = [await store.reader.version("/a", version) for version in versions]
    listed = {each.version: each for each in await store.reader.versions("/a")}
    assert [listed[each.version] for each in found] == found
    assert {each.media_type for each in found} == {SERIES}
    return [each.content for each in found]


async def test_each_version_of_a_patched_series_is_read_as_it_was(databases: Databases) -> None:
    store = await stores.open_store(databases)
    async with store.serving():
        (first,) = await store.writer.put([year()])
        second = await patch(store, point(7, 2))
        third = await patch(store, point(HOURS, None) | {"delete": [iso_seconds(0)]})
        (fourth,) = await store.writer.put([year(h9=4)])
        fifth = await patch(store, point(10, 5))
        series = [year(), year(h7=2), None, year(h9=4), year(h9=4, h10=5)]
        versions = [first.version, second, third, fourth.version, fifth]
        found = await contents(store, versions)
        for content, expected in zip(found, series, strict=True):
            assert expected is None or content == expected.content
        assert len(orjson.loads(found[2])["points"]) == HOURS
        stored = await rows(store)
        # What a PUT replaced is complete.
        assert [(version, media_type) for version, media_type, _ in stored] == [
            (first.version, undo.UNDO), (second, undo.UNDO), (third, SERIES), (fourth.version, undo.UNDO),
        ]  # fmt: skip
        assert all(size < 200 for _, media_type, size in stored if media_type == undo.UNDO)
        counted = [each.version for each in await store.reader.versions("/a")]
        assert len(counted) == await store.reader.count("/a") == 5


async def test_patches_of_one_transaction_are_versions_of_their_own(databases: Databases) -> None:
    store = await stores.open_store(databases)
    async with store.serving():
        (first,) = await store.writer.put([year()])
        versions = await asyncio.gather(*(patch(store, point(7, value)) for value in range(2, 6)))
        assert store.writer.counts.commits < 5
        found = await contents(store, [first.version, *versions])
        assert found == [year().content, *(year(h7=value).content for value in range(2, 6))]


async def test_a_small_series_is_copied(databases: Databases) -> None:
    store = await stores.open_store(databases)
    async with store.serving():
        (first,) = await store.writer.put([build("/a", "MW", "PT1H", [Point(0, 1)])])
        await patch(store, point(1, 2))
        assert [(version, media_type) for version, media_type, _ in await rows(store)] == [(first.version, SERIES)]


async def test_a_patch_of_much_of_a_series_is_copied(databases: Databases) -> None:
    store = await stores.open_store(databases)
    async with store.serving():
        (first,) = await store.writer.put([year()])
        await patch(store, {"delete": [iso_seconds(hour * 3600) for hour in range(HOURS - 1)]})
        (row,) = await rows(store)
        assert row[:2] == (first.version, SERIES)
        assert await contents(store, [first.version]) == [year().content]


async def test_the_oldest_versions_go_first_and_the_others_stay_complete(databases: Databases) -> None:
    store = await stores.open_store(databases, history=HistoryLimits(versions=3))
    async with store.serving():
        await store.writer.put([year()])
        versions = [await patch(store, point(7, value)) for value in range(2, 40)]
        assert len(await rows(store)) < 25
        listed = await store.reader.versions("/a")
        assert [each.version for each in listed] == versions[:-4:-1]
        assert [each.content for each in listed] == [year(h7=value).content for value in (39, 38, 37)]


async def test_a_version_whose_newer_one_is_missing_is_not_kept(databases: Databases) -> None:
    """A clock that was set back lets a newer version expire before an older one."""
    clock = ManualClock(wall_ms=stores.NOW)
    store = await stores.open_store(databases, clock)
    async with store.serving():
        (first,) = await store.writer.put([year()])
        second = await patch(store, point(7, 2))
        third = await patch(store, point(7, 3))
        async with store.reader._database.writing() as connection:
            await connection.execute(update(HISTORY).where(HISTORY.c.version == second).values(changed_ms=1))
            await connection.commit()
        with pytest.raises(VersionNotKept):
            await store.reader.version("/a", first.version)
        with pytest.raises(VersionNotKept):
            await store.reader.version("/a", second)
        assert [each.version for each in await store.reader.versions("/a")] == [third]


async def test_a_restored_series_has_its_old_versions(databases: Databases, tmp_path: Path) -> None:
    store = await stores.open_store(databases, ManualClock(wall_ms=stores.NOW))
    async with store.serving():
        (first,) = await store.writer.put([year()])
        second = await patch(store, point(7, 2))
    await backup(databases.url(), tmp_path / "file", stores.LATER)
    await restore(databases.url("other"), tmp_path / "file", stores.LATER)
    store = await Store.open(databases.url("other"), clock=ManualClock(wall_ms=stores.LATER))
    async with store.serving():
        assert await contents(store, [first.version, second]) == [year().content, year(h7=2).content]
        third = await patch(store, point(7, 3))
        assert await contents(store, [first.version, second, third]) == [
            year().content, year(h7=2).content, year(h7=3).content
        ]  # fmt: skip
