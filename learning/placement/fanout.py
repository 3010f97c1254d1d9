"""Fan-out and move gains over one block of subscription sets.

The results of all blocks add up exactly: gains are multiples of 2**-20, because p = 1/2 and exponents are clamped (see
:mod:`learning.placement.blocks`).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from learning.placement.blocks import Block, Floats, Ints, Parts, set_starts, sum_by_cell

CLAMP: Final = 20
"""Largest exponent of 1/2: 2**-20 is the unit of every gain."""
SHARPNESS: Final = CLAMP // 2
"""Sharpness of the fan-out itself: a set's only pin in a part is told from two, which count as hardly any loss."""
MAX_SET_RATE: Final = 1 << 15
"""Largest rate of a set in a part, in the units of :func:`squared_loads`: with it sums are below 2**63."""
MAX_TOTAL_RATE: Final = 1 << 28
"""Largest rate of all endpoints together, in the units of :func:`delivered`, for the same reason."""
WEIGHT_RESOLUTION: Final = 256
"""Units of the largest weight of a client in :func:`fan_out_change`: with it sums are exact in float64."""
_CELLS: Final = 1 << 20
"""Number of counts of pins in parts computed at a time."""
_POWERS: Final = 0.5 ** np.arange(CLAMP + 1)


def fan_out(block: Block, part: Parts, k: int) -> Ints:
    """Return the weight of the sets on 0, 1, ... k parts: int64[k + 1]. Sets with only hot endpoints are on none."""
    # Weights are integers whose sum is below 2**53: exact in float64.
    return sum_by_cell(_parts_met(block, part, k), block.weights, k + 1).astype(np.int64)


def weight_by_part(block: Block, part: Parts, k: int) -> Ints:
    """Return the weight of the sets that need each part, and last that of the sets that need none: int64[k + 1]."""
    result = np.zeros(k + 1, np.int64)
    anywhere = np.ones(block.sizes.size, np.bool_)
    for first, bits in _part_bits(block, part, k):
        anywhere &= bits == 0
        for each in range(first, min(first + 64, k)):
            result[each] = block.weights @ (bits >> np.uint64(each - first) & np.uint64(1)).astype(np.int64)
    result[k] = block.weights[anywhere].sum()
    return result


def fan_out_change(block: Block, before: Parts, part: Parts, k: int, client_weight: float) -> Ints:
    """Return the weight of the sets by the growth of their fan-out from ``before`` to ``part``, -k to k, and squares.

    The squares are sums of squared weights of clients, in ``client_weight`` / :data:`WEIGHT_RESOLUTION`, which is
    the most that a client can have, so a set of more weight is of several. A set with only hot endpoints has a fan-out
    of 1, because its client has a connection: int64[2, 2k + 1].
    """
    now, then = (np.maximum(_parts_met(block, each, k), 1) for each in (part, before))
    squares = block.weights * np.ceil(WEIGHT_RESOLUTION * np.minimum(block.weights / client_weight, 1))
    sums = [sum_by_cell(now - then + k, each, 2 * k + 1) for each in (block.weights, squares)]
    return np.array(sums, np.int64)


def _parts_met(block: Block, part: Parts, k: int) -> Ints:
    """Return the number of parts that each set is on: int64[sets]."""
    met = np.zeros(block.sizes.size, np.int64)
    for _, bits in _part_bits(block, part, k):
        met += np.bitwise_count(bits)
    return met


