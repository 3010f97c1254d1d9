"""HTTP client of internal listeners and their ``/status``; separate because only some processes need httpx."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import h11
import httpx
import orjson

from diem.links import refused_peers
from diem.links.mutual_auth import (
    HEAD_END,
    MAX_ANSWER_BYTES,
    DialerAuth,
    IncompatiblePeer,
    PeerNotAuthenticated,
    address_of,
)
from diem.process.auth import SharedKey
from diem.process.http_exchange import exchange
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls

MAX_BODY_BYTES: Final = 128 << 20
"""Longest body of an answer, twice a snapshot of the largest partition map."""


class InternalTransport(httpx.AsyncBaseTransport):
    """Transport of an ``httpx.AsyncClient`` with mutual authentication and one connection per request.

    Nothing of a request is sent before the listener has proved the key; until then errors are ``httpx.ConnectError``
    and ``httpx.ConnectTimeout``. The read timeout applies to each read.
    """

    def __init__(
        self, keys: KeyRing | SharedKey, role: KeyRole, tls: LinkTls | None = None, *, reports_keys: bool = False
    ) -> None:
        self._reports_keys = reports_keys
        self._keys = KeyRing.of(keys)
        self._role = role
        self._tls = tls or LinkTls()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, and read the whole answer."""
        timeouts = request.extensions.get("timeout", {})
        async with self._authenticated(request, timeouts.get("connect")) as (reader, writer, authorization):
            try:
                return await _exchange(request, authorization, reader, writer, timeouts.get("read"))
            except TimeoutError as error:
                raise httpx.ReadTimeout("no answer in time", request=request) from error
            except OSError as error:
                raise httpx.ReadError(str(error), request=request) from error
            except h11.ProtocolError as error:
                raise httpx.RemoteProtocolError(str(error), request=request) from error

    @contextlib.asynccontextmanager
    async def _authenticated(
        self, request: httpx.Request, within_s: float | None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, str]]:
        """Connect, and yield the streams with the ``Authorization`` header once the listener has proved the key."""
        url = request.url
        tls = self._tls.context if url.scheme == "https" else None
        writer: asyncio.StreamWriter | None = None
        try:
            try:
                async with asyncio.timeout(within_s):
                    port = url.port or (443 if tls else 80)
                    reader, writer = await asyncio.open_connection(url.host, port, ssl=tls, limit=MAX_ANSWER_BYTES)
                    auth = DialerAuth(self._keys.key(self._role), address_of(writer.get_extra_info("peername")))
                    writer.write(auth.challenge(url.netloc.decode("ascii")))
                    auth.verify(await reader.readuntil(HEAD_END))
                    authorization = auth.authorization(request.method, url.raw_path.decode("ascii"))
            except TimeoutError as error:
                raise httpx.ConnectTimeout("no connection in time", request=request) from error
            except (
                OSError,
                EOFError,
                asyncio.LimitOverrunError,
                PeerNotAuthenticated,
                IncompatiblePeer,
            ) as error:
                if self._reports_keys:
                    refused_peers.refuse_key(f"{url.scheme}://{url.netloc.decode('ascii')}", error)
                raise httpx.ConnectError(str(error) or type(error).__name__, request=request) from error
            if self._reports_keys:
                refused_peers.accept_key(f"{url.scheme}://{url.netloc.decode('ascii')}")
            yield reader, writer, authorization
        finally:
            if writer is not None:
                writer.transport.abort()


async def _exchange(
    request: httpx.Request,
    authorization: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    within_s: float | None,
) -> httpx.Response:
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in _REPLACED]
    headers += [(b"Authorization", authorization.encode("ascii")), (b"Connection", b"close")]
    head = h11.Request(method=request.method, target=request.url.raw_path, headers=headers)
    body = await request.aread()
    answer, content = await exchange(reader, writer, head, body, longest=MAX_BODY_BYTES, read_timeout_s=within_s)
    return httpx.Response(answer.status_code, headers=list(answer.headers), content=content)


_REPLACED: Final = frozenset({b"authorization", b"connection", b"accept-encoding"})


def internal_client(
    keys: KeyRing | SharedKey,
    timeout: httpx.Timeout | float,
    tls: LinkTls | None = None,
    *,
    role: KeyRole = KeyRole.ADMIN,
    reports_keys: bool = False,
) -> httpx.AsyncClient:
    """Return an HTTP client of internal listeners with the key of a role.

    ``tls`` is that of ``https`` URLs; None: the system's authorities decide. ``reports_keys``: listeners with another
    key are reported to :mod:`diem.links.refused_peers`.
    """
    transport = InternalTransport(keys, role, tls, reports_keys=reports_keys)
    return httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)


async def fetch_status(http: httpx.AsyncClient, base_url: str) -> dict[str, Any] | None:
    """Return the status of the process at ``base_url``; None without a valid answer.

    To a ``clock`` in it, its process's Unix time, ``clock_difference`` is added: see :func:`clock_difference_s`.
    """
    sent_s = time.time()
    try:
        reply = await http.get(f"{base_url}/status")
        body = orjson.loads(reply.content) if reply.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    if not isinstance(body, dict):
        return None
    if isinstance(clock_s := body.get("clock"), int | float):
        body["clock_difference"] = clock_difference_s(clock_s, sent_s, time.time())
    return body


def clock_difference_s(stated_s: float, sent_s: float, received_s: float) -> float:
    """Return the least number of seconds that another clock is ahead of this one; negative: behind; 0: perhaps equal.

    Args:
        stated_s: its Unix time when it answered.
        sent_s: Unix time of the request by this clock.
        received_s: Unix time of the answer.
    """
    return round(max(0.0, stated_s - received_s) + min(0.0, stated_s - sent_s), 3)
