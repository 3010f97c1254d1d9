"""Whether a partition holds a record that is not ours: the one writer of a log knows every offset of it."""


class Ledger:
    """The next offset of one partition, as its only writer expects it.

    A record in between was written by somebody else: most likely the late request of a publisher that died, with an
    update that is older than what its successor has written. Compaction would keep that one; so everything of the
    partition is then sent again (docs/protocol.md section 3).
    """

    __slots__ = ("foreign", "next")

    def __init__(self) -> None:
        self.next: int | None = None
        """None: not known, and what is there is taken as it is."""
        self.foreign = False
        """Whether there are records that are not ours, as far as we know."""

    def landed(self, base: int, count: int) -> None:
        """Our ``count`` records are at ``base`` (negative: the broker did not say)."""
        self.foreign |= base < 0 or (self.next is not None and base != self.next)
        self.next = None if base < 0 else base + count

    def ends(self, end: int) -> None:
        """The partition ends at ``end`` while nothing of ours is under way."""
        self.foreign |= self.next is not None and end != self.next
        self.next = end
