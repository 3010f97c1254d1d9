"""A source of PostgreSQL whose database crashes, lacks a setting, or has thrown away WAL of its slot."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from diem.process.clock import SystemClock
from services.data.sources.postgres import follower, publication
from services.data.sources.postgres.source import PostgresSource
from services.data.sources.runner import SourceRunner
from tests.integration.data.test_postgres_source import nothing
from tests.support import postgres as support
from tests.support.required import in_cluster, unavailable
from tests.support.shop import Shop

pytestmark = in_cluster("it restarts a database")


@pytest.fixture
def own_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(publication, "WATCH_S", 0.1)
    monkeypatch.setattr(follower, "ADVANCE_S", 0.2)
    monkeypatch.setattr(follower, "IDLE_S", 0.1)
    try:
        with support.running() as cluster:
            made = Shop(cluster, cluster.new_database(), tmp_path / "shop")
            made.sql("CREATE TABLE a (id int PRIMARY KEY, n int)", "CREATE PUBLICATION shop FOR TABLE a")
            yield made
    except support.NoPostgres as error:
        unavailable("PostgreSQL", error)


async def test_a_crash_of_the_database_loses_and_doubles_nothing(own_shop: Shop) -> None:
    async with own_shop.running(value="n"):
        for n in range(3):
            own_shop.sql(f"INSERT INTO a SELECT id, {n} FROM generate_series({10 * n}, {10 * n + 9}) id")
            own_shop.cluster.stop(signal.SIGQUIT)

            async def fails() -> bool:
                return own_shop.source.health.error is not None

            await own_shop.until(fails)
            own_shop.cluster.start()
            own_shop.sql("UPDATE a SET n = n + 10")
            await own_shop.until_value(f"/shop/a/{10 * n + 9}", n + 10)
        assert await own_shop.rows() == {f"/shop/a/{id_}": 30 - 9 * (id_ // 10) for id_ in range(30)}
        assert own_shop.intake.resets == 0
        for id_ in range(30):
            # One of the insertion and one of each update, unless the table was copied after that.
            assert len(await own_shop.store.reader.versions(f"/shop/a/{id_}")) <= 4 - id_ // 10


async def test_a_slot_that_has_lost_wal_is_made_anew_and_the_tables_copied_again(own_shop: Shop) -> None:
    own_shop.sql("INSERT INTO a VALUES (1, 1), (2, 2)")
    async with own_shop.running(value="n"):
        await own_shop.until_it_follows()
    await own_shop.until_slot_is_free()
    own_shop.cluster.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    own_shop.sql("SELECT pg_reload_conf()", "DELETE FROM a WHERE id = 1", "INSERT INTO a VALUES (3, 3)")
    for _ in range(3):
        own_shop.sql("SELECT pg_switch_wal()")
        own_shop.sql("CREATE TABLE IF NOT EXISTS other (n int)", "INSERT INTO other VALUES (1)")
    own_shop.cluster.sql("CHECKPOINT")
    assert own_shop.sql("SELECT wal_status FROM pg_replication_slots") == ["lost"]
    async with own_shop.running(value="n"):
        await own_shop.until_rows({"/shop/a/2": 2, "/shop/a/3": 3})
        assert own_shop.intake.resets == 1
        own_shop.sql("INSERT INTO a VALUES (4, 4)")
        await own_shop.until_value("/shop/a/4", 4)
        assert len(await own_shop.store.reader.versions("/shop/a/2")) == 1


async def test_a_trial_names_the_setting_of_the_server(own_shop: Shop) -> None:
    own_shop.cluster.stop()
    own_shop.cluster.start(wal_level="replica")
    source = PostgresSource(own_shop.config(), SystemClock())
    await SourceRunner([source]).try_once(nothing)
    assert "ALTER SYSTEM SET wal_level = logical" in (source.health.error or "")
