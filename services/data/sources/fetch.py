"""Conditional GET with bounds on bytes, decoded bytes and redirects; reads are counted below the HTTP parser."""

import asyncio
import ssl
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, NamedTuple

import httpcore
import httpx

from diem.process.http_transport import HttpTransport
from services.data.errors import DataError

READ_BYTES: Final = 8 * 1024
"""Bytes per read: parsing them (300 interim answers, 1,000 chunks) takes 10 ms at most."""


class ResponseTooLarge(httpcore.RemoteProtocolError):
    """The server sent more than its budget."""


class ReadBudget:
    """Remaining bytes that may be read; reset for each part of an answer."""

    def __init__(self) -> None:
        self.left = 0

    def consume(self, count: int) -> None:
        """Consume ``count`` bytes; raise ResponseTooLarge beyond the budget."""
        self.left -= count
        if self.left < 0:
            raise ResponseTooLarge("the response is too long")


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, budget: ReadBudget) -> None:
        self._stream = stream
        self._budget = budget

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's name
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._budget.consume(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._budget)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # as httpcore has it
        return self._stream.get_extra_info(info)


class _Backend(httpcore.AnyIOBackend):
    def __init__(self, budget: ReadBudget) -> None:
        super().__init__()
        self._budget = budget

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, self._budget)


@cache
def _trusted() -> ssl.SSLContext:
    """Return the TLS context with the usual authorities, shared by all sources: loading it takes 20 ms."""
    return httpx.create_ssl_context(trust_env=False)


class BoundedTransport(HttpTransport):
    """httpx's transport with one connection at a time and a budget for its reads."""

    def __init__(self, budget: ReadBudget) -> None:
        super().__init__(verify=_trusted(), trust_env=False)
        # httpx has no parameter for its pool's network backend; the pool is httpcore's public interface.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_trusted(),
            max_connections=1,
            keepalive_expiry=30.0,
            network_backend=_Backend(budget),
        )


MAX_REDIRECTS: Final = 3
MAX_RATIO: Final = 200
"""Largest ratio of decoded to coded bytes, beyond the first 64 KiB; tables of text stay below 50."""
_PIECE_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 256 * 1024
"""Bytes before the body: TLS handshake, interim answers and header fields (httpcore bounds one head to 100 KiB)."""
_YIELD_EVERY: Final = 64
"""Chunks after which the event loop runs other tasks: the chunks of one read are iterated without a pause."""
_MAX_VALIDATOR: Final = 1024
_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
"""Fields without which a body is delimited by the connection's end (RFC 9112 section 6.3)."""


@dataclass(eq=False)
class PollFailed(DataError):
    """A failed poll. ``retry_after`` is the server's Retry-After, if any."""

    template = "{reason}"
    code = "poll_failed"

    reason: str
    retry_after: str = ""


class Answer(NamedTuple):
    """A complete, decoded answer; possibly truncated if it is ``open_ended``."""

    content_type: str
    validators: dict[str, str]
    """Conditional header fields of the next request."""
    body: bytes
    open_ended: bool = False
    """True if the body ends with the connection (no length, chunks or gzip), so that truncation is undetectable."""


