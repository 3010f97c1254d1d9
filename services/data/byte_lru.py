"""A cache bounded in bytes that evicts the least recently used values."""

from collections import OrderedDict
from collections.abc import Callable, ValuesView
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByteLru(Generic[K, V]):
    """Values by key; a value larger than the bound evicts all others and itself.

    Args:
        max_bytes: the bound.
        size: returns the size of a value in bytes; always the same for one value.
    """

    def __init__(self, max_bytes: int, size: Callable[[V], int]) -> None:
        self.bytes = 0
        """Bytes in use."""
        self._max_bytes = max_bytes
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> ValuesView[V]:
        """Return the values, the least recently used first."""
        return self._values.values()

    def peek(self, key: K) -> V | None:
        """Return a value without marking it as used; None if there is none."""
        return self._values.get(key)

    def get(self, key: K) -> V | None:
        """Return a value; None if there is none."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        """Store a value, replacing any previous one."""
        self.drop(key)
        self._values[key] = value
        self.bytes += self._size(value)
        while self.bytes > self._max_bytes:
            _, evicted = self._values.popitem(last=False)
            self.bytes -= self._size(evicted)

    def drop(self, key: K) -> None:
        """Remove a value, if it is there."""
        dropped = self._values.pop(key, None)
        if dropped is not None:
            self.bytes -= self._size(dropped)
