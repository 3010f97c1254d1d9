"""Positions of a stream, and what a copy has."""

import pytest

from services.data.errors import InvalidDataset
from services.data.sources.postgres.copying import split_row
from services.data.sources.postgres.outbox import OutboxPosition
from services.data.sources.postgres.positions import Copy, PgSnapshot, StreamPosition, lsn_of, lsn_text


def test_positions_are_stored_as_texts() -> None:
    position = StreamPosition(0x16_B374D848, 3, "77.0/1")
    assert str(position) == "16/B374D848 3 77.0/1"
    assert StreamPosition.parse(str(position)) == position
    assert lsn_text(lsn_of("0/0")) == "0/0"
    with pytest.raises(InvalidDataset, match="replay the source from start"):
        StreamPosition.parse("17")
    for outbox in (OutboxPosition("77", "5:7:6"), OutboxPosition("77", "5:7:6", "6:9:", 12)):
        assert OutboxPosition.parse(str(outbox)) == outbox
    with pytest.raises(InvalidDataset, match="replay the source from start"):
        OutboxPosition.parse("77 5:7:6 6:9:")


def test_a_snapshot_sees_transactions_that_had_ended() -> None:
    snapshot = PgSnapshot.parse("750:755:751,753")
    assert [xid for xid in range(748, 758) if snapshot.sees(xid)] == [748, 749, 750, 752, 754]
    assert not PgSnapshot.parse("1:1:").sees(1)


def test_ids_of_transactions_are_those_near_the_snapshot() -> None:
    """They are sent with 32 bits."""
    snapshot = PgSnapshot.parse(f"{2**33 + 5}:{2**33 + 10}:{2**33 + 7}")
    assert [xid for xid in range(4, 12) if snapshot.sees(xid)] == [4, 5, 6, 8, 9]
    assert snapshot.sees(2**32 - 5), "before the counter began again"
    before = PgSnapshot.parse(f"{2**32 - 1}:{2**32 - 1}:")
    assert not before.sees(3), "after it began again"


def test_a_copy_has_what_was_committed_before_it_and_what_its_snapshot_sees() -> None:
    copy = Copy(1000, PgSnapshot.parse("750:755:751"), "layout", "77.0/1")
    assert Copy.parse(str(copy)) == copy
    assert copy.has(900, 754)
    assert not copy.has(900, 751), "it was still running"
    assert not copy.has(1000, 754), "an id of an earlier round of the counter"
    assert Copy.parse("copying 3 77.0/1") is None
    assert Copy.parse("") is None


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (b"1\ta\t\\N", (b"1", b"a", None)),
        (b"", (b"",)),
        (rb"a\tb\\n\nc" + b"\t" + rb"\\\\" + b"\t" + rb"\\N", (b"a\tb\\n\nc", b"\\\\", b"\\N")),
        (rb"\b\f\r\v", (b"\b\f\r\v",)),
        (b"\xc3\xa4\\\\\t", ("ä\\".encode(), b"")),
    ],
)
def test_rows_of_a_copy_are_split(line: bytes, cells: tuple[bytes | None, ...]) -> None:
    assert split_row(line) == cells
