"""Texts of PostgreSQL as JSON values."""

from typing import Any

import pytest

from services.data.errors import InvalidDataset
from services.data.sources.postgres.values import ColumnType, Types

KNOWN = {
    1007: ColumnType(1007, 0, 23, ","),
    1009: ColumnType(1009, 0, 25, ","),
    3807: ColumnType(3807, 0, 3802, ","),
    1231: ColumnType(1231, 0, 1700, ","),
    70001: ColumnType(70001, 23, 0, ","),  # a domain of integers
    70002: ColumnType(70002, 0, 70003, ","),  # an array of an enum
}


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (16, "t", True),
        (16, "f", False),
        (20, "-9223372036854775808", -(2**63)),
        (701, "1.5e+300", 1.5e300),
        (701, "NaN", "NaN"),
        (701, "-Infinity", "-Infinity"),
        (1700, "12.50", 12.5),
        (1700, "-3", -3),
        (1700, "NaN", "NaN"),
        (1700, "Infinity", "Infinity"),
        (1700, "1234567890123456", 1234567890123456),
        (1700, "1234567890123456.00", 1234567890123456),
        (1700, "0.10000000000000000001", "0.10000000000000000001"),
        (1700, "123456789012345678901234567890", "123456789012345678901234567890"),
        (1700, "0.1000000000000000000", 0.1),
        (114, ' {"a": [1, null]}', {"a": [1, None]}),
        (3802, '"text"', "text"),
        (17, "\\x00ff", "AP8="),
        (1114, "2026-01-02 03:04:05.678", "2026-01-02T03:04:05.678"),
        (1184, "2026-01-02 03:04:05+00", "2026-01-02T03:04:05Z"),
        (1184, "infinity", "infinity"),
        (1184, "0044-03-15 12:00:00+00 BC", "0044-03-15 12:00:00+00 BC"),
        (1082, "2026-01-02", "2026-01-02"),
        (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (70001, "7", 7),
        (70003, "happy", "happy"),
        (1007, "{1,NULL,3}", [1, None, 3]),
        (1007, "{}", []),
        (1007, "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
        (1007, "[0:1]={5,6}", [5, 6]),
        (1009, '{a,"b,c","d\\"e\\\\f","NULL",NULL,""}', ["a", "b,c", 'd"e\\f', "NULL", None, ""]),
        (1231, "{1.5,2}", [1.5, 2]),
        (3807, '{"{\\"a\\": 1}"}', [{"a": 1}]),
        (70002, "{sad,happy}", ["sad", "happy"]),
    ],
)
def test_a_text_is_the_json_value_of_its_type(type_: int, text: str, value: Any) -> None:
    made = Types(KNOWN).converter(type_)(text)
    assert (made, type(made)) == (value, type(value))


def test_bytes_are_bytes_where_they_are_the_content() -> None:
    assert Types({}, raw_bytes=True).converter(17)("\\x00ff") == b"\0\xff"


@pytest.mark.parametrize("text", ["{1", "{1}}", '{"a'])
def test_an_array_without_its_end_is_refused(text: str) -> None:
    with pytest.raises(InvalidDataset, match="cannot be read"):
        Types(KNOWN).converter(1009)(text)


def test_json_of_the_database_that_no_document_may_have_is_refused() -> None:
    with pytest.raises(InvalidDataset, match="not accepted"):
        Types({}).converter(114)('"\\ud800"')
