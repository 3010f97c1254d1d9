"""Read requests: bounded bodies, idempotency keys, content negotiation, conditional headers."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from starlette.requests import Request

from diem.links import rest
from services.data.errors import BodyTooLarge, MalformedBody
from services.data.store import IdempotencyKey

MAX_KEY_CHARACTERS: Final = 255


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body.

    Raises:
        BodyTooLarge: as soon as it has more than ``max_bytes``, or says that it will have.
        HTTPException: 408, it took more than 20 s.
    """

    def too_large(announced: int | None) -> BodyTooLarge:
        size = "" if announced is None else f", not {announced}"
        return BodyTooLarge(f"a body has at most {max_bytes} bytes here{size}")

    return await rest.read_body(request, max_bytes, too_large)


def idempotency_key(request: Request, body: bytes) -> IdempotencyKey | None:
    """The request's Idempotency-Key with a digest of everything that decides what the request does.

    Raises:
        MalformedBody: the header is empty, too long or not printable ASCII.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_CHARACTERS or not (key.isascii() and key.isprintable()):
        raise MalformedBody(f"an Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} printable ASCII characters")
    digest = blake2b(digest_size=16)
    query: bytes = request.scope["query_string"]
    for part in (request.method, request.scope["path"], query.decode(), request.headers.get("content-type", "")):
        digest.update(part.encode() + b"\n")
    digest.update(body)
    return IdempotencyKey(key, digest.digest())


_QUALITY: Final = re.compile(r";\s*q=([01](?:\.\d{0,3})?)\s*(?:;|$)")


def choose(accept: str | None, offers: Sequence[str]) -> str | None:
    """The media type of ``offers`` that an Accept header likes best, the first of equals; None if it takes none."""
    if not accept or not accept.strip():
        return offers[0]
    best: tuple[float, str | None] = (0.0, None)
    for offer in offers:
        quality = _quality(accept, offer)
        if quality > best[0]:
            best = (quality, offer)
    return best[1]


def _quality(accept: str, offer: str) -> float:
    """The quality of the most specific range that matches (RFC 9110 section 12.5.1)."""
    ranges = {offer: 2, offer.partition("/")[0] + "/*": 1, "*/*": 0}
    found = (-1, 0.0)
    for part in accept.lower().split(","):
        name, semicolon, parameters = part.partition(";")
        specific = ranges.get(name.strip(), -1)
        if specific > found[0]:
            match = _QUALITY.search(semicolon + parameters)
            found = (specific, float(match[1]) if match else 1.0)
    return found[1]


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether an Accept-Encoding header takes gzip by its name (RFC 9110 section 12.5.3)."""
    for part in (accept_encoding or "").lower().split(","):
        name, semicolon, parameters = part.partition(";")
        if name.strip() in {"gzip", "x-gzip"}:
            match = _QUALITY.search(semicolon + parameters)
            return match is None or float(match[1]) > 0
    return False


def has_etag(if_none_match: str | None, etag: str) -> bool:
    """Whether an If-None-Match header names ``etag`` (weak comparison, RFC 9110 section 13.1.2)."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    return any(candidate.strip().removeprefix("W/") == etag for candidate in if_none_match.split(","))


def media_type(content_type: str | None) -> str:
    """The type in a Content-Type header in lower case; empty when its charset is not UTF-8."""
    name, _, parameters = (content_type or "").lower().partition(";")
    charset = re.search(r'charset="?([\w-]+)', parameters)
    if charset is not None and charset[1] not in {"utf-8", "utf8", "us-ascii"}:
        return ""
    return name.strip()
