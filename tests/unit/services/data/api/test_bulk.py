"""Bodies with content for several endpoints."""

import json
from typing import Any

import pytest

from services.data.api import bulk
from services.data.errors import InvalidDataset, MalformedBody
from services.data.kinds import DOCUMENT, SERIES


def document(unit: str = "MW") -> dict[str, Any]:
    return {"unit": unit, "resolution": "PT1H", "points": [{"time": "2026-01-01T00:00:00Z", "value": 1}]}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def test_bulk_keeps_the_order() -> None:
    names = ["/b", "/a", "/c"]
    body = encoded({"datasets": [{"endpoint": name, **document()} for name in names]})
    assert [dataset.endpoint for dataset in bulk.parse(body)] == names


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([], "$"),
        ({"datasets": [], "more": 1}, "$"),
        ({"datasets": []}, "$"),
        ({"datasets": [{"endpoint": f"/e{i}", **document()} for i in range(1001)]}, "$"),
        ({"datasets": [7]}, "$.datasets[0]"),
        ({"datasets": [document()]}, "$.datasets[0]"),
        ({"datasets": [{"endpoint": "no-slash", **document()}]}, "$.datasets[0].endpoint"),
        ({"datasets": [{"endpoint": "/a", **document()}] * 2}, "$.datasets[1].endpoint"),
        ({"datasets": [{"endpoint": "/a", **document(unit=" ")}]}, "$.datasets[0].unit"),
    ],
)
def test_a_wrong_bulk_is_refused_with_the_place(value: object, where: str) -> None:
    with pytest.raises(InvalidDataset) as caught:
        bulk.parse(encoded(value))
    assert caught.value.where == where


def test_series_and_documents_may_come_together() -> None:
    body = {
        "datasets": [{"endpoint": "/load", **document()}],
        "documents": [{"endpoint": "/score", "value": {"home": 1}}, {"endpoint": "/flag", "value": None}],
    }
    made = {each.endpoint: (each.media_type, each.content) for each in bulk.parse(encoded(body))}
    assert made["/score"] == (DOCUMENT, b'{"home":1}')
    assert made["/flag"] == (DOCUMENT, b"null")
    assert made["/load"][0] == SERIES


@pytest.mark.parametrize(
    ("documents", "where"),
    [
        ([{"endpoint": "/a"}], "$.documents[0]"),
        ([{"endpoint": "/a", "value": 1, "more": 1}], "$.documents[0]"),
        ([{"endpoint": "a", "value": 1}], "$.documents[0].endpoint"),
        ([{"endpoint": "/a/", "value": 1}], "$.documents[0].endpoint"),
        ([{"endpoint": "/a", "value": 1}] * 2, "$"),
        ({}, "$"),
    ],
)
def test_wrong_documents_are_refused_with_the_place(documents: object, where: str) -> None:
    with pytest.raises(InvalidDataset) as caught:
        bulk.parse(encoded({"documents": documents}))
    assert caught.value.where == where


def test_documents_with_repeated_fields_or_inexact_numbers_are_refused() -> None:
    with pytest.raises(InvalidDataset, match="appears twice"):
        bulk.parse(b'{"documents":[{"endpoint":"/a","value":{"x":1,"x":2}}]}')
    with pytest.raises(MalformedBody, match="64 bits"):
        bulk.parse(b'{"documents":[{"endpoint":"/a","value":123456789012345678901}]}')
