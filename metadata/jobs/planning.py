"""Plan instances that are too large for one process: ``diem plan --spark`` calls :func:`plan_on_spark`.

Their subscription sets stay in Spark (:mod:`metadata.jobs.spark_backend`). The search over endpoints and clusters runs
here, in the same planner, and finds the same plan as without Spark, to the last bit.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from metadata.costs import Costs
from metadata.jobs.block_files import BlockFiles, scale, store_sets
from metadata.jobs.executors import prepared_executors
from metadata.jobs.spark_backend import SparkBackend
from metadata.jobs.spark_options import SparkOptions, is_local, require_shared, spark_path
from metadata.jobs.spark_session import given_settings, open_spark
from metadata.placement.blocks import Parts
from metadata.placement.instance import Instance, read_endpoints
from metadata.placement.options import PlanOptions
from metadata.placement.planner import PlanResult, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LARGE_PINS: Final = 20_000_000
"""Subscriptions from which on a plan is computed on Spark by default: without it they take about 4 GiB."""


def is_large(statistics: Path) -> bool:
    """Return whether a window has enough subscriptions to be planned on Spark. Reads only Parquet footers.

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
    """Compute the plan for a window's statistics, as :func:`metadata.placement.planner.plan` does.

    Starts a session and ends it. There is no comparison with Mt-KaHyPar: it would need all sets in this process.

    Args:
        statistics: folder of the window.
        options: goals and limits of the plan.
        costs: load model of the servers.
        current: current home of every endpoint, in the order of :func:`metadata.placement.instance.read_endpoints`.
        spark_options: the session; its ``scratch`` (on a cluster: the statistics' parent) holds the sets twice.

    Raises:
        NotShared: Spark runs on a cluster, and its workers do not have the statistics.
        Infeasible: the load cannot be balanced, because of the endpoint in the error.
        OSError: a table is missing.
        NoSpark: PySpark is not installed.
        SparkFailed: the JVM does not start, or died.
    """
    require_shared(spark_options.settings, given_settings(), statistics)
    with open_spark(spark_options) as spark, prepared_executors(spark, spark_options.scratch, statistics.parent):
        return plan_in_session(spark, statistics, options, costs, current)


def plan_in_session(
    spark: "SparkSession", statistics: Path, options: PlanOptions, costs: Costs, current: Parts | None
) -> PlanResult:
    """Compute the plan in an existing session, with as many blocks as it has cores."""
    without_sets = read_endpoints(statistics)
    # Executors share the disk of the statistics; on this machine the scratch folder will do.
    shared = None if is_local(str(spark.sparkContext.master)) else statistics.parent
    with block_files(spark, spark.sparkContext.defaultParallelism, shared) as files:
        store_sets(spark.read.parquet(spark_path(statistics / "sets.parquet")), files, len(without_sets.endpoints))
        instance, backend = bind_instance(without_sets, files)
        return plan(instance, replace(options, reference=False), costs, current, backend)


@contextmanager
def block_files(spark: "SparkSession", count: int, folder: Path | None = None) -> Iterator[BlockFiles]:
    """Provide files for ``count`` blocks (the session's cores) in a folder; remove them at the end.

    Args:
        spark: the session.
        count: number of blocks.
        folder: one that all executors share; None: the scratch folder of a local session.
    """
    parent = spark.conf.get("spark.local.dir") if folder is None else folder
    # Readers of statistics skip names that begin with a dot.
    with tempfile.TemporaryDirectory(prefix=".sets-", dir=parent, ignore_cleanup_errors=True) as name:
        yield BlockFiles(spark, Path(name), count)


def bind_instance(without_sets: Instance, files: BlockFiles) -> tuple[Instance, SparkBackend]:
    """Return an instance and the backend of its sets, which stay in ``files``.

    ``without_sets`` has the endpoints, in the order in which the sets number them. The result also has one empty set,
    with the weight of all sets.
    """
    instance = replace(without_sets, starts=np.zeros(2, np.int64), weight=np.array([scale(files)], np.int64))
    return instance, SparkBackend(files, len(instance.endpoints))
