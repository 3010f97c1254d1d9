"""A publication of a real PostgreSQL as endpoints: copies and changes, exactly once."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from deploy.cli.options import UnusableFile
from deploy.cli.suggest import add_table
from deploy.cli.suggest_table import suggest_table
from diem.process.clock import SystemClock
from services.data.kinds import Representation
from services.data.sources.config import load
from services.data.sources.postgres import follower, outbox, publication
from services.data.sources.postgres.source import PostgresSource
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.runner import SourceRunner
from tests.support.postgres import PASSWORD, USER, Cluster
from tests.support.shop import ORDERS, PUBLISH, Shop, session


async def nothing(datasets: Sequence[Representation], *, source: str) -> None:
    """Store nothing."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "WATCH_S", 0.1)
    monkeypatch.setattr(follower, "ADVANCE_S", 0.2)
    monkeypatch.setattr(follower, "IDLE_S", 0.1)


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
    postgres.sql(f"DROP ROLE IF EXISTS r_{database}")


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


# Rows


BIG = "x" * 5000
"""Stored apart from its row."""


async def test_large_values_that_an_update_does_not_send_stay(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE files (id int PRIMARY KEY, n int, big text, note text)",
        "ALTER TABLE files ALTER big SET STORAGE EXTERNAL, ALTER note SET STORAGE EXTERNAL",
        f"INSERT INTO files VALUES (1, 0, '{BIG}'), (2, 0, '{BIG}')",
        PUBLISH,
    )
    async with shop.running():
        await shop.until_value("/shop/files/2", {"id": 2, "n": 0, "big": BIG, "note": None})
        shop.sql(
            f"INSERT INTO files VALUES (3, 0, '{BIG}', '{BIG}')",
            "UPDATE files SET n = n + 1",
            "UPDATE files SET note = 'a' WHERE id = 2",
            "UPDATE files SET id = 4 WHERE id = 3",
            "UPDATE files SET big = NULL WHERE id = 1",
            "UPDATE files SET n = n + 1",
        )
        await shop.until_rows(
            {
                "/shop/files/1": {"id": 1, "n": 2, "big": None, "note": None},
                "/shop/files/2": {"id": 2, "n": 2, "big": BIG, "note": "a"},
                "/shop/files/4": {"id": 4, "n": 2, "big": BIG, "note": BIG},
            }
        )
        shop.sql("ALTER TABLE files REPLICA IDENTITY FULL", "UPDATE files SET n = 3, id = 5 WHERE id = 4")
        await shop.until_value("/shop/files/5", {"id": 5, "n": 3, "big": BIG, "note": BIG})
        assert await shop.value("/shop/files/4") is None


@pytest.mark.parametrize(
    ("fields", "content"),
    [({"value": "body/a"}, orjson.dumps({"b": BIG})), ({"value": "raw", "kind": "bytes"}, BIG.encode())],
)
async def test_a_large_content_that_an_update_does_not_send_stays(
    shop: Shop, fields: dict[str, Any], content: bytes
) -> None:
    shop.sql(
        "CREATE TABLE files (id int PRIMARY KEY, body jsonb, raw bytea)",
        "ALTER TABLE files ALTER body SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL",
        f"""INSERT INTO files VALUES (1, '{{"a": {{"b": "{BIG}"}}}}', '{BIG}')""",
        PUBLISH,
    )
    async with shop.running(**fields):
        await shop.until_content("/shop/files/1", content)
        for new in (2, 1):
            shop.sql(f"UPDATE files SET id = {new}")
            await shop.until_content(f"/shop/files/{new}", content)
            assert shop.store.index.below("/shop") == [f"/shop/files/{new}"]


async def test_a_row_that_leaves_where_ends_its_endpoint(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'open'), (2, 'done')", PUBLISH)
    async with shop.running(where={"state": "open"}, value="id"):
        await shop.until_rows({"/shop/orders/1": 1})
        shop.sql("UPDATE orders SET state = 'open' WHERE id = 2", "UPDATE orders SET state = 'done' WHERE id = 1")
        await shop.until_rows({"/shop/orders/2": 2})
        shop.sql("DELETE FROM orders")
        await shop.until_rows({})


