"""Arrays that Spark's tasks keep in files between jobs, and the blocks of subscription sets built from them.

Each task maps its own arrays into memory instead of receiving them. This needs a file system that driver and workers
share: in local mode any, on a cluster the warehouse's disk. There are as many tasks as cores: every further piece of an
array costs a worker's round trip (about 50 ms) and gains nothing.

Rows of a table of sets, or single subscriptions in any order, are distributed over the blocks, and numpy builds each
block in one task: two aggregations in Spark take several times as long.
"""

import gc
import itertools
import pickle
import uuid
import zipimport
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from metadata.jobs.spark_options import spark_path
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
    from pyspark.sql import DataFrame, SparkSession

Arrays = Sequence[npt.NDArray[Any]]

T = TypeVar("T")
_CALL: Final = "call"


class BlockFiles:
    """Named tuples of arrays, each in ``count`` pieces in a folder; Spark runs functions on every piece."""

    def __init__(self, spark: "SparkSession", folder: Path, count: int) -> None:
        self.count = count
        self.folder = folder
        self._numbers = spark.sparkContext.parallelize(range(count), count)
        self._calls = itertools.count()

    def call(self, function: Callable[[int], Any]) -> Iterator[Any]:
        """Return ``function(number)`` of each piece, in order. Blocks until all have run.

        Functions and results go through files: a result may be larger than the JVM's heap.
        """
        call = self.folder / f"{_CALL}-{next(self._calls)}"
        _dump(call, function)
        try:
            self._numbers.foreach(partial(_run, call))
        finally:
            call.unlink()
        return (_consume(_result(call, number)) for number in range(self.count))

    def map(self, function: Callable[..., Any], *names: str) -> Iterator[Any]:
        """Return ``function`` of each piece's tuples of arrays with these names."""
        return self.call(partial(_apply, self.folder, function, names))

    def keep(self, name: str, function: Callable[[int], Arrays]) -> None:
        """Store ``function(number)`` of each piece as a tuple of arrays."""
        for _ in self.call(partial(_keep, self.folder, name, function)):
            pass

    def derive(self, name: str, function: Callable[..., Arrays], *names: str) -> None:
        """Store ``function`` of the tuples with other ``names`` as a tuple of arrays."""
        self.keep(name, partial(_apply, self.folder, function, names))

    def exchange(
        self,
        name: str,
        split: Callable[[Arrays], Sequence[Arrays]],
        join: Callable[[Sequence[Arrays]], Arrays],
        source: str,
    ) -> None:
        """Store a tuple of arrays whose piece n joins the n-th results of ``split`` on every piece of ``source``."""
        for _ in self.call(partial(_split, self.folder, name, split, source)):
            pass
        self.keep(name, partial(_join, self.folder, name, join, self.count))
        self.forget(f"{name}-*")

    def forget(self, name: str) -> None:
        """Remove a tuple of arrays."""
        for file in self.folder.glob(f"{name}.*.npy"):
            file.unlink()


def _run(call: Path, number: int) -> None:
    """Run a call's function in a worker and store its result."""
    _speed_up_worker()
    _dump(_result(call, number), _load(call)(number))


@cache
def _speed_up_worker() -> None:
    """Prepare a worker, once: otherwise even an empty task keeps it busy for at least 15 ms."""
    # Workers collect garbage after each task, which would traverse every imported module.
    gc.freeze()
    # PySpark 4.0 makes each task read its two archives again; 4.2 does not.
    zipimport.zipimporter.invalidate_caches = _do_nothing  # type: ignore[assignment]


def _do_nothing(_: zipimport.zipimporter) -> None:
    pass


def _result(call: Path, number: int) -> Path:
    return call.with_name(f"{call.name}.{number}")


def _apply(folder: Path, function: Callable[..., T], names: Sequence[str], number: int) -> T:
    return function(*(_load_arrays(folder, name, number) for name in names))


def _keep(folder: Path, name: str, function: Callable[[int], Arrays], number: int) -> None:
    _save(folder, name, number, function(number))


def _split(folder: Path, name: str, split: Callable[[Arrays], Sequence[Arrays]], source: str, number: int) -> None:
    for target, arrays in enumerate(split(_load_arrays(folder, source, number))):
        _save(folder, f"{name}-{target}", number, arrays)


def _join(folder: Path, name: str, join: Callable[[Sequence[Arrays]], Arrays], count: int, number: int) -> Arrays:
    return join([_load_arrays(folder, f"{name}-{number}", source) for source in range(count)])


def _save(folder: Path, name: str, number: int, arrays: Arrays) -> None:
    for at, array in enumerate(arrays):
        with _replacing(folder / f"{name}.{number}.{at}.npy") as new, new.open("wb") as file:
            np.save(file, array)


def _load_arrays(folder: Path, name: str, number: int) -> list[npt.NDArray[Any]]:
    files = sorted(folder.glob(f"{name}.{number}.*.npy"))
    return [np.asarray(np.load(file, mmap_mode="r")) for file in files]


def _dump(path: Path, content: object) -> None:
    with _replacing(path) as new, new.open("wb") as file:
        pickle.dump(content, file, pickle.HIGHEST_PROTOCOL)


