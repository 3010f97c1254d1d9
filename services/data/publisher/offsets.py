"""Offsets of one partition as known to its only writer: its own records, and the log's contents."""

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from diem.protocol.watermark import FIRST_INCARNATION, LogProof, next_incarnation


class Extent(NamedTuple):
    """Persistent knowledge of one partition, stored with the cursor."""

    incarnation: int
    complete_from: int | None
    """See :class:`~diem.protocol.watermark.LogProof`; None: everything must be resent."""
    next: int
    """The log had at least the offsets below."""
    forgotten: int = 0
    """See :class:`~diem.protocol.watermark.LogProof`."""


def encode_extents(extents: Mapping[int, Extent]) -> str:
    """Encode the extents of partitions, by number, for the store."""
    return orjson.dumps({str(number): list(extent) for number, extent in extents.items()}).decode()


def decode_extents(text: str) -> dict[int, Extent]:
    """Decode the result of :func:`encode_extents`; nothing for an empty text, as left by earlier releases."""
    return {int(number): Extent(*fields) for number, fields in orjson.loads(text or "{}").items()}


class OffsetTracker:
    """Expected next offset of one partition, and the offset from which its log is complete.

    A gap is a record of another writer: most likely a late request of a dead publisher, with an older update than its
    successor's. Compaction would keep the older one, so the whole partition is resent (docs/internals.md section 3). A
    log that ends below the expected offset has lost records, and one that begins beyond ``complete_from`` was cut: both
    are resent, and their watermarks stop until that is done.

    Args:
        extent: an earlier process's knowledge of the same log; None without any.
    """

    __slots__ = ("_exact", "_proven", "complete_from", "foreign", "forgotten", "incarnation", "next")

    def __init__(self, extent: Extent | None = None) -> None:
        self.next: int | None = None if extent is None else extent.next
        """The expected offset, or a lower bound of it; None accepts any."""
        self.complete_from: int | None = None if extent is None else extent.complete_from
        """From here on the log has the current update of every endpoint, except those due; None: from nowhere."""
        self.incarnation = FIRST_INCARNATION if extent is None else extent.incarnation
        self.forgotten = 0 if extent is None else extent.forgotten
        """Deletions before this offset may be missing: their endpoints are forgotten."""
        self.foreign = False
        """Whether records of another writer were detected."""
        self._exact = False
        """Whether :attr:`next` is the end of the log, as far as this process has written it."""
        self._proven = self.complete_from is not None

    @property
    def incomplete(self) -> bool:
        """True if the partition must be resent."""
        return self.foreign or self.complete_from is None

    @property
    def extent(self) -> Extent | None:
        """The knowledge for the next process; None before there is any."""
        if self.next is None:
            return None
        return Extent(self.incarnation, self.complete_from if self._proven else None, self.next, self.forgotten)

    def reconnected(self) -> None:
        """Accept more records than expected once: the last requests may have been written."""
        self._exact = False

    def acknowledged(self, base: int, count: int) -> None:
        """Compare with the acknowledged offset ``base`` of ``count`` records (negative: unknown to the broker)."""
        if base < 0:
            self.foreign, self._exact = True, False
            return
        self._compare(base)
        self.next = base + count

    def compare_end(self, end: int) -> None:
        """Compare with the end offset of the partition, while no request is in flight."""
        self._compare(end)
        self.next = end

    def _compare(self, offset: int) -> None:
        if self.next is not None and offset < self.next:
            self._truncated()
        elif self._exact and offset != self.next:
            self.foreign = True
        self._exact = True

    def compare_begin(self, begin: int) -> None:
        """Compare with the first offset of the partition."""
        if self.complete_from is not None and begin > self.complete_from:
            self.invalidate()

    def invalidate(self) -> None:
        """Require that everything is resent."""
        self.complete_from, self._proven = None, False

    def _truncated(self) -> None:
        """Start a new incarnation: readers may have read lost records at offsets that are now reused."""
        self.incarnation = next_incarnation(self.incarnation)
        # No reader of an earlier incarnation knows its place in this one, and a mark must not be beyond the log.
        self.forgotten = min(self.forgotten, 1)
        self.invalidate()

    def resending(self) -> None:
        """Note that everything is queued again: acknowledgements from now on complete the log."""
        self.foreign = False
        if self.complete_from is None:
            self.complete_from = self.next

    def proof(self, index: int) -> LogProof | None:
        """Return the proof for a watermark at ``index`` of the next request; None if it must wait."""
        if self.complete_from is None or self.next is None:
            return None
        return LogProof(self.incarnation, self.complete_from, self.next + index, self.forgotten)

    def proved(self, proof: LogProof) -> None:
        """Record that the watermark with ``proof``, and everything before it, was written."""
        self._proven |= proof[:2] == (self.incarnation, self.complete_from)
