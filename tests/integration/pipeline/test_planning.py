"""A plan from the statistics that Spark computed equals the one from the events, to the last bit."""

from pathlib import Path
from typing import TYPE_CHECKING

from diem.protocol.traffic import encode
from metadata.costs import Costs
from metadata.jobs.statistics import CachedFrames, statistics, write
from metadata.placement.instance import from_events, read_statistics
from metadata.placement.options import PlanOptions
from metadata.placement.planner import plan
from metadata.statistics.window import Window
from tests.integration.pipeline.test_windows import table
from tests.support.traffic import BEGIN, MINUTE, generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COSTS = Costs(update_us=1.0, delivery_us=1.0, connection_us_per_s=1000.0)


def test_a_plan_from_statistics_of_spark_equals_that_from_events(spark: "SparkSession", tmp_path: Path) -> None:
    arrivals, window = generated(1), Window(BEGIN, BEGIN + 90 * MINUTE)
    kept = CachedFrames()
    folder = write(statistics(table(spark, arrivals), window, kept), window, tmp_path / "window")
    kept.free()
    options = PlanOptions(servers=(2,), current_partitions=2, epsilon=0.3, hot_budget=0.0, reference=True)
    from_all = from_events((encode(event) for event, _ in arrivals), window)
    expected, found = plan(from_all, options, COSTS), plan(instance := read_statistics(folder), options, COSTS)
    assert instance.endpoints == from_all.endpoints
    assert found.placement.tobytes() == expected.placement.tobytes()
    assert (found.partitions, found.pays, found.why) == (expected.partitions, expected.pays, expected.why)
    assert len(set(found.placement.tolist())) > 1
