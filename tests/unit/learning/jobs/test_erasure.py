"""What was recorded of a client is gone from every file, and everything else stays."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

import pyarrow.parquet as pq
from deltalake import DeltaTable

from diem.errors import DiemError
from diem.protocol.traffic import Type
from learning.jobs.delta_table import (
    LOG,
    LOG_RETENTION,
    TableUnusable,
    committed_files,
    data_files,
    is_committed,
    open_table,
)
from learning.jobs.erasure import Erased, erase
from learning.jobs.sources import FileSource
from learning.jobs.warehouse import QUARANTINE, Warehouse
from tests.support.delta import QUERY, bad, event, ids, stage, write
from tests.support.traffic import BEGIN, Life
from tests.support.traffic import write as write_lines

DAY = date(2026, 1, 1)
ONE, TWO, OTHER = (f"{number:016x}" for number in (0xA1, 0xB2, 0xC3))


def mentions(folder: Path, name: str) -> Iterator[Path]:
    """Files in which a name is; those of tables are decoded."""
    for file in folder.rglob("*"):
        if file.suffix == ".parquet":
            found = any(name in str(row) for row in pq.ParquetFile(file).read().to_pylist())
        else:
            found = file.is_file() and name.encode() in file.read_bytes()
        if found:
            yield file


def test_rows_of_the_client_are_gone_from_all_tables_and_all_files(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    sinks = [warehouse.sink(name) for name in ("files-1", "kafka-2")]
    for number, sink in enumerate(sinks):
        rows = [event(f"{number}-{client}", DAY, client) for client in (ONE, TWO, OTHER)]
        write(sink, 7, [*rows, event("counts", DAY), bad(f"broken {ONE} line", DAY), bad("another line", DAY)])
        # Of an interrupted batch.
        stage(sink, [event("again", DAY, ONE)])
        copy = data_files(sink)[0]
        copy.with_name("part-moved.parquet").write_bytes(copy.read_bytes())
    (warehouse.history / "1767225600000").mkdir(parents=True)
    (warehouse.history / "1767225600000" / "events").write_text(ONE)
    assert erase(warehouse, tmp_path / "in", [ONE, TWO]) == Erased(rows=6, lines=0)
    for number, sink in enumerate(sinks):
        assert ids(sink) == [f"{number}-{OTHER}", "counts"]
        assert sum(file.rows for file in committed_files(sink, QUARANTINE)) == 1
        assert is_committed(sink, QUERY, 7)
        assert not is_committed(sink, QUERY, 8)
        write(sink, 8, [event("later", DAY, OTHER)])
    assert not [*mentions(tmp_path, ONE), *mentions(tmp_path, TWO)]
    assert [*mentions(tmp_path, OTHER)]
    assert erase(warehouse, tmp_path / "in", [ONE, TWO]) == Erased(0, 0)


@pytest.mark.parametrize("killed_at", ["create_checkpoint", "unlink"])
def test_an_erasure_that_is_killed_leaves_the_retention_of_the_log_and_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    warehouse = Warehouse(tmp_path)
    sink = warehouse.sink("kafka-2")
    for number, client in enumerate((ONE, OTHER)):
        write(sink, number, [event(client, DAY, client)])

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DeltaTable if killed_at == "create_checkpoint" else Path, killed_at, kill)
        erase(warehouse, tmp_path / "in", [ONE])
    assert retention(sink) == "interval 24 hours"
    assert erase(warehouse, tmp_path / "in", [ONE]) == Erased(0, 0)
    assert not [*mentions(tmp_path, ONE)]
    assert ids(sink) == [OTHER]


def retention(sink: Path) -> str:
    return open_table(sink).metadata().configuration[LOG_RETENTION]


def test_lines_of_files_are_gone_and_the_files_do_not_count_as_new(tmp_path: Path) -> None:
    folder, life = tmp_path / "in", Life("websocket-1", 1, BEGIN, BEGIN)
    events = [life.event(Type.CONNECT, BEGIN, client, client) for client in (0xA1, 0xC3, 0xA1)]
    file, other = write_lines(folder, "0.jsonl", events), write_lines(folder, "1.jsonl", events[1:2])
    before = file.stat(), other.read_bytes(), other.stat().st_ino
    assert erase(Warehouse(tmp_path / "warehouse"), folder, [ONE]) == Erased(rows=0, lines=2)
    assert file.read_bytes() == other.read_bytes() == before[1]
    assert (file.stat().st_mtime_ns, file.stat().st_mode) == (before[0].st_mtime_ns, before[0].st_mode)
    assert other.stat().st_ino == before[2], "it was not touched"
    assert [path.name for path in sorted(folder.iterdir())] == ["0.jsonl", "1.jsonl"]


@pytest.mark.parametrize("reading", ["table", "folder"])
def test_nothing_is_erased_while_a_pipeline_reads(tmp_path: Path, reading: str) -> None:
    warehouse, folder = Warehouse(tmp_path), tmp_path / "in"
    write(warehouse.sink("kafka-2"), 0, [event("a", DAY, ONE)])
    busy = "kafka-2" if reading == "table" else FileSource(folder).name
    with warehouse.lock(busy), pytest.raises(DiemError, match="stop it first"):
        erase(warehouse, folder, [ONE])
    assert ids(warehouse.sink("kafka-2")) == ["a"]


def test_a_damaged_table_is_one_clear_error(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    sink = warehouse.sink("kafka-2")
    write(sink, 0, [event("a", DAY, ONE)])
    data_files(sink)[0].unlink()
    with pytest.raises(TableUnusable, match=r"^the tables in .*/kafka-2 cannot be used \(.*\): restore them") as caught:
        erase(warehouse, tmp_path / "in", [ONE])
    assert "\n" not in str(caught.value)
    (sink / LOG / f"{0:020}.json").write_text("{broken")
    with pytest.raises(TableUnusable):
        erase(warehouse, tmp_path / "in", [ONE])
