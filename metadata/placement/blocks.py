"""Subscription sets in blocks: how they are put together, taken apart, and told from each other.

A block is some of the sets, in any order: results of blocks add up to the result of all of them, exactly. For this all
gains are multiples of 2**-20 (:mod:`metadata.placement.fanout`) and weights are integers with a bounded sum, so that
sums in float64 do not depend on their order. Parts are numbered from 0; an endpoint whose part is negative counts
nowhere.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MOST_WEIGHT: Final = 1 << 31
"""Sum of the weights of all sets: with it a sum of gains stays below 2**53 units."""


class Block(NamedTuple):
    """Subscription sets in CSR form. A set has its ``sizes[i]`` pins (endpoints, int32) one after the other."""

    pins: Parts
    sizes: Parts
    weights: Ints


def summed(cells: npt.NDArray[Any], values: npt.NDArray[Any], count: int) -> Floats:
    """Sum of the ``values`` of each of ``count`` cells, added in their order."""
    return np.bincount(cells, weights=values, minlength=count).astype(np.float64, copy=False)


def shift_of(total: int) -> int:
    """By how many bits weights are shifted right so that their sum is at most :data:`MOST_WEIGHT` (about)."""
    return max(0, (total // MOST_WEIGHT).bit_length())


def shifted(weights: Ints, shift: int) -> Ints:
    """Weights of a block in the planner's unit; never 0."""
    result: Ints = np.maximum(weights >> shift, 1)
    return result


def starts_of(sizes: Parts) -> Ints:
    """Where the pins of every set begin."""
    starts: Ints = np.cumsum(sizes, dtype=np.int64) - sizes
    return starts


def joined(parts: Sequence[Block]) -> Block:
    """The sets of all ``parts``, of which there is at least one."""
    pins, sizes, weights = zip(*parts, strict=True)
    return Block(np.concatenate(pins), np.concatenate(sizes), np.concatenate(weights))


def sets_of(block: Block, count: int) -> tuple[Ints, Ints]:
    """The sets that each endpoint is in, in CSR form: starts int64[count + 1], numbers of sets int64[pins]."""
    order = np.argsort(block.pins, kind="stable")
    row = np.repeat(np.arange(block.sizes.size), block.sizes)
    return np.append(0, np.cumsum(np.bincount(block.pins, minlength=count), dtype=np.int64)), row[order]


def sets_with(block: Block, starts: Ints, rows: Ints, pins: Ints) -> Block:
    """The sets that have one of the ``pins``; ``starts`` and ``rows`` are of :func:`sets_of`."""
    chosen = np.zeros(block.sizes.size, np.bool_)
    chosen[rows[ranges(starts[pins], starts[pins + 1] - starts[pins])]] = True
    return taken(block, np.flatnonzero(chosen))


def taken(block: Block, rows: Ints, weights: Ints | None = None) -> Block:
    """A block of some sets, by their numbers."""
    sizes = block.sizes[rows]
    weights = block.weights[rows] if weights is None else weights
    return Block(block.pins[ranges(starts_of(block.sizes)[rows], sizes)], sizes, weights)


def ranges(starts: Ints, sizes: npt.NDArray[np.signedinteger[Any]]) -> Ints:
    """One range of numbers after the other, each from its start: int64[sum of sizes]."""
    ends = np.cumsum(sizes, dtype=np.int64)
    count = int(ends[-1]) if ends.size else 0
    return np.arange(count) + np.repeat(starts - (ends - sizes), sizes)


def distinct(block: Block, count: int, least: int = 1) -> Block:
    """Every pin (below ``count``) once in its set, ascending; sets with fewer than ``least`` are left out."""
    ends = np.append(0, np.cumsum(block.sizes))
    incidence = sparse.csr_array((np.ones(block.pins.size, np.int8), block.pins, ends), shape=(block.sizes.size, count))
    incidence.sum_duplicates()
    sizes = np.diff(incidence.indptr).astype(np.int32)
    keep = sizes >= least
    return Block(incidence.indices[np.repeat(keep, sizes)].astype(np.int32), sizes[keep], block.weights[keep])


def merged(parts: Iterable[Block], count: int) -> Block:
    """One block in which equal sets (of pins below ``count``, sorted) are one, in an order that only they decide.

    Sets are equal when 128 bits of their hashes are.
    """
    whole = joined(list(parts))
    if not whole.sizes.size:
        return whole
    one, two = hashes(whole, count, 1), hashes(whole, count, 2)
    order = np.lexsort((two, one))
    one, two = one[order], two[order]
    first = np.flatnonzero(np.append(True, (one[1:] != one[:-1]) | (two[1:] != two[:-1])))
    return taken(whole, order[first], np.add.reduceat(whole.weights[order], first))


def hashes(block: Block, count: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    """A hash of each set that depends on its ``count`` possible pins only, not on where the set is: uint64[sets]."""
    if not block.sizes.size:
        return np.zeros(0, np.uint64)
    return _mixed(np.add.reduceat(_names(count, seed)[block.pins], starts_of(block.sizes)))


def _names(count: int, seed: int) -> npt.NDArray[np.uint64]:
    step = np.uint64(0x9E3779B97F4A7C15)
    return _mixed((np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 40)) * step)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function."""
    z = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
