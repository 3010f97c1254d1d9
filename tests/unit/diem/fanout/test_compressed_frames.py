"""The compressed frames that are kept, and their bound."""

from diem.fanout.compressed_frames import CompressedFrames
from diem.protocol.update import MAX_BYTES

UPDATE = b"x" * (MAX_BYTES + 1)


class Compressor:
    """Counts what it compresses, to frames of ten bytes."""

    def __init__(self) -> None:
        self.calls = 0

    def compress(self, endpoint: bytes, update: bytes) -> bytes:
        assert endpoint
        self.calls += 1
        return update[:10]


def test_an_update_is_compressed_once() -> None:
    compressor = Compressor()
    frames = CompressedFrames(compressor.compress)
    assert frames.get(b"/a", UPDATE) is frames.get(b"/a", UPDATE)
    assert (compressor.calls, len(frames), frames.bytes_in_use) == (1, 1, len(UPDATE) + 10)


def test_a_later_update_replaces_an_earlier_one() -> None:
    compressor = Compressor()
    frames = CompressedFrames(compressor.compress)
    later = b"y" + UPDATE
    frames.get(b"/a", UPDATE)
    assert frames.get(b"/a", later) == later[:10]
    assert (compressor.calls, len(frames), frames.bytes_in_use) == (2, 1, len(later) + 10)


def test_what_was_not_updated_for_longest_is_forgotten() -> None:
    compressor = Compressor()
    frames = CompressedFrames(compressor.compress, max_bytes=2 * (len(UPDATE) + 10))
    for endpoint in (b"/a", b"/b", b"/c"):
        frames.get(endpoint, UPDATE)
    assert (len(frames), frames.bytes_in_use) == (2, 2 * (len(UPDATE) + 10))
    frames.get(b"/b", UPDATE)
    assert compressor.calls == 3
    frames.get(b"/a", UPDATE)
    assert compressor.calls == 4


def test_short_updates_are_not_kept() -> None:
    frames = CompressedFrames(Compressor().compress)
    frames.get(b"/a", UPDATE[:MAX_BYTES])
    assert (len(frames), frames.bytes_in_use) == (0, 0)
