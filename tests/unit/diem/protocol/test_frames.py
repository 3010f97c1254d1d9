"""The splitter finds the same pieces in chunks of any size, and refuses frames that no server sends."""

import itertools

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diem.protocol.frames import (
    MAX_PAYLOAD,
    BadFrame,
    ControlFrame,
    FrameRun,
    Piece,
    Splitter,
    Text,
    frame_without_data,
    frame_without_trace,
    frames_of,
    read_update,
    short_run,
    text_frame,
)
from diem.protocol.update import encode, has_data, with_trace
from tests.support.spans import SAMPLED

VERSION = 1_700_000_000_000
small = st.integers(1, 250).map(lambda length: text_frame(encode("/" + "n" * length, VERSION, VERSION)))


def with_data(size: int) -> bytes:
    return text_frame(encode("/a", VERSION, VERSION, data=b"[" + b" " * size + b"]"))


updates = st.one_of(small, small, small, st.sampled_from([300, 70_000]).map(with_data))
texts = st.sampled_from([b'{"type":"welcome"}', b"", b'{"type":"updated"}', b'{"type":"status"}' + b" " * 70_000]).map(
    text_frame
)
controls = st.sampled_from([b"\x89\x00", b"\x8a\x03abc", b"\x88\x02\x03\xe8"])
streams = st.lists(st.one_of(updates, updates, texts, controls), max_size=12)


def flat(pieces: list[Piece]) -> list[bytes | Text | ControlFrame]:
    """Replace runs by their frames: the limits of runs depend on the chunks."""
    found: list[bytes | Text | ControlFrame] = []
    for piece in pieces:
        if isinstance(piece, FrameRun):
            frames = list(frames_of(piece.data))
            assert len(frames) == piece.frames
            found += frames
        else:
            found.append(piece)
    return found


@given(frames=streams, cuts=st.lists(st.integers(0, 200_000), max_size=20))
def test_any_chunking_gives_the_same(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frames)
    splitter = Splitter()
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    pieces: list[Piece] = []
    for start, end in itertools.pairwise(edges):
        pieces += splitter.feed(stream[start:end])
    assert splitter.tail == b""
    assert flat(pieces) == flat(Splitter().feed(stream))
    assert b"".join(x for x in flat(pieces) if isinstance(x, bytes)) == b"".join(
        f for f in frames if b'{"type":"update","endpoint":"' in f
    )


@example([with_data(70_000)])
@given(frames=st.lists(small, min_size=1, max_size=5))
def test_byte_by_byte_gives_every_update(frames: list[bytes]) -> None:
    splitter = Splitter()
    found = [piece for byte in b"".join(frames) for piece in splitter.feed(bytes((byte,)))]
    assert flat(found) == frames


@given(frames=streams, cut=st.integers(0, 3))
def test_a_short_run_is_whole_update_frames_with_short_headers_and_nothing_else(frames: list[bytes], cut: int) -> None:
    stream = b"".join(frames)[: -cut or None]
    while frames and len(stream) <= sum(map(len, frames[:-1])):
        frames.pop()
    whole = stream == b"".join(frames)
    shorts = all(frame.startswith(b'{"type":"update","endpoint":"', 2) for frame in frames)
    assert short_run(stream) == (len(frames) if shorts and whole else 0)


def test_a_chunk_of_nothing_but_updates_is_handed_on_without_a_copy() -> None:
    chunk = b"".join(text_frame(encode(f"/e/{n}", VERSION, VERSION)) for n in range(3))
    (piece,) = Splitter().feed(chunk)
    assert isinstance(piece, FrameRun)
    assert piece.data is chunk
    assert piece.frames == 3


@pytest.mark.parametrize(
    "frame",
    [
        b"\x01\x02hi",  # the beginning of a fragmented message
        b"\x80\x02hi",  # its end
        b"\x82\x02hi",  # binary
        b"\x81\x82\x00\x00\x00\x00hi",  # masked
        b"\xc1\x02hi",  # compressed
        b"\x89\x7e\x00\x80" + b"x" * 128,  # a ping of 128 bytes
        b"\x81\x7f" + (MAX_PAYLOAD + 1).to_bytes(8, "big"),
    ],
)
def test_odd_frames_are_refused(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        Splitter().feed(frame)


def test_the_head_of_an_oversize_frame_is_enough_to_refuse_it() -> None:
    splitter = Splitter()
    splitter.feed(b"\x81\x7f\x00\x00\x00\x00")
    with pytest.raises(BadFrame):
        splitter.feed(b"\xff\x00\x00\x00")


@pytest.mark.parametrize("name", ["/a", "/" + "x" * 200])
@pytest.mark.parametrize("gone", [True, False])
def test_an_update_is_read_from_its_fixed_places(name: str, gone: bool) -> None:
    payload = encode(name, VERSION, VERSION, gone=gone)
    frame = text_frame(payload)
    endpoint, version, start = read_update(frame)
    assert (endpoint, version, frame[start:]) == (name.encode(), VERSION, payload)


@pytest.mark.parametrize("rest", [b'/a","version":12}', b"/a", b'/a","version":17000000000x0}'])
def test_an_update_without_a_version_is_refused(rest: bytes) -> None:
    with pytest.raises(BadFrame):
        read_update(text_frame(b'{"type":"update","endpoint":"' + rest))


@pytest.mark.parametrize("name", ["/a", "/" + "n" * 255])
@pytest.mark.parametrize("size", [2, 30, 100, 4096, 70_000])
def test_a_frame_without_data_is_the_frame_of_the_update_without_data(name: str, size: int) -> None:
    plain = text_frame(encode(name, 1_700_000_000_000, 0))
    full = encode(name, 1_700_000_000_000, 0, data=b'"%b"' % (b"x" * (size - 2)))
    assert has_data(name.encode(), full)
    assert frame_without_data(name.encode(), text_frame(full)) == plain
    assert frame_without_data(name.encode(), plain) is plain


def test_a_deletion_has_no_data_to_lose() -> None:
    gone = text_frame(encode("/a", 1_700_000_000_000, 0, gone=True))
    assert frame_without_data(b"/a", gone) is gone


@pytest.mark.parametrize(
    "data", [None, b"[1]", b'{"traceparent":"' + SAMPLED.encode() + b'"}', b'"' + 70_000 * b"x" + b'"']
)
def test_context_of_a_trace_is_the_last_member_of_a_frame_and_can_be_removed(data: bytes | None) -> None:
    update = encode("/a", VERSION, VERSION, data=data)
    traced = text_frame(with_trace(update, SAMPLED))
    assert orjson.loads(with_trace(update, SAMPLED)) == {**orjson.loads(update), "traceparent": SAMPLED}
    assert read_update(traced)[:2] == (b"/a", VERSION)
    assert frame_without_trace(traced) == frame_without_trace(text_frame(update)) == text_frame(update)
    assert frame_without_data(b"/a", traced) == (traced if data is None else text_frame(encode("/a", VERSION, VERSION)))


def test_deletion_carries_no_context_of_a_trace() -> None:
    update = encode("/a", VERSION, VERSION, gone=True)
    assert with_trace(update, SAMPLED) is update
