"""Blocks of subscription sets: concatenate, select, merge, index, and derive graphs.

A block is a subset of the sets, in any order, and the results of all blocks add up exactly to the result of the whole.
To this end all gains are multiples of 2**-20 (:mod:`learning.placement.fanout`) and weights are integers with a bounded
sum, so that sums in float64 do not depend on their order. Parts are numbered from 0; an endpoint with a negative part
counts in none.
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

MAX_WEIGHT: Final = 1 << 31
"""Largest sum of the weights of all sets: it keeps sums of gains below 2**53 units."""


class Block(NamedTuple):
    """Subscription sets in CSR form: set i has the next ``sizes[i]`` pins (endpoints, int32)."""

    pins: Parts
    sizes: Parts
    weights: Ints
    clients: Ints
    """Clients of each set; all that a client subscribed to is in one set."""


def sum_by_cell(cells: npt.NDArray[Any], values: npt.NDArray[Any], count: int) -> Floats:
    """Return the sum of ``values`` in each of ``count`` cells, added in their order."""
    return np.bincount(cells, weights=values, minlength=count).astype(np.float64, copy=False)


def weight_shift(total: int) -> int:
    """Return the right shift after which the sum of weights is at most :data:`MAX_WEIGHT` (about)."""
    return max(0, (total // MAX_WEIGHT).bit_length())


def shift_weights(weights: Ints, shift: int) -> Ints:
    """Convert weights to the planner's unit; never 0."""
    result: Ints = np.maximum(weights >> shift, 1)
    return result


def set_starts(sizes: Parts) -> Ints:
    """Return the offset of every set's first pin."""
    starts: Ints = np.cumsum(sizes, dtype=np.int64) - sizes
    return starts


def concatenate(parts: Sequence[Block]) -> Block:
    """Concatenate the sets of ``parts``, at least one."""
    pins, sizes, weights, clients = zip(*parts, strict=True)
    return Block(np.concatenate(pins), np.concatenate(sizes), np.concatenate(weights), np.concatenate(clients))


def index_sets(block: Block, count: int) -> tuple[Ints, Ints]:
    """Return the sets of each endpoint in CSR form: starts int64[count + 1], set numbers int64[pins]."""
    order = np.argsort(block.pins, kind="stable")
    row = np.repeat(np.arange(block.sizes.size), block.sizes)
    return np.append(0, np.cumsum(np.bincount(block.pins, minlength=count), dtype=np.int64)), row[order]


def find_sets_with(block: Block, starts: Ints, rows: Ints, pins: Ints) -> Ints:
    """Return the numbers of the sets with any of ``pins``; ``starts`` and ``rows`` come from :func:`index_sets`."""
    chosen = np.zeros(block.sizes.size, np.bool_)
    chosen[rows[expand_ranges(starts[pins], starts[pins + 1] - starts[pins])]] = True
    return np.flatnonzero(chosen)


def select_sets(block: Block, rows: Ints, weights: Ints | None = None, clients: Ints | None = None) -> Block:
    """Return a block of some sets, by their numbers."""
    sizes = block.sizes[rows]
    weights = block.weights[rows] if weights is None else weights
    clients = block.clients[rows] if clients is None else clients
    return Block(block.pins[expand_ranges(set_starts(block.sizes)[rows], sizes)], sizes, weights, clients)


def expand_ranges(starts: Ints, sizes: npt.NDArray[np.signedinteger[Any]]) -> Ints:
    """Concatenate ranges of numbers, each from its start: int64[sum of sizes]."""
    ends = np.cumsum(sizes, dtype=np.int64)
    count = int(ends[-1]) if ends.size else 0
    return np.arange(count) + np.repeat(starts - (ends - sizes), sizes)


def deduplicate_pins(block: Block, count: int, least: int = 1) -> Block:
    """Sort each set's pins (below ``count``) without duplicates; drop sets with fewer than ``least``."""
    ends = np.append(0, np.cumsum(block.sizes))
    incidence = sparse.csr_array((np.ones(block.pins.size, np.int8), block.pins, ends), shape=(block.sizes.size, count))
    incidence.sum_duplicates()
    sizes = np.diff(incidence.indptr).astype(np.int32)
    keep = sizes >= least
    pins = incidence.indices[np.repeat(keep, sizes)].astype(np.int32)
    return Block(pins, sizes[keep], block.weights[keep], block.clients[keep])


def merge_equal_sets(parts: Iterable[Block], count: int) -> Block:
    """Merge equal sets (of sorted pins below ``count``) into one block, in an order that depends only on the sets.

    Sets are equal if 128 bits of their hashes are.
    """
    whole = concatenate(list(parts))
    if not whole.sizes.size:
        return whole
    one, two = hash_sets(whole, count, 1), hash_sets(whole, count, 2)
    order = np.lexsort((two, one))
    one, two = one[order], two[order]
    first = np.flatnonzero(np.append(True, (one[1:] != one[:-1]) | (two[1:] != two[:-1])))
    weights, clients = (np.add.reduceat(each[order], first) for each in (whole.weights, whole.clients))
    return select_sets(whole, order[first], weights, clients)


