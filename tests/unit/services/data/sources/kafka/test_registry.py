"""Schemas of a registry: read once, followed to those that they refer to, and its faults."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest

from diem.errors import ConfigurationError
from services.data.errors import InvalidDataset
from services.data.sources.kafka import registry as module
from services.data.sources.kafka.formats import PLAIN, ValueFormat
from services.data.sources.kafka.registry import UnknownSchema, open_registered
from services.data.sources.records.attempts import InputFailed
from tests.support.schema_registry import SchemaRegistry, framed
from tests.unit.services.data.sources.kafka.test_avro import encoded, record
from tests.unit.services.data.sources.kafka.test_table import table

TEXT = record("string")
VALUE = encoded(TEXT, {"f0": "x"})


def formats(url: str, **fields: Any) -> AbstractAsyncContextManager[tuple[ValueFormat, ValueFormat]]:
    return open_registered(table(format="avro", registry=url, **fields), url)


async def decoded(format_: ValueFormat, *texts: bytes) -> list[Any]:
    await format_.prepare(texts)
    return [format_.decode(each) for each in texts]


async def test_a_schema_is_read_once() -> None:
    async with SchemaRegistry().serving() as registry:
        number = registry.register(orjson.dumps(TEXT).decode())
        async with formats(registry.url) as (values, _):
            for _ in range(3):
                assert await decoded(values, framed(number, VALUE), framed(number, VALUE)) == [{"f0": "x"}] * 2
        assert registry.requests == [f"/schemas/ids/{number}"]


async def test_references_are_followed_in_the_order_of_their_needs() -> None:
    async with SchemaRegistry().serving() as registry:
        inner = {"type": "record", "name": "Inner", "fields": [{"name": "v", "type": "int"}]}
        middle = {"type": "record", "name": "Middle", "fields": [{"name": "inner", "type": "Inner"}]}
        registry.register(orjson.dumps(inner).decode(), subject="i")
        to_inner = {"name": "Inner", "subject": "i", "version": 1}
        registry.register(orjson.dumps(middle).decode(), subject="m", references=[to_inner])
        to_middle = {"name": "Middle", "subject": "m", "version": 1}
        number = registry.register(orjson.dumps(record("Middle")).decode(), subject="o", references=[to_middle])
        whole = {"type": "record", "name": "Middle", "fields": [{"name": "inner", "type": inner}]}
        content = encoded(record(whole), {"f0": {"inner": {"v": 1}}})
        async with formats(registry.url) as (values, _):
            assert await decoded(values, framed(number, content)) == [{"f0": {"inner": {"v": 1}}}]


async def test_a_circle_of_references_ends() -> None:
    async with SchemaRegistry().serving() as registry:
        to_itself = {"name": "S", "subject": "s", "version": 1}
        number = registry.register('"string"', references=[to_itself])
        async with formats(registry.url) as (values, _):
            assert await decoded(values, framed(number, b"\x02x")) == ["x"]


async def test_a_missing_schema_is_a_fault_of_its_records_and_is_looked_for_again() -> None:
    async with (
        SchemaRegistry().serving() as registry,
        formats(registry.url) as (values, _),
    ):
        with pytest.raises(UnknownSchema, match="the registry does not have the schema 1"):
            await decoded(values, framed(1, VALUE))
        registry.register(orjson.dumps(TEXT).decode())
        assert await decoded(values, framed(1, VALUE)) == [{"f0": "x"}]


@pytest.mark.parametrize(
    ("status", "text"),
    [(500, "answers with status 500"), (302, "status 302"), (401, "refuses .keys: registry_username")],
)
async def test_a_registry_that_does_not_answer_is_tried_again_later(status: int, text: str) -> None:
    async with SchemaRegistry().serving() as registry:
        registry.status = status
        async with formats(registry.url) as (values, _):
            with pytest.raises(InputFailed, match=text):
                await values.prepare([framed(1, VALUE)])


async def test_an_unreachable_registry_is_named() -> None:
    async with formats("http://127.0.0.1:9") as (values, _):
        with pytest.raises(InputFailed, match=r"the registry http://127\.0\.0\.1:9: "):
            await values.prepare([framed(1, VALUE)])


async def test_the_password_is_that_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    login = {"registry_username": "me", "registry_password_file": str(file)}
    async with SchemaRegistry().serving() as registry:
        registry.register('"string"')
        async with formats(registry.url, **login) as (values, _):
            await values.prepare([framed(1, b"\x02x")])
        assert registry.authorization == "Basic bWU6czNjcmV0"
        file.chmod(0o644)
        with pytest.raises(ConfigurationError, match="cannot be used"):
            async with formats(registry.url, **login):
                pass


async def test_schemas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCHEMAS", 2)
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 200)
    async with SchemaRegistry().serving() as registry:
        numbers = [registry.register('"string"', subject=str(n)) for n in range(4)]
        async with formats(registry.url) as (values, _):
            for number in numbers:
                await decoded(values, framed(number, b"\x02x"))
            assert len(values._decoders) == 2  # type: ignore[attr-defined]
            long = registry.register('{"type":"string","doc":"%s"}' % ("x" * 300))
            with pytest.raises(InvalidDataset, match="has more than 200 bytes"):
                await decoded(values, framed(long, b"\x02x"))


async def test_a_value_of_another_kind_names_the_keys() -> None:
    async with SchemaRegistry().serving() as registry:
        number = registry.register("{}", kind="JSON")
        async with formats(registry.url) as (values, _):
            with pytest.raises(InvalidDataset, match="its schema is JSON, not avro"):
                await decoded(values, framed(number, b"{}"))
            with pytest.raises(InvalidDataset, match="it has no id of a schema"):
                await decoded(values, b"{}")


async def test_json_with_the_id_of_a_schema_is_json() -> None:
    values = PLAIN["json"]
    assert await decoded(values, framed(1, b'{"a":1}'), b'{"a":1}') == [{"a": 1}] * 2
    assert values.raw(framed(1, b"[ 1]")) == b"[ 1]"
