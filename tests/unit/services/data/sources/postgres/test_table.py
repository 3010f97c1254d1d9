"""The table of a source of PostgreSQL in diem.toml."""

from pathlib import Path

import pytest

from services.data.sources.config import BadConfig, load
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.source import Claim
from tests.unit.services.data.sources.toml import write

TABLE = """
[[source]]
type = "postgres"
name = "Web.shop"
url = "postgresql://diem@db.example/shop"
publication = "diem"
endpoint = "/shop/{table}/{id}"
"""


def loaded(tmp_path: Path, text: str) -> PostgresConfig:
    (table,) = load(write(tmp_path, text)).source
    assert isinstance(table, PostgresConfig)
    return table


def test_tables_have_keys_of_their_own(tmp_path: Path) -> None:
    table = loaded(
        tmp_path,
        TABLE
        + """
ttl = 60
[source.tables.orders]
[source.tables."sales.prices"]
endpoint = "/prices/{area}"
kind = "series"
value = "price"
time = "at"
unit = "EUR/MWh"
resolution = "PT1H"
""",
    )
    assert table.slot_name == "diem_web_shop"
    assert table.claims == [Claim("/prices", below=True), Claim("/shop/orders", below=True)]
    orders, prices = table.of_table("public", "orders"), table.of_table("sales", "prices")
    assert orders is not None
    assert prices is not None
    assert (orders.endpoint, orders.kind, orders.ttl) == ("/shop/{table}/{id}", "document", 60)
    assert (prices.endpoint, prices.kind, prices.ttl) == ("/prices/{area}", "series", 60)
    assert table.of_table("public", "prices") is None


def test_a_url_may_have_several_hosts(tmp_path: Path) -> None:
    hosts = "one.example:5433,two.example"
    assert hosts in loaded(tmp_path, TABLE.replace("db.example", hosts)).url


def test_without_tables_all_of_the_publication_are_read(tmp_path: Path) -> None:
    table = loaded(tmp_path, TABLE)
    assert table.claims == [Claim("/shop", below=True)]
    assert table.of_table("public", "anything") is not None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("diem@db", "diem:secret@db", 'url: the password is in a file: password = { file = "..." }'),
        ("postgresql://", "mysql://", "url: expected postgresql://user@host/database"),
        ("db.example/shop", "db.example", "url: expected postgresql://user@host/database"),
        ('publication = "diem"', "", "exactly one of publication and outbox is needed"),
        ('publication = "diem"', 'outbox = "o"\nslot = "s"', "slot needs a publication"),
        ('publication = "diem"', 'publication = "diem"\nevery = 1.0', "every needs an outbox"),
        ('publication = "diem"', 'publication = "diem"\nenvelope = "debezium"', "rows have no envelope"),
        ('publication = "diem"', 'publication = "a b"', "publication: expected a name without quotes"),
        ('"diem"', '"diem"\nslot = "Diem"', "slot: expected at most 63 small letters, digits and _"),
        ('"diem"', '"diem"\nkind = "series"\nunit = "1"\nresolution = "PT1H"', "kind = 'series' needs time"),
        ('{id}"', '{id}"\n[source.tables."a.b.c"]', "tables: expected table or schema.table"),
        ('{id}"', '{id}"\n[source.tables.a]\nendpoimt = "/a"', "tables: public.a: unknown field `endpoimt`"),
        ('{id}"', '{id}"\n[source.tables.a]\nkind = "text"', "tables: public.a: kind: expected"),
        ('{id}"', '{id}"\n[source.tables.a]\nkind = "series"', "public.a: kind = 'series' needs unit and resolution"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(BadConfig) as found:
        loaded(tmp_path, TABLE.replace(old, new, 1))
    assert expected in str(found.value)
