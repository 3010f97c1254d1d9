"""A connection that parses plain messages itself does the same with any bytes as the library alone."""

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined] # in C, if that is installed
from websockets.protocol import Protocol
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from diem.links.connection import MAX_PLAIN_BYTES, SILENT_LOGGER, Connection
from tests.support.http_wire import Wire

MAX_SIZE = 2 * MAX_PLAIN_BYTES
KEY = b"\x01\x80\xfe\x37"


class End(Wire):
    """One end of a connection, written to without a bound."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def can_write_eof(self) -> bool:
        return False


class Recorder(Connection):
    """A connection that records its messages, and closes after ``bye``."""

    def __init__(self, protocol: Protocol, *, by_library: bool = False) -> None:
        super().__init__(protocol)
        self._by_library = by_library
        self.messages: list[bytes] = []
        self.received = 0
        """Calls of the library."""
        self.wire = End()
        self.connection_made(self.wire)

    def data_received(self, data: bytes) -> None:
        (self.receive if self._by_library else super().data_received)(data)

    def receive(self, data: bytes) -> None:
        self.received += 1
        super().receive(data)

    def on_text(self, data: bytes) -> None:
        if self.is_open:
            self.messages.append(b"text " + data)
            if data == b"bye":
                self.close(1000)

    def on_binary(self, data: bytes) -> None:
        if self.is_open:
            self.messages.append(b"binary " + data)


def recorder(*, is_server: bool, by_library: bool = False) -> Recorder:
    """Return a connection after its handshake."""
    client = ClientProtocol(parse_uri("ws://x/"), max_size=MAX_SIZE, logger=SILENT_LOGGER)
    server = ServerProtocol(max_size=MAX_SIZE, logger=SILENT_LOGGER)
    request = client.connect()
    client.send_request(request)
    server.receive_data(b"".join(client.data_to_send()))
    server.send_response(server.accept(request))
    answer = b"".join(server.data_to_send())
    made = Recorder(server if is_server else client, by_library=by_library)
    made.data_received(answer if not is_server else b"")
    return made


class Sent(NamedTuple):
    """A frame, perhaps of a wrong kind."""

    first: int
    payload: bytes
    width: int = 0
    """Bytes of its extended length; 0: as few as possible."""
    is_masked: bool = True

    def encode(self, *, is_server: bool) -> bytes:
        """Return its bytes for one side; not :attr:`is_masked`: as only the other may get them."""
        length = len(self.payload)
        width = max(self.width, 8 if length > 0xFFFF else 2 if length > 125 else 0)
        masked = is_server == self.is_masked
        code = {2: 126, 8: 127}.get(width, length)
        head = bytes((self.first, code | 0x80 * masked)) + (length.to_bytes(width, "big") if width else b"")
        return head + (KEY + apply_mask(self.payload, KEY) if masked else self.payload)


PAYLOADS = st.one_of(
    st.sampled_from([b"", b"a", b"\x81\x00", b"bye"]),
    st.sampled_from([125, 126, 127, MAX_PLAIN_BYTES, MAX_PLAIN_BYTES + 1, MAX_SIZE + 1]).map(bytes),
)
PLAIN = st.builds(Sent, st.sampled_from([0x81, 0x82]), PAYLOADS, st.just(0), st.just(True))
OTHERS = st.builds(
    Sent,
    st.sampled_from([0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88, 0xC1, 0x83]),
    PAYLOADS,
    st.sampled_from([0, 0, 2, 8]),
    st.sampled_from([True, True, True, False]),
)
FRAMES = st.lists(st.one_of(PLAIN, PLAIN, OTHERS), min_size=1, max_size=8)


@example([Sent(0x81, bytes(200), width=8)], [], True)
@example([Sent(0x81, bytes(126), is_masked=False)], [], True)
@example([Sent(0x01, b"a"), Sent(0x81, b"a")], [7], True)
@example([Sent(0x81, b"a"), Sent(0x81, b"bye"), Sent(0x81, b"a")], [1], False)
@example([Sent(0x81, b"\x81\x00")], [2], False)
@given(FRAMES, st.lists(st.integers(1, 12), max_size=6), st.booleans())
def test_any_bytes_are_handled_as_by_the_library(frames: list[Sent], cuts: list[int], is_server: bool) -> None:
    data = b"".join(frame.encode(is_server=is_server) for frame in frames)
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(data[at : at + cut])
        at += cut
    chunks.append(data[at:])

    async def run() -> None:
        ours, library = (recorder(is_server=is_server, by_library=each) for each in (False, True))
        for chunk in filter(None, chunks):
            for each in (ours, library):
                if not each.wire.ended and not each.protocol.close_expected():
                    each.data_received(chunk)
            # What precedes a close frame in the same chunk is handled here, and by the library not.
            if ours.is_open and library.is_open:
                assert ours.messages == library.messages
        assert ours.messages[: len(library.messages)] == library.messages
        assert ours.is_open == library.is_open
        if b"text bye" not in ours.messages:
            assert ours.close_code == library.close_code

    asyncio.run(run())


@pytest.mark.parametrize("is_server", [True, False])
async def test_plain_messages_do_not_reach_the_library(is_server: bool) -> None:
    link = recorder(is_server=is_server)
    plain = Sent(0x81, b"a").encode(is_server=is_server)
    frames = ((0x89, b""), (0x8A, b"a"), (0x01, b"b"), (0x80, b"c"))
    ping, pong, begin, end = (Sent(*each).encode(is_server=is_server) for each in frames)
    before = link.received
    link.data_received(2 * plain)
    assert link.received == before
    # The library is left once a frame has ended that only it parses.
    for chunk, calls in (
        (plain + ping, 1),
        (plain, 0),
        (plain + pong, 0),
        (begin, 1),
        (pong, 1),
        (end, 1),
        (plain[:2], 1),
        (plain[2:], 1),
        (plain, 0),
    ):
        before = link.received
        link.data_received(chunk)
        assert link.received == before + calls, chunk
    assert link.messages == [b"text a"] * 5 + [b"text bc"] + [b"text a"] * 2
