"""Runs the functions of one block over all blocks, and adds up the results."""

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from learning.placement import blocks, fanout
from learning.placement.blocks import Block, Floats, Ints, Mask, Parts

T = TypeVar("T")
INCREMENTAL_SHARE = 0.4
"""Share of the pins up to which evaluating the sets that changed, before and after, is faster than evaluating all."""


class Backend:
    """All subscription sets of an instance, in blocks, which are evaluated one by one: memory for one beyond the sets.

    Sums are exact, so that results do not depend on how the sets are divided into blocks.

    Args:
        parts: the blocks.
        endpoints: E: pins are below it.
    """

    def __init__(self, parts: Sequence[Block], endpoints: int) -> None:
        self._blocks = list(parts)
        self._level: list[fanout.Level] = []
        self._index: list[tuple[Ints, Ints]] = []
        self.endpoints = endpoints
        self._halves: tuple[Backend, Backend] | None = None
        self._last: dict[tuple[int, int], tuple[Parts, Floats]] = {}

    def fan_out(self, part: Parts, k: int) -> Ints:
        """Sum of :func:`fanout.fan_out`."""
        return self._sum(lambda block: fanout.fan_out(block, part, k), np.zeros(k + 1, np.int64))

    def weight_by_part(self, part: Parts, k: int) -> Ints:
        """Sum of :func:`fanout.weight_by_part`."""
        return self._sum(lambda block: fanout.weight_by_part(block, part, k), np.zeros(k + 1, np.int64))

    def fan_out_change(self, before: Parts, part: Parts, k: int, client_weight: float) -> Ints:
        """Sum of :func:`fanout.fan_out_change`."""
        run = partial(fanout.fan_out_change, before=before, part=part, k=k, client_weight=client_weight)
        return self._sum(run, np.zeros((2, 2 * k + 1), np.int64))

    def removal_savings(self, part: Parts, k: int) -> Ints:
        """Sum of :func:`fanout.removal_savings`."""
        return self._sum(lambda block: fanout.removal_savings(block, part, k), np.zeros(self.endpoints, np.int64))

    def affinity(self, part: Parts, k: int, sharpness: int) -> Floats:
        """Sum of :func:`fanout.affinity`; not to be modified by the caller.

        When few sets changed since the last call, only these are evaluated.
        """
        last = self._last.get((k, sharpness))
        changed = None if last is None else self._sets_with(np.flatnonzero(last[0] != part))
        if last is None or changed is None:
            total = self._sum(lambda block: fanout.affinity(block, part, k, sharpness), np.zeros((part.size, k)))
        else:
            endpoints, change = fanout.affinity_change(changed, last[0], part, k, sharpness)
            total = last[1].copy()
            total[endpoints] += change
        self._last[k, sharpness] = part.copy(), total
        return total

    def _sets_with(self, moved: Ints) -> Block | None:
        """Return the sets that contain an endpoint among those ``moved``; None if they are too large a share of all."""
        self._index = self._index or [blocks.index_sets(block, self.endpoints) for block in self._blocks]
        pairs = list(zip(self._blocks, self._index, strict=True))
        found = [(block, blocks.find_sets_with(block, *index, moved)) for block, index in pairs]
        changed = sum(int(block.sizes[rows].sum()) for block, rows in found)
        if changed > INCREMENTAL_SHARE * sum(block.pins.size for block in self._blocks):
            return None
        return blocks.concatenate([blocks.select_sets(block, rows) for block, rows in found])

    def delivered(self, rates: Ints, part: Parts, k: int) -> Ints:
        """Sum of :func:`fanout.delivered`."""
        return self._sum(lambda block: fanout.delivered(block, rates, part, k), np.zeros(k, np.int64))

    def attracted(self, rates: Ints, part: Parts) -> Ints:
        """Sum of :func:`fanout.attracted`."""
        return self._sum(lambda block: fanout.attracted(block, rates, part), np.zeros(self.endpoints, np.int64))

    def squared_loads(self, rates: Ints, part: Parts, k: int) -> Ints:
        """Sum of :func:`fanout.squared_loads`."""
        return self._sum(lambda block: fanout.squared_loads(block, rates, part, k), np.zeros(k, np.int64))

    def subscribed(self) -> Floats:
        """Return the weight of the sets of each endpoint: float64[E]."""
        return self._sum(
            lambda block: blocks.sum_by_cell(block.pins, np.repeat(block.weights, block.sizes), self.endpoints),
            np.zeros(self.endpoints),
        )

    def count_clients(self) -> int:
        """Sum of :func:`blocks.count_clients`."""
        return self._sum(blocks.count_clients, 0)

    def fold(self, held: tuple[float, float], *, held_out: bool, seed: int = blocks.FOLD_SEED) -> "Backend":
        """A backend of the blocks of :func:`blocks.fold`."""
        parts = [blocks.fold(block, self.endpoints, held, held_out=held_out, seed=seed) for block in self._blocks]
        return Backend(parts, self.endpoints)

    def without_repeated_sets(self, earlier: "Backend") -> "Backend":
        """A backend of the blocks of :func:`blocks.drop_repeated_sets`."""
        hashes = earlier.hash_sets()
        return Backend(
            [blocks.drop_repeated_sets(block, hashes, self.endpoints) for block in self._blocks], self.endpoints
        )

    def hash_sets(self) -> npt.NDArray[np.uint64]:
        """Return :func:`blocks.hash_sets` of all blocks."""
        return np.concatenate([blocks.hash_sets(block, self.endpoints) for block in self._blocks])

    def halves(self) -> "tuple[Backend, Backend]":
        """Backends of either half of the clients, kept for the next call."""
        if self._halves is None:
            one, other = (self.fold((0.0, 0.5), held_out=each, seed=blocks.HALVES_SEED) for each in (False, True))
            self._halves = one, other
        return self._halves

    def without_long_sets(self) -> "Backend":
        """A backend without sets of many endpoints (:func:`blocks.drop_long_sets`), or this one if all are short."""
        parts = blocks.drop_long_sets(self._blocks, self.endpoints)
        return self if parts is None else Backend(parts, self.endpoints)

    def begin_level(self, group: Parts) -> None:
        """Prepare blocks by :func:`fanout.regroup` for :meth:`gains`, until the next level or :meth:`end_levels`."""
        self._level = [fanout.regroup(block, group) for block in self._blocks]

    def gains(self, side: npt.NDArray[np.uint8]) -> Floats:
        """Sum of :func:`fanout.gains` over the blocks of this level."""
        return sum((fanout.gains(block, side) for block in self._level), np.zeros(side.size))

    def end_levels(self) -> None:
        """Free the blocks of the last level."""
        self._level = []

    def count_pairs(self, longest: int) -> int:
        """Sum of :func:`blocks.count_pairs`."""
        return sum(blocks.count_pairs(block, longest) for block in self._blocks)

    def cosubscription(self, cold: Mask, share: float, longest: int) -> sparse.csr_array:
        """Sum of :func:`blocks.cosubscription`, with sorted indices."""
        graphs = (blocks.cosubscription(block, cold, share, longest) for block in self._blocks)
        return reduce(operator.add, graphs)

    def contract(self, label: Parts, count: int) -> Block:
        """The blocks of :func:`blocks.contract`, through :func:`blocks.merge_equal_sets`."""
        return blocks.merge_equal_sets((blocks.contract(block, label, count) for block in self._blocks), count)

    def _sum(self, run: Callable[[Block], T], start: T) -> T:
        for block in self._blocks:
            start = start + run(block)  # type: ignore[operator]
        return start
