"""A source of watched endpoints over a real store and real connections: what is kept, and what makes room."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from diem.process.clock import SystemClock
from services.data.sources.config import load
from services.data.sources.runner import SourceRunner
from services.data.sources.source import StoredState
from services.data.store.store import Store
from tests.support.file_threads import FILES
from tests.support.patience import until
from tests.support.publisher import Publisher, Reply, published

CONFIG = """\
[[source]]
type = "http"
name = "orders"
url = "{url}/{{rest}}"
prefix = "/orders"
kind = "document"
every = 60.0
max_endpoints = 3
"""


@asynccontextmanager
async def polling(directory: Path, store: Store) -> AsyncIterator[SourceRunner]:
    """Run the source, as a new process does."""
    runner = SourceRunner.configured(load(directory / "diem.toml"), SystemClock(), convert=FILES.convert)
    names, delete = store.index.below, store.writer.delete
    state = StoredState(store.id, directory, store.reader.current, names, delete)
    running = asyncio.create_task(runner.run(store.writer.put, state, store))
    try:
        yield runner
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(f"sqlite:///{tmp_path}/data.db", clock=SystemClock())
    async with opened.serving():
        yield opened


async def test_the_store_keeps_as_many_endpoints_as_the_source_may_have_also_after_a_restart(
    tmp_path: Path, store: Store
) -> None:
    async with published() as publisher:
        _answer_all(publisher)
        (tmp_path / "diem.toml").write_text(CONFIG.format(url=publisher.url))
        async with polling(tmp_path, store) as runner:
            (source,) = runner.by_interest
            for number, name in enumerate("abcd", 1):
                assert source.watch(f"/orders/{name}")
                await until(lambda name=name: f"/orders/{name}" in store.index.below("/orders"))  # type: ignore[misc]
                # It is in the store before its poll has ended, and until then counts as not stored.
                await until(lambda number=number: source.health.successes == number)  # type: ignore[misc]
                source.unwatch(f"/orders/{name}")
            await until(lambda: store.index.below("/orders") == ["/orders/b", "/orders/c", "/orders/d"])
            assert runner.status()[0]["endpoints"] == 3
            assert store.index.heads["/orders/a"].gone
        async with polling(tmp_path, store) as runner:
            (source,) = runner.by_interest
            version = store.index.heads["/orders/d"].version
            await until(lambda: source.health.last_success_ms)
            assert source.watch("/orders/d")
            assert source.watch("/orders/e")
            await until(lambda: store.index.below("/orders") == ["/orders/c", "/orders/d", "/orders/e"])
            assert store.index.heads["/orders/d"].version == version


def _answer_all(publisher: Publisher) -> None:
    publisher.answer = lambda request: Reply(f'{{"path": "{request.path}"}}')