async def test_rows_of_a_series_are_points(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE prices (area text, at timestamptz, price numeric, PRIMARY KEY (area, at))",
        "INSERT INTO prices VALUES ('GR', '2026-01-01 02:00+02', 1.5), ('GR', '2026-01-01 01:00+00', 2)",
        PUBLISH,
    )
    fields = {"kind": "series", "value": "price", "time": "at", "unit": "EUR/MWh", "resolution": "PT1H"}
    async with shop.running(endpoint="/spot/{area}", **fields):

        async def points() -> list[Any]:
            made = await shop.value("/spot/GR")
            return [] if made is None else [(each["time"][11:13], each["value"]) for each in made["points"]]

        async def has(*wanted: Any) -> None:
            async def are_there() -> bool:
                return await points() == [*wanted]

            await shop.until(are_there)

        await has(("00", 1.5), ("01", 2))
        shop.sql(
            "UPDATE prices SET price = 3 WHERE price = 2",
            "INSERT INTO prices VALUES ('GR', '2026-01-01 02:00+00', NULL)",
            "DELETE FROM prices WHERE price = 1.5",
        )
        await has(("00", 1.5), ("01", 3), ("02", None))
        shop.sql("TRUNCATE prices")
        await has()


async def test_a_notice_of_a_table_follows_every_change(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE items (id int)", "ALTER TABLE items REPLICA IDENTITY FULL", PUBLISH)
    async with shop.running(endpoint="/changes/{table}", kind="notice"):

        async def versions(table: str) -> int:
            name = f"/changes/{table}"
            return len(await shop.store.reader.versions(name)) if name in shop.store.index.below("/changes") else 0

        for statement, table, number in (
            ("INSERT INTO orders VALUES (1, '')", "orders", 1),
            ("DELETE FROM orders", "orders", 2),
            ("INSERT INTO items VALUES (1)", "items", 1),
            ("TRUNCATE items", "items", 2),
        ):
            shop.sql(statement)

            async def is_sent(table: str = table, number: int = number) -> bool:
                return await versions(table) == number

            await shop.until(is_sent)


async def test_partitions_are_their_root(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE logs (id int, month int, PRIMARY KEY (id, month)) PARTITION BY RANGE (month)",
        *(f"CREATE TABLE logs_{n} PARTITION OF logs FOR VALUES FROM ({n}) TO ({n + 1})" for n in (1, 2)),
        "INSERT INTO logs VALUES (1, 1), (2, 2)",
        PUBLISH,
    )
    async with shop.running(endpoint="/shop/{id}-{month}", value="id"):

        async def is_refused() -> bool:
            return "publish_via_partition_root" in (shop.source.health.error or "")

        await shop.until(is_refused)
    shop.sql("ALTER PUBLICATION shop SET (publish_via_partition_root = true)")
    async with shop.running(endpoint="/shop/{id}-{month}", value="id"):
        await shop.until_rows({"/shop/1-1": 1, "/shop/2-2": 2})
        shop.sql("UPDATE logs SET month = 2 WHERE id = 1", "INSERT INTO logs VALUES (3, 1)")
        await shop.until_rows({"/shop/1-2": 1, "/shop/2-2": 2, "/shop/3-1": 3})


async def test_columns_and_rows_of_the_publication_alone_are_read(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, state text, secret text)",
        "ALTER TABLE orders ADD COLUMN twice int GENERATED ALWAYS AS (id * 2) STORED",
        "INSERT INTO orders VALUES (1, 'a', 'b'), (20, 'a', 'b')",
        "CREATE PUBLICATION shop FOR TABLE orders (id, state) WHERE (id < 10)",
    )
    async with shop.running():
        await shop.until_rows({"/shop/orders/1": {"id": 1, "state": "a"}})
        shop.sql("UPDATE orders SET id = id + 5, secret = 'c'")
        await shop.until_rows({"/shop/orders/6": {"id": 6, "state": "a"}})


# Tables


