"""The keys of a source of topics."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.data.sources.kafka.table import KafkaTable

SASL = {"security_protocol": "SASL_SSL", "sasl_username": "u", "sasl_password_file": "p"}


def table(**fields: Any) -> KafkaTable:
    own = {"type": "kafka", "name": "t", "endpoint": "/t/{key}", "bootstrap_servers": "b:9092", "topics": ["t"]}
    return KafkaTable.model_validate({**own, **fields})


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"topics": []}, "give either topics or a pattern"),
        ({"pattern": "t.*"}, "give either topics or a pattern"),
        ({"topics": ["a b"]}, "a topic has at most 249 letters"),
        ({"topics": [], "pattern": "("}, "expected a regular expression"),
        ({"bootstrap_servers": "http://b"}, "brokers are host:port"),
        ({"start": "2026-01-01T00:00:00"}, "the time needs an offset"),
        ({"start": "soon"}, "expected earliest, latest, or a time"),
        ({"security_protocol": "SASL_SSL"}, "need sasl_username and sasl_password_file"),
        ({"sasl_username": "u", "sasl_password_file": "p"}, "the other way round"),
        ({**SASL, "sasl_password_file": None}, "need sasl_username and sasl_password_file"),
        ({"key_file": "k"}, "key_file needs certificate_file"),
        ({"kind": "series"}, "needs unit and resolution"),
    ],
)
def test_a_fault_names_what_is_expected(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        table(**fields)


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({}, "text"),
        ({"endpoint": "/t/{key/id}"}, "json"),
        ({"endpoint": "/t/{id}"}, "json"),
        ({"envelope": "debezium"}, "json"),
        ({"key_format": "bytes"}, "bytes"),
    ],
)
def test_keys_are_text_where_they_are_names(fields: dict[str, Any], keys: str) -> None:
    assert table(**fields).format_of_keys == keys


def test_sasl_is_complete() -> None:
    assert table(**SASL).sasl_username == "u"


def test_a_pattern_matches_whole_names() -> None:
    made = table(topics=[], pattern=r"orders\..*")
    assert [made.covers(name) for name in ("orders.eu", "orders", "my.orders.eu")] == [True, False, False]


@pytest.mark.parametrize(
    ("fields", "uses"),
    [
        ({}, True),
        ({"endpoint": "/t/{id}"}, False),
        ({"endpoint": "/t/{id}", "where": {"key/kind": "a"}}, True),
        ({"endpoint": "/t/{id}", "envelope": "debezium"}, True),
        ({"endpoint": "/t/{keys}"}, False),
    ],
)
def test_keys_are_decoded_where_they_are_used(fields: dict[str, Any], uses: bool) -> None:
    assert table(**fields).uses_key is uses


def test_a_time_is_in_unix_ms() -> None:
    assert table(start="2026-01-01T01:00:00+01:00").starts_at == 1_767_225_600_000
    assert table(start="latest").starts_at == "latest"
