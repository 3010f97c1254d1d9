"""``GET /v1/sources`` (docs/protocol.md section 2) and ``GET /v1/usage`` (docs/access.md section 4)."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from diem.process.clock import Clock
from diem.protocol.update import iso
from services.data.access.access import Access
from services.data.access.keys import bearer_key
from services.data.access.plans import DAY_S
from services.data.access.quota import Limit, day_of, rate_limit_fields
from services.data.access.rights import ReadRights
from services.data.api.guard import rights_of, unauthorised
from services.data.api.requests import has_etag
from services.data.cache_control import NO_CACHE

PATH: Final = "/v1/sources"

SourcesStatus = Callable[[ReadRights | None], Sequence[dict[str, Any]]]
"""Returns the public status, with general descriptions of faults, of a reader's sources (None: all)."""


def no_sources(_rights: ReadRights | None) -> Sequence[dict[str, Any]]:
    """Return the status of a service without sources."""
    return ()


class SourcesApi:
    """Handler of the resource."""

    def __init__(self, status: SourcesStatus) -> None:
        self._status = status

    async def sources(self, request: Request) -> Response:
        """``GET /v1/sources``: the sources of the reader's endpoints, in the order of the configuration."""
        body = orjson.dumps({"sources": self._status(rights_of(request.scope))})
        etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
        headers = {"ETag": etag, "Cache-Control": NO_CACHE, "Vary": "Authorization"}
        if has_etag(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")


MAX_ENDPOINTS: Final = 100
"""Maximum number of endpoints in one answer, the most read first."""


class UsageApi:
    """Handler of the resource. It consumes no unit of the key, so that it works even when all are used."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._started_ms = clock.wall_ms()

    async def usage(self, request: Request) -> Response:
        """``GET /v1/usage``: today's requests of a key, its limits, and its endpoints since the process started."""
        text = bearer_key(request.headers.get("authorization"))
        key = None if text is None else self._access.verify(text)
        if key is None:
            return unauthorised("usage needs an API key")
        used, limits = await self._access.usage_of(key)
        plan = self._access.plans.get(key.plan)
        now_ms = self._clock.wall_ms()
        day = day_of(now_ms)
        endpoints = self._access.usage.today(key.id, day).most_common(MAX_ENDPOINTS)
        body = {
            "key": key.id,
            "name": key.name,
            "plan": key.plan,
            "prefixes": list(plan.prefixes) if plan is not None else [],
            "day": datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat(),
            "requests": used,
            "limits": [_limit(limit) for limit in limits],
            "since": iso(max(self._started_ms, day * DAY_S * 1000)),
            "endpoints": [{"endpoint": endpoint, "requests": count} for endpoint, count in endpoints],
        }
        headers = {"Cache-Control": "no-store", **rate_limit_fields(limits)}
        return Response(orjson.dumps(body), headers=headers, media_type="application/json")


def _limit(limit: Limit) -> dict[str, Any]:
    return {
        "name": limit.name,
        "quota": limit.quota,
        "window": limit.window_s,
        "remaining": limit.remaining,
        "reset": limit.reset_s,
    }
