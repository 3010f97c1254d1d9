"""Where a source of a publication is, and which changes its copies of tables have. Pure.

A slot and the copies that were made since it began are one *era*: only with both is every change there.
"""

from typing import NamedTuple, Self

from services.data.errors import InvalidDataset


def lsn_of(text: str) -> int:
    """Return the log sequence number that a text such as ``16/B374D848`` means; raises ValueError."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return a log sequence number as PostgreSQL prints it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class StreamPosition(NamedTuple):
    """After some changes of the transaction that commits at ``lsn``, and all transactions that commit before."""

    lsn: int
    changes: int
    """Number of its changes, as they are sent."""
    era: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position of a stored text; raises InvalidDataset."""
        try:
            lsn, changes, era = text.split(" ")
            return cls(lsn_of(lsn), int(changes), era)
        except ValueError:
            raise InvalidDataset(
                f"the stored position {text[:60]!r} is none of PostgreSQL: replay the source from start"
            ) from None

    def __str__(self) -> str:
        return f"{lsn_text(self.lsn)} {self.changes} {self.era}"


class PgSnapshot(NamedTuple):
    """Which transactions a reader saw, as ``pg_current_snapshot()`` has it."""

    text: str
    xmax: int
    """The first that had not begun."""
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the snapshot of a text such as ``750:753:751``; raises ValueError."""
        _, xmax, running = text.split(":")
        return cls(text, int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Return whether a reader saw a transaction, given the lower 32 bits of its id."""
        # That within two billion of the others.
        full = self.xmax + (xid - self.xmax + 2**31) % 2**32 - 2**31
        return full < self.xmax and full not in self.running


class Copy(NamedTuple):
    """A finished copy of a table."""

    lsn: int
    """Transactions that it has commit before."""
    snapshot: PgSnapshot
    layout: str
    """Digest of the table's columns and of what diem.toml says of it."""
    era: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the copy of a stored text; None if that is one which was not finished."""
        try:
            state, lsn, snapshot, layout, era = text.split(" ")
            return cls(lsn_of(lsn), PgSnapshot.parse(snapshot), layout, era) if state == "copied" else None
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"copied {lsn_text(self.lsn)} {self.snapshot.text} {self.layout} {self.era}"

    def has(self, commit_lsn: int, xid: int) -> bool:
        """Return whether the copy has the changes of a transaction already."""
        return commit_lsn < self.lsn and self.snapshot.sees(xid)
