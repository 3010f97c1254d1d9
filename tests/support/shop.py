"""A database with a publication or an outbox, and a source in the test's process that reads it into a store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import orjson

from diem.process.clock import SystemClock
from services.data.errors import EndpointDeleted, UnknownEndpoint
from services.data.sources.postgres.source import PostgresSource
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.runner import SourceRunner
from services.data.sources.source import Intake, StoredState
from services.data.store import Checkpoint, Write
from services.data.store.store import Store
from tests.support.patience import PATIENCE_S
from tests.support.postgres import PASSWORD, USER, Cluster

PUBLISH = "CREATE PUBLICATION shop FOR ALL TABLES"
ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, state text NOT NULL, total numeric, note jsonb)"


class Shop:
    """A database, its publication, and a source that reads it into a store."""

    def __init__(self, cluster: Cluster, database: str, directory: Path) -> None:
        self.cluster = cluster
        self.database = database
        self._directory = directory
        directory.mkdir(exist_ok=True)
        (directory / "password").write_text(PASSWORD)
        (directory / "password").chmod(0o600)
        self.fields: dict[str, Any] = {}
        self.source: PostgresSource
        self.store: Store

    async def sql_aside(self, *statements: str) -> None:
        """While the source goes on: statements that wait for its locks."""
        await asyncio.to_thread(self.sql, *statements)

    def sql(self, *statements: str) -> list[str]:
        return self.cluster.sql("; ".join(statements), self.database)

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self._directory / 'data.db'}"

    def config(self, **fields: Any) -> PostgresConfig:
        table: dict[str, Any] = {
            "type": "postgres",
            "name": "shop",
            "url": f"postgresql://{USER}@127.0.0.1:{self.cluster.port}/{self.database}",
            "password": {"file": str(self._directory / "password")},
            "publication": "shop",
            "slot": f"diem_{self.database}",
            "endpoint": "/shop/{table}/{id}",
            **self.fields,
            **fields,
        }
        return PostgresConfig.model_validate({name: value for name, value in table.items() if value is not None})

    @asynccontextmanager
    async def running(self, **fields: Any) -> AsyncIterator[Store]:
        self.source = PostgresSource(self.config(**fields), SystemClock())
        runner = SourceRunner([self.source])
        async with (await Store.open(self.store_url)).serving() as store:
            self.store = store
            reader = store.reader.current
            stored = StoredState(store.id, self._directory, reader, store.index.below, store.writer.delete)
            task = asyncio.create_task(runner.run(store.writer.put, stored, store))
            try:
                yield store
            finally:
                task.cancel()
                await asyncio.wait({task})

    async def move(self, part: str, change: Callable[[str], str]) -> None:
        """Change a stored position while the source does not run."""
        async with (await Store.open(self.store_url)).serving() as store:
            before = (await store.reader.positions("shop"))[part]
            await (await store.writer.queue(Write([], "shop", checkpoint=Checkpoint(part, before, change(before)))))

    async def value(self, endpoint: str) -> Any:
        try:
            return orjson.loads((await self.store.reader.current(endpoint)).content)
        except (UnknownEndpoint, EndpointDeleted):
            return None

    async def rows(self) -> dict[str, Any]:
        return {name: await self.value(name) for name in self.store.index.below("/shop")}

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{self.source.health} {await self.rows()}") from None

    @property
    def intake(self) -> Intake:
        return self.source.health.intake or Intake()

    @property
    def version(self) -> int:
        return int(self.sql("SHOW server_version_num")[0]) // 10_000

    async def until_content(self, endpoint: str, content: bytes) -> None:
        async def condition() -> bool:
            there = endpoint in self.store.index.below(endpoint.rpartition("/")[0])
            return there and (await self.store.reader.current(endpoint)).content == content

        await self.until(condition)

    async def until_it_follows(self) -> None:
        async def condition() -> bool:
            return self.source.health.last_success_ms is not None

        await self.until(condition)

    async def until_slot_is_free(self) -> None:
        async def condition() -> bool:
            return self.sql("SELECT FROM pg_replication_slots WHERE database = current_database() AND active") == []

        await self.until(condition)

    async def until_value(self, endpoint: str, value: Any) -> None:
        async def condition() -> bool:
            return bool(await self.value(endpoint) == value)

        await self.until(condition)

    async def until_rows(self, wanted: dict[str, Any]) -> None:
        async def condition() -> bool:
            return await self.rows() == wanted

        await self.until(condition)


@asynccontextmanager
async def session(shop: Shop) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(shop.cluster.url(shop.database))
    try:
        yield connection
    finally:
        await connection.close()