async def test_a_table_with_other_columns_is_copied_again(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a'), (2, 'b')", PUBLISH)
    async with shop.running():
        await shop.until_value("/shop/orders/2", {"id": 2, "state": "b", "total": None, "note": None})
        await shop.sql_aside(
            "ALTER TABLE orders ADD COLUMN n int DEFAULT 7, DROP COLUMN note",
            "UPDATE orders SET state = 'c' WHERE id = 1",
        )
        await shop.until_rows(
            {
                "/shop/orders/1": {"id": 1, "state": "c", "total": None, "n": 7},
                "/shop/orders/2": {"id": 2, "state": "b", "total": None, "n": 7},
            }
        )
        await shop.sql_aside("ALTER TABLE orders RENAME n TO number", "UPDATE orders SET state = 'd' WHERE id = 1")
        await shop.until_value("/shop/orders/2", {"id": 2, "state": "b", "total": None, "number": 7})
        assert len(await shop.store.reader.versions("/shop/orders/1")) == 3


async def test_tables_come_and_go_while_the_source_runs(shop: Shop) -> None:
    shop.sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO b VALUES (1)")
    shop.sql("CREATE PUBLICATION shop FOR TABLE a")

    async def is_noted(state: str) -> bool:
        return (await shop.store.reader.positions("shop")).get("public.b", "").split(" ")[0] == state

    async with shop.running(value="id"):
        shop.sql("INSERT INTO a VALUES (1)")
        await shop.until_rows({"/shop/a/1": 1})
        shop.sql("ALTER PUBLICATION shop ADD TABLE b", "INSERT INTO b VALUES (2)")
        await shop.until_rows({"/shop/a/1": 1, "/shop/b/1": 1, "/shop/b/2": 2})
        # Only a finished copy is noted as removed, and its rows are there before.
        await shop.until(partial(is_noted, "copied"))
        shop.sql("ALTER PUBLICATION shop DROP TABLE b", "DELETE FROM b WHERE id = 1", "INSERT INTO a VALUES (2)")
        await shop.until_value("/shop/a/2", 2)
        await shop.until(partial(is_noted, "removed"))
        assert await shop.value("/shop/b/1") == 1
        shop.sql("ALTER PUBLICATION shop ADD TABLE b")
        await shop.until_rows({"/shop/a/1": 1, "/shop/a/2": 2, "/shop/b/2": 2})


async def test_a_table_that_was_made_again_is_copied_again(shop: Shop) -> None:
    table = "CREATE TABLE a (id int PRIMARY KEY)"
    shop.sql(table, "INSERT INTO a VALUES (1), (2)", PUBLISH)
    async with shop.running(value="id"):
        await shop.until_rows({"/shop/a/1": 1, "/shop/a/2": 2})
        await shop.sql_aside("DROP TABLE a", table, "INSERT INTO a VALUES (2), (3)")
        await shop.until_rows({"/shop/a/2": 2, "/shop/a/3": 3})
        assert len(await shop.store.reader.versions("/shop/a/2")) == 1


# Exactly once


async def test_changes_that_the_copy_has_are_left_out_of_the_stream(shop: Shop) -> None:
    """The slot is older than the copy, and a transaction is open while that is made."""
    shop.sql(ORDERS, PUBLISH)
    shop.sql(f"SELECT pg_create_logical_replication_slot('diem_{shop.database}', 'pgoutput')")
    async with session(shop) as open_:
        await open_.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'a')")
        await open_.execute("UPDATE orders SET state = 'b'")
        await open_.execute("BEGIN; UPDATE orders SET state = 'c' WHERE id = 2")
        async with shop.running(value="state"):
            await shop.until_rows({"/shop/orders/1": "b", "/shop/orders/2": "b"})
            await open_.execute("COMMIT; UPDATE orders SET state = 'd' WHERE id = 1")
            await shop.until_rows({"/shop/orders/1": "d", "/shop/orders/2": "c"})
            for endpoint, values in (("/shop/orders/1", ["b", "d"]), ("/shop/orders/2", ["b", "c"])):
                found = await shop.store.reader.versions(endpoint)
                contents = [(await shop.store.reader.version(endpoint, each.version)).content for each in found]
                assert sorted(map(orjson.loads, contents)) == values


async def test_a_large_transaction_goes_on_where_it_was_interrupted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 1200
    shop.sql("CREATE TABLE a (id int PRIMARY KEY, n int)", PUBLISH)
    async with shop.running(value="n"):
        await shop.until_it_follows()
    shop.sql(f"BEGIN; INSERT INTO a SELECT n, 0 FROM generate_series(1, {number}) n; UPDATE a SET n = n + 1; COMMIT")
    seen = -1
    for _ in range(20):
        async with shop.running(value="n"):
            start = len(shop.store.index.names)

            async def has_grown(start: int = start) -> bool:
                return len(shop.store.index.names) > start

            await shop.until(has_grown)
        if len(shop.store.index.names) == number:
            break
        assert len(shop.store.index.names) > seen
        seen = len(shop.store.index.names)
    async with shop.running(value="n"):
        await shop.until_value(f"/shop/a/{number}", 1)
        for n in (1, 200, 201, 999, 1000, number):
            assert len(await shop.store.reader.versions(f"/shop/a/{n}")) == 2


