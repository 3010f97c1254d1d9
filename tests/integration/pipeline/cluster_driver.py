"""The driver that ``spark-submit`` runs in ``test_cluster``: the pipeline with statistics, then a plan from them."""

import sys
from pathlib import Path
from typing import Final

from deploy.terminal import Terminal
from learning.costs import Costs
from learning.jobs.sources import FileSource
from learning.jobs.spark_options import SparkSettings
from learning.jobs.warehouse import Warehouse
from learning.placement.instance import read_statistics
from learning.placement.options import PlanOptions
from learning.placement.planner import plan
from learning.spark import pipeline
from learning.spark.pipeline import ReadOptions, WindowOptions
from learning.statistics.window import Window
from tests.support.traffic import BEGIN, MINUTE

WINDOW: Final = Window(BEGIN + 30 * MINUTE, BEGIN + 80 * MINUTE)
OPTIONS: Final = PlanOptions(servers=(2,), current_partitions=2, epsilon=0.3, hot_budget=0.0)
COSTS: Final = Costs(update_us=1.0, delivery_us=1.0, connection_us_per_s=1000.0)
PLACEMENT: Final = "placement"


def main(folder: Path) -> None:
    """Read, compute and plan in a folder; the placement is a file in it."""
    settings = SparkSettings()
    reading = ReadOptions(FileSource(folder / "in"), remove=True, follow_s=None)
    made = pipeline.run(
        Warehouse(folder / "warehouse"), reading, WindowOptions(WINDOW, None), Terminal(quiet=True), settings
    )
    assert made is not None
    (folder / PLACEMENT).write_bytes(plan(read_statistics(made), OPTIONS, COSTS).placement.tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
