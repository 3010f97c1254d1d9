"""What is computed over many subscription sets, as pure functions of one block of them.

A block is some of the sets, in any order: results of blocks add up to the result of all of them, exactly. For this all
gains are multiples of 2**-20 (p = 1/2 and clamped exponents) and weights are integers with a bounded sum, so that sums
in float64 do not depend on their order. Parts are numbered from 0; an endpoint whose part is negative counts nowhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

CLAMP: Final = 20
"""Exponents of 1/2 end here: 2**-20 is the unit of every gain."""
MOST_WEIGHT: Final = 1 << 31
"""Sum of the weights of all sets: with it a sum of gains stays below 2**53 units."""
_CELLS: Final = 1 << 20
_SHARE_BITS: Final = 12
_POWERS: Final = 0.5 ** np.arange(CLAMP + 1)


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


def _rows(block: Block, cells: int) -> Iterator[Block]:
    """The block in pieces of at most so many sets that a row of ``cells`` numbers for each fits the cache."""
    ends = np.cumsum(block.sizes)
    step = max(1, _CELLS // cells)
    for first in range(0, block.sizes.size, step):
        last = min(first + step, block.sizes.size)
        start = int(ends[first - 1]) if first else 0
        yield Block(block.pins[start : int(ends[last - 1])], block.sizes[first:last], block.weights[first:last])


def _counts(block: Block, part: Parts, k: int) -> tuple[Ints, Ints]:
    """Pins of every set in every part [sets, k + 1] (the last column: in none), and the cell of each pin."""
    placed = np.where(part < 0, k, part)[block.pins]
    cells = np.repeat(np.arange(0, block.sizes.size * (k + 1), k + 1), block.sizes) + placed
    counts: Ints = np.bincount(cells, minlength=block.sizes.size * (k + 1)).astype(np.int64, copy=False)
    return counts.reshape(-1, k + 1), cells


def _starts(sizes: Parts) -> Ints:
    starts: Ints = np.cumsum(sizes, dtype=np.int64) - sizes
    return starts


def fan_out(block: Block, part: Parts, k: int) -> Ints:
    """Weight of the sets that meet 0, 1, ... k parts: int64[k + 1]. Sets without a part are those of hot endpoints."""
    if not block.sizes.size:
        return np.zeros(k + 1, np.int64)
    starts, met = _starts(block.sizes), np.zeros(block.sizes.size, np.int64)
    for word in range(0, k, 64):
        inside = (part >= word) & (part < word + 64)
        bit = np.where(inside, np.left_shift(np.uint64(1), np.where(inside, part - word, 0).astype(np.uint64)), 0)
        met += np.bitwise_count(np.bitwise_or.reduceat(bit.astype(np.uint64)[block.pins], starts))
    # Weights are integers whose sum is below 2**53: exact in float64.
    return summed(met, block.weights, k + 1).astype(np.int64)


def needed(block: Block, load: Floats, most: float) -> Ints:
    """Weight of all sets, and of the parts that they need at least when none holds more than ``most``: int64[2]."""
    row = np.repeat(np.arange(block.sizes.size), block.sizes)
    # A little less, for what rounding adds.
    parts = np.maximum(np.ceil(summed(row, load[block.pins], block.sizes.size) / most - 1e-9), 1).astype(np.int64)
    return np.array([block.weights.sum(), (parts * block.weights).sum()], np.int64)


def lonely(block: Block, part: Parts, k: int) -> Ints:
    """D_e for every endpoint: weight of the sets that need one part fewer without it (they keep another)."""
    result = np.zeros(part.size)
    for piece in _rows(block, k + 1):
        counts, cells = _counts(piece, part, k)
        several = (counts[:, :k] > 0).sum(1) > 1
        alone = (counts.ravel()[cells] == 1) & np.repeat(several, piece.sizes) & (part[piece.pins] >= 0)
        weight = np.repeat(piece.weights, piece.sizes)[alone]
        result += summed(piece.pins[alone], weight, part.size)
    return result.astype(np.int64)


def affinity(block: Block, part: Parts, k: int, sharpness: int, before: Parts | None = None) -> Floats:
    """Sum over the sets of e of weight * q**(pins in part i), for all e and i: float64[E, k]; q = 2**-sharpness.

    From it follows the gain of every move of the k-way p-fan-out (SHP, VLDB'17, equation 2, with p = 1 - q). With
    ``before``: how much it differs from what it was for that placement. Endpoints without a part have a row as well.
    """
    result = np.zeros((part.size, k))
    for piece in _rows(block, k + 1):
        spread = _spread(piece, part, k, sharpness)
        if before is not None:
            spread -= _spread(piece, before, k, sharpness)
        ends = np.append(0, np.cumsum(piece.sizes))
        # The sets as columns: E x sets.
        incidence = sparse.csc_array((np.ones(piece.pins.size), piece.pins, ends), shape=(part.size, piece.sizes.size))
        result += incidence @ spread
    return result


def _spread(block: Block, part: Parts, k: int, sharpness: int) -> Floats:
    counts, _ = _counts(block, part, k)
    return np.take(_POWERS, counts[:, :k] * sharpness, mode="clip") * block.weights[:, None]


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
    return Block(block.pins[ranges(_starts(block.sizes)[rows], sizes)], sizes, weights)


def ranges(starts: Ints, sizes: npt.NDArray[np.signedinteger[Any]]) -> Ints:
    """One range of numbers after the other, each from its start: int64[sum of sizes]."""
    ends = np.cumsum(sizes, dtype=np.int64)
    count = int(ends[-1]) if ends.size else 0
    return np.arange(count) + np.repeat(starts - (ends - sizes), sizes)


def regrouped(block: Block, group: Parts) -> Block:
    """One set for every (set, group) that has at least two pins: what a level of the bisection works on.

    ``group`` is a number >= 0 for each endpoint, or negative for those that are not divided any more.
    """
    row = np.repeat(np.arange(block.sizes.size), block.sizes)
    inside = group[block.pins] >= 0
    row, pins = row[inside], block.pins[inside]
    if not pins.size:
        return Block(pins, np.zeros(0, np.int32), np.zeros(0, np.int64))
    key = row * (int(group.max()) + 1) + group[pins]
    order = np.argsort(key, kind="stable")
    key, row, pins = key[order], row[order], pins[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    sizes = np.diff(np.append(first, key.size)).astype(np.int32)
    keep = sizes > 1
    return Block(pins[np.repeat(keep, sizes)], sizes[keep], block.weights[row[first]][keep])


def _power(count: Parts) -> Floats:
    """2**-count, clamped. What it is for a side without pins (-1) is not looked at."""
    return np.take(_POWERS, count, mode="clip")


def gains(level: Block, side: npt.NDArray[np.uint8]) -> Floats:
    """Gain of moving every endpoint to the other side of its group: float64[E] (SHP, VLDB'17, equation 3, p = 1/2).

    ``level`` is a block of :func:`regrouped`, ``side`` 0 or 1 for each endpoint.
    """
    if not level.sizes.size:
        return np.zeros(side.size)
    pinned = side[level.pins]
    ones = np.add.reduceat(pinned, _starts(level.sizes), dtype=np.int32)
    zeros = level.sizes - ones
    of_set = np.empty((level.sizes.size, 2))
    of_set[:, 0] = level.weights * (_power(zeros - 1) - _power(ones))
    of_set[:, 1] = level.weights * (_power(ones - 1) - _power(zeros))
    cell = np.repeat(np.arange(0, 2 * level.sizes.size, 2, dtype=np.int32), level.sizes) + pinned
    return 0.5 * summed(level.pins, of_set.ravel()[cell], side.size)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function."""
    z = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _names(count: int, seed: int) -> npt.NDArray[np.uint64]:
    step = np.uint64(0x9E3779B97F4A7C15)
    return _mixed((np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 40)) * step)


def hashes(block: Block, count: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    """A hash of each set that depends on its ``count`` possible pins only, not on where the set is: uint64[sets]."""
    if not block.sizes.size:
        return np.zeros(0, np.uint64)
    return _mixed(np.add.reduceat(_names(count, seed)[block.pins], _starts(block.sizes)))


def pairs(block: Block, longest: int) -> int:
    """Pairs of endpoints in all sets of at most ``longest`` pins: the work of :func:`cosubscription`."""
    sizes = block.sizes[block.sizes <= longest].astype(np.int64)
    return int((sizes * (sizes - 1)).sum())


def cosubscription(block: Block, cold: Mask, share: float, longest: int) -> sparse.csr_array:
    """The graph that is clustered: weight of the sets that two endpoints have in common, each set's shared out by size.

    CSR [E, E], integers in float64. Made of ``share`` (0 to 1) of the sets, chosen by their hash, and of sets of 2 to
    ``longest`` pins only: longer ones say little and cost their square. Endpoints that are not ``cold`` are left out.
    """
    limit = np.uint64(min(share * 2.0**64, 2.0**64 - 2048))
    keep = (block.sizes > 1) & (block.sizes <= longest)
    if share < 1:
        keep &= hashes(block, cold.size) < limit
    inside = np.repeat(keep, block.sizes) & cold[block.pins]
    row = np.repeat(np.arange(block.sizes.size), block.sizes)[inside]
    sizes = np.bincount(row, minlength=block.sizes.size)
    portion = (block.weights << _SHARE_BITS) // np.maximum(sizes - 1, 1)
    ends = np.append(0, np.cumsum(sizes))
    shape = (cold.size, block.sizes.size)
    pins = block.pins[inside]
    incidence = sparse.csc_array((np.ones(pins.size), pins, ends), shape=shape)
    weighted = sparse.csc_array((portion[row].astype(np.float64), pins, ends), shape=shape)
    graph = (weighted.tocsr() @ incidence.T.tocsr()).tocsr()
    graph.setdiag(0)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph


def contracted(block: Block, label: Parts, count: int) -> Block:
    """The sets of clusters: ``label`` is the cluster (below ``count``) of each endpoint, or negative.

    A cluster is in a set once; sets of fewer than two are left out, equal ones are merged (:func:`merged`).
    """
    placed = label[block.pins]
    inside = placed >= 0
    row = np.repeat(np.arange(block.sizes.size), block.sizes)[inside]
    return merged([distinct(Block(placed[inside], _sizes(row, block), block.weights), count, least=2)], count)


def distinct(block: Block, count: int, least: int = 1) -> Block:
    """Every pin (below ``count``) once in its set, ascending; sets with fewer than ``least`` are left out."""
    ends = np.append(0, np.cumsum(block.sizes))
    incidence = sparse.csr_array((np.ones(block.pins.size, np.int8), block.pins, ends), shape=(block.sizes.size, count))
    incidence.sum_duplicates()
    sizes = np.diff(incidence.indptr).astype(np.int32)
    keep = sizes >= least
    return Block(incidence.indices[np.repeat(keep, sizes)].astype(np.int32), sizes[keep], block.weights[keep])


def _sizes(row: Ints, block: Block) -> Parts:
    return np.bincount(row, minlength=block.sizes.size).astype(np.int32)


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
