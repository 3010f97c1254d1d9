"""The code in the guide to placements that reads the pipeline's tables."""

import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from learning.jobs.warehouse import Warehouse
from tests.support import delta
from tests.support.guides import ROOT, blocks

DAY = date(2026, 1, 31)


def test_code_of_the_guide_reads_the_statistics_and_the_events_that_count(tmp_path: Path) -> None:
    (code,) = (
        block.text
        for block in blocks(ROOT / "docs" / "guide" / "placement.md")
        if block.words == ("python", "tables.py")
    )
    warehouse = Warehouse(tmp_path / ".diem/traffic/warehouse")
    sink = tmp_path / ".diem/traffic/warehouse/files-1"
    rows = [*(delta.event(f"a-{n}", DAY, client=f"c{n % 2}") for n in range(3)), delta.bad("nonsense", DAY)]
    delta.write(sink, 0, rows)
    delta.stage(sink, [delta.event("a-9", DAY)])
    for name, weight in {"20260131-130000": 5, "20260131-140000": 7}.items():
        folder = Path(str(warehouse.statistics)) / name
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"endpoint": ["/a", "/b", "/c"]}), folder / "endpoints.parquet")
        sets = {"endpoints": [[0], [1, 2]], "weight": [1, weight], "clients": [1, 4]}
        pq.write_table(pa.table(sets), folder / "sets.parquet")
    run = subprocess.run((sys.executable, "-c", code), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["4 clients, 7 s: /b /c", "1 clients, 1 s: /a", "3 events of 2 clients"]
