"""Backend for large instances: subscription sets stay in Spark, in blocks of one task each.

Separate from its only caller, ``planning``, because workers import this module for its functions, and need no planner.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from metadata.jobs.block_files import SETS, Arrays, BlockFiles
from metadata.placement import blocks, fanout
from metadata.placement.backend import INCREMENTAL_SHARE
from metadata.placement.blocks import Block, Floats, Ints, Mask, Parts

T = TypeVar("T")
_INDEX: Final = "index"
_LEVEL: Final = "level"


class SparkBackend:
    """A :class:`~metadata.placement.backend.Backend` of the blocks ``sets`` of ``files``.

    Results are those of NumpyBackend, bit for bit, whatever the number of blocks: see blocks.py. A call is a job with
    one task per block and takes at least a tenth of a second; this process only adds up the results and never holds the
    sets.
    """

    def __init__(self, files: BlockFiles, endpoints: int, sets: str = SETS) -> None:
        self.endpoints = endpoints
        self._files = files
        self._sets = sets
        self._index_name, self._level = f"{sets}-{_INDEX}", f"{sets}-{_LEVEL}"
        self._indexed = False
        self._last: dict[tuple[int, int], tuple[Parts, Floats]] = {}

    def fan_out(self, part: Parts, k: int) -> Ints:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.fan_out, part=part, k=k), np.zeros(k + 1, np.int64))

    def fan_out_change(self, before: Parts, part: Parts, k: int, client_weight: float) -> Ints:
        """See :class:`Backend`."""
        run = partial(fanout.fan_out_change, before=before, part=part, k=k, client_weight=client_weight)
        return self._sum(run, np.zeros((2, 2 * k + 1), np.int64))

    def required_parts(self, load: Floats, most: float) -> Ints:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.required_parts, load=load, most=most), np.zeros(2, np.int64))

    def removal_savings(self, part: Parts, k: int) -> Ints:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.removal_savings, part=part, k=k), np.zeros(self.endpoints, np.int64))

    def affinity(self, part: Parts, k: int, sharpness: int) -> Floats:
        """See :class:`Backend`. When few endpoints moved since the last call, only their sets are evaluated."""
        before, total = self._last.get((k, sharpness), (None, None))
        if before is not None and total is not None and (moved := before != part).mean() <= INCREMENTAL_SHARE:
            self._index()
            change = partial(_change, moved=np.flatnonzero(moved), part=part, before=before, k=k, sharpness=sharpness)
            total = total.copy()
            for rows, added in self._files.map(change, self._sets, self._index_name):
                total[rows] += added
        else:
            run = partial(fanout.affinity, part=part, k=k, sharpness=sharpness)
            total = self._sum(run, np.zeros((part.size, k)))
        self._last[k, sharpness] = part.copy(), total
        return total

    def squared_loads(self, rates: Ints, part: Parts, k: int) -> Ints:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.squared_loads, rates=rates, part=part, k=k), np.zeros(k, np.int64))

    def count_sets(self) -> int:
        """See :class:`Backend`."""
        return self._sum(blocks.count_sets, 0)

    def fold(self, client_weight: float, share: float, *, held_out: bool) -> "SparkBackend":
        """See :class:`Backend`. The fold's sets are stored beside the others."""
        name = f"{self._sets}-{'held-out' if held_out else 'used'}"
        run = partial(blocks.fold, count=self.endpoints, client_weight=client_weight, share=share, held_out=held_out)
        self._files.derive(name, partial(_of_block, run), self._sets)
        return SparkBackend(self._files, self.endpoints, name)

    def begin_level(self, group: Parts) -> None:
        """See :class:`Backend`."""
        self._files.derive(self._level, partial(_of_block, partial(fanout.regroup, group=group)), self._sets)

    def gains(self, side: npt.NDArray[np.uint8]) -> Floats:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.gains, side=side), np.zeros(side.size), self._level)

    def end_levels(self) -> None:
        """See :class:`Backend`."""
        self._files.forget(self._level)

    def count_pairs(self, longest: int) -> int:
        """See :class:`Backend`."""
        return self._sum(partial(blocks.count_pairs, longest=longest), 0)

    def cosubscription(self, cold: Mask, share: float, longest: int) -> sparse.csr_array:
        """See :class:`Backend`."""
        run = partial(blocks.cosubscription, cold=cold, share=share, longest=longest)
        return self._sum(run, sparse.csr_array((self.endpoints, self.endpoints)))

    def contract(self, label: Parts, count: int) -> Block:
        """See :class:`Backend`."""
        run = partial(_of_block, partial(blocks.contract, label=label, count=count))
        return blocks.merge_equal_sets(self._files.map(run, self._sets), count)

    def _sum(self, run: Callable[[Block], T], start: T, name: str | None = None) -> T:
        for result in self._files.map(partial(_of_block, run), name or self._sets):
            start = start + result
        return start

    def _index(self) -> None:
        if not self._indexed:
            index = partial(_of_block, partial(blocks.index_sets, count=self.endpoints))
            self._files.derive(self._index_name, index, self._sets)
            self._indexed = True


def _of_block(run: Callable[[Block], T], arrays: Arrays) -> T:
    return run(Block(*arrays))


def _change(
    arrays: Arrays, index: Arrays, *, moved: Ints, part: Parts, before: Parts, k: int, sharpness: int
) -> tuple[Ints, Floats]:
    """Return the endpoints whose affinity differs from ``before``, and by how much: int64[n], float64[n, k]."""
    starts, rows = index
    some = blocks.select_sets_with(Block(*arrays), starts, rows, moved)
    change = fanout.affinity(some, part, k, sharpness, before)
    rows = np.flatnonzero(change.any(1))
    return rows, change[rows]
