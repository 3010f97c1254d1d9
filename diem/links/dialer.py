"""The dialling side of an internal link: connects, and asks for a subprotocol with the shared key."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from diem.links import local
from diem.links.connection import SILENT_LOGGER, Connection
from diem.protocol import feed

CONNECT_TIMEOUT_S: Final = 3.0


class ClientConnection(Connection):
    """A connection that this process has dialled; ``opened`` is resolved with whether the handshake succeeded."""

    __slots__ = ("opened",)

    def __init__(
        self,
        url: str,
        authorization: str,
        *,
        subprotocol: str = feed.SUBPROTOCOL,
        max_size: int = feed.MAX_BATCH_BYTES,
    ) -> None:
        super().__init__(
            ClientProtocol(
                parse_uri(url),
                subprotocols=[Subprotocol(subprotocol)],
                max_size=max_size,
                logger=SILENT_LOGGER,
            )
        )
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = self.client.connect()
        request.headers["Authorization"] = authorization
        self.client.send_request(request)

    @property
    def client(self) -> ClientProtocol:
        """The protocol, as what it is."""
        protocol = self.protocol
        assert isinstance(protocol, ClientProtocol)  # noqa: S101 - given in the constructor
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the opening handshake."""
        super().connection_made(transport)
        self.flush()

    def on_response(self, response: Response) -> None:
        """Resolve ``opened``; nothing comes of a link that its dialler has given up at this very moment."""
        if self.opened.done():
            self.abort()
            return
        error = self.client.handshake_exc
        if error is None and self.is_open:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(error or InvalidHandshake(f"HTTP {response.status_code}"))

    def on_closed(self) -> None:
        """A connection that never opened says so."""
        if not self.opened.done():
            self.opened.set_exception(self.client.handshake_exc or ConnectionError("connection lost"))


C = TypeVar("C", bound=ClientConnection)


async def dial(url: str, connection: Callable[[], C], *, sockets: Path | None = None) -> C:
    """Connect to ``ws://host:port/path`` and finish the opening handshake; never follows redirects or proxies.

    A port of this machine is reached at its Unix socket in ``sockets``, if it has one that answers.

    Raises:
        OSError: no connection, or it was lost.
        TimeoutError: not within 3 s.
        InvalidHandshake: the answer was not 101.
    """
    made: C | None = None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            made = await _connect(url, connection, sockets)
            await made.opened
    except BaseException:
        if made is not None:
            # Retrieved here, so that an abandoned handshake is not reported as a lost exception.
            made.opened.cancel()
            made.abort()
        raise
    return made


async def _connect(url: str, connection: Callable[[], C], sockets: Path | None) -> C:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    loop = asyncio.get_running_loop()
    path = local.unix_socket(sockets, host, port)
    if path is not None:
        # One that was left behind by a process that was killed refuses.
        with contextlib.suppress(OSError):
            return (await loop.create_unix_connection(connection, os.fspath(path)))[1]
    return (await loop.create_connection(connection, host, port))[1]