def make_client(timeout_s: float, transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    """Make a client without environment settings and cookies that accepts only gzip as a coding."""
    return httpx.AsyncClient(
        headers={"Accept": "text/csv, application/json", "Accept-Encoding": "gzip", "User-Agent": "DIEM"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        trust_env=False,
        timeout=timeout_s,
        transport=transport,
    )


async def fetch(
    client: httpx.AsyncClient, url: str, validators: Mapping[str, str], budget: ReadBudget, *, max_bytes: int
) -> Answer | None:
    """Get ``url``; None if the server answers 304. Follows at most 3 redirects, to the same origin only.

    ``budget`` is that of the client's connections.

    Raises:
        PollFailed: the answer is not a complete body within the bounds.
        httpx.HTTPError: the connection or the HTTP exchange failed.
    """
    here = origin = httpx.URL(url)
    for _ in range(MAX_REDIRECTS + 1):
        budget.left = _HEAD_BYTES
        async with client.stream("GET", here, headers=dict(validators)) as response:
            if response.has_redirect_location:
                here = _redirected(here, response)
                if (here.scheme, here.host, _port(here)) != (origin.scheme, origin.host, _port(origin)):
                    raise PollFailed(
                        f"redirected ({response.status_code}) to another host; such redirects are not followed"
                    )
                continue
            if response.status_code == 304 and validators:
                return None
            if response.status_code != 200:
                raise PollFailed(f"status {response.status_code}", response.headers.get("retry-after", ""))
            # Each chunk is preceded by its length: tiny chunks have more of these than of data.
            budget.left = _HEAD_BYTES + 2 * max_bytes
            body = await _body(response, max_bytes)
            return Answer(
                response.headers.get("content-type", ""),
                _validators(response.headers),
                body,
                open_ended=response.headers.keys().isdisjoint(_FRAMING) and _coding(response) == "identity",
            )
    raise PollFailed(f"redirected more than {MAX_REDIRECTS} times")


def _redirected(here: httpx.URL, response: httpx.Response) -> httpx.URL:
    try:
        there = here.join(response.headers["location"])
    except (httpx.InvalidURL, ValueError):
        raise PollFailed(f"redirected ({response.status_code}) to an invalid address") from None
    # A password in the configured URL belongs to this origin, and may be resent to it.
    return there.copy_with(userinfo=here.userinfo, fragment=None)


def _port(url: httpx.URL) -> int | None:
    return url.port or {"http": 80, "https": 443}.get(url.scheme)


def _validators(headers: httpx.Headers) -> dict[str, str]:
    etag, modified = (_sent_back(headers.get(name)) for name in ("etag", "last-modified"))
    if etag is None and not _is_stable(modified, headers.get("date")):
        modified = None
    pairs = (("If-None-Match", etag), ("If-Modified-Since", modified))
    return {name: value for name, value in pairs if value is not None}


def _sent_back(value: str | None) -> str | None:
    """Return a validator; None if it is too long or unusable as a header field."""
    return value if value and len(value) <= _MAX_VALIDATOR and value.isascii() else None


def _is_stable(modified: str | None, date: str | None) -> bool:
    """Return whether Last-Modified is a strong validator (RFC 9110 section 8.8.2.2).

    It has whole seconds: a body sent within the second of its change may change again without a new time.
    """
    try:
        return parsedate_to_datetime(str(date)) - parsedate_to_datetime(str(modified)) >= timedelta(seconds=1)
    except (ValueError, TypeError, OverflowError):
        return False


async def _body(response: httpx.Response, max_bytes: int) -> bytes:
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > max_bytes:
        raise PollFailed(f"the body has more than {max_bytes} bytes")
    coding = _coding(response)
    if coding not in {"identity", "gzip", "x-gzip"}:
        raise PollFailed(f"the body has the coding {coding[:20]!r}, which was not requested")
    gzip = None if coding == "identity" else Gzip()
    body = bytearray()
    # Not by the response's own decoders, which decode a whole chunk before its size can be checked.
    if not isinstance(response.stream, httpx.AsyncByteStream):
        raise TypeError(response.stream)
    count = 0
    async for chunk in response.stream:
        count += 1
        if count % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        for piece in (chunk,) if gzip is None else gzip.decode(chunk):
            body += piece
            if len(body) > max_bytes:
                raise PollFailed(f"the body has more than {max_bytes} bytes")
    if gzip is not None:
        gzip.end()
    return bytes(body)


def _coding(response: httpx.Response) -> str:
    return str(response.headers.get("content-encoding", "identity")).strip().lower()


class Gzip:
    """Decodes a gzip stream (RFC 1952, with several members) in pieces of at most 64 KiB, and bounds its ratio."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._fed = False
        self._coded = 0
        self._decoded = 0

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded pieces of ``chunk``.

        Raises:
            PollFailed: the data is not gzip, or more than 200 times larger decoded.
        """
        self._coded += len(chunk)
        while chunk:
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
            try:
                piece = self._member.decompress(chunk, _PIECE_BYTES)
            except zlib.error:
                raise PollFailed("the body is labelled gzip and is not") from None
            self._fed = True
            self._decoded += len(piece)
            if self._decoded > _PIECE_BYTES + MAX_RATIO * self._coded:
                raise PollFailed(f"the body becomes more than {MAX_RATIO} times larger when it is decoded")
            yield piece
            chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def end(self) -> None:
        """Check at the end of the body that the stream is complete; raises PollFailed."""
        if self._fed and not self._member.eof:
            raise PollFailed("the body ends in the middle of its gzip stream")
