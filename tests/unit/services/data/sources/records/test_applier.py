"""Batches of records: each stored with its checkpoint; refused records stop the source there, or are skipped."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from diem.process.clock import ManualClock
from services.data.errors import CheckpointMoved, StoreUnavailable
from services.data.sources.records import applier
from services.data.sources.records.applier import RecordApplier, RecordRefused
from services.data.sources.records.converter import RecordConverter
from services.data.sources.records.record import MISSING, Record
from services.data.sources.records.table import RecordTable
from services.data.sources.runner import SourceRunner
from services.data.sources.source import ChangeSink, Health
from services.data.store import Change, Checkpoint, IdempotencyKey
from services.data.store.store import Store
from tests.support.new_store import new_store


class Orders:
    """A source that hands out its sink."""

    def __init__(self, **fields: Any) -> None:
        self.table = RecordTable.model_validate({"type": "t", "name": "orders", "endpoint": "/orders/{id}", **fields})
        self.name = "orders"
        self.claims = self.table.claims
        self.health = Health("orders", ManualClock())
        self.sink: asyncio.Future[ChangeSink] = asyncio.get_running_loop().create_future()

    async def consume(self, sink: ChangeSink) -> None:
        self.sink.set_result(sink)
        await asyncio.Event().wait()

    async def try_once(self, sink: ChangeSink) -> None:
        await sink.enqueue([], Checkpoint("0", None, "1"))

    async def applier(self, *, skips: bool = False, position: str | None = None) -> RecordApplier:
        converter = RecordConverter(self.table)
        return RecordApplier(converter, await self.sink, self.health, skips=skips, part="0", position=position)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with (await Store.open(new_store(tmp_path / "data.db"))).serving() as opened:
        yield opened


async def running(store: Store, source: Orders) -> "asyncio.Task[None]":
    runner = SourceRunner([source])
    task = asyncio.create_task(runner.run(store.writer.put, None, store))
    await source.sink
    return task


def orders(first: int, last: int, **fields: Any) -> list[Record]:
    return [Record(str(n + 1), {"id": n, "n": n, **fields}, time_ms=1000 * n) for n in range(first, last)]


BAD = Record("11", {"n": 10})


async def test_records_are_stored_with_the_position_after_the_last(store: Store) -> None:
    source = Orders()
    task = await running(store, source)
    kept = await source.applier()
    await kept.apply(orders(0, 2 * applier.BATCH + 1))
    await kept.flush()
    assert await store.reader.positions("orders") == {"0": str(2 * applier.BATCH + 1)}
    assert len(store.index.names) == 2 * applier.BATCH + 1
    intake = source.health.intake
    assert intake is not None
    assert (intake.records, intake.refused, intake.last_ms) == (2 * applier.BATCH + 1, 0, 2000 * applier.BATCH)
    task.cancel()


async def test_a_source_stops_before_a_record_that_cannot_be_stored(store: Store) -> None:
    source = Orders()
    task = await running(store, source)
    kept = await source.applier()
    with pytest.raises(RecordRefused, match=r"0, before 11: \{id\} is missing"):
        await kept.apply([*orders(0, 10), BAD, *orders(11, 20)])
    await kept.close()
    assert await store.reader.positions("orders") == {"0": "10"}
    assert len(store.index.names) == 10
    task.cancel()


@pytest.mark.parametrize("skips", [False, True])
async def test_a_record_refused_by_the_store_is_skipped_or_stops_the_source(store: Store, *, skips: bool) -> None:
    """Of the middle one of several batches on their way."""
    source = Orders(kind="document")
    # Of another kind already, so that only the store can refuse it.
    text = Orders(kind="bytes", media_type="text/plain", value="n")
    task = await running(store, text)
    await (await text.applier()).apply([Record("1", {"id": 250, "n": "a"})])
    task.cancel()
    task = await running(store, source)
    kept = await source.applier(skips=skips, position="1")
    if skips:
        await kept.apply(orders(1, 700))
        await kept.flush()
    else:
        with pytest.raises(RecordRefused, match="before 251: /orders/250 is of the kind bytes"):
            await kept.apply(orders(1, 700))
            await kept.flush()
        await kept.close()
    last = 700 if skips else 250
    assert await store.reader.positions("orders") == {"0": str(last)}
    assert len(store.index.names) == (699 if skips else 250)
    assert (await store.reader.current("/orders/250")).content == b"a"
    intake = source.health.intake
    assert intake is not None
    assert (intake.records, intake.refused) == ((699, 1) if skips else (249, 0))
    assert ("before 251" in intake.last_refusal) == skips
    task.cancel()


async def test_a_batch_elsewhere_than_at_the_stored_position_is_not_applied_twice(store: Store) -> None:
    source = Orders()
    task = await running(store, source)
    kept = await source.applier()
    await kept.apply(orders(0, 10))
    await kept.flush()
    late = await source.applier(position="5")
    with pytest.raises(CheckpointMoved):
        await late.apply(orders(5, 10, twice=True))
        await late.flush()
    assert (await store.reader.current("/orders/7")).content == b'{"id":7,"n":7}'
    task.cancel()


async def test_points_of_a_batch_are_one_change_of_their_series(store: Store) -> None:
    source = Orders(kind="series", unit="celsius", resolution="irregular", value="n", keep=30)
    task = await running(store, source)
    kept = await source.applier()
    points = [Record(str(n + 1), {"id": n % 2, "n": n}, time_ms=1_767_225_600_000 + 1000 * n) for n in range(100)]
    await kept.apply(points[:60])
    await kept.flush()
    assert store.index.changes.sequence == 3, "two series and their collection"
    await kept.apply([*points[60:], Record("101", MISSING, {"id": 1})])
    await kept.flush()
    (series,) = (await store.reader.current("/orders/0")).content.split(b'"points":')[1:]
    assert series.count(b"time") == 16, "those of 30 seconds before the last one"
    assert series.endswith(b'{"time":"2026-01-01T00:01:38Z","value":98}]}')
    assert store.index.heads["/orders/1"].gone
    task.cancel()


async def test_what_the_store_cannot_commit_is_refused_and_begins_again(store: Store) -> None:
    source = Orders()
    task = await running(store, source)
    kept = await source.applier()
    await kept.apply(orders(0, 5))
    await kept.flush()
    store.writer.close()
    with pytest.raises(StoreUnavailable):
        await kept.apply(orders(5, 10))
    await kept.close()
    task.cancel()


async def test_a_batch_is_queued_only_while_few_are_on_their_way() -> None:
    class Slow:
        def __init__(self) -> None:
            self.answers: list[asyncio.Future[list[Any]]] = []

        async def positions(self) -> dict[str, str]:
            return {}

        async def enqueue(
            self, changes: Sequence[Change], checkpoint: Checkpoint | None, *, key: IdempotencyKey | None = None
        ) -> "asyncio.Future[list[Any]]":
            self.answers.append(asyncio.get_running_loop().create_future())
            return self.answers[-1]

    sink, source = Slow(), Orders()
    kept = RecordApplier(RecordConverter(source.table), sink, source.health, skips=False, part="0", position=None)
    task = asyncio.create_task(kept.apply(orders(0, applier.BATCH * (applier.IN_FLIGHT + 3))))
    for done in range(4):
        while len(sink.answers) < applier.IN_FLIGHT + min(done, 3):
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(sink.answers) == applier.IN_FLIGHT + min(done, 3)
        sink.answers[done].set_result([])
    await task
    for answer in sink.answers[4:]:
        answer.set_result([])
    await kept.flush()
