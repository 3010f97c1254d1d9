"""Connections that read little at a time and no more than they may: below HTTP, where its parser cannot count yet."""

import ssl
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import httpcore
import httpx

READ: Final = 8 * 1024
"""Bytes that are read at once: what a parser makes of them (300 interim answers, 1,000 chunks) takes 10 ms at most."""


class ResponseTooLarge(httpcore.RemoteProtocolError):
    """The other side sent more than it may."""


class ReadBudget:
    """Bytes that may still be read; set anew for each part of an answer."""

    def __init__(self) -> None:
        self.left = 0

    def take(self, count: int) -> None:
        """Count what was read; raises TooMuch."""
        self.left -= count
        if self.left < 0:
            raise ResponseTooLarge("the answer is longer than it may be")


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, allowance: ReadBudget) -> None:
        self._stream = stream
        self._allowance = allowance

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's name
        data = await self._stream.read(min(max_bytes, READ), timeout)
        self._allowance.take(len(data))
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
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._allowance)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # as httpcore has it
        return self._stream.get_extra_info(info)


class _Backend(httpcore.AnyIOBackend):
    def __init__(self, allowance: ReadBudget) -> None:
        super().__init__()
        self._allowance = allowance

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, self._allowance)


@cache
def _trusted() -> ssl.SSLContext:
    """The usual authorities; reading them takes 20 ms, so all sources share it."""
    return httpx.create_ssl_context(trust_env=False)


class BoundedTransport(httpx.AsyncHTTPTransport):
    """httpx's transport with one connection at a time, whose reads count against an allowance."""

    def __init__(self, allowance: ReadBudget) -> None:
        super().__init__(verify=_trusted(), trust_env=False)
        # httpx has no parameter for what its pool connects with; the pool itself is httpcore's public interface.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_trusted(),
            max_connections=1,
            keepalive_expiry=30.0,
            network_backend=_Backend(allowance),
        )
