"""Decodes the messages of the output plugin pgoutput, protocol version 1. Pure.

PostgreSQL's manual, "Logical Replication Message Formats". Columns are texts, as the database prints them.
"""

from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from services.data.errors import InvalidDataset

EPOCH_MS: Final = 946_684_800_000
"""2000-01-01, from which PostgreSQL counts, in Unix ms."""


class Unchanged(Enum):
    """A value that an update did not change, and that is stored apart from its row (TOAST): it is not sent."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Values = tuple[bytes | Unchanged | None, ...]
"""Texts of columns; None: NULL."""


class Begin(NamedTuple):
    """The beginning of a transaction."""

    commit_lsn: int
    time_ms: int
    """When it was committed, in Unix ms."""
    xid: int
    """32 bits."""


class Commit(NamedTuple):
    """The end of a transaction."""

    commit_lsn: int
    end_lsn: int


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: int
    """Object id of its type."""
    is_key: bool
    """Whether it is a part of the replica identity."""


class Relation(NamedTuple):
    """A table, as it was when the rows that follow were written."""

    oid: int
    schema: str
    table: str
    identity: str
    """``d``: the primary key; ``i``: another index; ``f``: all columns; ``n``: none."""
    columns: tuple[Column, ...]


class RowInsert(NamedTuple):
    """A new row."""

    relation: int
    new: Values


class RowUpdate(NamedTuple):
    """A changed row; ``old`` has its replica identity before, if that is known and not the same."""

    relation: int
    old: Values | None
    new: Values


class RowDelete(NamedTuple):
    """The end of a row, of which the replica identity is known."""

    relation: int
    old: Values


class Truncate(NamedTuple):
    """The end of all rows of some tables."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | RowInsert | RowUpdate | RowDelete | Truncate

_BEGIN: Final = Struct("!QqI")
_COMMIT: Final = Struct("!BQQq")
_COLUMN: Final = Struct("!Ii")
_I32: Final = Struct("!I")
_I16: Final = Struct("!H")


def decode(message: bytes) -> Message | None:  # noqa: PLR0911  # one for each type of message
    """Decode a message; None for one without meaning here, such as a type's name.

    Raises:
        InvalidDataset: it is none of this protocol version.
    """
    match message[:1]:
        case b"I":
            return RowInsert(_I32.unpack_from(message, 1)[0], _values(message, 6)[0])
        case b"U":
            return _update(message)
        case b"D":
            return RowDelete(_I32.unpack_from(message, 1)[0], _values(message, 6)[0])
        case b"B":
            lsn, at_us, xid = _BEGIN.unpack_from(message, 1)
            return Begin(lsn, EPOCH_MS + at_us // 1000, xid)
        case b"C":
            _, lsn, end, _ = _COMMIT.unpack_from(message, 1)
            return Commit(lsn, end)
        case b"R":
            return _relation(message)
        case b"T":
            (count,) = _I32.unpack_from(message, 1)
            return Truncate(tuple(_I32.unpack_from(message, 6 + 4 * n)[0] for n in range(count)))
        case b"Y" | b"O" | b"M":
            return None
        case kind:
            raise InvalidDataset(f"the database has sent a message of an unknown type: {kind!r}")


def _update(message: bytes) -> RowUpdate:
    (relation,) = _I32.unpack_from(message, 1)
    if message[5:6] == b"N":
        return RowUpdate(relation, None, _values(message, 6)[0])
    old, at = _values(message, 6)
    return RowUpdate(relation, old, _values(message, at + 1)[0])


def _values(message: bytes, at: int) -> tuple[Values, int]:
    """Return the columns at an offset, and the offset after them."""
    (count,) = _I16.unpack_from(message, at)
    at += 2
    found: list[bytes | Unchanged | None] = []
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == 0x74:  # t
            (length,) = _I32.unpack_from(message, at)
            at += 4
            found.append(message[at : at + length])
            at += length
        else:
            found.append(None if kind == 0x6E else UNCHANGED)  # n, u
    return tuple(found), at


def _relation(message: bytes) -> Relation:
    (oid,) = _I32.unpack_from(message, 1)
    schema, at = _text(message, 5)
    table, at = _text(message, at)
    identity = chr(message[at])
    (count,) = _I16.unpack_from(message, at + 1)
    at += 3
    columns: list[Column] = []
    for _ in range(count):
        flags = message[at]
        name, at = _text(message, at + 1)
        columns.append(Column(name, _COLUMN.unpack_from(message, at)[0], bool(flags & 1)))
        at += _COLUMN.size
    # Names of system tables are empty.
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
