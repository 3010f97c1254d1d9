"""WebSocket and HTTP clients of internal listeners that authenticate as DIEM's own do."""

import asyncio
from functools import partial
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from diem.links.dialer import Challenge
from diem.links.internal_client import internal_client
from diem.process.auth import SharedKey
from tests.support.patience import PATIENCE_S


class InternalConnect(connect):
    """``connect`` of websockets, with the exchange of proofs before the opening handshake."""

    def __init__(self, uri: str, key: SharedKey, **options: Any) -> None:
        super().__init__(uri, **{"proxy": None, "compression": None, **options})
        self._key = key

    async def open_tcp_connection(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        made = await loop.create_connection(partial(Challenge, self._key, self.uri), self.ws_uri.host, self.ws_uri.port)
        challenge = made[1]
        self.additional_headers = {"Authorization": await challenge.authorization}
        connection = self.factory(self.ws_uri)
        challenge.transport.set_protocol(connection)
        connection.connection_made(challenge.transport)
        return connection


def http_client(key: SharedKey, timeout_s: float = PATIENCE_S) -> httpx.AsyncClient:
    """Return a client of internal listeners."""
    return internal_client(key, timeout_s)
