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
from metadata.jobs.spark_backend import SparkBackend
from metadata.jobs.spark_session import SparkOptions, open_spark
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
        spark_options: ``cores`` is also the number of blocks, ``scratch`` holds the sets twice.

    Raises:
        Infeasible: the load cannot be balanced, because of the endpoint in the error.
        OSError: a table is missing.
        NoSpark: PySpark is not installed.
        SparkFailed: the JVM does not start, or died.
    """
    with open_spark(spark_options) as spark:
        return plan_in_session(spark, statistics, options, costs, current, blocks=spark_options.cores)


def plan_in_session(
    spark: "SparkSession", statistics: Path, options: PlanOptions, costs: Costs, current: Parts | None, *, blocks: int
) -> PlanResult:
    """Compute the plan in an existing session, with as many ``blocks`` as it has cores."""
    without_sets = read_endpoints(statistics)
    with block_files(spark, blocks) as files:
        store_sets(spark.read.parquet(str(statistics / "sets.parquet")), files, len(without_sets.endpoints))
        instance, backend = bind_instance(without_sets, files)
        return plan(instance, replace(options, reference=False), costs, current, backend)


@contextmanager
def block_files(spark: "SparkSession", count: int) -> Iterator[BlockFiles]:
    """Provide files for ``count`` blocks (the session's cores) in its scratch folder; remove them at the end."""
    scratch = spark.conf.get("spark.local.dir")
    with tempfile.TemporaryDirectory(prefix="sets-", dir=scratch, ignore_cleanup_errors=True) as name:
        yield BlockFiles(spark, Path(name), count)


def bind_instance(without_sets: Instance, files: BlockFiles) -> tuple[Instance, SparkBackend]:
    """Return an instance and the backend of its sets, which stay in ``files``.

    ``without_sets`` has the endpoints, in the order in which the sets number them. The result also has one empty set,
    with the weight of all sets.
    """
    instance = replace(without_sets, starts=np.zeros(2, np.int64), weight=np.array([scale(files)], np.int64))
    return instance, SparkBackend(files, len(instance.endpoints))
