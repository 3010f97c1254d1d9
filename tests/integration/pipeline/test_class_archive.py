"""The archive of classes that the first run makes is read by the next, with the same statistics."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster
from tests.support.traffic import generated, write

pytestmark = [in_cluster("it takes two minutes of CPU time"), pytest.mark.takes(120)]


def test_the_second_run_reads_the_classes_that_the_first_has_archived(tmp_path: Path) -> None:
    source, cache, loaded = tmp_path / "in", tmp_path / "cache", tmp_path / "loaded"
    write(source, "0.jsonl", [arrival.event for arrival in generated(1, clients=20)])
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "SPARK_SUBMIT_OPTS": ""}

    def run(warehouse: Path) -> dict[str, object]:
        options = ("--source", "files", "--input", source, "--warehouse", warehouse, "--window", "1h", "--name", "all")
        more = ("--conf", f"spark.driver.extraJavaOptions=-Xlog:class+load:file={loaded}")
        command = (sys.executable, "-m", "deploy", "pipeline", "run", *options, *more)
        ended = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=10 * PATIENCE_S
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        # Java's warnings of classes that it cannot archive would be there.
        assert "[cds" not in ended.stdout + ended.stderr
        return {name: pq.read_table(warehouse / "statistics/all" / f"{name}.parquet") for name in ("endpoints", "sets")}

    first = run(tmp_path / "one")
    (archive,) = cache.glob("diem/*/classes-*")
    assert archive.suffix == ".jsa"
    assert run(tmp_path / "two") == first
    classes = [line for line in loaded.read_text().splitlines() if " org.apache.spark." in line]
    shared = sum("shared objects file (top)" in line for line in classes)
    assert shared > len(classes) / 2, (shared, len(classes))
