"""An HTTP server of the test's own process without sockets: what arrives on a connection is what the test passes on."""

import asyncio
from typing import Any, cast

from starlette.types import ASGIApp

from diem.links.connection_limits import ConnectionLimits
from diem.links.fast_path import FastPath
from diem.links.http_server import HttpServer, TimedProtocol, make_server


class Wire(asyncio.Transport):
    """The server's transport of a client that reads everything at once."""

    def __init__(self, peer: str = "192.0.2.1") -> None:
        super().__init__({"peername": (peer, 1), "sockname": ("192.0.2.2", 80)})
        self.sent = b""
        self.ended = False
        self.reading = True
        self.unread = 0
        """Bytes that the client has not read."""

    @property
    def answers(self) -> int:
        """Number of answers with status 200."""
        return self.sent.count(b"200 OK")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread


def serving(app: ASGIApp, readers: int, fast_path: FastPath | None = None) -> HttpServer:
    """Return a server that listens nowhere."""
    server = make_server(app, limits=ConnectionLimits(readers), drain_s=1, fast_path=fast_path)
    server.config.load()
    return server


def connected(server: HttpServer, peer: str = "192.0.2.1") -> tuple[TimedProtocol, Wire]:
    """Return a new connection of a server."""
    made = cast("Any", server.config.http_protocol_class)(
        config=server.config, server_state=server.server_state, app_state={}
    )
    wire = Wire(peer)
    made.connection_made(wire)
    return made, wire


async def rest(*protocols: TimedProtocol) -> None:
    """Let all tasks end, then close."""
    for _ in range(50):
        await asyncio.sleep(0)
    for protocol in protocols:
        protocol.connection_lost(None)
