"""Faults that only PostgreSQL has: terminated sessions, foreign locks, a hanging or unreachable server."""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from services.data.store import postgres as module
from services.data.store.postgres import LOCK
from tests.integration.data.process import AT_ONCE_S, DataProcess, bulk, serving, start, until
from tests.support import postgres as support
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.postgres import Cluster
from tests.support.stalls import stalls

# Of this database alone: others of the server belong to other tests of the run.
LOCKS = (
    "pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
    " WHERE datname = current_database() AND locktype = 'advisory'"
)
HOLDER = f"SELECT pid FROM {LOCKS} AND granted"


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_database()
    yield name
    postgres.empty(name)


@asynccontextmanager
async def session(cluster: Cluster, database: str) -> AsyncIterator[Any]:
    """A foreign session."""
    connection = await asyncpg.connect(cluster.url(database))
    try:
        yield connection
    finally:
        await connection.close()


def client(process: DataProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S)


async def put_until(http: httpx.AsyncClient, body: dict[str, Any], status: int) -> httpx.Response:
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await http.put("/v1/data", json=body)).status_code != status:
            await asyncio.sleep(0.05)
    return answer


async def test_a_start_waits_for_the_session_of_a_killed_process_and_says_so(
    postgres: Cluster, database: str, tmp_path: Path
) -> None:
    async with session(postgres, database) as killed:
        await killed.execute(f"SELECT pg_advisory_lock({LOCK}, hashtext(current_schema()))")
        process = await start(tmp_path, DATABASE_URL=postgres.url(database))
        try:
            # A busy server has not noticed yet that its client is gone.
            await process.logged("waiting for the store: if its last process was killed")
            await killed.close()
            await process.ready()
        finally:
            await process.end(signal.SIGKILL)


async def test_a_locked_table_is_503_for_writes_alone_and_passes(
    postgres: Cluster, database: str, tmp_path: Path
) -> None:
    async with (
        # Long enough for a read to be over while writes still wait, on a machine that stands still for a second or two.
        serving(tmp_path, DATABASE_URL=postgres.url(database), BUSY_TIMEOUT="4") as process,
        client(process) as http,
        session(postgres, database) as other,
    ):
        assert (await http.put("/v1/data", json=bulk({"/a": 1, "/b": 1}))).status_code == 200
        holder = postgres.sql(HOLDER, database)
        async with other.transaction():
            await other.execute("SELECT * FROM store FOR UPDATE")
            writes = asyncio.gather(*(http.put("/v1/data", json=bulk({"/a": 2, f"/n{n}": 2})) for n in range(3)))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            assert (await http.get("/v1/data/b")).status_code == 200
            # Writes that were refused before the read was sent, because this process stood still, tell nothing.
            assert not writes.done() or time.monotonic() - began < AT_ONCE_S, "a read waited for the lock"
            for answer in await writes:
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "2"
                assert answer.json()["code"] == "store_unavailable"
                assert re.search("timeout|did not answer within 4 s", answer.json()["detail"])
            await until(http, f"{process.internal}/readyz", 503)
        await until(http, f"{process.internal}/readyz", 200)
        assert (await http.get("/v1/data/n0")).status_code == 404
        assert (await put_until(http, bulk({"/a": 2}), 200)).json()["accepted"][0]["changed"]
        # The server's time-out, 0.8 s before that of the process, keeps the session. Where the machine stood still for
        # that time, the session was ended, as the log says before the process is ready again.
        await process.logged("the store commits again")
        if not any("did not answer within" in line for line in process.log):
            assert postgres.sql(HOLDER, database) == holder, "a stand-by could have taken over"


async def test_a_terminated_session_is_reopened_with_its_lock(postgres: Cluster, database: str, tmp_path: Path) -> None:
    async with serving(tmp_path, DATABASE_URL=postgres.url(database)) as process, client(process) as http:
        versions = [(await http.put("/v1/data", json=bulk({"/a": 1}))).json()["accepted"][0]["version"]]
        for value in (2, 3, 4):
            assert postgres.cut(database) >= 1
            answer = await put_until(http, bulk({"/a": value}), 200)
            versions.append(answer.json()["accepted"][0]["version"])
        assert versions == sorted(set(versions))
        assert postgres.sql(f"SELECT count(*) FROM {LOCKS} AND granted", database) == ["1"]
        # The readers' sessions were ended, too.
        assert (await http.get("/v1/data/a", params={"version": versions[-2]})).status_code in {200, 503}
        await until(http, "/v1/data/a", 200, params={"version": versions[-2]})


async def test_a_hanging_session_of_this_process_is_an_outage_and_not_another_owner(
    postgres: Cluster, database: str, tmp_path: Path
) -> None:
    async with (
        serving(tmp_path, DATABASE_URL=postgres.url(database), BUSY_TIMEOUT="1") as process,
        client(process) as http,
    ):
        assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
        (hanging,) = map(int, postgres.sql(HOLDER, database))
        os.kill(hanging, signal.SIGSTOP)
        try:
            detail = ""
            async with asyncio.timeout(PATIENCE_S):
                # The first time-out ends the session. A later one only tells that the machine stands still.
                while "has not ended the last session yet" not in detail:
                    answer = await http.put("/v1/data", json=bulk({"/a": 2}))
                    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                    detail = answer.json()["detail"]
            await until(http, "/v1/data/a", 200)
        finally:
            os.kill(hanging, signal.SIGCONT)
        await put_until(http, bulk({"/a": 5}), 200)
        await until(http, f"{process.internal}/readyz", 200)


