"""State of the sources: ``GET /v1/sources`` (docs/protocol.md section 6)."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from services.data.api.negotiate import has_etag

PATH: Final = "/v1/sources"

SourcesStatus = Callable[[], Sequence[dict[str, Any]]]
"""Each source's state, with words of ours for what is wrong, since everybody who may read may read it."""


class SourcesApi:
    """Handler of the resource."""

    def __init__(self, status: SourcesStatus) -> None:
        self._status = status

    async def sources(self, request: Request) -> Response:
        """``GET /v1/sources``: every source, in the order of the configuration."""
        body = orjson.dumps({"sources": self._status()})
        etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if has_etag(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")
