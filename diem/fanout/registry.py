"""Who is subscribed to what: endpoint -> subscribers, in the most compact form that can be changed at any time."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

S = TypeVar("S")


class Registry(Generic[S]):
    """A map endpoint -> set of subscribers.

    Subscribers are compared by identity-like hash. Fan-out iterates over the sets themselves, without a copy: while
    :meth:`iterating`, changes are put aside and applied when the loop has ended: a disconnect during the loop is
    harmless. What is put aside is bounded by what one loop can cause: one change per subscriber and endpoint.
    """

    def __init__(self) -> None:
        self._subscribers: dict[bytes, set[S]] = {}
        self._iterating = False
        self._aside: list[tuple[bool, bytes, S]] = []
        self.entries = 0
        """Subscriptions held: the sum over all endpoints of their subscribers."""

    def __len__(self) -> int:
        return len(self._subscribers)

    def __contains__(self, endpoint: bytes) -> bool:
        return endpoint in self._subscribers

    def subscribers(self, endpoint: bytes) -> Collection[S]:
        """The subscribers of an endpoint: the set itself, to be iterated within :meth:`iterating` only."""
        return self._subscribers.get(endpoint, ())

    def add(self, endpoint: bytes, subscriber: S) -> None:
        """Subscribe; a repeat changes nothing."""
        if self._iterating:
            self._aside.append((True, endpoint, subscriber))
            return
        found = self._subscribers.setdefault(endpoint, set())
        before = len(found)
        found.add(subscriber)
        self.entries += len(found) - before

    def discard(self, endpoint: bytes, subscriber: S) -> None:
        """Unsubscribe; what is not subscribed changes nothing. The last one takes the endpoint's entry along."""
        if self._iterating:
            self._aside.append((False, endpoint, subscriber))
            return
        found = self._subscribers.get(endpoint)
        if found is None or subscriber not in found:
            return
        found.discard(subscriber)
        self.entries -= 1
        if not found:
            del self._subscribers[endpoint]

    @contextmanager
    def iterating(self) -> Iterator[None]:
        """While this is open the sets do not change; changes made meanwhile are applied, in order, at the end."""
        self._iterating = True
        try:
            yield
        finally:
            self._iterating = False
            aside, self._aside = self._aside, []
            for is_add, endpoint, subscriber in aside:
                (self.add if is_add else self.discard)(endpoint, subscriber)
