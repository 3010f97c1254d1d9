"""Problem instance: endpoints with their rates, and the subscription sets of clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from metadata.placement.blocks import Block, Floats, Ints, Parts, distinct, merged, shift_of, shifted

PINS_OF_BLOCK = 2_000_000


@dataclass(frozen=True)
class Instance:
    """A window of traffic. Subscription sets are in CSR form: set i has ``pins[starts[i]:starts[i + 1]]``.

    Made by :meth:`of`, which brings endpoints (by name) and sets into one order: equal input, equal arrays.
    """

    endpoints: tuple[str, ...]
    rate: Floats
    """Updates a second of each endpoint."""
    subscribers: Floats
    """Mean number of subscribers of each endpoint over the window."""
    starts: Ints
    pins: Parts
    weight: Ints
    """Seconds that clients with this set were connected; equal sets are merged."""
    seconds: float = 1.0
    """Length of the window: with it, seconds connected become a mean number of connections."""

    @classmethod
    def of(
        cls,
        endpoints: Sequence[str],
        rate: Sequence[float] | Floats,
        subscribers: Sequence[float] | Floats,
        sets: Block,
        seconds: float = 1.0,
    ) -> "Instance":
        """From endpoints in any order, and sets (of numbers of endpoints) in any order, equal ones more than once.

        Raises:
            ValueError: two endpoints have the same name, or the lengths differ.
        """
        if len(set(endpoints)) != len(endpoints) or not len(endpoints) == len(rate) == len(subscribers):
            raise ValueError("every endpoint has one name, one rate and one number of subscribers")
        order = np.array(sorted(range(len(endpoints)), key=endpoints.__getitem__), dtype=np.int64)
        place = np.empty(len(endpoints), np.int32)
        place[order] = np.arange(len(endpoints), dtype=np.int32)
        starts, pins, weight = _canonical(Block(place[sets.pins], sets.sizes, sets.weights), len(endpoints))
        names = tuple(endpoints[each] for each in order.tolist())
        rates, counts = np.asarray(rate, float)[order], np.asarray(subscribers, float)[order]
        return cls(names, rates, counts, starts, pins, weight, seconds)

    @property
    def expected(self) -> Floats:
        """Updates a second to expect: one in a window at least, for what was not updated now may be in the next one."""
        return np.maximum(self.rate, 1 / self.seconds)

    @property
    def shift(self) -> int:
        """Bits by which weights are shifted right in :meth:`blocks`."""
        return shift_of(int(self.weight.sum()))

    def blocks(self, count: int | None = None) -> list[Block]:
        """The sets in ``count`` blocks of about as many sets, with weights in the planner's unit."""
        sets, shift = self.weight.size, self.shift
        count = count or 1 + self.pins.size // PINS_OF_BLOCK
        cuts = [sets * each // count for each in range(count + 1)]
        sizes = np.diff(self.starts).astype(np.int32)
        return [
            Block(self.pins[self.starts[a] : self.starts[b]], sizes[a:b], shifted(self.weight[a:b], shift))
            for a, b in pairwise(cuts)
        ]


def _canonical(sets: Block, count: int) -> tuple[Ints, Parts, Ints]:
    """Pins ascending within each set and once, empty sets left out, equal sets merged, sets in one order."""
    whole = merged([distinct(sets, max(count, 1))], count)
    return np.append(0, np.cumsum(whole.sizes, dtype=np.int64)), whole.pins, whole.weights
