"""The table of a topic, by a sample of its records."""

from typing import Any

import orjson
import pytest

from services.data.sources.kafka.suggestion import TopicSample, suggest
from tests.unit.services.data.sources.kafka.test_table import table


def sample(key: Any, value: Any, **headers: str) -> TopicSample:
    if isinstance(key, str):
        key = key.encode()
    texts = [each if each is None or isinstance(each, bytes) else orjson.dumps(each) for each in (key, value)]
    return TopicSample(texts[0], texts[1], headers)


def around(payload: Any) -> dict[str, Any]:
    return {"schema": {}, "payload": payload}


CHANGE = {"op": "u", "before": None, "after": {"id": 1, "total": 2}}


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([sample("a", {"n": 1}), sample("b", None)], {"endpoint": "/orders/{key}"}),
        ([sample("order-1", {"n": 1})], {"endpoint": "/orders/{key}"}),
        ([sample('"a"', {"n": 1})], {"key_format": "json", "endpoint": "/orders/{key}"}),
        ([sample({"id": 1, "of": 2}, {"n": 1})], {"endpoint": "/orders/{key/id}/{key/of}"}),
        ([sample({"id": 1}, CHANGE)], {"envelope": "debezium", "endpoint": "/orders/{id}"}),
        ([sample(around({"id": 1}), around(CHANGE))], {"envelope": "debezium", "endpoint": "/orders/{id}"}),
        ([sample(None, {"n": 1, "id": "x"})], {"endpoint": "/orders/{id}"}),
        ([sample(None, {"n": 1, "customer_id": 7})], {"endpoint": "/orders/{customer_id}"}),
        (
            [sample("a", {"specversion": "1.0", "data": {}})],
            {"envelope": "cloudevents", "endpoint": "/orders/{key}"},
        ),
        ([sample("a", {"n": 1}, ce_specversion="1.0")], {"envelope": "cloudevents", "endpoint": "/orders/{key}"}),
        (
            [sample("a", b"x y")],
            {"format": "text", "kind": "bytes", "media_type": "text/plain", "endpoint": "/orders/{key}"},
        ),
        (
            [sample("a", b"\xff\xfe")],
            {"format": "bytes", "kind": "bytes", "media_type": "application/octet-stream", "endpoint": "/orders/{key}"},
        ),
        ([sample("a", b"\0\0\0\0\1{}")], {"endpoint": "/orders/{key}"}),
    ],
)
def test_the_fields_follow_from_the_sample(samples: list[TopicSample], expected: dict[str, str]) -> None:
    made = suggest("shop.orders", samples, {})
    assert (made.fields, made.problem) == (expected, "")
    table(**made.fields)


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ([], "no record with a value"),
        ([sample("a", None)], "no record with a value"),
        ([sample(None, {"n": 1.5})], "give --set endpoint="),
        ([sample(None, {"id": "a/b"})], "give --set endpoint="),
        ([sample(b"\xff", {"n": 1.5})], "give --set endpoint="),
        ([sample("a", b"\0\0\0\0\1\2ab")], "--set registry=URL"),
    ],
)
def test_what_is_missing_is_named(samples: list[TopicSample], problem: str) -> None:
    assert problem in suggest("t", samples, {}).problem


def test_an_answer_is_taken_as_it_is() -> None:
    made = suggest("t", [sample(None, {"n": 1.5})], {"endpoint": "/x/{n}"})
    assert (made.fields, made.problem) == ({"endpoint": "/x/{n}"}, "")


def test_a_member_that_may_not_be_unique_is_unsure() -> None:
    made = suggest("t", [sample(None, {"id": 1}), sample(None, {"id": 1})], {})
    assert made.unsure == ["endpoint: the member id, of which the sample has 1 in 2 records"]
