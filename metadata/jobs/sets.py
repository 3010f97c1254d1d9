"""Build blocks of subscription sets in Spark, from a table of sets or from single subscriptions in any order.

Spark shares rows out over the blocks; each block is made of its rows with numpy, in a task. Spark's own way to lists
of endpoints, two aggregations of them, takes several times as long.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from metadata.jobs.blockfiles import Arrays, BlockFiles
from metadata.placement.blocks import (
    Block,
    Ints,
    concatenate,
    deduplicate_pins,
    hash_sets,
    merge_equal_sets,
    select_sets,
    shift_weights,
    sum_by_cell,
    weight_shift,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETS: Final = "sets"
"""Name of the blocks that are made here."""
_CLIENTS: Final = "clients"
_EMPTY: Final = Block(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))


def store_sets(sets: "DataFrame", files: BlockFiles, endpoints: int) -> None:
    """Store sets as blocks :data:`SETS`, equal ones merged.

    Args:
        sets: `endpoints` (array of int) and `weight` (long) as in docs/traffic.md section 3.4, in any order.
        files: where to; each of its pieces is a block.
        endpoints: E: pins are below it.
    """
    # Equal sets come to the same block.
    rows = sets.select("endpoints", "weight").repartition(files.count, "endpoints")
    _from_rows(rows, files, SETS, partial(_of_sets, endpoints))


def store_subscriptions(subscriptions: "DataFrame", files: BlockFiles, endpoints: int) -> None:
    """The same for single subscriptions.

    Args:
        subscriptions: `client` (of any type), `endpoint` (int), `weight` (long, that of the client), in any order; the
            same one may be there more than once.
        files: as above.
        endpoints: as above.
    """
    rows = subscriptions.select("client", "endpoint", "weight").repartition(files.count, "client")
    _from_rows(rows, files, _CLIENTS, partial(_of_clients, endpoints))
    files.exchange(SETS, partial(_by_hash, endpoints, files.count), partial(_together, endpoints), _CLIENTS)
    files.forget(_CLIENTS)


def held(files: BlockFiles, endpoints: int) -> Ints:
    """Weight of the sets that have each endpoint: int64[E]. Before :func:`scale`."""
    return sum(files.map(partial(_held, endpoints), SETS), np.zeros(endpoints, np.int64))


def scale(files: BlockFiles) -> int:
    """Bring the weights into the planner's unit (:func:`shifted`); returns what their sum was before."""
    total = int(sum(files.map(_weight, SETS)))
    if shift := weight_shift(total):
        files.derive(SETS, partial(_shifted, shift), SETS)
    return total


def _from_rows(rows: "DataFrame", files: BlockFiles, name: str, block_of: Callable[[Any], Block]) -> None:
    """Blocks of the rows of each partition. As files, because PySpark's own way to arrays needs pandas."""
    folder = files.folder / f"{name}.parquet"
    rows.write.parquet(str(folder), compression="none")
    tables = sorted(folder.glob("part-*.parquet"))
    files.keep(name, partial(_of_table, tables, block_of))
    for table in tables:
        table.unlink()


def _of_table(tables: list[Path], block_of: Callable[[Any], Block], number: int) -> Block:
    """The block of a piece; Spark writes no file for a partition without rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    return block_of(pq.read_table(tables[number])) if number < len(tables) else _EMPTY


def _of_sets(endpoints: int, table: Any) -> Block:  # noqa: ANN401 - pyarrow has no types
    lists = table.column("endpoints").combine_chunks()
    pins = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
    sizes = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int32)
    return _together(endpoints, [Block(pins, sizes, table.column("weight").to_numpy().astype(np.int64))])


def _of_clients(endpoints: int, table: Any) -> Block:  # noqa: ANN401 - pyarrow has no types
    """A set for each client, in the order in which they come up."""
    client = table.column("client").combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    pin, first = np.unique(client * endpoints + table.column("endpoint").to_numpy(), return_index=True)
    sizes = np.bincount(pin // endpoints).astype(np.int32)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    weights = table.column("weight").to_numpy()[first[starts]].astype(np.int64)
    return Block((pin % endpoints).astype(np.int32), sizes, weights)


def _by_hash(endpoints: int, count: int, arrays: Arrays) -> list[Block]:
    """``count`` blocks, equal sets in the same one."""
    block = Block(*arrays)
    goal = hash_sets(block, endpoints) % np.uint64(count)
    return [select_sets(block, np.flatnonzero(goal == each)) for each in range(count)]


def _together(endpoints: int, parts: list[Block]) -> Block:
    return merge_equal_sets(
        [deduplicate_pins(concatenate([Block(*arrays) for arrays in parts]), max(endpoints, 1))], endpoints
    )


def _held(endpoints: int, arrays: Arrays) -> Ints:
    block = Block(*arrays)
    return sum_by_cell(block.pins, np.repeat(block.weights, block.sizes), endpoints).astype(np.int64)


def _weight(arrays: Arrays) -> int:
    return int(Block(*arrays).weights.sum())


def _shifted(shift: int, arrays: Arrays) -> Block:
    block = Block(*arrays)
    return block._replace(weights=shift_weights(block.weights, shift))
