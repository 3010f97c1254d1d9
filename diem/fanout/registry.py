"""Subscription registry: endpoint -> subscribers, in the most compact form that can be changed at any time."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

S = TypeVar("S")


class _Subscribers(set[S]):
    """The subscribers of one endpoint, with the one copy of its name that all of them share."""

    __slots__ = ("endpoint",)
    endpoint: bytes


class Registry(Generic[S]):
    """A map endpoint -> set of subscribers.

    Subscribers are compared by identity-like hash. Fan-out iterates over the sets themselves, without a copy: while
    :meth:`iterating`, changes are put aside and applied when the loop has ended: a disconnect during the loop is
    harmless. What is put aside is bounded by what one loop can cause: one change per subscriber and endpoint.
    """

    def __init__(self) -> None:
        self._subscribers: dict[bytes, _Subscribers[S]] = {}
        self._iterating = False
        self._aside: list[tuple[bool, bytes, S]] = []
        self.entries = 0
        """Subscriptions held: the sum over all endpoints of their subscribers."""

    def __len__(self) -> int:
        return len(self._subscribers)

    def __iter__(self) -> Iterator[bytes]:
        """The endpoints with subscribers, as they are now: the registry may change meanwhile."""
        return iter(list(self._subscribers))

    def __contains__(self, endpoint: bytes) -> bool:
        return endpoint in self._subscribers

    def subscribers(self, endpoint: bytes) -> Collection[S]:
        """The subscribers of an endpoint: the set itself, to be iterated within :meth:`iterating` only."""
        return self._subscribers.get(endpoint, ())

    def wanted(self, endpoints: Iterable[bytes]) -> list[bytes]:
        """Those that have subscribers, in their order."""
        held = self._subscribers
        return [endpoint for endpoint in endpoints if endpoint in held]

    def add(self, endpoint: bytes, subscriber: S) -> bytes:
        """Subscribe; a repeat changes nothing. Returns the one copy of the name, for the subscriber to keep."""
        if self._iterating:
            self._aside.append((True, endpoint, subscriber))
            return endpoint
        found = self._subscribers.get(endpoint)
        if found is None:
            found = self._subscribers[endpoint] = _Subscribers()
            found.endpoint = endpoint
        before = len(found)
        found.add(subscriber)
        self.entries += len(found) - before
        return found.endpoint

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