def _part_bits(block: Block, part: Parts, k: int) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Yield the parts that each set is on, as bits of uint64[sets], 64 parts at a time, with the first of these."""
    if not block.sizes.size:
        return
    starts = set_starts(block.sizes)
    for first in range(0, k, 64):
        inside = (part >= first) & (part < first + 64)
        bit = np.where(inside, np.left_shift(np.uint64(1), np.where(inside, part - first, 0).astype(np.uint64)), 0)
        yield first, np.bitwise_or.reduceat(bit.astype(np.uint64)[block.pins], starts)


def removal_savings(block: Block, part: Parts, k: int) -> Ints:
    """Return D_e of every endpoint: weight of the sets that need one part fewer without it (and keep another)."""
    result = np.zeros(part.size)
    for piece in _rows(block, k + 1):
        counts, cells = _counts(piece, part, k)
        several = (counts[:, :k] > 0).sum(1) > 1
        alone = (counts.ravel()[cells] == 1) & np.repeat(several, piece.sizes) & (part[piece.pins] >= 0)
        weight = np.repeat(piece.weights, piece.sizes)[alone]
        result += sum_by_cell(piece.pins[alone], weight, part.size)
    return result.astype(np.int64)


def affinity(block: Block, part: Parts, k: int, sharpness: int) -> Floats:
    """Return the sum over the sets of e of weight * q**(pins in part i): float64[E, k]; q = 2**-sharpness.

    Every move's gain in k-way p-fan-out follows from it (SHP, VLDB'17, equation 2, with p = 1 - q). Endpoints without a
    part also have a row.
    """
    result = np.zeros((part.size, k))
    # Each product is as large as the result: pieces are, too.
    for piece in _rows(block, k + 1, least=part.size):
        result += _sum_by_endpoint(piece, part.size, _spread(piece, part, k, sharpness))
    return result


def affinity_change(block: Block, before: Parts, part: Parts, k: int, sharpness: int) -> tuple[Ints, Floats]:
    """Return the R endpoints of the sets, and the growth of their :func:`affinity` from ``before``: float64[R, k]."""
    is_here = np.zeros(part.size, np.bool_)
    is_here[block.pins] = True
    endpoints = np.flatnonzero(is_here)
    row = np.empty(part.size, np.int32)
    row[endpoints] = np.arange(endpoints.size)
    change = np.zeros((endpoints.size, k))
    for piece in _rows(block, k + 1, least=endpoints.size):
        spread = _spread(piece, part, k, sharpness) - _spread(piece, before, k, sharpness)
        change += _sum_by_endpoint(piece._replace(pins=row[piece.pins]), endpoints.size, spread)
    return endpoints, change


def _sum_by_endpoint(block: Block, endpoints: int, of_sets: Floats) -> Floats:
    ends = np.append(0, np.cumsum(block.sizes))
    # The sets as columns: E x sets.
    incidence = sparse.csc_array((np.ones(block.pins.size), block.pins, ends), shape=(endpoints, block.sizes.size))
    result: Floats = incidence @ of_sets
    return result


def delivered(block: Block, rates: Ints, part: Parts, k: int) -> Ints:
    """Return the sum over the sets of weight * (rates that part i delivers to them): int64[k].

    ``rates`` are in units that keep the sums small: all together are at most :data:`MAX_TOTAL_RATE`.
    """
    result = np.zeros(k, np.int64)
    for piece in _rows(block, k + 1):
        result += piece.weights @ _rates_of_sets(piece, rates, part, k)
    return result


def attracted(block: Block, rates: Ints, part: Parts) -> Ints:
    """Return the sum over the sets of an endpoint of weight * (rates of hot ones) / (number of others): int64[E].

    It is 0 for hot endpoints, those with a negative ``part``. Clients have hot endpoints where they have others, which
    take them along when they move. ``rates`` are as for :func:`delivered`.
    """
    if not block.sizes.size:
        return np.zeros(part.size, np.int64)
    hot, starts = part[block.pins] < 0, set_starts(block.sizes)
    others = np.add.reduceat(~hot, starts, dtype=np.int64)
    hot_rates = np.add.reduceat(np.where(hot, rates[block.pins], 0), starts)
    each = block.weights * (hot_rates // np.maximum(others, 1))
    ends = np.append(starts, block.pins.size)
    # The sets as columns; integers, because the sums are beyond those that are exact in float64.
    incidence = sparse.csc_array(((~hot).astype(np.int64), block.pins, ends), shape=(part.size, each.size))
    result: Ints = incidence @ each
    return result


def squared_loads(block: Block, rates: Ints, part: Parts, k: int) -> Ints:
    """Return the sum over the sets of weight * (rates that part i delivers to them)**2: int64[k].

    ``rates`` are in units that keep the sums small: one of a set beyond :data:`MAX_SET_RATE` counts as that.
    """
    result = np.zeros(k, np.int64)
    for piece in _rows(block, k + 1):
        result += piece.weights @ np.minimum(_rates_of_sets(piece, rates, part, k), MAX_SET_RATE) ** 2
    return result


def _rates_of_sets(block: Block, rates: Ints, part: Parts, k: int) -> Ints:
    """Return the rates that each part delivers to each set: int64[sets, k].

    Those of hot endpoints come from the parts that a set needs for others, from each the same share, because clients
    choose any server that they are connected to; from all parts if it needs none.
    """
    counts, cells = _counts(block, part, k)
    sums = sum_by_cell(cells, rates[block.pins], block.sizes.size * (k + 1)).astype(np.int64).reshape(-1, k + 1)
    by_part, hot = sums[:, :k], sums[:, k]
    if hot.any():
        needed = counts[:, :k] > 0
        needed[~needed.any(1)] = True
        # Whole numbers, so that sums do not depend on their order.
        by_part = by_part + needed * (hot // needed.sum(1))[:, None]
    return by_part


class Level(NamedTuple):
    """The sets of a bisection level, as :func:`gains` needs them many times."""

    pins: Ints
    """As int64, to which sums by endpoint would convert them."""
    last: Ints
    """Index of the last pin of each set."""
    sizes: Parts
    weights: Ints
    cells: Ints
    """Twice the number of the set of each pin."""


def regroup(block: Block, group: Parts) -> Level:
    """Return one set per (set, group) with at least two pins: the input of a bisection level.

    ``group`` is a number >= 0 for each endpoint, or negative for those not to be divided further.
    """
    row = np.repeat(np.arange(block.sizes.size), block.sizes)
    inside = group[block.pins] >= 0
    row, pins = row[inside], block.pins[inside].astype(np.int64)
    key = row * (int(group.max(initial=0)) + 1) + group[pins]
    order = np.argsort(key, kind="stable")
    key, row, pins = key[order], row[order], pins[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: key.size])
    sizes = np.diff(np.append(first, key.size)).astype(np.int32)
    keep = sizes > 1
    pins, weights, sizes = pins[np.repeat(keep, sizes)], block.weights[row[first]][keep], sizes[keep]
    return Level(
        pins, np.cumsum(sizes, dtype=np.int64) - 1, sizes, weights, np.repeat(np.arange(0, 2 * sizes.size, 2), sizes)
    )


def gains(level: Level, side: npt.NDArray[np.uint8]) -> Floats:
    """Return the gain of moving each endpoint to its group's other side: float64[E] (SHP, equation 3, p = 1/2).

    ``side`` is 0 or 1 for each endpoint.
    """
    if not level.sizes.size:
        return np.zeros(side.size)
    pinned = side.astype(np.int32)[level.pins]
    # Differences of running sums take a sixth of the time of `reduceat`.
    ones = np.diff(np.cumsum(pinned, dtype=np.int32)[level.last], prepend=np.int32(0))
    zeros = level.sizes - ones
    of_set = np.empty((level.sizes.size, 2))
    of_set[:, 0] = level.weights * (_power(zeros - 1) - _power(ones))
    of_set[:, 1] = level.weights * (_power(ones - 1) - _power(zeros))
    return 0.5 * sum_by_cell(level.pins, of_set.ravel()[level.cells + pinned], side.size)


def _power(count: Parts) -> Floats:
    """Return 2**-count, clamped. Its value for a side without pins (-1) is never used."""
    return np.take(_POWERS, count, mode="clip")


def _rows(block: Block, cells: int, least: int = 1) -> Iterator[Block]:
    """Yield a block in pieces small enough that a row of ``cells`` numbers per set fits the cache, or of ``least``."""
    ends = np.cumsum(block.sizes)
    step = max(least, _CELLS // cells)
    for first in range(0, block.sizes.size, step):
        last = min(first + step, block.sizes.size)
        start = int(ends[first - 1]) if first else 0
        pins, clients = block.pins[start : int(ends[last - 1])], block.clients[first:last]
        yield Block(pins, block.sizes[first:last], block.weights[first:last], clients)


def _counts(block: Block, part: Parts, k: int) -> tuple[Ints, Ints]:
    """Count the pins of every set in every part [sets, k + 1] (last column: in none); also return each pin's cell."""
    placed = np.where(part < 0, k, part)[block.pins]
    cells = np.repeat(np.arange(0, block.sizes.size * (k + 1), k + 1), block.sizes) + placed
    counts: Ints = np.bincount(cells, minlength=block.sizes.size * (k + 1)).astype(np.int64, copy=False)
    return counts.reshape(-1, k + 1), cells


def _spread(block: Block, part: Parts, k: int, sharpness: int) -> Floats:
    counts, _ = _counts(block, part, k)
    return np.take(_POWERS, counts[:, :k] * sharpness, mode="clip") * block.weights[:, None]
