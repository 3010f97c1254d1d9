"""Removal of ingested files without Spark; tests/integration/pipeline/test_ingest.py is with it."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from metadata.jobs.ingest import remove_when_seen
from metadata.jobs.sink_log import committed_files, latest_files
from metadata.jobs.sources import FileSource
from metadata.jobs.spark_session import SparkFailed
from metadata.jobs.warehouse import Warehouse
from tests.unit.metadata.jobs.test_sink_log import batch, entry


def test_input_is_removed_only_when_the_files_of_the_tables_are_complete(tmp_path: Path) -> None:
    warehouse, source = Warehouse(tmp_path / "warehouse"), FileSource(tmp_path / "in")
    sink, checkpoint = warehouse.sink(source.name), warehouse.checkpoint(source.name)
    file, part = source.folder / "a.jsonl", sink / "table=events" / "part.parquet"
    file.parent.mkdir()
    file.write_text("{}")
    batch(checkpoint / "sources" / "0", "0", entry(str(file), batchId=0))
    batch(checkpoint / "commits", "0", "{}")
    batch(sink / "_spark_metadata", "0", entry("/by/hand"))
    batch(sink / "_spark_metadata", "1", entry(str(part), size=4), entry("/gone", action="delete"))
    assert len(committed_files(sink)) == 2
    part.parent.mkdir()
    for content in ("", "PAR"):
        part.write_text(content)
        with pytest.raises(SparkFailed, match=f"nothing of {source.folder} is removed"):
            remove_when_seen(warehouse, source, latest_files(sink))
        assert file.exists()
    part.write_text("PAR1")
    remove_when_seen(warehouse, source, latest_files(sink))
    assert not file.exists()
