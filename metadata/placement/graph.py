"""The graph of endpoints that are looked at together, and the sets of its clusters, of one block of sets."""

from typing import Final

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from metadata.placement.blocks import Block, Ints, Mask, Parts, distinct, hashes, merged

_SHARE_BITS: Final = 12


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


def _sizes(row: Ints, block: Block) -> Parts:
    return np.bincount(row, minlength=block.sizes.size).astype(np.int32)
