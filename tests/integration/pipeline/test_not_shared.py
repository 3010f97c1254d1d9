"""An executor that does not have the warehouse: the small case of what ``make cluster`` shows with a whole cluster."""

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.kafka import java
from deploy.kafka.java import NoJava
from learning.jobs.checkpoint import last_committed
from learning.jobs.sources import FileSource
from learning.jobs.warehouse import Warehouse
from tests.integration.pipeline.spark_cluster import HEAP, UNSHARED, may_unshare, settings_for
from tests.support.patience import PATIENCE_S
from tests.support.required import unavailable
from tests.support.traffic import generated, write

WITHIN_S = 10 * PATIENCE_S
MASTER = f"local-cluster[1,1,{HEAP.removesuffix('m')}]"
"""One executor; master and worker are in the driver's JVM."""


@pytest.mark.takes(30)
def test_a_warehouse_that_is_not_shared_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    try:
        import pyspark  # noqa: PLC0415  # an extra

        java.find()
    except (ImportError, NoJava) as error:
        unavailable("Spark", error)
    if not may_unshare():
        pytest.skip("a mount namespace is not permitted")
    private, python, home = (tmp_path / name for name in ("private", "python", "spark"))
    python.write_text(f'#!/bin/sh\nexec {shlex.join((*UNSHARED, str(private), sys.executable))} "$@"\n')
    python.chmod(0o700)
    # Executors leave folders in Spark's.
    home.mkdir()
    for each in Path(pyspark.__path__[0]).iterdir():
        (home / each.name).symlink_to(each)

    source, warehouse = FileSource(private / "in"), Warehouse(private / "warehouse")
    file = write(source.folder, "0.jsonl", [event for event, _ in generated(1, clients=5)])
    before, settings = file.read_bytes(), replace(settings_for(MASTER, cores=1), shared_disk=True)
    places = ("--state-dir", str(tmp_path / "state"), "--warehouse", str(warehouse.root), "--input", str(source.folder))
    command = [sys.executable, "-m", "deploy", "pipeline", "run", "--source", "files", "--remove"]
    # Without it, executors are looked for in a source tree.
    environment = os.environ | {
        "PYSPARK_PYTHON": str(python),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

    ended = subprocess.run(
        [*command, *places, *settings.arguments()],
        check=False,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        env=environment,
    )
    refused = "although --shared-disk says so: nothing was read" in ended.stderr
    assert (ended.returncode, refused) == (2, True), ended.stderr
    assert file.read_bytes() == before
    assert not list(warehouse.root.rglob("*.parquet"))
    assert last_committed(warehouse.checkpoint(source.name)) is None