def hash_sets(block: Block, count: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    """Hash each set by its pins (below ``count``), not by its position: uint64[sets]."""
    if not block.sizes.size:
        return np.zeros(0, np.uint64)
    return _splitmix64(np.add.reduceat(_pin_hashes(count, seed)[block.pins], set_starts(block.sizes)))


def _pin_hashes(count: int, seed: int) -> npt.NDArray[np.uint64]:
    step = np.uint64(0x9E3779B97F4A7C15)
    return _splitmix64((np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 40)) * step)


def _splitmix64(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply SplitMix64's output function."""
    z = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


FOLD_SEED, HALVES_SEED = 3, 4
"""Seeds of the clients held out, and of halves of any clients: independent of each other."""


def fold(block: Block, count: int, held: tuple[float, float], *, held_out: bool, seed: int = FOLD_SEED) -> Block:
    """Return the sets (of pins below ``count``) of the clients that are held out, or of the others.

    ``held`` are the clients from a share of all to another, such as (0.2, 0.4). A client is wholly in one fold, however
    long it was connected: a set is divided by its clients, and a hash of the set decides about the last one.
    """
    chance = hash_sets(block, count, seed) / 2.0**64
    first, last = (np.minimum(np.floor(block.clients * each + chance), block.clients) for each in held)
    chosen = (last - first).astype(np.int64)
    weights = np.rint(block.weights * (chosen / block.clients)).astype(np.int64)
    if not held_out:
        chosen, weights = block.clients - chosen, block.weights - weights
    rows = np.flatnonzero(chosen)
    return select_sets(block, rows, weights[rows], chosen[rows])


def drop_repeated_sets(block: Block, earlier: npt.NDArray[np.uint64], count: int) -> Block:
    """Return the block without sets (of pins below ``count``) of one client whose hash is among ``earlier``.

    Sets of several clients are common, those of one client that occur again are most likely of the same one.
    """
    repeated = (block.clients == 1) & np.isin(hash_sets(block, count), earlier)
    return select_sets(block, np.flatnonzero(~repeated))


LONG_SHARE, LONG_PINS = 10, 1000
"""A set with more than a tenth of the endpoints, and more than so many, is long."""


def drop_long_sets(parts: Sequence[Block], count: int) -> list[Block] | None:
    """Return blocks without their long sets; None if there are none, or if these weigh a tenth of all or more.

    They need every server anyway, and cost a search more than all others together.
    """
    longest = max(LONG_PINS, count // LONG_SHARE)
    short = [block.sizes <= longest for block in parts]
    dropped = sum(int(block.weights[~each].sum()) for block, each in zip(parts, short, strict=True))
    if not 0 < dropped * LONG_SHARE < sum(int(block.weights.sum()) for block in parts):
        return None
    return [select_sets(block, np.flatnonzero(each)) for block, each in zip(parts, short, strict=True)]


def count_clients(block: Block) -> int:
    """Return the number of clients."""
    return int(block.clients.sum())


_SHARE_BITS: Final = 12


def count_pairs(block: Block, longest: int) -> int:
    """Count the endpoint pairs in sets of at most ``longest`` pins: the work of :func:`cosubscription`."""
    sizes = block.sizes[block.sizes <= longest].astype(np.int64)
    return int((sizes * (sizes - 1)).sum())


def cosubscription(block: Block, cold: Mask, share: float, longest: int) -> sparse.csr_array:
    """Return the co-subscription graph: weight of the sets that two endpoints share, each divided by its size.

    CSR [E, E], integers in float64. Built from a ``share`` (0 to 1) of the sets, sampled by their hash, and only from
    sets of 2 to ``longest`` pins: longer ones carry little information at quadratic cost. Endpoints that are not
    ``cold`` are left out.
    """
    limit = np.uint64(min(share * 2.0**64, 2.0**64 - 2048))
    keep = (block.sizes > 1) & (block.sizes <= longest)
    if share < 1:
        keep &= hash_sets(block, cold.size) < limit
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


def contract(block: Block, label: Parts, count: int) -> Block:
    """Contract sets to clusters: ``label`` is the cluster (below ``count``) of each endpoint, or negative.

    A set has each of its clusters once; sets of fewer than two clusters are left out, equal sets are merged
    (:func:`merge_equal_sets`).
    """
    placed = label[block.pins]
    inside = placed >= 0
    row = np.repeat(np.arange(block.sizes.size), block.sizes)[inside]
    return merge_equal_sets(
        [deduplicate_pins(block._replace(pins=placed[inside], sizes=_set_sizes(row, block)), count, least=2)], count
    )


def _set_sizes(row: Ints, block: Block) -> Parts:
    return np.bincount(row, minlength=block.sizes.size).astype(np.int32)
