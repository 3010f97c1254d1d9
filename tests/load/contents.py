"""Contents that say to which change they belong, of every kind, and what clients find in updates and answers.

A series has a number that no other change of the run has as its values. Whatever else is sent is known by its
fingerprint (``tests.oracle.values``): documents have such a number in them, too, and their endpoint.
"""

import base64
import os
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from tests.oracle.values import fingerprint

POINTS = 4
UNKNOWN = -1
"""The stamp of what is nothing of this harness, or of another endpoint or version than the update with it."""
SERIES: Final = "application/vnd.diem.series+json"
DOCUMENT: Final = "application/json"
NOTICE: Final = "application/vnd.diem.notice+json"
COLLECTION: Final = "application/vnd.diem.collection+json"
OCTETS: Final = (
    "text/plain;charset=utf-8",
    "text/html",
    "image/png",
    "application/octet-stream",
    "application/x-protobuf",
)
LOG: Final = 4
"""Numbers of the last changes in a document."""
_LATE_VERSION: Final = 9_999_999_999_000


class Seen(NamedTuple):
    """What a client finds."""

    stamp: int
    members: tuple[str, ...] | None = None
    """The names that a collection lists."""


NOTHING: Final = Seen(UNKNOWN)
GONE: Final = Seen(0)
"""A deletion."""


def dataset(endpoint: str, stamp: int, points: int = POINTS) -> dict[str, Any]:
    """Return a dataset whose values all have ``stamp``, a positive whole number, before the decimal point."""
    values = [
        {"time": f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00:00Z", "value": stamp + hour % 10 / 10}
        for hour in range(points)
    ]
    return {"endpoint": endpoint, "unit": "MW", "resolution": "PT1H", "points": values}


def document(endpoint: str, stamp: int, other: str = "", size: int = 0) -> dict[str, Any]:
    """Return a document to patch, with ``size`` more characters.

    It looks like an update of another endpoint from the first byte on: nothing on its way may take it for one.
    """
    like = {"type": "update", "endpoint": other, "version": _LATE_VERSION, "time": "2026-01-01T00:00:00.000Z"}
    text = f'\\"{{"type":"update","endpoint":"{other}"\u2028 é😀' + text_of(size)
    own = {"of": endpoint, "last": stamp, "before": 0, "log": [stamp] * LOG, "parts": {}, "text": text}
    return {**(like if other else {}), **own}


def merge_patch(stamp: int) -> dict[str, Any]:
    """Return a Merge Patch that changes one part of a document, and removes another."""
    return {"last": stamp, "parts": {f"p{stamp % 5}": stamp, f"p{(stamp + 1) % 5}": None}}


def json_patch(endpoint: str, stamp: int) -> list[dict[str, Any]]:
    """Return a JSON Patch whose result depends on every change since the last whole document."""
    return [
        {"op": "test", "path": "/of", "value": endpoint},
        {"op": "copy", "from": "/last", "path": "/before"},
        {"op": "replace", "path": "/last", "value": stamp},
        {"op": "add", "path": "/log/-", "value": stamp},
        {"op": "remove", "path": "/log/0"},
    ]


def sized(endpoint: str, stamp: int, size: int) -> Any:
    """Return a JSON value of ``size`` bytes, but at least 10: a number, a text or an object."""
    if size < 16:
        return 1_000_000_000 + stamp
    if size < 96:
        text = f"{stamp} "
        return text + text_of(size - len(text) - 2)
    value = {"of": endpoint, "last": stamp, "text": ""}
    return {**value, "text": text_of(size - len(orjson.dumps(value)))}


def text_of(size: int) -> str:
    """Return random text of a length."""
    return base64.b64encode(os.urandom(max(0, size) * 3 // 4 + 1)).decode()[: max(0, size)]


def octets(stamp: int, size: int) -> tuple[str, bytes]:
    """Return a media type and content of ``size`` bytes, at least 10, which are text or are not."""
    media_type = OCTETS[stamp % len(OCTETS)]
    start = b"%010d" % stamp
    if media_type.startswith("text/"):
        return media_type, start + text_of(size - len(start)).encode()
    return media_type, start + os.urandom(max(0, size - len(start)))


def stamp_of_octets(media_type: str, content: bytes) -> int:
    """Return the stamp of bytes."""
    return fingerprint([media_type, blake2b(content, digest_size=12).hexdigest()])


def stamp_of_notice(url: str) -> int:
    """Return the stamp of a notice: its URL is all that there is."""
    return fingerprint(["notice", url])


# Every client with the same endpoint gets the same bytes: they are parsed once.
@lru_cache(maxsize=1024)
def carried(rest: bytes, endpoint: bytes, version: int) -> Seen:
    """Return what an update carries, by its bytes after the time: from ``,"data":`` to the last brace."""
    try:
        found = orjson.loads(b"{" + rest[1:])
        media_type, data = found.get("media_type", SERIES), found["data"]
        if found.keys() - {"data", "encoding", "media_type"} or found.get("encoding", "base64") != "base64":
            return NOTHING
        if _is_octets(media_type):
            content = base64.b64decode(data, validate=True) if "encoding" in found else data.encode()
            return Seen(stamp_of_octets(media_type, content))
        return _seen(media_type, data, endpoint.decode(), version)
    except (LookupError, TypeError, ValueError, AttributeError):
        return NOTHING


def answered(headers: Mapping[str, str], content: bytes, endpoint: str) -> tuple[int, Seen]:
    """Return version and content of an answer 200 of REST."""
    version, media_type = int(headers["diem-version"]), headers["content-type"]
    if not headers["etag"].startswith(f'"{version}-'):
        return version, NOTHING
    if _is_octets(media_type):
        return version, Seen(stamp_of_octets(media_type, content))
    try:
        return version, _seen(media_type, orjson.loads(content), endpoint, version)
    except (LookupError, TypeError, ValueError, AttributeError):
        return version, NOTHING


def _is_octets(media_type: str) -> bool:
    return not media_type.endswith("json")


def _seen(media_type: str, data: Any, endpoint: str, version: int) -> Seen:
    if media_type == DOCUMENT:
        return Seen(fingerprint(data))
    if (data["endpoint"], data["version"]) != (endpoint, version):
        return NOTHING
    if media_type == COLLECTION:
        return Seen(fingerprint(data["members"]), tuple(data["members"]))
    if media_type == NOTICE:
        return Seen(stamp_of_notice(data["url"]))
    stamps = {int(point["value"]) for point in data["points"]}
    return Seen(stamps.pop()) if media_type == SERIES and len(stamps) == 1 else NOTHING
