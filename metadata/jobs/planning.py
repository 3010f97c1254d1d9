"""Plans for instances that are too large for one process: :func:`plan_on_spark` is what `diem plan --spark` calls.

Their subscription sets stay in Spark (:class:`SparkBackend`); what iterates over endpoints and clusters runs
here, in the same planner, and the plan is the same, to the last bit, as one without Spark.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from metadata.costs import Costs
from metadata.jobs.block_files import SETS, Arrays, BlockFiles, scale, store_sets
from metadata.jobs.spark_session import SparkOptions, open_spark
from metadata.placement import blocks, fanout
from metadata.placement.backend import INCREMENTAL_SHARE
from metadata.placement.blocks import Block, Floats, Ints, Mask, Parts
from metadata.placement.instance import Instance, read_endpoints
from metadata.placement.options import PlanOptions
from metadata.placement.planner import PlanResult, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_INDEX: Final = "index"
_LEVEL: Final = "level"


class SparkBackend:
    """A :class:`~metadata.placement.backend.Backend` of the blocks :data:`SETS` of ``files``.

    Results are those of NumpyBackend, bit for bit, whatever the number of blocks: see blocks.py. A call is a job of
    one task a block, and takes about a tenth of a second at least; this process adds the results up and never has the
    sets.
    """

    def __init__(self, files: BlockFiles, endpoints: int) -> None:
        self.endpoints = endpoints
        self._files = files
        self._indexed = False
        self._last: dict[tuple[int, int], tuple[Parts, Floats]] = {}

    def fan_out(self, part: Parts, k: int) -> Ints:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.fan_out, part=part, k=k), np.zeros(k + 1, np.int64))

    def needed(self, load: Floats, most: float) -> Ints:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.required_parts, load=load, most=most), np.zeros(2, np.int64))

    def lonely(self, part: Parts, k: int) -> Ints:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.removal_savings, part=part, k=k), np.zeros(self.endpoints, np.int64))

    def affinity(self, part: Parts, k: int, sharpness: int) -> Floats:
        """See :class:`Backend`. When few endpoints moved since the last call, only their sets are looked at."""
        before, total = self._last.get((k, sharpness), (None, None))
        if before is not None and total is not None and (moved := before != part).mean() <= INCREMENTAL_SHARE:
            self._index()
            change = partial(_change, moved=np.flatnonzero(moved), part=part, before=before, k=k, sharpness=sharpness)
            total = total.copy()
            for rows, added in self._files.map(change, SETS, _INDEX):
                total[rows] += added
        else:
            run = partial(fanout.affinity, part=part, k=k, sharpness=sharpness)
            total = self._sum(run, np.zeros((part.size, k)))
        self._last[k, sharpness] = part.copy(), total
        return total

    def begin_level(self, group: Parts) -> None:
        """See :class:`Backend`."""
        self._files.derive(_LEVEL, partial(_of_block, partial(fanout.regroup, group=group)), SETS)

    def gains(self, side: npt.NDArray[np.uint8]) -> Floats:
        """See :class:`Backend`."""
        return self._sum(partial(fanout.gains, side=side), np.zeros(side.size), of=_LEVEL)

    def end_levels(self) -> None:
        """See :class:`Backend`."""
        self._files.forget(_LEVEL)

    def pairs(self, longest: int) -> int:
        """See :class:`Backend`."""
        return self._sum(partial(blocks.count_pairs, longest=longest), 0)

    def cosubscription(self, cold: Mask, share: float, longest: int) -> sparse.csr_array:
        """See :class:`Backend`."""
        run = partial(blocks.cosubscription, cold=cold, share=share, longest=longest)
        return self._sum(run, sparse.csr_array((self.endpoints, self.endpoints)))

    def contracted(self, label: Parts, count: int) -> Block:
        """See :class:`Backend`."""
        run = partial(_of_block, partial(blocks.contract, label=label, count=count))
        return blocks.merge_equal_sets(self._files.map(run, SETS), count)

    def _sum(self, run: Callable[[Block], T], start: T, of: str = SETS) -> T:
        for result in self._files.map(partial(_of_block, run), of):
            start = start + result
        return start

    def _index(self) -> None:
        if not self._indexed:
            self._files.derive(_INDEX, partial(_of_block, partial(blocks.index_sets, count=self.endpoints)), SETS)
            self._indexed = True


def _of_block(run: Callable[[Block], T], arrays: Arrays) -> T:
    return run(Block(*arrays))


def _change(
    arrays: Arrays, index: Arrays, *, moved: Ints, part: Parts, before: Parts, k: int, sharpness: int
) -> tuple[Ints, Floats]:
    """The endpoints whose affinity is another than ``before``, and by how much: int64[n], float64[n, k]."""
    starts, rows = index
    some = blocks.select_sets_with(Block(*arrays), starts, rows, moved)
    change = fanout.affinity(some, part, k, sharpness, before)
    rows = np.flatnonzero(change.any(1))
    return rows, change[rows]


LARGE_PINS: Final = 20_000_000
"""Subscriptions from which on a plan is made on Spark if nothing else is said: without, they take some 4 GiB."""


def is_large(statistics: Path) -> bool:
    """Whether a window has so many subscriptions that its plan is to be made on Spark. Reads no more than the footers.

    Raises:
        OSError: the table of sets is missing.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 - only the extras "plan" and "spark" have it
    import pyarrow.parquet as pq  # noqa: PLC0415

    pins = 0
    for file in ds.dataset(statistics / "sets.parquet").files:
        footer = pq.read_metadata(file)
        groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        columns = [group.column(column) for group in groups for column in range(group.num_columns)]
        pins += sum(each.num_values for each in columns if each.path_in_schema.startswith("endpoints."))
    return pins >= LARGE_PINS


