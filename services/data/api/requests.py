"""Parse header fields of requests: idempotency keys, content negotiation, conditions."""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from diem.links.rest import problem
from diem.protocol import endpoints
from services.data.errors import InvalidDataset, MalformedBody
from services.data.limits import MAX_TTL_S
from services.data.store import IdempotencyKey, Precondition

PREFIX: Final = "/v1/data"
MAX_KEY_CHARACTERS: Final = 255


def is_key(text: str) -> bool:
    """Return whether a text may be an idempotency key."""
    return 1 <= len(text) <= MAX_KEY_CHARACTERS and text.isascii() and text.isprintable()


def idempotency_key(request: Request, body: bytes, writer: str) -> IdempotencyKey | None:
    """Return the request's Idempotency-Key, with a digest of everything that determines the request's effect.

    ``writer``: id of the owning write key; empty for the key file.

    Raises:
        MalformedBody: the header is empty, too long or not printable ASCII.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not is_key(key):
        raise MalformedBody(f"an Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} printable ASCII characters")
    digest = blake2b(digest_size=16)
    query: bytes = request.scope["query_string"]
    fields = (request.headers.get(name, "") for name in ("content-type", "if-match", "if-none-match"))
    for part in (request.method, request.scope["path"], query.decode(), *fields):
        digest.update(part.encode() + b"\n")
    digest.update(body)
    return IdempotencyKey(key, digest.digest(), writer)


_QUALITY: Final = re.compile(r";\s*q=([01](?:\.\d{0,3})?)\s*(?:;|$)")


def choose(accept: str | None, offers: Sequence[str]) -> str | None:
    """Return the media type of ``offers`` with the highest quality in an Accept header; None if none is acceptable.

    Of equal qualities, the first offer wins.
    """
    if not accept or not accept.strip():
        return offers[0]
    best: tuple[float, str | None] = (0.0, None)
    for offer in offers:
        quality = _quality(accept, offer)
        if quality > best[0]:
            best = (quality, offer)
    return best[1]


def _quality(accept: str, offer: str) -> float:
    """Return the quality of the most specific matching range (RFC 9110 section 12.5.1)."""
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
    """Return whether an Accept-Encoding header names gzip as acceptable (RFC 9110 section 12.5.3)."""
    for part in (accept_encoding or "").lower().split(","):
        name, semicolon, parameters = part.partition(";")
        if name.strip() in {"gzip", "x-gzip"}:
            match = _QUALITY.search(semicolon + parameters)
            return match is None or float(match[1]) > 0
    return False


_CODED: Final = re.compile(r'(?:--?|;)(?:gzip|br|zstd|deflate)"$')
"""Suffixes that proxies append to the entity tag of a compressed answer: ``-gzip`` (Apache), ``--gzip``, ``;gzip``."""


def has_etag(if_none_match: str | None, etag: str) -> bool:
    """Return whether an If-None-Match header matches ``etag`` (weak comparison, RFC 9110 section 13.1.2).

    A tag with a suffix from a compressing proxy matches, too.
    """
    if if_none_match is None:
        return False
    if if_none_match == etag or if_none_match.strip() == "*":
        return True
    plain = _CODED.sub('"', etag)
    return any(_CODED.sub('"', each.strip().removeprefix("W/")) == plain for each in if_none_match.split(","))


def endpoint_of(request: Request) -> str:
    """Return the endpoint in the path of a request for data.

    Raises:
        BadName: it is none.
    """
    # The server's decoded path, never a URL composed with the Host header (docs/reliability.md S19).
    path: str = request.scope["path"]
    return endpoints.check(path.removeprefix(PREFIX))


MAX_DIGITS: Final = 18
"""Maximum number of digits of a version: more do not fit into the store's column."""


def names_version(scope: Scope) -> bool:
    """Return whether the query of a request names a version, or tries to."""
    query: bytes = scope["query_string"]
    return b"version=" in query


def wanted_version(request: Request) -> int | None:
    """Return the version requested by ``?version=N``; None for the current one.

    Raises:
        MalformedBody: ``N`` is no version.
    """
    text = request.query_params.get("version")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and int(text) > 0):
        raise MalformedBody("version is a whole number")
    return int(text)


def coding_refusal(request: Request) -> Response | None:
    """Return the answer to a body with a Content-Encoding; None without one."""
    if request.headers.get("content-encoding", "").strip().lower() in {"", "identity"}:
        return None
    detail = "the body must not be compressed: send it without Content-Encoding"
    return problem(415, "unsupported_coding", detail, headers={"Accept-Encoding": "identity"})


def ttl_ms(query: Mapping[str, str]) -> int:
    """Return the time to live that ``?ttl=`` gives in seconds, in milliseconds; 0 without one.

    Raises:
        InvalidDataset: it is no whole number from 1 to :data:`MAX_TTL_S`.
    """
    text = query.get("ttl")
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= MAX_TTL_S):
        raise InvalidDataset(f"ttl is a whole number of seconds from 1 to {MAX_TTL_S}")
    return int(text) * 1000


_VERSION: Final = re.compile(r'(?:W/)?"([1-9]\d{0,17})-[a-z]+(?:(?:--?|;)[a-z]+)?"')


def precondition_of(headers: Headers) -> Precondition | None:
    """Return the condition of a write; None without one.

    Only the versions of entity tags are compared: what a compressing proxy changes in a tag does not matter.

    Raises:
        MalformedBody: If-None-Match is not ``*``, or If-Match is no list of entity tags of this service.
    """
    match, none = headers.get("if-match"), headers.get("if-none-match")
    if none is not None:
        if none.strip() != "*" or match is not None:
            raise MalformedBody("a write has If-None-Match: *, for no endpoint yet, or If-Match with entity tags")
        return Precondition(exists=False)
    if match is None:
        return None
    if match.strip() == "*":
        return Precondition()
    found = [_VERSION.fullmatch(each.strip()) for each in match.split(",")]
    versions = frozenset(int(each[1]) for each in found if each is not None)
    if None in found:
        raise MalformedBody('If-Match has entity tags of this endpoint, such as "1700000000123-json", or is *')
    return Precondition(versions)
