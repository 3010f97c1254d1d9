"""Values of endpoints by kind."""

import base64
import json
from typing import Any

import pytest

from diem.client.values import EndpointSnapshot
from diem.protocol.media_types import COLLECTION, DOCUMENT, NOTICE, SERIES

TIME = "2026-01-01T00:00:00.005Z"
POINTS: dict[str, Any] = {"unit": "MW", "resolution": "PT1H", "points": []}
MEMBERS: dict[str, Any] = {"members": ["/a/b"]}
URL = {"url": "https://shop.example/orders/42"}
PNG = b"\x89PNG\r\n"


def enveloped(content: dict[str, Any], version: int = 5) -> dict[str, Any]:
    return {"endpoint": "/a", "version": version, "time": TIME, **content}


def update(data: object, **more: object) -> dict[str, Any]:
    return {"type": "update", "endpoint": "/a", "version": 5, "time": TIME, "data": data, **more}


@pytest.mark.parametrize(
    ("message", "media_type", "value"),
    [
        (update(enveloped(POINTS)), SERIES, POINTS),
        (update({"home": 2}, media_type=DOCUMENT), DOCUMENT, {"home": 2}),
        (update(None, media_type=DOCUMENT), DOCUMENT, None),
        (update([1], media_type="application/geo+json"), "application/geo+json", [1]),
        (update("héllo", media_type="text/plain;charset=utf-8"), "text/plain;charset=utf-8", "héllo"),
        (
            update("6Q==", encoding="base64", media_type="text/plain;charset=latin-1"),
            "text/plain;charset=latin-1",
            "é",
        ),
        (update("a: 1", media_type="application/yaml"), "application/yaml", b"a: 1"),
        (update(base64.b64encode(PNG).decode(), encoding="base64", media_type="image/png"), "image/png", PNG),
        (update(enveloped(URL), media_type=NOTICE), NOTICE, URL),
        (update(enveloped({}), media_type=NOTICE), NOTICE, {}),
        (update(enveloped(MEMBERS), media_type=COLLECTION), COLLECTION, MEMBERS),
    ],
)  # fmt: skip
def test_data_of_an_update_is_the_value_of_its_kind(message: dict[str, Any], media_type: str, value: object) -> None:
    assert EndpointSnapshot.of_update(message) == (5, TIME, media_type, value)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "update", "endpoint": "/a", "version": 5},
        update(enveloped(POINTS, version=4)),
        update({**enveloped(POINTS), "endpoint": "/b"}),
        update(enveloped(URL, version=6), media_type=NOTICE),
        update("text"),
        update(None),
        update({"unit": "MW"}),
        update(7, media_type="text/plain"),
        update("no base64!", encoding="base64", media_type="image/png"),
        update("\ud800", media_type="image/png"),
        update([], media_type=7),
    ],
)
def test_update_without_valid_data_of_its_own_has_to_be_fetched(message: dict[str, Any]) -> None:
    assert EndpointSnapshot.of_update(message) is None


@pytest.mark.parametrize(
    ("media_type", "body", "value"),
    [
        (SERIES, json.dumps(enveloped(POINTS)).encode(), POINTS),
        (DOCUMENT, b"null", None),
        ("application/geo+json", b'{"type":"Point"}', {"type": "Point"}),
        ("text/html;charset=iso-8859-1", "é".encode("iso-8859-1"), "é"),
        ("text/plain;charset=unheard-of", b"\xff", "\ufffd"),
        ("image/png", PNG, PNG),
        (NOTICE, json.dumps(enveloped(URL)).encode(), URL),
        (COLLECTION, json.dumps(enveloped(MEMBERS)).encode(), MEMBERS),
    ],
)
def test_answer_is_the_same_value(media_type: str, body: bytes, value: object) -> None:
    headers = {"Content-Type": media_type, "Diem-Version": "5", "Diem-Time": TIME}
    assert EndpointSnapshot.of_answer(headers, body) == (5, TIME, media_type, value)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "text/html"}, b"<html>"),
        ({"Content-Type": DOCUMENT, "Diem-Version": "x"}, b"1"),
        ({"Content-Type": "text/csv; charset=utf-8; header=present", "Diem-Version": "5"}, b"time,value\n"),
        ({"Content-Type": DOCUMENT, "Diem-Version": "5"}, b"{"),
    ],
)
def test_answer_of_something_else_is_refused(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(ValueError, match=r"Diem-Version|Accept: \*/\*|unexpected"):
        EndpointSnapshot.of_answer(headers, body)
