"""The latest change of every endpoint in the store's order, the source of the feeds of store and Broadcast node."""

from bisect import bisect_left
from collections.abc import Iterable

from diem.fanout.data_budget import DataBudget
from diem.protocol.update import Change, without_data


class ChangeMap:
    """A map endpoint -> latest change that can be read in order of sequence from any position.

    It holds each endpoint once, so a reader reads at most one change per endpoint after any absence: slow readers skip
    superseded changes, a new reader starts at 0, and there is no log to bound. Memory is proportional to the number of
    endpoints: the order holds at most as many superseded changes as current ones, plus 1,024. ``budget`` bounds the
    data in the changes.
    """

    def __init__(self, budget: DataBudget | None = None) -> None:
        self.sequence = 0
        """The sequence of the last change, also of one that was removed; 0 before the first."""
        self.budget = DataBudget() if budget is None else budget
        self.removed = 0
        """Number of endpoints removed so far."""
        self._latest: dict[bytes, Change] = {}
        self._order: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._latest)

    def get(self, endpoint: bytes) -> Change | None:
        """Return the latest change of one endpoint."""
        return self._latest.get(endpoint)

    def apply(self, change: Change) -> None:
        """Apply the next change.

        Raises:
            ValueError: its sequence is not greater than the last, so readers would never see it.
        """
        if change.sequence <= self.sequence:
            raise ValueError(f"sequence {change.sequence} after {self.sequence}")
        self.sequence = change.sequence
        latest = self._latest
        latest[change.endpoint] = change
        self._order.append((change.sequence, change.endpoint))
        self.budget.retain(change.endpoint, len(change.value))
        for endpoint in self.budget.evict():
            held = latest[endpoint]
            latest[endpoint] = held._replace(value=without_data(endpoint, held.value))
        self._compact()

    def remove(self, endpoints: Iterable[bytes]) -> None:
        """Remove endpoints: readers that have not read their last changes must start over."""
        for endpoint in endpoints:
            self.removed += self._latest.pop(endpoint, None) is not None
            self.budget.release(endpoint)
        self._compact()

    def advance(self, sequence: int) -> None:
        """Continue after ``sequence``: the source has no further changes up to it."""
        self.sequence = max(self.sequence, sequence)

    def _compact(self) -> None:
        if len(self._order) > 2 * len(self._latest) + 1024:
            found = ((each, self._latest.get(each[1])) for each in self._order)
            self._order = [each for each, latest in found if latest is not None and latest.sequence == each[0]]

    def after(self, sequence: int, limit: int) -> list[Change]:
        """Return up to ``limit`` current changes after ``sequence``, in order."""
        order, latest = self._order, self._latest
        found: list[Change] = []
        # A tuple is less than any longer tuple that it is a prefix of.
        for index in range(bisect_left(order, (sequence + 1,)), len(order)):
            place, endpoint = order[index]
            change = latest.get(endpoint)
            if change is not None and change.sequence == place:
                found.append(change)
                if len(found) == limit:
                    break
        return found

    def clear(self) -> None:
        """Remove all changes: the source was replaced."""
        self.sequence = 0
        self.budget.clear()
        self._latest.clear()
        self._order.clear()