async def test_a_process_that_lost_the_lock_to_another_one_ends(
    postgres: Cluster, database: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, DATABASE_URL=postgres.url(database)) as process, session(postgres, database) as other:
        async with client(process) as http:
            assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
        # In the queue for the lock before it is free: the process cannot have it back first.
        waiting = asyncio.create_task(other.execute(f"SELECT pg_advisory_lock({LOCK}, hashtext('public'))"))
        async with asyncio.timeout(PATIENCE_S):
            while postgres.sql(f"SELECT count(*) FROM {LOCKS} AND NOT granted", database) != ["1"]:
                await asyncio.sleep(0.02)
        postgres.sql(f"SELECT pg_terminate_backend(pid) FROM {LOCKS} AND granted", database)
        await waiting
        # Detected without a write.
        assert await process.wait() == 1
        await process.end()
        assert process.log[-1].endswith(" is in use by another process")


async def test_a_stand_by_takes_over_when_the_server_ends_the_session_of_the_first(
    postgres: Cluster, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with serving(tmp_path / "one", DATABASE_URL=url) as first:
        async with client(first) as http:
            assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
        second = await start(tmp_path / "two", STANDBY="true", DATABASE_URL=url)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not any("standing by" in line for line in second.log):
                    await asyncio.sleep(0.02)
            os.kill(first.child.pid, signal.SIGSTOP)  # it hangs; its session is ended by an administrator
            postgres.cut(database)
            await second.ready()
            async with client(second) as http:
                assert (await http.put("/v1/data", json=bulk({"/a": 2}))).status_code == 200
            os.kill(first.child.pid, signal.SIGCONT)
            assert await first.wait() == 1, "two processes write to one store"
        finally:
            await second.end(signal.SIGKILL)


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    try:
        with support.running() as cluster:
            yield cluster
    except support.NoPostgres as error:
        pytest.skip(str(error))


async def test_an_unreachable_or_hanging_server_is_503_in_time_and_recovers(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    url = own_cluster.url(own_cluster.new_database())
    async with serving(tmp_path, DATABASE_URL=url, BUSY_TIMEOUT="2") as process, client(process) as http:
        (first,) = (await put_until(http, bulk({"/a": 1}), 200)).json()["accepted"]
        own_cluster.stop()
        await put_until(http, bulk({"/a": 2}), 503)
        await until(http, f"{process.internal}/readyz", 503)
        own_cluster.start()
        await until(http, f"{process.internal}/readyz", 200)
        (second,) = (await put_until(http, bulk({"/a": 3}), 200)).json()["accepted"]
        assert second["version"] > first["version"]
        # A server whose processes all hang sends no answers, not even of a time-out.
        hanging = _stopped_tree(own_cluster.pid)
        try:
            began = time.monotonic()
            async with stalls() as stalled:
                answer = await http.put("/v1/data", json=bulk({"/a": 4}))
            assert answer.status_code == 503
            # Twice 2 s if it waits behind a check; the process may have stood still, too.
            assert time.monotonic() - began < 10 * FACTOR + stalled.seconds
            assert "did not answer within 2 s" in answer.json()["detail"]
        finally:
            for pid in reversed(hanging):
                os.kill(pid, signal.SIGCONT)
        await until(http, f"{process.internal}/readyz", 200)
        await put_until(http, bulk({"/a": 5}), 200)
        await until(http, "/v1/data/a", 200)
        assert (await http.get("/v1/data/a")).json()["points"][0]["value"] == 5
        said = "\n".join(process.log) + (await http.get(f"{process.internal}/status", headers=process.shared)).text
    assert "cannot commit" in said
    assert support.PASSWORD not in said
    assert url.split(":")[2].partition("@")[0] not in said


def _stopped_tree(pid: int) -> list[int]:
    """Stop a process and its children; return their ids, its own first."""
    # Itself first: it neither starts more children nor waits for those that end, whose ids stay theirs.
    os.kill(pid, signal.SIGSTOP)
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for child in children:
        os.kill(child, signal.SIGSTOP)
    return [pid, *children]


async def test_session_of_a_machine_that_vanishes_ends_also_while_an_answer_is_not_acknowledged(
    postgres: Cluster, database: str
) -> None:
    store = module.PostgresDatabase(make_url(postgres.url(database)), 5)
    async with store.writing() as connection:
        idle, timeout_ms = [
            int((await connection.execute(text(f"SHOW {name}"))).scalar_one())
            for name in ("tcp_keepalives_idle", "tcp_user_timeout")
        ]
    await store.close()
    assert (idle, timeout_ms) == (5, 11_000)


async def test_a_long_busy_timeout_applies_to_migrations(
    postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONG_RUNNING_S", 0.1)
    store = module.PostgresDatabase(make_url(postgres.url(database)), 60)
    async with store.writing(long_running=True) as connection:
        await connection.exec_driver_sql("SELECT pg_sleep(0.2)")
    await store.close()


@pytest.mark.parametrize("change", ["password", "database", "port"])
async def test_an_unreachable_database_ends_the_start_with_one_line_without_the_password(
    postgres: Cluster, database: str, tmp_path: Path, change: str
) -> None:
    url = postgres.url(database)
    bad = {
        "password": url.replace("%20tests", "%20others"),
        "database": url + "x",
        "port": url.replace(f":{postgres.port}/", ":1/"),
    }[change]
    process = await start(tmp_path, DATABASE_URL=bad)
    assert await process.wait() == 1
    await process.end()
    (line,) = process.log
    assert line.startswith("diem: the store postgresql://[removed]@127.0.0.1:")
    assert "cannot be opened" in line
    assert "of tests" not in line
    assert "others" not in line
