"""Reads of retained data on the internal listener, where no Data Service has it: of a served topic (docs/adr/0037)."""

import base64
from heapq import nsmallest
from typing import Final

import orjson

from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.links.listener import Reply
from diem.protocol.media_types import DOCUMENT, kind_of
from diem.protocol.partition_map import Role
from diem.protocol.update import AFTER_NAME, DATA_FIELD, GONE_TAIL, HEAD, has_data

LISTED: Final = 5000
"""Names in an answer to ``/v1/data/``."""
_TYPE: Final = b',"media_type":"'
_BASE64: Final = b',"encoding":"base64"'
_TIME_BYTES: Final = len("2026-01-01T00:00:00.456Z")


def read_retained(hub: FeedHub, ownership: Ownership | None, name: str) -> Reply:
    """Return the data of an endpoint with its version and time, or the list of names.

    404 means that there is none, 421 that another server has it, 503 that this one cannot tell now.
    """
    endpoint = name.encode("ascii", "replace")
    if name == "/":
        return Reply(200, orjson.dumps(_entries(hub)), DOCUMENT)
    if ownership is not None and ownership.map is not None and ownership.role(endpoint) is Role.NOT_OWNED:
        return _refusal(421, "another server has this endpoint")
    held = hub.state.retained.get(endpoint)
    if not hub.state.has_caught_up(None if ownership is None else ownership.stream_of(endpoint)):
        reply = _refusal(503, "the server has not caught up yet")
    elif endpoint in hub.state.suspect:
        reply = _refusal(503, "the last record of this endpoint cannot be read")
    elif held is None or held[1].endswith(GONE_TAIL):
        reply = _refusal(404, "there is no such endpoint")
    elif not has_data(endpoint, held[1]):
        reply = _refusal(503, "no memory for the data of this endpoint: raise DIEM_WEBSOCKET_RETAINED_DATA_BYTES")
    else:
        reply = _reply(endpoint, *held)
    return reply


def _entries(hub: FeedHub) -> list[dict[str, object]]:
    """Return the first endpoints with data, as entries of the catalogue."""
    retained = hub.state.retained
    names = nsmallest(LISTED, (name for name, (_, value) in retained.items() if has_data(name, value)))
    return [
        {"endpoint": name.decode(), "version": version, "time": time, "media_type": media_type}
        for name in names
        for version, value in [retained[name]]
        for _, media_type, time in [_parts(name, value)]
    ]


def _parts(endpoint: bytes, value: bytes) -> tuple[bytes, str, str]:
    """Return the data of an update as it is in there, its media type and its time."""
    start = len(HEAD) + len(endpoint) + AFTER_NAME
    end = value.rindex(_TYPE) if _TYPE in value else len(value) - 1
    media_type = value[end + len(_TYPE) : -2].decode() or DOCUMENT
    # Before its quote.
    return value[start + len(DATA_FIELD) : end], media_type, value[start - 1 - _TIME_BYTES : start - 1].decode()


def _reply(endpoint: bytes, version: int, value: bytes) -> Reply:
    data, media_type, time = _parts(endpoint, value)
    if data.endswith(_BASE64):
        data = base64.b64decode(orjson.loads(data[: -len(_BASE64)]))
    elif kind_of(media_type) == "bytes":
        data = orjson.loads(data).encode()
    return Reply(200, data, media_type, headers={"Diem-Version": str(version), "Diem-Time": time})


def _refusal(status: int, reason: str) -> Reply:
    return Reply(status, reason.encode(), "text/plain")
