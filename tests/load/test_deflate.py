import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from diem.links.compression import SHARED_DEFLATE
from diem.protocol.deflate import deflated_frame
from diem.protocol.messages import SUBPROTOCOL
from diem.protocol.update import encode
from tests.load import wire
from tests.load.deflate import OFFER, Deflate

ANSWER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12"
DATA = b'{"endpoint":"/a","points":[' + b",".join(b'{"value":%d.5}' % number for number in range(60)) + b"]}"
UPDATE = encode("/a", 1_700_000_000_001, 0, data=DATA)
PLAIN = encode("/b", 1_700_000_000_002, 0)


def test_what_servers_answer_and_accept_is_what_the_client_offers_and_sends() -> None:
    server = ServerProtocol(subprotocols=[Subprotocol(SUBPROTOCOL)], extensions=SHARED_DEFLATE)
    handshake = wire.Handshake("127.0.0.1", 80, "/ws", offer=OFFER)
    server.receive_data(handshake.request)
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]
    assert handshake.answer(b"".join(server.data_to_send())) == b""
    deflate = Deflate(handshake.extension)
    payload = b'{"type":"subscribe","id":1}' * 20
    for _ in range(2):
        compressed = deflate.compress(payload)
        assert len(compressed) < len(payload)
        server.receive_data(wire.frame(compressed, wire.COMPRESSED_TEXT))
    assert [event.data for event in server.events_received()] == [payload, payload]  # type: ignore[union-attr]


@given(
    st.lists(
        st.sampled_from([deflated_frame(b"/a", UPDATE), wire.server_frame(PLAIN), wire.server_frame(b"", wire.PING)]),
        max_size=8,
    ),
    st.lists(st.integers(1, 700), min_size=1, max_size=20),
)
def test_frames_are_decompressed_in_their_place_in_chunks_of_any_size(frames: list[bytes], sizes: list[int]) -> None:
    deflate, stream = Deflate(ANSWER), b"".join(frames)
    expected = stream.replace(deflated_frame(b"/a", UPDATE), wire.server_frame(UPDATE))
    found, rest, position, turn = b"", b"", 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        whole, rest = deflate.plain(rest + stream[position : position + size])
        found += whole
        position, turn = position + size, turn + 1
    assert (found, rest) == (expected, b"")
    assert deflate.frames == frames.count(deflated_frame(b"/a", UPDATE))


def test_update_of_over_64_kib_is_decompressed() -> None:
    update = encode("/a", 1_700_000_000_001, 0, data=b'{"text":"%b"}' % (b"x" * 70_000))
    whole, rest = Deflate(ANSWER).plain(deflated_frame(b"/a", update))
    assert (whole, rest) == (wire.server_frame(update), b"")


@pytest.mark.parametrize(
    "answer",
    ["permessage-deflate", "permessage-bzip2; server_no_context_takeover", ANSWER + "; server_no_context_takeover"],
    ids=["keeps a context", "another extension", "named twice"],
)
def test_answer_that_the_client_cannot_accept_is_an_error(answer: str) -> None:
    with pytest.raises(wire.WireError, match="extension"):
        Deflate(answer)


def test_extension_that_was_not_offered_is_an_error() -> None:
    server = ServerProtocol(subprotocols=[Subprotocol(SUBPROTOCOL)])
    handshake = wire.Handshake("127.0.0.1", 80, "/ws")
    server.receive_data(handshake.request)
    (request,) = server.events_received()
    answer = server.accept(request)  # type: ignore[arg-type]
    answer.headers["Sec-WebSocket-Extensions"] = ANSWER
    server.send_response(answer)
    with pytest.raises(wire.WireError, match="not offered"):
        handshake.answer(b"".join(server.data_to_send()))


def compressed(payload: bytes, context: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15, zdict=context)
    data = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return wire.server_frame(data.removesuffix(b"\x00\x00\xff\xff"), wire.COMPRESSED_TEXT)


@pytest.mark.parametrize(
    "frame",
    [
        compressed(DATA, context=DATA),
        # A block of the reserved type: bytes changed elsewhere may be other text.
        wire.server_frame(b"\x07" + deflated_frame(b"/a", UPDATE), wire.COMPRESSED_TEXT),
        b"\xc1\x82mask\x00\x00",
    ],
    ids=["refers to the message before", "damaged", "masked"],
)
def test_frame_that_cannot_be_decompressed_as_agreed_is_an_error(frame: bytes) -> None:
    with pytest.raises(wire.WireError):
        Deflate(ANSWER).plain(frame)
