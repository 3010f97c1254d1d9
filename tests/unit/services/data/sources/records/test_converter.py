"""Records as changes: names, kinds, envelopes, and the reasons of refusals."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from services.data.errors import DatasetTooLarge, InvalidDataset, MalformedBody
from services.data.kinds import DOCUMENT, NOTICE, Representation
from services.data.kinds.prefixes import Prefix, Prefixes
from services.data.kinds.series import Point
from services.data.sources.records.converter import RecordConverter, SeriesPoint
from services.data.sources.records.record import MISSING, Record
from services.data.sources.records.table import RecordTable
from services.data.sources.source import Claim
from services.data.store import Deletion


class TopicTable(RecordTable):
    origin = ("topic",)


def table(**fields: Any) -> RecordTable:
    return TopicTable.model_validate({"type": "test", "name": "orders", "endpoint": "/orders/{id}", **fields})


def record(value: Any, key: Any = None, **fields: Any) -> Record:
    return Record("1", value, key, names={"topic": "orders"}, **fields)


def converted(value: Any, key: Any = None, /, **fields: Any) -> Any:
    return RecordConverter(table(**fields)).convert(record(value, key))


def content(change: Any) -> Any:
    assert isinstance(change, Representation)
    return orjson.loads(change.content)


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        ("/orders/{id}", "/orders/7"),
        ("/orders/{value/id}", "/orders/7"),
        ("/orders/{customer/name}/{lines/1/sku}", "/orders/ann/b-2"),
        ("/orders/{key}", "/orders/k/1"),
        ("/orders/{header/kind}-{id}", "/orders/new-7"),
        ("/of/{topic}/{paid}", "/of/orders/true"),
        ("/orders", "/orders"),
    ],
)
def test_names_are_made_of_parts_of_a_record(endpoint: str, name: str) -> None:
    value = {"id": 7, "customer": {"name": "ann"}, "lines": [{}, {"sku": "b-2"}], "paid": True}
    made = RecordConverter(table(endpoint=endpoint)).convert(record(value, "k/1", headers={"kind": "new"}))
    assert isinstance(made, Representation)
    assert (made.endpoint, made.media_type, content(made)) == (name, DOCUMENT, value)
    assert any(claim.covers(name) for claim in table(endpoint=endpoint).claims)


@pytest.mark.parametrize(
    ("value", "key", "fields", "reason"),
    [
        ({"x": 1}, None, {}, r"\{id\} is missing"),
        ({"id": 1.5}, None, {}, "neither a text nor a whole number"),
        ({"id": "a b"}, None, {}, "is not an endpoint name"),
        ({"id": ".."}, None, {}, "is not an endpoint name"),
        ({"id": ""}, None, {}, "is not an endpoint name"),
        ({"id": "a/b", "n": 1}, None, {"endpoint": "/orders/{id}/{n}"}, "has a slash"),
        ({"id": 1}, None, {"value": "total"}, "total is missing"),
        ({"id": 1}, None, {"endpoint": "/orders/{key}"}, r"\{key\} is missing"),
        ({"id": 1, "v": b"x"}, None, {}, "no document"),
        ({"id": 1}, None, {"envelope": "debezium"}, "no change event of Debezium"),
        ({"op": "t"}, None, {"envelope": "debezium"}, "truncated"),
        ({"id": 1}, None, {"envelope": "cloudevents"}, "no CloudEvent"),
    ],
)
def test_a_record_that_cannot_be_stored_says_why(value: Any, key: Any, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidDataset, match=reason):
        converted(value, key, **fields)


def test_the_text_of_a_document_is_checked_as_that_of_a_put() -> None:
    kept = RecordConverter(table(), max_bytes=20)
    good = kept.convert(Record("1", {"id": 1, "a": 2}, raw=b'{ "id": 1, "a": 2 }'))
    assert isinstance(good, Representation)
    assert good.content == b'{"id":1,"a":2}'
    with pytest.raises(InvalidDataset, match="twice"):
        kept.convert(Record("1", {"id": 1}, raw=b'{"id":2,"id":1}'))
    with pytest.raises(DatasetTooLarge):
        kept.convert(Record("1", {"id": 1, "text": "x" * 20}))
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(MalformedBody, match="deep"):
        kept.convert(Record("1", {"id": 1, "v": deep}))


def test_only_wanted_records_make_changes() -> None:
    wanted = {"where": {"status": ["open", "paid"], "gone": ""}}
    assert converted({"id": 1, "status": "closed"}, **wanted) is None
    assert converted({"id": 1, "status": "open", "gone": True}, **wanted) is None
    assert content(converted({"id": 1, "status": "paid"}, **wanted)) == {"id": 1, "status": "paid"}


def test_a_record_without_a_value_ends_the_endpoint_of_its_key() -> None:
    assert converted(MISSING, {"id": 7}) == Deletion("/orders/7", missing_ok=True)
    assert converted(MISSING, "7", endpoint="/orders/{key}") == Deletion("/orders/7", missing_ok=True)
    assert content(converted(None, "7", endpoint="/orders/{key}")) is None, "the document null is none"


def test_points_have_times_and_numbers() -> None:
    series = {"kind": "series", "unit": "celsius", "resolution": "irregular", "value": "t", "endpoint": "/plant/{id}"}
    kept = RecordConverter(table(**series, time="at"))
    for at in ("2026-01-01T00:00:05.25Z", "2026-01-01T01:00:05+01:00"):
        made = kept.convert(record({"id": 1, "t": "21.5", "at": at}))
        assert made == SeriesPoint("/plant/1", Point(1_767_225_605, 21.5))
    by_record = RecordConverter(table(**series)).convert(record({"id": 1, "t": None}, time_ms=1_767_225_605_999))
    assert by_record == SeriesPoint("/plant/1", Point(1_767_225_605, None))
    epoch = RecordConverter(table(**series, time="at", time_format="epoch_ms"))
    point = SeriesPoint("/plant/1", Point(1_767_225_605, 2))
    assert epoch.convert(record({"id": 1, "t": 2, "at": 1_767_225_605_250})) == point
    for value, reason in (({"t": "x"}, "could not convert"), ({"t": True}, "no number"), ({"t": 1}, "at is no time")):
        with pytest.raises(InvalidDataset, match=reason):
            kept.convert(record({"id": 1, **value}))
    grid = RecordConverter(table(**{**series, "resolution": "PT1M"}, time="at"))
    with pytest.raises(InvalidDataset, match="grid of PT1M"):
        grid.convert(record({"id": 1, "t": 1, "at": "2026-01-01T00:00:05Z"}))


def test_debezium_events_are_the_rows_after_them() -> None:
    fields = {"envelope": "debezium"}
    row = {"id": 7, "total": 5}
    for op in "cru":
        event = {"before": None, "after": row, "op": op, "source": {}}
        assert content(converted(event, {"id": 7}, **fields)) == row
        assert (
            content(converted({"schema": {}, "payload": event}, {"schema": {}, "payload": {"id": 7}}, **fields)) == row
        )
    gone = Deletion("/orders/7", missing_ok=True)
    assert converted({"before": row, "after": None, "op": "d"}, None, **fields) == gone
    assert converted({"before": None, "after": None, "op": "d"}, {"id": 7}, **fields) == gone
    assert converted(MISSING, {"schema": {}, "payload": {"id": 7}}, **fields) == gone
    assert converted({"op": "m", "message": {}}, None, **fields) is None
    assert converted({"databaseName": "shop", "ddl": "CREATE"}, None, **fields) is None


def test_cloudevents_are_their_data_with_attributes_as_headers() -> None:
    fields: dict[str, Any] = {"envelope": "cloudevents", "endpoint": "/orders/{header/ce_subject}"}
    event = {"specversion": "1.0", "type": "paid", "source": "/shop", "id": "1", "subject": "7", "data": {"total": 5}}
    assert content(converted(event, **fields)) == {"total": 5}
    binary = Record("1", {"total": 6}, headers={"ce_specversion": "1.0", "ce_subject": "7"})
    assert content(RecordConverter(table(**fields)).convert(binary)) == {"total": 6}
    assert converted({**event, "type": "seen"}, **fields, where={"header/ce_type": "paid"}) is None


def test_notices_have_the_url_of_their_prefix() -> None:
    rules = Prefixes({"/orders": Prefix("/orders", "notice", "https://shop.example/api{endpoint}")})
    made = RecordConverter(table(kind="notice"), rules).convert(record({"id": 7}))
    assert isinstance(made, Representation)
    assert (made.media_type, b"https://shop.example/api/orders/7" in made.content) == (NOTICE, True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"endpoint": "/{id}"}, "fixed first segment"),
        ({"endpoint": "orders/{id}"}, "fixed first segment"),
        ({"endpoint": "/orders/{id}?"}, "segments of letters"),
        ({"kind": "series"}, "needs unit and resolution"),
        ({"unit": "MW"}, "unit needs kind = 'series'"),
        ({"media_type": "text/plain"}, "media_type needs kind = 'bytes'"),
        ({"kind": "bytes", "media_type": "text"}, "expected a media type"),
        ({"kind": "notice", "value": "a"}, "a notice has no value"),
    ],
)
def test_a_wrong_table_says_why(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        table(**fields)


def test_claims_are_the_fixed_part_of_a_template() -> None:
    assert table(endpoint="/shop/orders/new-{id}").claims == [Claim("/shop/orders", below=True)]
    assert table(endpoint="/shop").claims == [Claim("/shop")]