async def test_a_stopped_copy_begins_again(shop: Shop) -> None:
    shop.sql("CREATE TABLE a (id int PRIMARY KEY, n int)", "INSERT INTO a SELECT n, 0 FROM generate_series(1, 1000) n")
    shop.sql(PUBLISH)
    async with shop.running(value="n"):

        async def has_some() -> bool:
            return len(shop.store.index.names) > 0

        await shop.until(has_some)
    shop.sql("DELETE FROM a WHERE id < 100", "UPDATE a SET n = 1 WHERE id = 100")
    async with shop.running(value="n"):
        await shop.until_it_follows()
        assert await shop.rows() == {f"/shop/a/{n}": int(n == 100) for n in range(100, 1001)}
        assert len(await shop.store.reader.versions("/shop/a/101")) == 1


# Losses


@pytest.mark.parametrize("loss", ["dropped", "read by others", "another server"])
async def test_without_what_follows_the_stored_position_all_is_copied_again(shop: Shop, loss: str) -> None:
    shop.sql("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1), (2)", PUBLISH)
    slot = f"diem_{shop.database}"
    async with shop.running(value="id"):
        await shop.until_it_follows()
    await shop.until_slot_is_free()
    shop.sql("DELETE FROM a WHERE id = 1", "INSERT INTO a VALUES (3)")
    if loss == "dropped":
        shop.sql(f"SELECT pg_drop_replication_slot('{slot}')")
    elif loss == "another server":
        part = f"slot {slot}"
        await shop.move(part, lambda position: position.replace("-1.", "-2."))
    else:
        shop.sql(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    async with shop.running(value="id"):
        await shop.until_rows({"/shop/a/2": 2, "/shop/a/3": 3})
        assert shop.intake.resets == 1
        shop.sql("INSERT INTO a VALUES (4)")
        await shop.until_value("/shop/a/4", 4)
        assert len(await shop.store.reader.versions("/shop/a/2")) == 1
        # While it runs.
        shop.sql(
            f"SELECT pg_terminate_backend(active_pid, 5000), pg_drop_replication_slot('{slot}')"
            f" FROM pg_replication_slots WHERE slot_name = '{slot}'"
        )
        shop.sql("INSERT INTO a VALUES (5)")
        await shop.until_value("/shop/a/5", 5)
        assert shop.intake.resets == 2


async def test_the_slot_follows_the_stored_position_also_without_changes(shop: Shop) -> None:
    shop.sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE other (n int)", "CREATE PUBLICATION shop FOR TABLE a")
    async with shop.running(value="id"):
        shop.sql("INSERT INTO a VALUES (1)")
        await shop.until_value("/shop/a/1", 1)
        shop.sql("INSERT INTO other SELECT generate_series(1, 1000)")
        (lsn,) = shop.sql("SELECT pg_current_wal_lsn()")

        async def is_confirmed() -> bool:
            return shop.sql(
                f"SELECT confirmed_flush_lsn >= '{lsn}' FROM pg_replication_slots WHERE database = current_database()"
            ) == ["t"]

        await shop.until(is_confirmed)
        stored = (await shop.store.reader.positions("shop"))[f"slot diem_{shop.database}"]
        assert shop.sql(f"SELECT '{stored.split()[0]}'::pg_lsn >= '{lsn}'") == ["t"]


async def test_a_slot_beyond_its_bound_is_an_error_until_it_is_not(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE other (n text)", "CREATE PUBLICATION shop FOR TABLE a"
    )
    async with shop.running(value="id", slot_bound=1), session(shop) as open_:
        shop.sql("INSERT INTO a VALUES (1)")
        await shop.until_value("/shop/a/1", 1)
        await open_.execute("BEGIN; INSERT INTO a VALUES (2)")
        shop.sql("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 3000)")

        async def fails() -> bool:
            return "MiB of WAL (slot_bound = 1)" in (shop.source.health.error or "")

        await shop.until(fails)
        await open_.execute("COMMIT")
        await shop.until_value("/shop/a/2", 2)

        async def works() -> bool:
            shop.sql("SELECT pg_log_standby_snapshot()" if shop.version >= 16 else "CHECKPOINT")
            return shop.source.health.error is None

        await shop.until(works)


# Refused rows


async def test_a_row_that_cannot_be_stored_stops_the_source_or_is_skipped(shop: Shop) -> None:
    shop.sql("CREATE TABLE a (id text PRIMARY KEY)", PUBLISH)
    async with shop.running(value="id"):
        await shop.until_it_follows()
        shop.sql("INSERT INTO a VALUES ('1'), ('?'), ('2')")

        async def has_stopped() -> bool:
            return shop.intake.stopped is not None

        await shop.until(has_stopped)
        assert "key: endpoint" in (shop.source.health.error or "")
        assert await shop.rows() == {"/shop/a/1": "1"}
    async with shop.running(value="id", on_invalid="skip"):
        await shop.until_rows({"/shop/a/1": "1", "/shop/a/2": "2"})
        shop.sql("UPDATE a SET id = '3' WHERE id = '?'", "DELETE FROM a WHERE id = '1'")
        await shop.until_rows({"/shop/a/2": "2", "/shop/a/3": "3"})
        assert shop.intake.refused == 1


# Trials


@pytest.mark.parametrize(
    ("statements", "fields", "error"),
    [
        ([], {}, "there is no publication shop in this database: CREATE PUBLICATION"),
        ([PUBLISH], {"tables": {"b": {}}}, "the database has no table public.b: correct the keys of [source.tables]"),
        (
            ["CREATE PUBLICATION shop FOR TABLE a", "CREATE TABLE b (id int PRIMARY KEY)"],
            {"tables": {"b": {}}},
            'the publication has no table public.b: ALTER PUBLICATION "shop" ADD TABLE "public"."b"',
        ),
        ([PUBLISH], {"endpoint": "/shop/{nr}"}, "public.a has no column nr (key: endpoint); it has id, n"),
        ([PUBLISH], {"endpoint": "/shop/{n}"}, "does not have n, which endpoint needs: ALTER TABLE"),
        ([PUBLISH, "ALTER TABLE a REPLICA IDENTITY NOTHING"], {}, 'ALTER TABLE "public"."a" REPLICA IDENTITY FULL'),
        ([PUBLISH, "INSERT INTO a VALUES (1)"], {"value": "nr"}, "nr is missing (key: value)"),
        (
            ["CREATE PUBLICATION shop", "CREATE ROLE {r} LOGIN PASSWORD '{p}'"],
            {"role": True},
            'ALTER ROLE "{r}" REPLICATION',
        ),
        (
            [PUBLISH, "CREATE ROLE {r} LOGIN REPLICATION PASSWORD '{p}'"],
            {"role": True},
            'GRANT SELECT ON "public"."a" TO "{r}"',
        ),
        ([], {"database": "none"}, "the database cannot be reached"),
        (
            ["CREATE ROLE {r} LOGIN PASSWORD 'another'"],
            {"role": True},
            'failed for user "{r}": is the file of the key password right?',
        ),
        (
            ["CREATE ROLE {r} LOGIN PASSWORD '{p}'"],
            {"role": True, "password": None},
            'refuses the login: password authentication failed for user "{r}": is the key password missing?',
        ),
    ],
)
async def test_a_trial_names_what_is_missing(
    shop: Shop, statements: list[str], fields: dict[str, Any], error: str
) -> None:
    role = f"r_{shop.database}"
    shop.sql("CREATE TABLE a (id int PRIMARY KEY, n int)", *(each.format(r=role, p=PASSWORD) for each in statements))
    url = shop.config().url
    if fields.pop("role", False):
        fields["url"] = url.replace(f"//{USER}@", f"//{role}@")
    if database := fields.pop("database", None):
        fields["url"] = url.replace(shop.database, database)
    source = PostgresSource(shop.config(**fields), SystemClock())
    await SourceRunner([source]).try_once(nothing)
    assert error.format(r=role) in (source.health.error or "")


async def test_a_trial_shows_rows_and_leaves_no_slot(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders SELECT n, '' FROM generate_series(1, 100) n", PUBLISH)
    found: list[str] = []

    async def sink(datasets: Sequence[Representation], *, source: str) -> None:
        found.extend(each.endpoint for each in datasets)

    source = PostgresSource(shop.config(), SystemClock())
    await SourceRunner([source]).try_once(sink)
    assert source.health.error is None
    assert len(found) == 20
    assert shop.sql("SELECT FROM pg_replication_slots WHERE database = current_database()") == []


# Outboxes


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


async def test_an_outbox_goes_on_within_what_it_has_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "AT_ONCE", 10)
    of_outbox(shop)
    shop.sql("INSERT INTO outbox (item, payload) SELECT n % 50, to_jsonb(n) FROM generate_series(1, 1000) n")
    for _ in range(5):
        async with shop.running():

            async def is_on_the_way() -> bool:
                return bool(await shop.store.reader.positions("shop"))

            await shop.until(is_on_the_way)
    async with shop.running():
        await shop.until_rows({f"/shop/{n % 50}": n for n in range(951, 1001)})
        assert [len(await shop.store.reader.versions(f"/shop/{n}")) for n in range(50)] == [
            await shop.store.reader.count(f"/shop/{n}") for n in range(50)
        ]


async def test_an_outbox_of_another_server_is_read_from_its_beginning(shop: Shop) -> None:
    of_outbox(shop)
    shop.sql("INSERT INTO outbox (item, payload) VALUES ('a', '1')")
    async with shop.running():
        await shop.until_rows({"/shop/a": 1})
    await shop.move("outbox public.outbox", lambda position: f"77-1 {position.split()[1]}")
    shop.sql("INSERT INTO outbox (item, payload) VALUES ('b', '1')")
    async with shop.running():
        await shop.until_rows({"/shop/a": 1, "/shop/b": 1})
        assert shop.intake.resets == 1
        assert len(await shop.store.reader.versions("/shop/a")) == 1


async def test_applied_rows_of_an_outbox_are_deleted(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "DELETE_S", 0.0)
    of_outbox(shop, delete_applied=True, every=0.1)
    async with shop.running():
        shop.sql("INSERT INTO outbox (item, payload) VALUES ('a', '1'), ('b', '2')")
        await shop.until_rows({"/shop/a": 1, "/shop/b": 2})

        async def is_empty() -> bool:
            return shop.sql("SELECT FROM outbox") == []

        await shop.until(is_empty)


async def test_without_notify_an_outbox_is_read_now_and_then(shop: Shop) -> None:
    of_outbox(shop, every=0.1)
    shop.sql("DROP TRIGGER notify ON outbox")
    async with shop.running():
        shop.sql("INSERT INTO outbox (item, payload) VALUES ('a', '1')")
        await shop.until_rows({"/shop/a": 1})


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT", "there is no table public.outbox (key: outbox)"),
        ("CREATE TABLE outbox (nr int)", "public.outbox has no id"),
        ("CREATE TABLE outbox (id int)", "ADD COLUMN tx xid8 NOT NULL DEFAULT pg_current_xact_id()"),
    ],
)
async def test_a_trial_of_an_outbox_names_what_is_missing(shop: Shop, statement: str, error: str) -> None:
    shop.sql(statement)
    source = PostgresSource(shop.config(**OUTBOX_FIELDS), SystemClock())
    await SourceRunner([source]).try_once(nothing)
    assert error in (source.health.error or "")


