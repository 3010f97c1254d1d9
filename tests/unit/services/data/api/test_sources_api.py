"""Replays: a source stops, its positions are stored, and it goes on from there."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from diem.errors import DiemError
from diem.process.clock import ManualClock
from services.data.api import problems
from services.data.api.sources import source_routes
from services.data.errors import InvalidDataset
from services.data.sources.records.applier import RecordApplier
from services.data.sources.records.attempts import keep_trying
from services.data.sources.records.converter import RecordConverter
from services.data.sources.records.record import Record
from services.data.sources.records.table import RecordTable
from services.data.sources.runner import SourceRunner
from services.data.sources.source import ChangeSink, Health
from services.data.store import Checkpoint, Write
from services.data.store.store import Store
from tests.support.new_store import new_store
from tests.support.patience import until as become

PATH = "/v1/sources/orders"


class Log:
    """A source of the records of a list; new ones are read at once."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.table = RecordTable.model_validate({"type": "log", "name": "orders", "endpoint": "/orders/{id}"})
        self.name, self.claims, self.health = "orders", self.table.claims, Health("orders", ManualClock())
        self.records = records
        self.began: list[int] = []

    async def consume(self, sink: ChangeSink) -> None:
        await keep_trying(self.health, lambda: self._read(sink))

    async def _read(self, sink: ChangeSink) -> None:
        position = (await sink.positions()).get("log")
        self.began.append(int(position or 0))
        applier = RecordApplier(
            RecordConverter(self.table), sink, self.health, skips=False, part="log", position=position
        )
        records = [Record(str(n + 1), value) for n, value in enumerate(self.records)]
        await applier.apply(records[int(position or 0) :])
        await applier.flush()
        self.health.succeeded()
        await asyncio.Event().wait()

    async def try_once(self, sink: ChangeSink) -> None:
        raise NotImplementedError

    async def position_at(self, part: str, text: str) -> str:
        if part != "log" or not text.isdecimal():
            raise InvalidDataset(f"{text} is no offset of {part}")
        return text


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with (await Store.open(new_store(tmp_path / "data.db"))).serving() as opened:
        yield opened


class Bench:
    """A running source and a client of the resource."""

    def __init__(self, store: Store, records: Sequence[dict[str, Any]]) -> None:
        self.source = Log(records)
        runner = SourceRunner([self.source])
        handlers = {DiemError: problems.on_data_error}
        app = Starlette(routes=[*source_routes(runner, store)], exception_handlers=handlers)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://data")
        self._task = asyncio.create_task(runner.run(store.writer.put, None, store))

    async def post(self, **wanted: Any) -> httpx.Response:
        return await self.client.post(f"{PATH}/replay", json=wanted)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.client.aclose()


async def until_times(source: Log, number: int) -> None:
    """Wait until a source has read everything so many times."""
    await become(lambda: source.health.successes == number)


async def test_a_source_goes_on_where_it_is_told_to(store: Store) -> None:
    bench = Bench(store, [{"id": n} for n in range(5)])
    await become(lambda: bench.source.health.successes == 1)
    assert (await bench.client.get(PATH)).json() == {
        "name": "orders", "positions": {"log": "5"}, "stopped": None, "error": None
    }  # fmt: skip
    for number, wanted in enumerate(({"from": "3"}, {"from": "start", "part": "log"}, {"from": "start"}), 2):
        assert (await bench.post(**wanted)).status_code == 200
        await until_times(bench.source, number)
        assert (await bench.client.get(PATH)).json()["positions"] == {"log": "5"}
    assert bench.source.began == [0, 3, 0, 0]
    await bench.close()


async def test_a_stopped_source_goes_on_after_the_refused_record(store: Store) -> None:
    bench = Bench(store, [{"id": 1}, {"no": "id"}, {"id": 3}])
    await become(lambda: bench.source.health.error is not None)
    answer = (await bench.client.get(PATH)).json()
    assert (answer["positions"], answer["stopped"]) == ({"log": "1"}, {"part": "log", "after": "2"})
    assert "is missing" in answer["error"]
    skipped = await bench.post(skip=True)
    assert (skipped.status_code, skipped.json()["stopped"]) == (200, None)
    await become(lambda: "/orders/3" in store.index.heads)
    assert (await bench.post(skip=True)).status_code == 422
    await bench.close()


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({}, 422),
        ({"from": 3}, 422),
        ({"from": "x"}, 422),
        ({"skip": "yes"}, 422),
        ({"from": "1", "skip": True}, 422),
        ({"from": "1", "part": "other"}, 422),
        ({"from": "1"}, 422),
    ],
)
async def test_a_wrong_replay_changes_nothing(store: Store, wanted: dict[str, Any], status: int) -> None:
    bench = Bench(store, [{"id": 1}])
    await become(lambda: bench.source.health.successes == 1)
    # Without a part, a position would be that of both.
    await store.writer.submit(Write([], "orders", checkpoint=Checkpoint("other", None, "7")))
    assert (await bench.post(**wanted)).status_code == status
    assert (await bench.client.get("/v1/sources/none")).status_code == 404
    assert bench.source.began == [0]
    await bench.close()
