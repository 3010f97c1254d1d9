import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.frames import Opcode
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from diem.protocol.messages import SUBPROTOCOL
from diem.protocol.update import DATA_FIELD, encode
from tests.load import wire
from tests.load.wire import server_frame

UPDATE = encode("/a/b", 1_700_000_000_001, 0)
DATASET = b'{"endpoint":"/x","version":1700000000009,"unit":"\\"endpoint\\":\\"/y\\",\\"version\\":1","points":[]}'
WITH_DATA = encode("/a/b", 1_700_000_000_001, 0, data=DATASET)
STATUS = b'{"type":"status","live":true,"since":"2026-01-01T00:00:00Z"}'


def test_walk_counts_updates_and_hands_out_everything_else_in_its_place() -> None:
    before, after = server_frame(UPDATE), server_frame(UPDATE) * 2
    middle = server_frame(STATUS) + server_frame(b"", Opcode.PING) + server_frame(b"\x03\xe8", Opcode.CLOSE)
    end, updates, specials = wire.walk(before + middle + after)
    assert end == len(before + middle + after)
    assert updates == 3
    assert [(special.opcode, special.payload) for special in specials] == [
        (wire.TEXT, STATUS),
        (wire.PING, b""),
        (wire.CLOSE, b"\x03\xe8"),
    ]
    assert specials[0].start == len(before)
    assert specials[-1].end == len(before + middle)


@given(
    st.lists(
        st.sampled_from([UPDATE, WITH_DATA, STATUS, encode("/" + "n" * 200, 1_700_000_000_002, 0), b"{}"]), max_size=12
    ),
    st.lists(st.integers(1, 400), min_size=1, max_size=40),
)
def test_chunks_of_any_size_give_the_same_frames(payloads: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(map(server_frame, payloads))
    tail, updates, specials, found = b"", 0, 0, 0
    position, turn = 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        data = tail + stream[position : position + size]
        end, more, others = wire.walk(data)
        updates, specials, tail = updates + more, specials + len(others), data[end:]
        found += len(wire.ANY_UPDATE.findall(data, 0, end))
        assert others or len(list(wire.updates(data, 0, end, wire.ANY_UPDATE))) == more
        position, turn = position + size, turn + 1
    expected = sum(payload.startswith(b'{"type":"update"') for payload in payloads)
    assert tail == b""
    assert (updates, found, specials) == (expected, expected, len(payloads) - expected)


@pytest.mark.parametrize("dataset", [DATASET, b'{"text":"%b"}' % (b"x" * 70_000)], ids=["short", "over 64 KiB"])
def test_update_ends_with_its_frame_whatever_its_dataset_contains(dataset: bytes) -> None:
    gone, plain = encode("/a", 1_700_000_000_003, 0, gone=True), encode("/c", 1_700_000_000_004, 0)
    data = b"".join(map(server_frame, [encode("/a/b", 1_700_000_000_001, 0, data=dataset), gone, plain]))
    end, count, _ = wire.walk(data)
    assert (end, count) == (len(data), 3)
    assert wire.ANY_UPDATE.findall(data) == [
        (b"/a/b", b"1700000000001"),
        (b"/a", b"1700000000003"),
        (b"/c", b"1700000000004"),
    ]
    assert list(wire.updates(data, 0, end, wire.ANY_UPDATE)) == [
        (b"/a/b", b"1700000000001", DATA_FIELD + dataset + b"}"),
        (b"/a", b"1700000000003", b',"gone":true}'),
        (b"/c", b"1700000000004", b"}"),
    ]
    assert [name for name, _, _ in wire.updates(data, 0, end, wire.updates_of({b"/a", b"/x"}))] == [b"/a"]


@pytest.mark.parametrize("data", [b"\x01\x02{}", b"\xc1\x02{}", b"\x81\x82mask{}", b"\x81\xff" + bytes(8)])
def test_frames_that_this_client_does_not_take_are_an_error(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.walk(data)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 5000])
def test_handshake_and_masked_frames_are_what_a_server_library_reads(size: int) -> None:
    server = ServerProtocol(subprotocols=[Subprotocol(SUBPROTOCOL)])
    handshake = wire.Handshake("127.0.0.1", 80, "/ws")
    server.receive_data(handshake.request)
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]
    answer = b"".join(server.data_to_send())
    assert handshake.answer(answer[:20]) is None
    assert handshake.answer(answer + b"rest") == b"rest"
    payload = b"x" * size
    server.receive_data(wire.frame(payload))
    assert [event.data for event in server.events_received()] == [payload]  # type: ignore[union-attr]


def test_refused_handshake_says_the_status_and_when_to_come_again() -> None:
    handshake = wire.Handshake("127.0.0.1", 80, "/ws")
    with pytest.raises(InvalidStatus, match="503") as refused:
        handshake.answer(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\n\r\n")
    assert refused.value.response.headers["Retry-After"] == "7"
    with pytest.raises(wire.WireError):
        handshake.answer(b"HTTP/1.1\r\n\r\n")


def test_filter_passes_its_endpoints_only_and_whole_names_only() -> None:
    data = b"".join(encode(name, 1_700_000_000_001, 0) for name in ("/a", "/a/b", "/a(b)", "/c"))
    assert [name for name, _ in wire.updates_of({b"/a", b"/a(b)"}).findall(data)] == [b"/a", b"/a(b)"]
    assert wire.updates_of(set()).findall(data) == []
    assert isinstance(wire.updates_of(set()), re.Pattern)
