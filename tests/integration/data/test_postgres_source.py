"""A publication of a real PostgreSQL as endpoints: copies and changes, exactly once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import orjson
import pytest

from diem.process.clock import SystemClock
from services.data.errors import EndpointDeleted, UnknownEndpoint
from services.data.sources.postgres.source import PostgresSource
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.runner import SourceRunner
from services.data.sources.source import StoredState
from services.data.store import Store
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

    def sql(self, *statements: str) -> list[str]:
        return self.cluster.sql("; ".join(statements), self.database)

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
        async with (await Store.open(f"sqlite:///{self._directory / 'data.db'}")).serving() as store:
            self.store = store
            reader = store.reader.current
            stored = StoredState(store.id, self._directory, reader, store.index.below, store.writer.delete)
            task = asyncio.create_task(runner.run(store.writer.put, stored, store))
            try:
                yield store
            finally:
                task.cancel()
                await asyncio.wait({task})

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


@pytest.fixture
def shop(postgres: Cluster, tmp_path: Path) -> Iterator[Shop]:
    database = postgres.new_database()
    made = Shop(postgres, database, tmp_path / "shop")
    yield made
    postgres.sql(
        "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots "
        f"WHERE database = '{database}' AND active_pid IS NOT NULL"
    )
    postgres.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{database}'")
    made.sql("DROP PUBLICATION IF EXISTS shop")
    postgres.empty(database)


async def test_rows_are_copied_and_then_followed(shop: Shop) -> None:
    shop.sql(
        ORDERS, PUBLISH, """INSERT INTO orders VALUES (1, 'open', 12.50, '{"a": [1, null]}'), (2, 'paid', NULL, NULL)"""
    )
    async with shop.running():
        await shop.until_rows(
            {
                "/shop/orders/1": {"id": 1, "state": "open", "total": 12.5, "note": {"a": [1, None]}},
                "/shop/orders/2": {"id": 2, "state": "paid", "total": None, "note": None},
            }
        )
        shop.sql(
            "INSERT INTO orders VALUES (3, 'new')",
            "UPDATE orders SET state = 'sent' WHERE id = 1",
            "DELETE FROM orders WHERE id = 2",
            "UPDATE orders SET id = 4 WHERE id = 3",
        )
        await shop.until_rows(
            {
                "/shop/orders/1": {"id": 1, "state": "sent", "total": 12.5, "note": {"a": [1, None]}},
                "/shop/orders/4": {"id": 4, "state": "new", "total": None, "note": None},
            }
        )
        shop.sql("TRUNCATE orders", "INSERT INTO orders VALUES (9, 'new')")
        await shop.until_rows({"/shop/orders/9": {"id": 9, "state": "new", "total": None, "note": None}})


OUTBOX = (
    """CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
       tx xid8 NOT NULL DEFAULT pg_current_xact_id(), item text NOT NULL, payload jsonb)""",
    "CREATE FUNCTION notify_diem() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY diem; RETURN NULL; END $$",
    "CREATE TRIGGER notify AFTER INSERT ON outbox EXECUTE FUNCTION notify_diem()",
)
OUTBOX_FIELDS = {"publication": None, "slot": None, "outbox": "outbox", "endpoint": "/shop/{item}", "value": "payload"}


def of_outbox(shop: Shop, **fields: Any) -> None:
    shop.sql(*OUTBOX)
    shop.fields = {**OUTBOX_FIELDS, **fields}


async def test_rows_of_transactions_that_commit_late_are_not_lost(shop: Shop) -> None:
    of_outbox(shop)
    async with shop.running(), session(shop) as early, session(shop) as late:
        await early.execute("BEGIN; INSERT INTO outbox (item, payload) VALUES ('early', '1')")
        await late.execute("INSERT INTO outbox (item, payload) VALUES ('late', '2')")
        await shop.until_rows({"/shop/late": 2})
        await early.execute("INSERT INTO outbox (item, payload) VALUES ('late', '3'); COMMIT")
        await shop.until_rows({"/shop/late": 3, "/shop/early": 1})
        await late.execute("INSERT INTO outbox (item) VALUES ('early')")
        await shop.until_rows({"/shop/late": 3})
