"""Compressed update frames, as a client of RFC 7692 and the fan-out read them."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.deflate import MIN_DATA_BYTES, WINDOW_BITS, deflated_frame
from diem.protocol.frames import conflation_key, is_older_update, payload_offset, text_frame
from diem.protocol.update import encode

VERSION = 1_700_000_000_000
LONGEST = "/" + "n" * 255


def inflated(frame: bytes) -> bytes:
    """Decompress a frame, in the window that the client was told."""
    assert frame[0] == 0xC1
    payload = frame[payload_offset(frame) :]
    return zlib.decompressobj(-WINDOW_BITS).decompress(payload + b"\0\0\xff\xff")


def update(endpoint: str, points: int, version: int = VERSION) -> bytes:
    data = b'{"points":[%b]}' % b",".join(b'{"time":"2026-01-01T%04d","value":1}' % n for n in range(points))
    return encode(endpoint, version, 0, data=data)


@given(st.text(st.characters(codec="utf-8"), max_size=2000))
def test_every_update_is_read_as_it_was(text: str) -> None:
    value = encode("/a", VERSION, 0, data=text.encode() + b" " * MIN_DATA_BYTES)
    frame = deflated_frame(b"/a", value)
    assert frame == text_frame(value) or inflated(frame) == value


@pytest.mark.parametrize("endpoint", ["/a", LONGEST])
@pytest.mark.parametrize("points", [20, 100, 800])
def test_a_frame_is_shorter_and_complete(endpoint: str, points: int) -> None:
    value = update(endpoint, points)
    frame = deflated_frame(endpoint.encode(), value)
    assert inflated(frame) == value
    assert len(frame) < len(value)


@pytest.mark.parametrize("endpoint", ["/a", LONGEST])
def test_compressed_frames_are_conflated_like_others(endpoint: str) -> None:
    name = endpoint.encode()
    older, newer = (deflated_frame(name, update(endpoint, 50, version)) for version in (VERSION, VERSION + 1))
    assert conflation_key(older) == name
    assert is_older_update(older, newer)
    assert is_older_update(older, text_frame(update(endpoint, 50, VERSION + 1)))
    assert not is_older_update(newer, text_frame(update(endpoint, 50)))


@pytest.mark.parametrize("data", [None, b"1", b"0" * (MIN_DATA_BYTES - len(b',"data":}') - 1)])
def test_what_is_short_is_left_as_it_is(data: bytes | None) -> None:
    value = encode("/a", VERSION, 0, data=data)
    assert deflated_frame(b"/a", value) == text_frame(value)
