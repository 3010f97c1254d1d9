"""One connection to a server: the handshake, and malformed updates after it."""

import asyncio
from typing import cast

from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.utils import accept_key

from diem.links.dialer import ClientConnection
from diem.process.auth import SharedKey
from proxy.upstream import Upstream
from tests.unit.proxy.world import RecordingListener

KEY = SharedKey("0123456789abcdef0123456789abcdef")
URL = "ws://127.0.0.1:9102/ws"


class Transport(asyncio.Transport):
    """A transport that records the bytes written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def accepted(link: ClientConnection) -> bytes:
    """Return the response of a server that accepts the link."""
    headers = Headers(
        [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept_key(link.client.key)),
            ("Sec-WebSocket-Protocol", "diem.v1.json"),
        ]
    )
    return Response(101, "Switching Protocols", headers).serialize()


def dialled_upstream() -> Upstream:
    listener = RecordingListener()
    upstream = Upstream(URL, KEY.header, listener)
    upstream.connection_made(Transport())
    return upstream


async def test_malformed_update_closes_the_link() -> None:
    link = dialled_upstream()
    link.data_received(accepted(link))
    payload = b'{"type":"update","endpoint":"/a"}'
    link.data_received(bytes((0x81, len(payload))) + payload)
    assert cast("Transport", link.transport).aborted


async def test_handshake_that_completes_after_it_was_cancelled_opens_no_link() -> None:
    link = dialled_upstream()
    link.opened.cancel()
    link.data_received(accepted(link))
    assert cast("Transport", link.transport).aborted
    assert not cast("RecordingListener", link._listener).events
