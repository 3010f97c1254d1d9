"""Requests that an internal connection does not answer by itself go to an application: same port, same socket."""

import asyncio
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from diem.links.acceptor import MAX_HEAD

CLOSE: Final = (b"connection", b"close")
"""With every answer: the next request on the connection might be for the listener, not the application."""


class AsgiFallback:
    """An application for everything below ``prefix``, whatever the method.

    The listener's own connections know GET and WebSocket upgrades alone, and hold little; a connection that asks for
    something below the prefix is handed over with what was received of it, and ends with the answer, as all of them do.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._config = uvicorn.Config(
            app,
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=MAX_HEAD,
        )
        self._config.load()
        self._state = ServerState()
        self._state.default_headers = [CLOSE]
        self._prefix = prefix.encode()

    def wants(self, head: bytes) -> bool | None:
        """Whether a request that begins with ``head`` is for the application; None while that cannot be known."""
        _method, space, rest = head.partition(b" ")
        path, end, _ = rest.partition(b" ")
        if not space or not (end or len(path) > len(self._prefix)):
            return None
        return path == self._prefix or path.startswith((self._prefix + b"/", self._prefix + b"?"))

    def take(self, transport: asyncio.Transport, received: bytes) -> None:
        """The connection is the application's from now on."""
        protocol: Any = H11Protocol(self._config, self._state, {})
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(received)

    async def drain(self, seconds: float) -> None:
        """Let requests that have begun be answered."""
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=seconds)
