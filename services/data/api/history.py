"""The versions of an endpoint that are kept: what they were, and how they differ (docs/protocol.md section 6)."""

from itertools import pairwise
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from diem.protocol import endpoints
from diem.protocol.update import GONE
from diem.protocol.versions import iso
from services.data.api.negotiate import has_etag
from services.data.errors import Malformed, Unknown
from services.data.store import Kept, Store

PREFIX: Final = "/v1/history"
MAX_DIGITS: Final = 18
"""Of a version: beyond, no database has such a number."""


class HistoryApi:
    """Handler of the resource."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def versions(self, request: Request) -> Response:
        """``GET /v1/history/{endpoint}``: the versions that are kept, newest first."""
        endpoint = endpoints.check(request.scope["path"].removeprefix(PREFIX))
        head = self._store.head(endpoint)
        if head is None:
            raise Unknown(endpoint)
        condition = request.headers.get("if-none-match")
        if condition is not None:
            # Versions become too old without a newer one.
            count = await self._store.count_versions(endpoint)
            if has_etag(condition, _etag(head.version, count)):
                return Response(status_code=304, headers=_headers(head.version, count))
        kept = await self._store.versions(endpoint)
        body = orjson.dumps({"endpoint": endpoint, "versions": describe(kept)})
        return Response(body, headers=_headers(kept[0].version, len(kept)), media_type="application/json")


def describe(kept: list[Kept]) -> list[dict[str, Any]]:
    """What is said of each version, newest first.

    ``revised`` is the number of times that this version and the one before both have, with other values; None of the
    oldest, whose predecessor is not kept.
    """
    values = [_values(each.content) for each in kept]
    revised: list[int | None] = [
        sum(1 for time, value in new.items() if time in old and old[time] != value) for new, old in pairwise(values)
    ]
    return [
        {
            "version": each.version,
            "time": iso(each.changed_ms),
            "gone": each.kind == GONE,
            "points": len(points),
            "revised": count,
        }
        for each, points, count in zip(kept, values, [*revised, None], strict=True)
    ]


def wanted_version(request: Request) -> int | None:
    """The version that a reader asks for with ``?version=N``; None for the current one.

    Raises:
        Malformed: it is no version.
    """
    text = request.query_params.get("version")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and int(text) > 0):
        raise Malformed("version is a whole number")
    return int(text)


def _values(content: bytes) -> dict[str, Any]:
    return {point["time"]: point["value"] for point in orjson.loads(content)["points"]} if content else {}


def _etag(newest: int, count: int) -> str:
    return f'"{newest}-{count}-history"'


def _headers(newest: int, count: int) -> dict[str, str]:
    return {"ETag": _etag(newest, count), "Cache-Control": "no-cache"}
