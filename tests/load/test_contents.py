"""Contents of every kind are known again in updates and in answers; anything else is not."""

import base64
from typing import Any

import orjson
import pytest

from diem.protocol.update import DATA_FIELD
from services.data.kinds import KINDS, Body, kind_of
from tests.load import contents
from tests.load.contents import NOTHING, Seen, answered, carried, dataset
from tests.oracle.values import applied, condensed, fingerprint

VERSION = 1_700_000_000_001


def series(version: object = VERSION, **changes: object) -> bytes:
    return orjson.dumps({**dataset("/a", 17, points=30), "version": version, **changes})


def rest(data: bytes, media_type: str = "", encoding: bytes = b"") -> bytes:
    return b"%b%b%b%b}" % (DATA_FIELD, data, encoding, f',"media_type":"{media_type}"'.encode() if media_type else b"")


class Version:
    """A stored version."""

    version = VERSION
    changed_ms = VERSION

    def __init__(self, media_type: str, content: bytes) -> None:
        self.media_type, self.content = media_type, content


def test_dataset_says_to_which_change_it_belongs() -> None:
    assert carried(rest(series()), b"/a", VERSION) == Seen(17)


@pytest.mark.parametrize(
    "body",
    [
        series(version=2),
        series(endpoint="/b"),
        series(points=[{"value": 17.0}, {"value": 18.0}]),
        series(points=[]),
        series(points=None),
        b"[]",
        b'{"endpoint":"/a"',
        series() + b',"more":1',
    ],
    ids=["version", "endpoint", "two changes", "no points", "null", "array", "cut short", "another field"],
)
def test_dataset_of_anything_else_has_no_stamp(body: bytes) -> None:
    assert carried(rest(body), b"/a", VERSION) == NOTHING


@pytest.mark.parametrize("stamp", range(5))
@pytest.mark.parametrize("size", [10, 63, 3000])
def test_bytes_are_known_again_in_the_update_and_the_answer_of_the_service(stamp: int, size: int) -> None:
    media_type, content = contents.octets(stamp, size)
    assert len(content) == size
    body = Body(content, media_type)
    stored = Version(media_type, kind_of(media_type).parse("/a", body).content)
    inline = kind_of(media_type).inline("/a", stored)
    assert inline is not None
    expected = Seen(contents.stamp_of_octets(media_type, content))
    assert carried(DATA_FIELD + inline + b"}", b"/a", VERSION) == expected
    headers = {"diem-version": str(VERSION), "content-type": media_type, "etag": f'"{VERSION}-bytes"'}
    assert answered(headers, content, "/a") == (VERSION, expected)
    assert answered({**headers, "content-type": "text/css"}, content, "/a") != (VERSION, expected)
    assert answered({**headers, "etag": f'"{VERSION - 1}-bytes"'}, content, "/a") == (VERSION, NOTHING)


def test_bytes_that_are_not_base64_are_unknown() -> None:
    data = orjson.dumps(base64.b64encode(b"12345").decode()[:-1])
    assert carried(rest(data, "image/png", b',"encoding":"base64"'), b"/a", VERSION) == NOTHING


@pytest.mark.parametrize("size", [10, 20, 95, 96, 300, 5000])
def test_documents_of_all_sizes_are_known_by_their_value(size: int) -> None:
    value = contents.sized("/a", 7, size)
    assert len(orjson.dumps(value)) == size
    seen = carried(rest(orjson.dumps(value), "application/json"), b"/a", VERSION)
    assert seen == Seen(fingerprint(condensed(value)))
    assert seen != carried(rest(orjson.dumps(contents.sized("/a", 8, size)), "application/json"), b"/a", VERSION)


@pytest.mark.parametrize(
    "change",
    [
        {"merge": contents.merge_patch(9)},
        {"json": contents.json_patch("/a", 9)},
        {"merge": {"text": None, "log": {"x": [1, {"y": None}]}}},
    ],
)
def test_oracle_and_service_patch_documents_alike(change: dict[str, Any]) -> None:
    value = contents.document("/a", 8, "/b", 100)
    ((how, patch),) = change.items()
    body = Body(orjson.dumps(patch), f"application/{how}-patch+json")
    made = KINDS["document"].patch("/a", Version("application/json", orjson.dumps(value)), body)
    assert fingerprint(orjson.loads(made.content)) == fingerprint(applied(condensed(value), change))
    assert fingerprint(orjson.loads(made.content)) != fingerprint(value)


def test_notices_and_collections_are_known_by_their_url_and_their_members() -> None:
    head: dict[str, Any] = {"endpoint": "/a/", "version": VERSION, "time": "2026-01-01T00:00:00.000Z"}
    members = orjson.dumps({**head, "members": ["/a/1", "/a/b/"]})
    expected = Seen(fingerprint(["/a/1", "/a/b/"]), ("/a/1", "/a/b/"))
    assert carried(rest(members, contents.COLLECTION), b"/a/", VERSION) == expected
    assert carried(rest(members, contents.COLLECTION), b"/b/", VERSION) == NOTHING
    notice = orjson.dumps({**head, "url": "https://x/a/"})
    assert carried(rest(notice, contents.NOTICE), b"/a/", VERSION) == Seen(contents.stamp_of_notice("https://x/a/"))
    assert carried(rest(orjson.dumps(head), contents.NOTICE), b"/a/", VERSION) == NOTHING
