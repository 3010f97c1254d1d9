"""Rows of a backup: what a store holds passes, what the Data Service would not accept does not."""

import base64
import contextlib
from hashlib import blake2b
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.backup.row_checks import BadRow, TableRows
from services.data.datasets import Declared, EndpointDeclaration, LocalClock, Point, build, read_json
from services.data.store.tables import METADATA

DATA = build("/a", "MW", "PT1H", [Point(0, 1.5), Point(3600, None), Point(7200, 10**14)])
CONTENT: dict[str, Any] = orjson.loads(DATA.content)
GOOD: dict[str, dict[str, Any]] = {
    "store": {"id": 1, "store_id": "s", "sequence": 3, "version_floor": 2, "retention_ms": 4, "forgotten": 1},
    "endpoints": {
        "endpoint": "/a", "sequence": 1, "version": 2, "kind": 0, "changed_ms": 3, "unit": "MW", "resolution": "PT1H",
        "title": "", "source": "", "area": "GR", "quantity": "load", "digest": DATA.digest, "content": DATA.content,
    },
    "history": {
        "sequence": 1, "endpoint": "/a", "version": 2, "kind": 0, "changed_ms": 3, "content": DATA.content,
    },
    "publisher": {"id": 1, "source": "log", "sequence": 1, "logs": ""},
    "requests": {"key": "k", "writer": "abcdefg1", "digest": b"\0\1", "answer": b'[["/a",5,true]]', "created_ms": 4},
    "api_keys": {
        "id": "abcdefg1", "name": "The page", "plan": "free", "digest": bytes(32), "created_ms": 1, "revoked_ms": None,
        "expires_ms": 5, "last_used_ms": None, "writes": 0, "prefixes": "", "per_minute": None, "origins": "",
        "max_endpoints": None,
    },
    "key_days": {"key_id": "abcdefg1", "day": 20_000, "requests": 5},
}  # fmt: skip


def check(table: str, row: dict[str, Any]) -> dict[str, Any]:
    values = [{"b64": base64.b64encode(v).decode()} if isinstance(v, bytes) else v for v in row.values()]
    return TableRows(table, list(row)).check(values)


def data(**changes: Any) -> dict[str, Any]:
    """Return the columns of an endpoint whose content has changed, with the digest of that."""
    content = orjson.dumps({**CONTENT, **changes})
    return {"content": content, "digest": blake2b(content, digest_size=16).digest()}


def test_there_are_rows_of_every_table_with_every_column() -> None:
    assert {table: set(row) for table, row in GOOD.items()} == {
        name: {column.name for column in table.c} for name, table in METADATA.tables.items()
    }


@pytest.mark.parametrize("table", GOOD)
def test_a_good_row_passes_unchanged(table: str) -> None:
    assert check(table, GOOD[table]) == GOOD[table]


def test_a_write_key_passes() -> None:
    row = {**GOOD["api_keys"], "plan": "", "writes": 1, "prefixes": '["/dam"]', "per_minute": 600, "max_endpoints": 9}
    assert check("api_keys", row) == row


def test_a_deleted_endpoint_and_an_earlier_release_pass() -> None:
    gone = {**GOOD["endpoints"], "kind": 1, "content": b"", "digest": b""}
    del gone["area"], gone["quantity"]
    assert check("endpoints", gone) == gone
    check("history", {**GOOD["history"], "kind": 1, "content": b""})


def test_days_of_a_time_zone_pass() -> None:
    """Their midnights are not on the grid of UTC."""
    body = b'{"points":[{"time":"2026-03-29T00:00","value":1},{"time":"2026-03-30T00:00","value":2}]}'
    declared = Declared("/a", EndpointDeclaration("MW", "P1D"), clock=LocalClock("Europe/Athens"))
    (found,) = read_json(body, declared)
    assert b"22:00:00Z" in found.content
    row = {"resolution": "P1D", "content": found.content, "digest": found.digest}
    check("endpoints", {**GOOD["endpoints"], **row})


POINT = {"time": "1970-01-01T00:00:00Z", "value": 1}


