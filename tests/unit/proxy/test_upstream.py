"""One connection to a server: the handshake, and malformed updates after it."""

import asyncio
import socket
from typing import cast

from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.utils import accept_key

from diem.fanout.session import DeliveryStats, Session
from diem.links.dialer import ClientConnection
from diem.process.auth import SharedKey
from diem.protocol.frames import text_frame
from diem.protocol.update import encode
from proxy.upstream import ClientUpstream, Upstream
from proxy.upstream_pool import UpstreamLink
from tests.unit.proxy.world import START, RecordingListener

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
    upstream = Upstream(URL, KEY.header, listener, cast("UpstreamLink", listener))
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


class CountingListener(RecordingListener):
    """Counts the updates that do not go straight to the client."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = 0

    def updates(self, url: str, data: bytes, frames: int) -> None:
        self.counted += frames


async def test_updates_of_an_inspected_link_all_go_through_the_listener() -> None:
    listener, stats, sent = CountingListener(), DeliveryStats(), list[bytes]()
    session = Session(sent.append, sent.extend, stats)
    link = ClientUpstream(URL, KEY.header, listener, cast("UpstreamLink", listener), session=session, stats=stats)
    transport = Transport()
    with socket.socket() as own:
        transport._extra = {"socket": own}  # type: ignore[attr-defined]
        link.connection_made(transport)
    link.data_received(accepted(link))
    frame = text_frame(encode("/a", START, START))

    def passed(times: int) -> tuple[int, int]:
        """Return the updates that the listener and the client received since the last call."""
        listener.counted = 0
        sent.clear()
        for _ in range(times):
            link.data_received(frame)
        return listener.counted, len(sent)

    assert passed(5) == (0, 5)
    link.inspect(inspected=True)
    assert passed(5) == (5, 0)
    link.inspect(inspected=False)
    assert passed(5) == (1, 4), "the first one shows that the stream is at the start of a frame"
