"""Errors of a REST interface as RFC 9457 problem documents."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson
from starlette.responses import Response

MEDIA_TYPE: Final = "application/problem+json"


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """A problem document. ``code`` is stable and for programs, ``detail`` is for people."""
    document = {"type": "about:blank", "title": title(status), "status": status, "code": code, "detail": detail}
    body = orjson.dumps({**document, **(more or {})})
    return Response(body, status, headers={"Cache-Control": "no-store", **(headers or {})}, media_type=MEDIA_TYPE)


def title(status: int) -> str:
    """What a status is called (RFC 9110; the library has older names for two)."""
    return {413: "Content Too Large", 422: "Unprocessable Content"}.get(status) or HTTPStatus(status).phrase
