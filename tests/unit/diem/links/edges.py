"""Edges that listen, and a handshake and rules for tests of their connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from diem.links.edge import AdmissionRules, Edge
from diem.links.edge_connection import EdgeConnection
from diem.links.listener import Listener
from diem.process.limits import AddressLimits
from diem.process.listeners import bind

HANDSHAKE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: diem.v1.json\r\n\r\n"
)


class Patient(AdmissionRules):
    """Allowances that are not refilled during a test."""

    @property
    def address_limits(self) -> AddressLimits:
        return replace(super().address_limits, message_rate_per_s=1e-6)


@contextlib.asynccontextmanager
async def listening(edge: Edge) -> AsyncIterator[int]:
    """Listen for clients, yield the port, and abort all connections at the end."""
    made: list[EdgeConnection] = []

    def connection() -> EdgeConnection:
        made.append(EdgeConnection(edge))
        return made[-1]

    listener = Listener((bind("127.0.0.1", 0),), connection)
    listener.start()
    try:
        yield listener.port
    finally:
        listener.stop()
        for one in made:
            one.abort()
        await asyncio.sleep(0.02)
