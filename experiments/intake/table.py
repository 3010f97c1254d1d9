"""A published table of PostgreSQL as the origin of records: rows of 1 KB with a number, in transactions."""

import asyncio
import random
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

from experiments.intake.oracle import Numbers
from tests.support.postgres import PASSWORD, USER, Cluster

DOCUMENT_BYTES: Final = 1024
SESSIONS: Final = 2
LARGE: Final = 1000
"""Changes of one of twenty transactions; the others have up to 20."""
_TABLES: Final = """
CREATE TABLE orders (id int PRIMARY KEY, n bigint NOT NULL, note text NOT NULL);
CREATE SEQUENCE numbers;
CREATE TABLE written (place bigserial, id int, n bigint);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO written (id, n) VALUES (coalesce(NEW.id, OLD.id), NEW.n); RETURN NULL; END $$;
CREATE TRIGGER written AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE PUBLICATION orders FOR TABLE orders;
"""
# The number and the place are taken while the row is locked: they rise in the order of its commits.
_PUT: Final = """INSERT INTO orders SELECT id, nextval('numbers'), repeat('x', $2) FROM unnest($1::int[]) id ORDER BY id
ON CONFLICT (id) DO UPDATE SET n = nextval('numbers')"""
_RESTARTS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
"""What a session ends with when the database does."""


class TableOrigin:
    """A table of an own server."""

    prefix = "/orders/"

    def __init__(self, cluster: Cluster, name: str, folder: Path, *, keys: int, rate: int) -> None:
        self._cluster = cluster
        self._database = name
        self._secret = folder / f"{name}.password"
        self._secret.write_text(PASSWORD)
        self._secret.chmod(0o600)
        self._keys = keys
        self._rate = rate

    async def create(self) -> None:
        """Create the table."""
        self._cluster.sql(f"CREATE DATABASE {self._database}")
        self._cluster.sql(_TABLES, self._database)

    @property
    def table(self) -> str:
        """The source's table."""
        return (
            '[[source]]\ntype = "postgres"\nname = "orders"\nendpoint = "/orders/{id}"\npublication = "orders"\n'
            f'url = "postgresql://{USER}@127.0.0.1:{self._cluster.port}/{self._database}"\n'
            f'password = {{ file = "{self._secret}" }}\nslot = "{self._database}"\n'
        )

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """Open a session."""
        connection = await asyncpg.connect(self._cluster.url(self._database))
        try:
            yield connection
        finally:
            connection.terminate()

    async def put(self, session: Any, ids: list[int]) -> None:
        """Write rows in one transaction."""
        await session.execute(_PUT, ids, DOCUMENT_BYTES)

    async def write(self, ended: asyncio.Event) -> None:
        """Write at the rate until ``ended``, once the source has copied the empty table and follows it."""
        while not ended.is_set() and not await self._is_followed():
            await asyncio.sleep(0.02)
        await asyncio.gather(*(self._write(ended, random.Random(number)) for number in range(SESSIONS)))

    async def _is_followed(self) -> bool:
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = $1"
        with suppress(*_RESTARTS):
            async with self.session() as session:
                return bool(await session.fetchval(query, self._database))
        return False

    async def _write(self, ended: asyncio.Event, draw: random.Random) -> None:
        began, count = time.monotonic(), 0
        while not ended.is_set():
            # Until the database is there again after a restart.
            with suppress(*_RESTARTS):
                async with self.session() as session:
                    while not ended.is_set():
                        size = LARGE if draw.random() < 0.05 else draw.randint(1, 20)
                        ids = [draw.randrange(self._keys) for _ in range(size)]
                        async with session.transaction():
                            # Sorted, so that no two transactions wait for each other.
                            for start in range(0, size, self._keys):
                                await self.put(session, sorted(set(ids[start : start + self._keys])))
                            if draw.random() < 0.2:
                                await session.execute("DELETE FROM orders WHERE id = $1", max(ids))
                        count += size
                        await asyncio.sleep(max(0.0, count / (self._rate / SESSIONS) - (time.monotonic() - began)))
            await asyncio.sleep(0.1)

    async def restart(self) -> None:
        """Let the database crash, and start it again."""
        await asyncio.to_thread(self._cluster.stop, signal.SIGQUIT)
        await asyncio.to_thread(self._cluster.start)

    async def written(self) -> dict[str, Numbers]:
        """Return what the table has had."""
        found: dict[str, list[int | None]] = defaultdict(list)
        async with self.session() as session:
            for id_, number in await session.fetch("SELECT id, n FROM written ORDER BY place"):
                found[f"{self.prefix}{id_}"].append(number)
        return dict(found)