# Suggestions


async def test_a_table_is_suggested_with_the_statements_that_are_missing(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shop.sql(ORDERS, "CREATE TABLE lines (id int, nr int, PRIMARY KEY (id, nr))", "CREATE TABLE log (text text)")
    given = shop.config()
    assert given.password is not None
    answers = [f"password={given.password.file}", "publication=shop"]
    draft = await suggest_table(given.url, answers, "shop", json=False)
    shown = capsys.readouterr().out
    publish = 'CREATE PUBLICATION shop FOR TABLE "public"."lines", "public"."orders";'
    assert publish in shown
    assert "log has no primary key: it is left out" in shown
    shop.sql(publish, "INSERT INTO orders VALUES (1, 'a')", "INSERT INTO lines VALUES (1, 2)")
    add_table(tmp_path / "diem.toml", draft.name, draft.commented)
    (table,) = load(tmp_path / "diem.toml").source
    assert isinstance(table, PostgresConfig)
    shop.fields = {**table.model_dump(include=table.model_fields_set), "slot": shop.config().slot}
    async with shop.running():
        await shop.until_rows(
            {
                "/shop/orders/1": {"id": 1, "state": "a", "total": None, "note": None},
                "/shop/lines/1/2": {"id": 1, "nr": 2},
            }
        )
    with pytest.raises(UnusableFile, match="cannot be reached"):
        await suggest_table(given.url + "x", answers, None, json=True)
