"""Messages of the output plugin, as PostgreSQL 15 has sent them."""

import pytest

from services.data.errors import InvalidDataset
from services.data.sources.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Column,
    Commit,
    Message,
    Relation,
    RowDelete,
    RowInsert,
    RowUpdate,
    Truncate,
    decode,
)

# CREATE TABLE t (id int PRIMARY KEY, big text, n numeric)
OID = 16384
COLUMNS = (Column("id", 23, is_key=True), Column("big", 25, is_key=False), Column("n", 1700, is_key=False))
SENT: list[tuple[str, Message]] = [
    ("42000000000152a2680003045f3cac6597000002d6", Begin(0x152A268, 1_795_916_816_467, 726)),
    (
        "52000040007075626c69630074006400030169640000000017ffffffff006269670000000019ffffffff006e00000006a4ffffffff",
        Relation(OID, "public", "t", "d", COLUMNS),
    ),
    (
        "52000040007075626c69630074006600030169640000000017ffffffff016269670000000019ffffffff016e00000006a4ffffffff",
        Relation(OID, "public", "t", "f", tuple(each._replace(is_key=True) for each in COLUMNS)),
    ),
    ("49000040004e0003740000000137740000000161740000000131", RowInsert(OID, (b"7", b"a", b"1"))),
    # big is stored apart from its row, and was not changed.
    ("55000040004e0003740000000131757400000003312e35", RowUpdate(OID, None, (b"1", UNCHANGED, b"1.5"))),
    (
        "55000040004b00037400000001316e6e4e00037400000001327400000001797400000003312e35",
        RowUpdate(OID, (b"1", None, None), (b"2", b"y", b"1.5")),
    ),
    (
        "55000040004f00037400000001377400000001617400000001314e0003740000000137740000000161740000000132",
        RowUpdate(OID, (b"7", b"a", b"1"), (b"7", b"a", b"2")),
    ),
    ("44000040004b00037400000001326e6e", RowDelete(OID, (b"2", None, None))),
    ("54000000010000004000", Truncate((OID,))),
    ("4300000000000152a268000000000152a2980003045f3cac6597", Commit(0x152A268, 0x152A298)),
]


@pytest.mark.parametrize(("text", "message"), SENT)
def test_a_message_is_decoded(text: str, message: Message) -> None:
    assert decode(bytes.fromhex(text)) == message


def test_names_of_types_and_origins_are_left_out() -> None:
    assert decode(b"Y\0\0\0\1public\0mood\0") is None
    assert decode(b"O\0\0\0\0\0\0\0\0origin\0") is None


def test_a_message_of_another_protocol_is_refused() -> None:
    with pytest.raises(InvalidDataset, match="unknown type: b'S'"):
        decode(b"S\0")
