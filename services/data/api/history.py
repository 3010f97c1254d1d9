"""``/v1/history``: the retained versions of an endpoint and how they differ (docs/protocol.md section 2)."""

import asyncio
from itertools import pairwise
from typing import Any, Final, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response

from diem.protocol import endpoints
from diem.protocol.update import GONE, iso
from services.data.api import cost
from services.data.api.requests import has_etag
from services.data.byte_lru import ByteLru
from services.data.cache_control import NO_CACHE
from services.data.errors import UnknownEndpoint
from services.data.kinds import kind_of
from services.data.large import run_sized
from services.data.store import StoredVersion
from services.data.store.store import Store

PREFIX: Final = "/v1/history"
MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of cached descriptions in bytes; the least recently used is evicted."""
BYTES_PER_REQUEST: Final = 256 * 1024
"""Number of described bytes that cost the reader one more request."""


class VersionList(NamedTuple):
    """The description of an endpoint's versions, ready to send."""

    newest: int
    versions: int
    body: bytes


class HistoryApi:
    """Handler of the resource. The description of an endpoint is shared by all requests until its versions change.

    Descriptions are built one at a time, large ones in a thread: parsing takes 10 ms for 24 versions of 58 KB.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._descriptions: ByteLru[str, VersionList] = ByteLru(MAX_BYTES, lambda made: len(made.body))
        self._describing: dict[tuple[str, int, int], asyncio.Task[VersionList]] = {}
        self._turn = asyncio.Semaphore(1)

    async def versions(self, request: Request) -> Response:
        """``GET /v1/history/{endpoint}``: the retained versions, newest first."""
        endpoint = endpoints.check(request.scope["path"].removeprefix(PREFIX))
        head = self._store.index.heads.get(endpoint)
        if head is None:
            raise UnknownEndpoint(endpoint)
        # Expiring versions change the number without a new version.
        count = await self._store.reader.count(endpoint)
        if has_etag(request.headers.get("if-none-match"), _etag(head.version, count)):
            return Response(status_code=304, headers=_headers(head.version, count))
        found = self._descriptions.get(endpoint)
        if found is None or (found.newest, found.versions) != (head.version, count):
            found = await self._described(request, endpoint, head.version, count)
        return Response(found.body, headers=_headers(found.newest, found.versions), media_type="application/json")

    async def _described(self, request: Request, endpoint: str, version: int, count: int) -> VersionList:
        key = (endpoint, version, count)
        describing = self._describing.get(key)
        if describing is None:
            describing = self._describing[key] = asyncio.create_task(self._describe(request, endpoint))
            describing.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(describing)

    def _ended(self, key: tuple[str, int, int], done: "asyncio.Task[VersionList]") -> None:
        del self._describing[key]
        if not done.cancelled():
            done.exception()  # retrieved; the waiting requests raise it

    async def _describe(self, request: Request, endpoint: str) -> VersionList:
        async with self._turn:
            retained = await self._store.reader.versions(endpoint)
            size = sum(len(each.content) for each in retained)
            cost.add(request, size // BYTES_PER_REQUEST)
            body = await run_sized(lambda: _body(endpoint, retained), size)
        made = VersionList(retained[0].version, len(retained), body)
        self._descriptions.put(endpoint, made)
        return made


def _body(endpoint: str, retained: list[StoredVersion]) -> bytes:
    return orjson.dumps({"endpoint": endpoint, "versions": describe(retained)})


def describe(retained: list[StoredVersion]) -> list[dict[str, Any]]:
    """Describe each version, newest first.

    ``revised`` is what the kind counts as differences to the predecessor; None for the oldest, whose predecessor is not
    retained.
    """
    revised = [
        kind_of(new.media_type).revised(new.content, old.content)
        if kind_of(new.media_type) is kind_of(old.media_type)
        else None
        for new, old in pairwise(retained)
    ]
    return [
        {
            "version": each.version,
            "time": iso(each.changed_ms),
            "gone": each.kind == GONE,
            "media_type": each.media_type,
            **kind_of(each.media_type).describe(each.content),
            "revised": count,
        }
        for each, count in zip(retained, [*revised, None], strict=True)
    ]


def _etag(newest: int, count: int) -> str:
    return f'"{newest}-{count}-history"'


def _headers(newest: int, count: int) -> dict[str, str]:
    return {"ETag": _etag(newest, count), "Cache-Control": NO_CACHE}
