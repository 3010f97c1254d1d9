"""Avro as JSON."""

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import orjson
import pytest

from services.data.errors import InvalidDataset
from services.data.sources.kafka.avro import decoder


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(fields)]}


def logical(kind: str, of: str, **more: Any) -> dict[str, Any]:
    return {"type": of, "logicalType": kind, **more}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("long", 2**62, 2**62),
        (["null", "string"], None, None),
        ({"type": "array", "items": "double"}, [1.5], [1.5]),
        ({"type": "map", "values": "bytes"}, {"a": b"\0\1"}, {"a": "AAE="}),
        (logical("decimal", "bytes", precision=9, scale=2), Decimal("10.50"), "10.50"),
        (logical("timestamp-millis", "long"), datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        (logical("local-timestamp-millis", "long"), datetime(2026, 1, 1), "2026-01-01T00:00:00"),  # noqa: DTZ001
        (logical("date", "int"), date(2026, 1, 1), "2026-01-01"),
        (logical("uuid", "string"), UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ],
)
def test_a_value_is_json(kind: Any, value: Any, expected: Any) -> None:
    schema = record(kind, "string")
    made = decoder(orjson.dumps(schema).decode(), {})(encoded(schema, {"f0": value, "f1": "x"}))
    assert made == {"f0": expected, "f1": "x"}
    orjson.dumps(made)


def test_a_schema_may_refer_to_others() -> None:
    place = {"type": "record", "name": "Place", "namespace": "a", "fields": [{"name": "city", "type": "string"}]}
    outer = record("a.Place")
    whole = encoded(record(place), {"f0": {"city": "Athens"}})
    made = decoder(orjson.dumps(outer).decode(), {"a.Place": orjson.dumps(place).decode()})(whole)
    assert made == {"f0": {"city": "Athens"}}


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: text + b"\0", lambda _: b""])
def test_other_bytes_are_refused(change: Any) -> None:
    schema = record("string", "long")
    with pytest.raises(InvalidDataset, match="no Avro of its schema"):
        decoder(orjson.dumps(schema).decode(), {})(change(encoded(schema, {"f0": "abc", "f1": 1})))


@pytest.mark.parametrize("text", ["{", '{"type":"nothing"}', '"a.Unknown"'])
def test_a_schema_that_cannot_be_used_is_a_fault_of_its_records(text: str) -> None:
    with pytest.raises(InvalidDataset, match="its schema cannot be used"):
        decoder(text, {})
