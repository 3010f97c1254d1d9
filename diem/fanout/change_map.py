"""The latest change of every endpoint in the order of the store: what a store feed and a Broadcast feed serve from."""

from bisect import bisect_right

from diem.protocol.update import Change


class ChangeMap:
    """A map endpoint -> latest change that can be read in order of sequence from any position.

    It holds each endpoint once, so a reader that was away, however long, reads at most one change per endpoint: a slow
    reader conflates by itself, a new one starts at 0, and there is no log to bound. Space is proportional to the number
    of endpoints: the order keeps at most as many superseded entries as living ones (and 1,024).
    """

    def __init__(self) -> None:
        self.sequence = 0
        """The sequence of the last change, 0 before the first."""
        self._latest: dict[bytes, Change] = {}
        self._order: list[Change] = []

    def __len__(self) -> int:
        return len(self._latest)

    def get(self, endpoint: bytes) -> Change | None:
        """The latest change of one endpoint."""
        return self._latest.get(endpoint)

    def apply(self, change: Change) -> None:
        """Take the next change.

        Raises:
            ValueError: its sequence is not greater than the last: a reader would never see it.
        """
        if change.sequence <= self.sequence:
            raise ValueError(f"sequence {change.sequence} after {self.sequence}")
        self.sequence = change.sequence
        self._latest[change.endpoint] = change
        self._order.append(change)
        if len(self._order) > 2 * len(self._latest) + 1024:
            self._order = [c for c in self._order if self._latest[c.endpoint] is c]

    def after(self, sequence: int, limit: int) -> list[Change]:
        """Up to ``limit`` changes with a sequence greater than ``sequence``, in order; superseded ones are left out."""
        order, latest = self._order, self._latest
        found: list[Change] = []
        for index in range(bisect_right(order, sequence, key=lambda change: change.sequence), len(order)):
            change = order[index]
            if latest[change.endpoint] is change:
                found.append(change)
                if len(found) == limit:
                    break
        return found

    def clear(self) -> None:
        """Forget everything: the source is another one."""
        self.sequence = 0
        self._latest.clear()
        self._order.clear()