def _load(path: Path) -> Any:  # noqa: ANN401 - what was dumped
    # Written by this session, in a folder that only its user can access.
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301


def _consume(path: Path) -> Any:  # noqa: ANN401 - likewise
    content = _load(path)
    path.unlink()
    return content


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Write a file under a temporary name until it is complete: Spark may run a task twice."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    yield new
    new.replace(path)


SETS: Final = "sets"
"""Name of the blocks of subscription sets."""
_CLIENTS: Final = "clients"
_EMPTY: Final = Block(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))


def store_sets(sets: "DataFrame", files: BlockFiles, endpoints: int) -> None:
    """Store sets as blocks :data:`SETS`, equal ones merged.

    Args:
        sets: ``endpoints`` (array of int) and ``weight`` (long) as in docs/traffic.md section 3.4, in any order.
        files: destination; each of its pieces is a block.
        endpoints: E: pins are below it.
    """
    # Partitioned by the whole set: equal sets are in the same block.
    rows = sets.select("endpoints", "weight").repartition(files.count, "endpoints")
    _from_rows(rows, files, SETS, partial(_block_of_sets, endpoints))


def store_subscriptions(subscriptions: "DataFrame", files: BlockFiles, endpoints: int) -> None:
    """Store single subscriptions as blocks :data:`SETS`.

    Args:
        subscriptions: ``client`` (of any type), ``endpoint`` (int), ``weight`` (long, that of the client), in any
            order; repeats count once.
        files: destination; each of its pieces is a block.
        endpoints: E: pins are below it.
    """
    rows = subscriptions.select("client", "endpoint", "weight").repartition(files.count, "client")
    _from_rows(rows, files, _CLIENTS, partial(_block_of_clients, endpoints))
    files.exchange(SETS, partial(_split_by_hash, endpoints, files.count), partial(_merge, endpoints), _CLIENTS)
    files.forget(_CLIENTS)


def endpoint_weights(files: BlockFiles, endpoints: int) -> Ints:
    """Return the weight of the sets that contain each endpoint: int64[E]. Call before :func:`scale`."""
    return sum(files.map(partial(_endpoint_weights, endpoints), SETS), np.zeros(endpoints, np.int64))


def scale(files: BlockFiles) -> int:
    """Convert weights to the planner's unit (:func:`shift_weights`); return their former sum."""
    total = int(sum(files.map(_weight, SETS)))
    if shift := weight_shift(total):
        files.derive(SETS, partial(_shift, shift), SETS)
    return total


def _from_rows(rows: "DataFrame", files: BlockFiles, name: str, block_of: Callable[[Any], Block]) -> None:
    """Build a block from each partition's rows, through files: PySpark's own conversion to arrays needs pandas."""
    folder = files.folder / f"{name}.parquet"
    rows.write.parquet(spark_path(folder), compression="none")
    tables = sorted(folder.glob("part-*.parquet"))
    files.keep(name, partial(_block_of_table, tables, block_of))
    for table in tables:
        table.unlink()


def _block_of_table(tables: list[Path], block_of: Callable[[Any], Block], number: int) -> Block:
    """Return a piece's block, empty without a table: Spark writes no file for a partition without rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    return block_of(pq.read_table(tables[number])) if number < len(tables) else _EMPTY


def _block_of_sets(endpoints: int, table: Any) -> Block:  # noqa: ANN401 - pyarrow has no types
    lists = table.column("endpoints").combine_chunks()
    pins = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
    sizes = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int32)
    return _merge(endpoints, [Block(pins, sizes, table.column("weight").to_numpy().astype(np.int64))])


def _block_of_clients(endpoints: int, table: Any) -> Block:  # noqa: ANN401 - pyarrow has no types
    """Return one set per client, in order of first appearance."""
    client = table.column("client").combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    pin, first = np.unique(client * endpoints + table.column("endpoint").to_numpy(), return_index=True)
    sizes = np.bincount(pin // endpoints).astype(np.int32)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    weights = table.column("weight").to_numpy()[first[starts]].astype(np.int64)
    return Block((pin % endpoints).astype(np.int32), sizes, weights)


def _split_by_hash(endpoints: int, count: int, arrays: Arrays) -> list[Block]:
    """Split a block into ``count`` blocks, with equal sets in the same one."""
    block = Block(*arrays)
    target = hash_sets(block, endpoints) % np.uint64(count)
    return [select_sets(block, np.flatnonzero(target == each)) for each in range(count)]


def _merge(endpoints: int, parts: list[Block]) -> Block:
    return merge_equal_sets(
        [deduplicate_pins(concatenate([Block(*arrays) for arrays in parts]), max(endpoints, 1))], endpoints
    )


def _endpoint_weights(endpoints: int, arrays: Arrays) -> Ints:
    block = Block(*arrays)
    return sum_by_cell(block.pins, np.repeat(block.weights, block.sizes), endpoints).astype(np.int64)


def _weight(arrays: Arrays) -> int:
    return int(Block(*arrays).weights.sum())


def _shift(shift: int, arrays: Arrays) -> Block:
    block = Block(*arrays)
    return block._replace(weights=shift_weights(block.weights, shift))