def plan_on_spark(
    statistics: Path, options: PlanOptions, costs: Costs, current: Parts | None, spark_options: SparkOptions
) -> PlanResult:
    """The plan for the statistics of a window, as :func:`metadata.placement.planner.plan` makes it.

    Starts a session and ends it. There is no comparison with Mt-KaHyPar: it would need all sets in this process.

    Args:
        statistics: folder of the window.
        options: what is planned for.
        costs: of servers.
        current: home of every endpoint now, in the order of :func:`metadata.placement.instance.read_endpoints`.
        spark_options: `cores` is also the number of blocks, `scratch` holds the sets twice.

    Raises:
        Infeasible: the load cannot be balanced, because of the endpoint that it names.
        OSError: a table is missing.
        NoSpark: PySpark is not installed.
        SparkFailed: the JVM does not start, or died.
    """
    with open_spark(spark_options) as spark:
        return plan_in_session(spark, statistics, options, costs, current, blocks=spark_options.cores)


def plan_in_session(
    spark: "SparkSession", statistics: Path, options: PlanOptions, costs: Costs, current: Parts | None, *, blocks: int
) -> PlanResult:
    """The same in a session that there is, with as many ``blocks`` as it has cores."""
    found = read_endpoints(statistics)
    with block_files(spark, blocks) as files:
        store_sets(spark.read.parquet(str(statistics / "sets.parquet")), files, len(found.endpoints))
        instance, backend = bind_instance(found, files)
        return plan(instance, replace(options, reference=False), costs, current, backend)


@contextmanager
def block_files(spark: "SparkSession", count: int) -> Iterator[BlockFiles]:
    """Files for ``count`` blocks, as many as the session has cores, in its scratch folder; removed at the end."""
    scratch = spark.conf.get("spark.local.dir")
    with tempfile.TemporaryDirectory(prefix="sets-", dir=scratch, ignore_cleanup_errors=True) as name:
        yield BlockFiles(spark, Path(name), count)


def bind_instance(found: Instance, files: BlockFiles) -> tuple[Instance, SparkBackend]:
    """Return an instance and the backend of its sets, which stay in ``files``.

    ``found`` has the endpoints, in the order in which the sets count them; the instance has one empty set besides,
    with the weight of all.
    """
    weight = np.array([scale(files)], np.int64)
    return replace(found, starts=np.zeros(2, np.int64), weight=weight), SparkBackend(files, len(found.endpoints))