@pytest.mark.parametrize(
    ("table", "change", "why"),
    [
        ("endpoints", {"endpoint": '/x","version":1,"a":"<img>'}, "is not an endpoint name"),
        ("endpoints", {"endpoint": "/a/../b"}, "a segment is"),
        ("endpoints", {"endpoint": "/" + "a" * 256}, "endpoint: expected a text of at most 256"),
        ("endpoints", {"endpoint": 7}, "endpoint: expected a text"),
        ("endpoints", {"sequence": -1}, "sequence: '-1' is not a whole number"),
        ("endpoints", {"version": 0}, "version: '0' is not a whole number"),
        ("endpoints", {"version": 2**53}, "version:"),
        ("endpoints", {"version": True}, "version:"),
        ("endpoints", {"version": 1.0}, "version:"),
        ("endpoints", {"kind": 2}, "kind: '2' is not a whole number from 0 to 1"),
        ("endpoints", {"kind": True}, "kind: 'True'"),
        ("endpoints", {"changed_ms": 10**17}, "changed_ms:"),
        ("endpoints", {"unit": "hp"}, "unit: unknown unit 'hp'"),
        ("endpoints", {"unit": ["MW"]}, "unit: unknown"),
        ("endpoints", {"unit": "GW"}, "unit or resolution is not that of the data"),
        ("endpoints", {"resolution": "PT60M"}, "resolution: 'PT60M' is not in canonical form"),
        ("endpoints", {"resolution": "PT7M"}, "resolution: the day is not"),
        ("endpoints", {"resolution": "PT30M"}, "unit or resolution is not that of the data"),
        ("endpoints", {"quantity": "q" * 33}, "quantity: expected a text"),
        ("endpoints", {"title": "x" * 201}, "title: expected a text of at most 200"),
        ("endpoints", {"title": "a\0b"}, "title: expected a text"),
        ("endpoints", {"source": None}, "source: a value is missing"),
        ("endpoints", {"digest": bytes(16)}, "the digest is not that of the data"),
        ("endpoints", {"digest": "0" * 16}, "digest: expected 0 to"),
        ("endpoints", {"content": b"x" * 65_537}, "content: expected 0 to 65536 bytes"),
        ("endpoints", {"content": b"{", "digest": b""}, "endpoints, /a: "),
        ("endpoints", {"content": b""}, "endpoints, /a: "),
        ("endpoints", {"kind": 1}, "a deleted endpoint has no data"),
        ("endpoints", data(unit="hp"), "unknown unit 'hp'"),
        ("endpoints", data(more=1), "the data is not a dataset"),
        ("endpoints", data(points=[]), "at least one point"),
        ("endpoints", data(points=[POINT, POINT]), "appears twice"),
        ("endpoints", data(points=[{**POINT, "value": "1"}]), "a value is a number"),
        ("endpoints", data(points=[{**POINT, "value": 1e15}]), "out of range"),
        ("endpoints", data(points=[{**POINT, "value": 1.0}]), "not in canonical form"),
        ("endpoints", data(points=[{**POINT, "time": "1970-01-01T00:00Z"}]), "not in canonical form"),
        ("endpoints", data(points=[{**POINT, "time": "1970-01-01T00:30:00Z"}]), "not on the grid"),
        ("endpoints", {"content": DATA.content + b" "}, "not in canonical form"),
        ("history", {"content": b"[]"}, "the data is not a dataset"),
        ("history", {"kind": 1}, "a deleted endpoint has no data"),
        ("history", {"endpoint": "a"}, "is not an endpoint name"),
        ("api_keys", {"max_endpoints": 5}, "only write keys have prefixes, a rate or a number of endpoints"),
        ("api_keys", {"max_endpoints": 0}, "max_endpoints: '0'"),
        ("requests", {"writer": "another one"}, "not the id of an API key"),
        ("store", {"version_floor": -1}, "version_floor: '-1'"),
        ("store", {"id": 2}, "id: '2' is not a whole number from 1 to 1"),
        ("store", {"store_id": "s" * 65}, "store_id: expected a text"),
        ("publisher", {"sequence": None}, "sequence:"),
        ("requests", {"key": "k" * 256}, "key: expected a text"),
        ("requests", {"answer": b"{}"}, "answer: not an answer"),
        ("requests", {"answer": b'[["/a",5]]'}, "answer: not an answer"),
        ("requests", {"answer": b'[["/a b",5,true]]'}, "answer: '/a b' is not an endpoint name"),
        ("requests", {"answer": b'[["/a",-5,true]]'}, "answer: '-5' is not a whole number"),
        ("api_keys", {"id": "ABCDEFGH"}, "id: not the id of an API key"),
        ("api_keys", {"name": "\x1b[2J"}, "name: a name has 1 to 100 printable characters"),
        ("api_keys", {"name": ""}, "name: a name has"),
        ("api_keys", {"plan": "../x"}, "plan: not the name of a plan"),
        ("api_keys", {"digest": bytes(31)}, "digest: expected 32 to 32 bytes"),
        ("api_keys", {"revoked_ms": "never"}, "revoked_ms:"),
        ("api_keys", {"expires_ms": -1}, "expires_ms:"),
        ("api_keys", {"plan": ""}, "an API key has a plan, and a write key has none"),
        ("api_keys", {"writes": 1}, "an API key has a plan, and a write key has none"),
        ("api_keys", {"per_minute": 5}, "only write keys have prefixes, a rate or"),
        ("api_keys", {"origins": '["https://A.example"]'}, "origins: not an origin"),
        ("api_keys", {"origins": "[]"}, "origins: not a list of origins"),
        ("api_keys", {"writes": 1, "plan": "", "origins": '["https://a"]'}, "only API keys have origins"),
        ("api_keys", {"writes": 2}, "writes:"),
        ("api_keys", {"writes": 1, "plan": "", "prefixes": '["dam"]'}, "prefixes: 'dam' is not an endpoint name"),
        ("api_keys", {"writes": 1, "plan": "", "prefixes": "[]"}, "prefixes: not a list of prefixes"),
        ("api_keys", {"writes": 1, "plan": "", "per_minute": 0}, "per_minute:"),
        ("key_days", {"day": -1}, "day:"),
        ("key_days", {"requests": -1}, "requests:"),
    ],
)
def test_a_wrong_row_is_refused_with_its_reason(table: str, change: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRow) as caught:
        check(table, {**GOOD[table], **change})
    assert why in str(caught.value)
    assert str(caught.value).startswith(table)


_ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()), st.binary(max_size=50)
)


@given(table=st.sampled_from(sorted(GOOD)), number=st.integers(0, 12), value=_ANY)
def test_any_value_passes_or_is_a_bad_row(table: str, number: int, value: object) -> None:
    row = dict(GOOD[table])
    row[list(row)[number % len(row)]] = value
    with contextlib.suppress(BadRow):
        assert check(table, row) == row


@given(columns=st.one_of(_ANY, st.lists(st.sampled_from(["id", "store_id", "sequence", "x"]))))
def test_any_columns_are_the_tables_or_a_bad_row(columns: object) -> None:
    if isinstance(columns, list) and sorted(map(str, columns)) == ["id", "sequence", "store_id"]:
        TableRows("store", columns)
    else:
        with pytest.raises(BadRow):
            TableRows("store", columns)
