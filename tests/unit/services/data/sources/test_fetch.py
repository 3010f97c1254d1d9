"""Bounded decoding of gzip streams."""

import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.sources.fetch import Gzip, PollFailed


def decoded(body: bytes, cut: int) -> bytes:
    stream = Gzip()
    found = b"".join(piece for at in range(0, len(body), cut) for piece in stream.decode(body[at : at + cut]))
    stream.end()
    return found


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=3), st.integers(1, 400))
def test_any_members_in_any_chunks_are_decoded(members: list[bytes], cut: int) -> None:
    assert decoded(b"".join(map(gzip.compress, members)), cut) == b"".join(members)


def test_a_decompression_bomb_is_refused_soon_after_its_ratio_exceeds_the_limit() -> None:
    stream = Gzip()
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    pieces: list[int] = []
    with pytest.raises(PollFailed, match="200 times larger"):
        pieces.extend(map(len, stream.decode(bomb[:2048])))
    assert sum(pieces) <= 64 * 1024 + 200 * 2048
    assert max(pieces) <= 64 * 1024


def test_incompressible_data_is_accepted() -> None:
    body = os.urandom(300_000)
    assert decoded(gzip.compress(body), 5000) == body


def test_a_small_table_of_equal_rows_is_accepted() -> None:
    body = b"time,value\n" + b"2026-01-01T00:00:00Z,0\n" * 2000
    assert decoded(gzip.compress(body), 4096) == body


@pytest.mark.parametrize("cut", [1, 5, 17])
def test_a_truncated_stream_is_refused(cut: int) -> None:
    with pytest.raises(PollFailed, match="in the middle"):
        decoded(gzip.compress(b"time,value\n" * 10)[:-cut], 100)


def test_data_that_is_not_gzip_is_refused() -> None:
    with pytest.raises(PollFailed, match="is labelled gzip and is not"):
        decoded(b"time,value", 100)
    with pytest.raises(PollFailed, match="is labelled gzip and is not"):
        decoded(gzip.compress(b"x") + b"rubbish behind it", 100)
