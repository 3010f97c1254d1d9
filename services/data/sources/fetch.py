"""Conditional GET with bounds on bytes, decoded bytes and redirects; reads are counted below the HTTP parser."""

import asyncio
import re
import ssl
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import httpcore
import httpx
from httpx import codes

from diem.process.http_transport import HttpTransport
from services.data.errors import DataError
from services.data.files.unpack import recoded

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


class PollingClient(httpx.AsyncClient):
    """A client for one request at a time, without environment settings and cookies, that accepts only gzip as a coding.

    ``budget`` is that of its connection; it bounds nothing with another ``transport``.
    """

    def __init__(self, timeout_s: float, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.budget = ReadBudget()
        super().__init__(
            headers={
                "Accept": "text/csv, application/json, */*;q=0.5",
                "Accept-Encoding": "gzip",
                "User-Agent": "DIEM",
            },
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            trust_env=False,
            timeout=timeout_s,
            transport=transport or BoundedTransport(self.budget),
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
_MAX_LINKS: Final = 8192
"""Characters of Link fields."""
_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
"""Fields without which a body is delimited by the connection's end (RFC 9112 section 6.3)."""


@dataclass(eq=False)
class PollFailed(DataError):
    """A failed poll. ``retry_after`` is the server's Retry-After, if any; ``status`` that of its answer."""

    template = "{reason}"
    code = "poll_failed"

    reason: str
    retry_after: str = ""
    status: int = 0


HIDDEN: Final = "***"
"""Stands for secrets in errors."""


class Request(NamedTuple):
    """A request to the server of a source.

    Attributes:
        method: GET or POST. url: with all parameters. headers: sent to the URL's own origin only. content: the body.
        content_type: of the body. secrets: texts of secret files in the request. secret_query: parameters among them.
    """

    method: str
    url: httpx.URL
    headers: Mapping[str, str] = MappingProxyType({})
    content: bytes | None = None
    content_type: str = ""
    secrets: tuple[str, ...] = ()
    secret_query: Mapping[str, str] = MappingProxyType({})

    def redact(self, text: str) -> str:
        """Return a text with all secrets hidden."""
        for secret in self.secrets:
            forms = map(re.escape, (secret, quote(secret), quote(secret, safe=""), repr(secret)[1:-1]))
            text = re.sub("|".join(forms), HIDDEN, text, flags=re.IGNORECASE)
        return text

    def is_echoed(self, body: bytes) -> bool:
        """Return whether a body has one of the secrets, so that errors must not quote it."""
        return any(secret.encode() in body for secret in self.secrets)

    def following(self, url: httpx.URL) -> "Request":
        """Return the request of a next page: with the secret parameters that its URL lacks; none for another origin."""
        if not same_origin(url, self.url):
            return self._replace(url=url.copy_with(userinfo=b""), headers={}, secret_query={})
        missing = {name: text for name, text in self.secret_query.items() if name not in url.params}
        return self._replace(url=with_query(url.copy_with(userinfo=self.url.userinfo), missing.items()))


def with_query(url: httpx.URL, query: Iterable[tuple[str, str]]) -> httpx.URL:
    """Append parameters to those of a URL, which stay as they are written."""
    added = urlencode(list(query), quote_via=quote)
    given = url.query.decode("ascii")
    return url.copy_with(query="&".join(filter(None, (given, added))).encode()) if added else url


class Answer(NamedTuple):
    """A complete, decoded answer; possibly truncated if it is ``open_ended``."""

    content_type: str
    validators: dict[str, str]
    """Conditional header fields of the next request."""
    body: bytes
    open_ended: bool = False
    """True if the body ends with the connection (no length, chunks or gzip), so that truncation is undetectable."""
    url: httpx.URL = httpx.URL()
    """Where it is from, after redirects."""
    next_link: str = ""
    """Target of the Link field with the relation next (RFC 8288); empty without one."""

    @property
    def utf8(self) -> bytes:
        """The body; in UTF-8 if it is text in another encoding that the Content-Type declares."""
        return recoded(self.body, self.content_type)


async def fetch(
    client: PollingClient,
    request: Request,
    validators: Mapping[str, str],
    *,
    max_bytes: int,
    redirects: Collection[str] = (),
) -> Answer | None:
    """Send a request; None if the server answers 304.

    Follows at most 3 redirects within the origin, and to the hosts ``redirects``, without the request's own header
    fields.

    Raises:
        PollFailed: the answer is not a complete body within the bounds.
        httpx.HTTPError: the connection or the HTTP exchange failed.
    """
    here, method, content = request.url, request.method, request.content
    for _ in range(MAX_REDIRECTS + 1):
        client.budget.left = _HEAD_BYTES
        headers = dict(validators) | (dict(request.headers) if same_origin(here, request.url) else {})
        if content is not None:
            headers["Content-Type"] = request.content_type
        async with client.stream(method, here, headers=headers, content=content) as response:
            if response.has_redirect_location:
                here = _redirected(here, response)
                check_target(here, request.url, redirects, f"redirected ({response.status_code})")
                # A password in the configured URL belongs to this origin, and may be resent to it alone.
                own = same_origin(here, request.url)
                here = here.copy_with(userinfo=request.url.userinfo if own else b"")
                if response.status_code not in {307, 308}:
                    method, content = "GET", None
                continue
            if response.status_code == 304 and validators:
                # It has no body, but the connection is kept only for a response that was read.
                await response.aread()
                return None
            if response.status_code != 200:
                raise PollFailed(_refusal(response), response.headers.get("retry-after", ""), response.status_code)
            # Each chunk is preceded by its length: tiny chunks have more of these than of data.
            client.budget.left = _HEAD_BYTES + 2 * max_bytes
            body = await _body(response, max_bytes)
            return Answer(
                response.headers.get("content-type", ""),
                _validators(response.headers),
                body,
                open_ended=response.headers.keys().isdisjoint(_FRAMING) and _coding(response) == "identity",
                url=here,
                next_link=_next_link(response),
            )
    raise PollFailed(f"redirected more than {MAX_REDIRECTS} times")


_REMEDIES: Final = {
    401: ": it needs a key or token that is valid (headers, query)",
    403: ": it refuses the key or token, or this client (headers, query)",
    429: ": it limits the number of requests: raise every, or lower per_minute",
    503: ": it is overloaded, or being maintained",
}


def _refusal(response: httpx.Response) -> str:
    phrase = codes.get_reason_phrase(response.status_code)
    return f"status {response.status_code}{f' ({phrase})' * bool(phrase)}{_REMEDIES.get(response.status_code, '')}"


_PAGE: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<(?:!--.*?--|\?xml[^>]*)>\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
_TITLE: Final = re.compile(rb"<title[^>]*>([^<]{1,300})<", re.IGNORECASE)
_SEARCHED: Final = 4096
"""Bytes of an HTML page in which it is recognised and its title is searched."""


def refuse_page(body: bytes, request: Request) -> None:
    """Raise PollFailed if a body is an HTML page, as of a login."""
    head = body[:_SEARCHED]
    if _PAGE.match(head) is None:
        return
    found = _TITLE.search(head)
    title = "" if found is None else " ".join(request.redact(found[1].decode(errors="replace")).split())
    named = f", titled {title[:60]!r}," if title else ""
    raise PollFailed(f"status 200, but an HTML page{named} instead of data: check url, and the key if one is needed")


def _next_link(response: httpx.Response) -> str:
    links = response.links.items() if len(response.headers.get("link", "")) <= _MAX_LINKS else ()
    return next((link["url"] for relations, link in links if relations and "next" in relations.lower().split()), "")


def _redirected(here: httpx.URL, response: httpx.Response) -> httpx.URL:
    try:
        return here.join(response.headers["location"]).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError):
        raise PollFailed(f"redirected ({response.status_code}) to an invalid address") from None


def _port(url: httpx.URL) -> int | None:
    return url.port or {"http": 80, "https": 443}.get(url.scheme)


def same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    return (one.scheme, one.host, _port(one)) == (other.scheme, other.host, _port(other))


def check_target(target: httpx.URL, origin: httpx.URL, allowed: Collection[str], how: str) -> None:
    """Check a URL from an answer: it has the origin, or one of the hosts ``allowed``, and TLS if the origin has it.

    Raises:
        PollFailed: it is elsewhere; the error begins with ``how``.
    """
    if same_origin(target, origin):
        return
    if target.scheme not in {"http", "https"} or (origin.scheme, target.scheme) == ("https", "http"):
        raise PollFailed(f"{how} from {origin.scheme} to {target.scheme[:20]}; that is not followed")
    if target.host not in allowed and f"{target.host}:{_port(target)}" not in allowed:
        host = target.host[:100] if target.port is None else f"{target.host[:100]}:{target.port}"
        raise PollFailed(f'{how} to another host, {host}, which is not followed: redirects = ["{host}"] allows it')


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
