"""Topics of other forms than plain JSON: Avro with a registry, Debezium's change events, CloudEvents."""

import asyncio
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from deploy.cli.options import UnusableFile
from deploy.cli.suggest import add_table
from deploy.cli.suggest_topic import commented, suggest_topic
from diem.kafka.config import KafkaOptions
from services.data.sources.config import load
from services.data.sources.kafka.table import KafkaTable
from tests.support.kafka_source import create_topic, produce, producer, reading, table_of
from tests.support.schema_registry import SchemaRegistry, framed
from tests.unit.services.data.sources.kafka.test_avro import encoded
from tests.unit.services.data.sources.kafka.test_protobuf import ORDER, PLACE, text, written

ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "state", "type": ["null", "string"], "default": None},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "created", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
    ],
}
KEY: dict[str, Any] = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.public.orders",
    "fields": [{"name": "id", "type": "int"}],
}
ENVELOPE: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
"""As Debezium's connector for PostgreSQL registers it, without the fields of the transaction and most of the source."""


def row(number: int, state: str, total: Any = "10.50") -> dict[str, Any]:
    return {"id": number, "state": state, "total": total, "created": 1_767_225_600_000_000}


def event(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1_767_225_600_000}


CHANGES: list[tuple[str, Any, Any]] = [
    ("c", None, row(1, "new")),
    ("c", None, row(2, "new")),
    ("u", row(1, "new"), row(1, "paid")),
    ("d", row(2, "new"), None),
]
"""Of two rows, the second of which is deleted."""
EXPECTED = {"/rows/1": row(1, "paid"), "/rows/2": None}


def schema_around(payload: Any) -> dict[str, Any]:
    """Return what Kafka Connect's JSON converter writes with ``schemas.enable``."""
    return {"schema": {"type": "struct", "name": "shop.public.orders.Envelope", "fields": []}, "payload": payload}


@pytest.mark.parametrize("with_schema", [False, True])
async def test_changes_of_debezium_in_json_are_rows(
    kafka_options: KafkaOptions, tmp_path: Path, *, with_schema: bool
) -> None:
    topic = await create_topic(kafka_options, "shop.public.orders", 1)
    around = schema_around if with_schema else (lambda payload: payload)
    async with producer(kafka_options) as made:
        for op, before, after in CHANGES:
            key = orjson.dumps(around({"id": (after or before)["id"]}))
            await made.send(topic, orjson.dumps(around(event(op, before, after))), key=key)
            if op == "d":
                await made.send(topic, None, key=key)
        await made.flush()
    async with reading(table_of(kafka_options, topic, endpoint="/rows/{id}", envelope="debezium"), tmp_path) as running:
        await running.until_content({"/rows/1": EXPECTED["/rows/1"]})
        await running.caught_up()
        assert await running.content("/rows/2") is None
        assert running.store.index.heads["/rows/2"].gone


async def write_avro(options: KafkaOptions, topic: str, key_id: int, value_id: int) -> None:
    async with producer(options) as made:
        for op, before, after in CHANGES:
            key = framed(key_id, encoded(KEY, {"id": (after or before)["id"]}))
            parts = [each and {**each, "total": _decimal(each["total"])} for each in (before, after)]
            await made.send(topic, framed(value_id, encoded(ENVELOPE, event(op, *parts))), key=key)
            if op == "d":
                await made.send(topic, None, key=key)
        await made.flush()


def _decimal(text: str) -> Any:
    return Decimal(text)


AVRO: dict[str, Any] = {
    "endpoint": "/rows/{id}", "envelope": "debezium", "format": "avro", "key_format": "avro"
}  # fmt: skip


async def test_changes_of_debezium_in_avro_are_rows(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "shop.public.orders", 1)
    async with SchemaRegistry().serving() as registry:
        ids = [registry.register(orjson.dumps(each).decode(), subject=each["name"]) for each in (KEY, ENVELOPE)]
        await write_avro(kafka_options, topic, *ids)
        registry.status = 503
        table = table_of(kafka_options, topic, registry=registry.url, **AVRO)
        async with reading(table, tmp_path) as running:
            await running.failed("answers with status 503")
            assert running.store.index.names == []
            registry.status = 0
            async with asyncio.timeout(20):
                while await running.content("/rows/1") != EXPECTED["/rows/1"]:
                    await asyncio.sleep(0.02)
            await running.caught_up()
            assert await running.content("/rows/2") is None
            assert running.intake.records == 5


