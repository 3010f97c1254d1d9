"""Links to servers: dialled again, so many at a time, and one server never at the expense of another."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.utils import accept_key

from diem.links.dialer import ClientConnection
from diem.process.auth import SharedKey
from diem.protocol.frames import BadFrame
from diem.protocol.messages import ServerMessage
from proxy import upstream_pool as pool_module
from proxy.upstream import Upstream
from proxy.upstream_pool import MAX_DIALLING, UpstreamDialer, UpstreamLink
from tests.support.patience import PATIENCE_S

KEY = SharedKey("0123456789abcdef0123456789abcdef")
HUNG, WELL = "ws://127.0.0.1:9101/ws", "ws://127.0.0.1:9102/ws"


class Nobody:
    """As ``UpstreamListener`` and owner of a connection; finds fault with updates."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def opened(self, _link: object) -> None:
        self.seen.append("opened")

    def connected(self, _link: object) -> None:
        self.seen.append("connected")

    def disconnected(self, _link: object) -> None:
        self.seen.append("disconnected")

    def updates(self, url: str, data: bytes, frames: int) -> None:
        raise BadFrame("an update without a version")

    def message(self, url: str, message: ServerMessage) -> None:
        self.seen.append("message")

    def lost(self, url: str) -> None:
        self.seen.append("lost")


class Transport(asyncio.Transport):
    """Takes what is written."""

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
    """The answer of a server that takes the link."""
    headers = Headers(
        [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept_key(link.client.key)),
            ("Sec-WebSocket-Protocol", "diem.v1.json"),
        ]
    )
    return Response(101, "Switching Protocols", headers).serialize()


async def test_a_server_that_hangs_holds_up_no_dial_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    async def dial(url: str, *_: object, **__: object) -> None:
        attempts.append(url)
        if url == HUNG:
            await asyncio.Event().wait()

    monkeypatch.setattr(pool_module, "dial", dial)
    dialer = UpstreamDialer(KEY)
    for _ in range(MAX_DIALLING + 10):
        UpstreamLink(HUNG, dialer, Nobody()).start()
    UpstreamLink(WELL, dialer, Nobody()).start()
    async with asyncio.timeout(PATIENCE_S):
        while WELL not in attempts:
            await asyncio.sleep(0.01)
    assert attempts.count(HUNG) == MAX_DIALLING
    dialer.stop()
    await asyncio.sleep(0)


async def test_handshakes_that_wait_are_forgotten_with_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dial(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(pool_module, "dial", dial)
    dialer = UpstreamDialer(KEY)
    for number in range(50):
        line = UpstreamLink(f"ws://127.0.0.1:{number + 1}/ws", dialer, Nobody())
        line.start()
        await asyncio.sleep(0)
        line.stop()
    await asyncio.sleep(0.01)
    assert not dialer.links
    assert not dialer._slots


def dialling() -> Upstream:
    nobody = Nobody()
    made = Upstream(WELL, KEY.header, nobody, cast("UpstreamLink", nobody))
    made.connection_made(Transport())
    return made


async def test_updates_that_are_none_end_the_link_and_nothing_else() -> None:
    link = dialling()
    link.data_received(accepted(link))
    payload = b'{"type":"update","endpoint":"/a"}'
    link.data_received(bytes((0x81, len(payload))) + payload)
    assert cast("Transport", link.transport).aborted


async def test_a_handshake_that_ends_after_it_was_given_up_opens_nothing() -> None:
    link = dialling()
    link.opened.cancel()
    link.data_received(accepted(link))
    assert cast("Transport", link.transport).aborted
    assert not cast("Nobody", link._listener).seen


async def test_a_link_that_opens_in_the_turn_in_which_its_time_runs_out_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dials = 0

    async def dial(_url: str, make: Callable[[], ClientConnection], **_: object) -> None:
        nonlocal dials
        dials += 1
        link = cast("Upstream", make())
        line.connected(link)
        if dials == 1:
            asyncio.get_running_loop().call_soon(line.disconnected, link)
            raise TimeoutError

    monkeypatch.setattr(pool_module, "dial", dial)
    monkeypatch.setattr(pool_module, "full_jitter", lambda *_: 0.0)
    line = UpstreamLink(WELL, UpstreamDialer(KEY), Nobody())
    line.start()
    for _ in range(20):
        await asyncio.sleep(0)
    assert dials == 2
