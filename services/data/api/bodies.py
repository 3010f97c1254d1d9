"""Reading request bodies: bounded in size while they arrive, and in time."""

import asyncio
from hashlib import blake2b
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from services.data.errors import BodyTooLarge, MalformedBody
from services.data.store import IdempotencyKey

BODY_TIMEOUT_S: Final = 20.0
"""A client that takes longer for at most 1 MiB holds a connection and nothing else, but it shall not do so for ever."""
MAX_KEY_CHARACTERS: Final = 255


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body.

    Raises:
        BodyTooLarge: as soon as it has more than ``max_bytes``, or says that it will have.
        HTTPException: 408, it took more than 20 s.
    """
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > max_bytes:
        raise BodyTooLarge(f"a body has at most {max_bytes} bytes here, not {length}")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise BodyTooLarge(f"a body has at most {max_bytes} bytes here")
                chunks.append(chunk)
    except TimeoutError:
        raise HTTPException(408, headers={"Connection": "close"}) from None
    return b"".join(chunks)


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