@pytest.mark.skipif("SCHEMA_REGISTRY" not in os.environ, reason="SCHEMA_REGISTRY is the URL of a real one")
async def test_a_real_registry_has_the_schemas(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    """As of Apicurio: ``http://127.0.0.1:8080/apis/ccompat/v7``."""
    url = os.environ["SCHEMA_REGISTRY"]
    topic = await create_topic(kafka_options, "shop.public.orders", 1)
    async with httpx.AsyncClient(trust_env=False) as http:
        ids = []
        for part, schema in (("key", KEY), ("value", ENVELOPE)):
            body = {"schema": orjson.dumps(schema).decode()}
            answer = await http.post(f"{url}/subjects/{topic}-{part}/versions", json=body)
            ids.append(answer.raise_for_status().json()["id"])
    await write_avro(kafka_options, topic, *ids)
    async with reading(table_of(kafka_options, topic, registry=url, **AVRO), tmp_path) as running:
        await running.until_content({"/rows/1": EXPECTED["/rows/1"]})
        await running.caught_up()
        assert await running.content("/rows/2") is None


async def test_cloudevents_of_both_modes_are_their_data(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "events", 1)
    attributes = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.changed"}
    structured = {**attributes, "subject": "1", "data": {"total": 10}}
    binary = [(f"ce_{name}", text.encode()) for name, text in {**attributes, "subject": "2"}.items()]
    await produce(
        kafka_options, topic, [("a", structured)], headers=[("content-type", b"application/cloudevents+json")]
    )
    await produce(kafka_options, topic, [("b", {"total": 20})], headers=binary)
    table = table_of(kafka_options, topic, endpoint="/t/{header/ce_subject}", envelope="cloudevents")
    async with reading(table, tmp_path) as running:
        await running.until_content({"/t/1": {"total": 10}, "/t/2": {"total": 20}})


async def test_text_bytes_notices_and_points_are_kinds_of_their_own(
    kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    # The records are older than the retention of a topic, whose first check may come at any time.
    topic = await create_topic(kafka_options, "kinds", 1, retention_ms="-1")
    await produce(kafka_options, topic, [("a", b"1.5"), ("a", b"2.5")], timestamp_ms=1_767_225_600_000)
    kinds: dict[str, dict[str, Any]] = {
        "text": {"format": "text", "kind": "bytes", "media_type": "text/plain"},
        "points": {"kind": "series", "unit": "MW", "resolution": "irregular"},
        "notice": {"kind": "notice"},
    }
    for name, fields in kinds.items():
        table = table_of(kafka_options, topic, endpoint=f"/{name}/{{key}}", **fields)
        async with reading(table, tmp_path / name) as running:
            await running.caught_up()
            stored = await running.store.reader.current(f"/{name}/a")
            expected = {"text": b"2.5", "notice": b"{}"}.get(name, stored.content)
            assert (stored.content, running.intake.records) == (expected, 2)
            if name == "points":
                assert b'"value":2.5' in stored.content


async def test_a_table_is_suggested_that_reads_the_topic(
    kafka_options: KafkaOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = await create_topic(kafka_options, "stock", 2)
    await produce(kafka_options, topic, [("a", {"n": 1}), ("b", {"n": 2}), ("b", None)])
    place = f"kafka://{kafka_options.bootstrap_servers}/{topic}"
    draft = await suggest_topic(place, [], "stock", json=False)
    shown = capsys.readouterr().out
    assert '/stock/a  {"n":1}' in shown
    assert "1 of 3 records have no value: they end their endpoints" in shown
    add_table(tmp_path / "diem.toml", draft.name, commented(draft))
    (table,) = load(tmp_path / "diem.toml").source
    assert isinstance(table, KafkaTable)
    async with reading(table, tmp_path) as running:
        await running.until_content({"/stock/a": {"n": 1}, "/stock/b": None})
    with pytest.raises(UnusableFile, match="there is no topic nothing"):
        await suggest_topic(f"kafka://{kafka_options.bootstrap_servers}/nothing", [], None, json=True)
    with pytest.raises(UnusableFile, match="security_protocol"):
        await suggest_topic(place, ["security_protocol=TLS"], None, json=True)


async def test_messages_of_protocol_buffers_are_documents(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "messages", 1)
    async with SchemaRegistry().serving() as registry:
        registry.register(text(PLACE), kind="PROTOBUF", subject="place")
        to_place = {"name": "place.proto", "subject": "place", "version": 1}
        number = registry.register(text(ORDER), kind="PROTOBUF", subject="order", references=[to_place])
        made = written()(order_id=7, place={"city": "Athens"}).SerializeToString()
        # Its type is the second one of the file.
        await produce(kafka_options, topic, [("a", framed(number, b"\x02\x02" + made))])
        table = table_of(kafka_options, topic, endpoint="/t/{order_id}", format="protobuf", registry=registry.url)
        async with reading(table, tmp_path) as running:
            await running.until_content({"/t/7": {"order_id": "7", "place": {"city": "Athens"}}})
        assert registry.requests[0] == f"/schemas/ids/{number}?format=serialized"
