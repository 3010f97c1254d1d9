"""`diem pipeline` without a JVM: rejected options, missing requirements, and output."""

import importlib.util
import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from deploy.cli.options import EXIT_NOTHING
from deploy.kafka import java
from deploy.kafka.java import NoJava
from learning.commands.pipeline import as_objects, largest_rows, usage_table
from learning.jobs.delta_table import committed_files
from learning.jobs.sources import FileSource
from learning.jobs.warehouse import QUARANTINE, NoTraffic, Warehouse
from learning.spark.pipeline import ReadOptions
from learning.statistics.model import UsageRow
from tests.support.delta import bad, event
from tests.support.delta import write as write_rows
from tests.support.traffic import BEGIN, Life, write
from tests.unit.learning.commands.conftest import Run

DAY = date(2026, 1, 1)
Pipeline = Callable[..., tuple[int, str]]


@pytest.fixture
def pipeline(run: Run) -> Pipeline:
    """Run the command; return its exit code and output."""

    def call(*arguments: str) -> tuple[int, str]:
        code, out, err = run("pipeline", *arguments)
        return code, out + err

    return call


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("run --source rumours", "--source is kafka, files or none, not rumours"),
        ("run --source kafka", "no Kafka runs in"),
        ("run --window soon", "'soon' is not a length of time"),
        ("run --from 2026-01-01", "--from needs --to"),
        ("run --from 2026-01-02 --to 2026-01-01", "the window is empty"),
        ("run --conf lots", "--conf is spark.NAME=VALUE, not 'lots'"),
        ("run --name ../up", "--name has letters"),
        ("usage --from 2026-01-02 --to 2026-01-01", "--from 2026-01-02 is after --to 2026-01-01"),
        ("usage --from yesterday", "yesterday"),
    ],
)
def test_invalid_options_are_rejected_before_spark_starts(
    pipeline: Pipeline, tmp_path: Path, arguments: str, expected: str
) -> None:
    code, text = pipeline(*arguments.split())
    assert (code, expected in text, len(text.splitlines())) == (2, True, 1), text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lacking", ["there is no Java 17 or newer", "pyspark is not installed"])
def test_without_what_spark_needs_one_line_says_what_to_do(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    def no_java() -> Path:
        raise NoJava

    if "Java" in lacking:
        monkeypatch.setattr(java, "find", no_java)
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    remedy = "`make spark` or `pip install 'diem-realtime[java,spark]'` installs it"
    expected = f"diem: the pipeline runs on Spark, and {lacking}: {remedy}\n"
    assert pipeline("run", "--source", "files") == (2, expected)


def test_status_without_tables_names_the_next_command(pipeline: Pipeline) -> None:
    code, text = pipeline("status")
    assert code == 0
    assert text.startswith("nothing has been read into")
    assert "diem pipeline run" in text


def test_status_shows_the_unread_files_of_a_new_source(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / ".diem" / "traffic" / "in"
    life = Life("websocket-1", 1, BEGIN, BEGIN)
    for number in range(2):
        write(folder, f"{number}.jsonl", [life.counts(BEGIN, BEGIN + 1)])
    code, text = pipeline("status", "--json")
    (shown,) = json.loads(text)["sources"]
    assert (code, shown["unread"], shown["source"]["events"]) == (0, 2, 0)
    assert shown["source"]["name"] == FileSource(folder).name


def test_status_lists_statistics_by_the_end_of_their_window(pipeline: Pipeline, tmp_path: Path) -> None:
    here = Warehouse(tmp_path / ".diem" / "traffic" / "warehouse")
    write_rows(here.sink("files-0"), 0, [bad("x", DAY)])
    for name, end in (("b", "2026-01-01T00:00:00.000Z"), ("a", "2026-01-02T00:00:00.000Z"), (".half", "2027-01-01")):
        (here.statistics / name).mkdir(parents=True)
        window = {"from": "-", "to": end, "events": 1, "clients": 2, "endpoints": 3, "sets": 4}
        (here.statistics / name / "window.json").write_text(json.dumps(window))
    code, text = pipeline("status", "--json")
    assert [each["name"] for each in json.loads(text)["statistics"]] == ["b", "a"]
    code, text = pipeline("status")
    assert code == 0
    assert text.index("2026-01-01") < text.index("2026-01-02")


def test_files_are_read_if_a_system_with_kafka_records_to_files(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def note(_here: Warehouse, reading: ReadOptions, *_: object, **_options: object) -> None:
        read.append(reading.source)

    monkeypatch.setattr("learning.spark.pipeline.run", note)
    (tmp_path / ".diem").mkdir()
    described = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "traffic": {"sink": "files"}}
    (tmp_path / ".diem" / "processes.json").write_text(json.dumps(described))
    assert pipeline("run") == (0, "")
    assert read == [FileSource(tmp_path / ".diem" / "traffic" / "in")]


def test_unwritable_folder_is_named(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setattr(java, "find", lambda: Path("java"))
    context = SimpleNamespace(uiWebUrl=None, master="local[1]")
    monkeypatch.setattr(
        "learning.jobs.spark_session.open_spark", lambda *_: nullcontext(SimpleNamespace(sparkContext=context))
    )
    (tmp_path / ".diem").touch()
    code, text = pipeline("run", "--source", "files")
    warehouse = tmp_path / ".diem" / "traffic" / "warehouse"
    assert code == 1
    assert text.splitlines()[-1].startswith(f"diem: the tables cannot be kept: {warehouse}")


def test_run_without_events_has_an_exit_code_of_its_own(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_arguments: object, **_options: object) -> None:
        raise NoTraffic(tmp_path)

    monkeypatch.setattr("learning.spark.pipeline.run", run)
    code, text = pipeline("run", "--source", "none")
    assert (code, len(text.splitlines())) == (EXIT_NOTHING, 1)
    assert text.startswith("diem: no event has been recorded yet in ")


def test_broken_statistics_are_named(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / ".diem" / "traffic" / "warehouse" / "statistics" / "a"
    folder.mkdir(parents=True)
    (folder / "window.json").touch()
    code, text = pipeline("status")
    assert (code, len(text.splitlines())) == (2, 1), text
    assert f"the statistics in {folder} cannot be used (window.json: " in text


def test_status_counts_rows_by_the_log_and_reasons_by_the_files_that_are_there(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    sink = Warehouse(tmp_path / ".diem" / "traffic" / "warehouse").sink("files-0")
    rows = [event("a", DAY), event("b", DAY), bad("x", DAY), bad("y", date(2026, 1, 2))]
    write_rows(sink, 0, rows)
    (lost,) = (file.path for file in committed_files(sink, QUARANTINE) if file.day == date(2026, 1, 2))
    lost.unlink()
    code, text = pipeline("status", "--json")
    assert code == 0
    shown = json.loads(text)["sources"][0]["source"]
    assert (shown["events"], shown["files"], shown["quarantine"]) == (2, 3, {"not JSON": 1})


def test_status_without_delta_rs_shows_no_rows(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(Warehouse(tmp_path / ".diem" / "traffic" / "warehouse").sink("files-0"), 0, [event("a", DAY)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    code, text = pipeline("status")
    assert (code, "files-0" in text, "MiB" in text) == (0, True, False), text


ROWS = [
    UsageRow(DAY, "", "anonymous", "", 5, 0),
    UsageRow(DAY, "abcd1234", "free", "/a", 1000, 2),
    UsageRow(DAY, "abcd1234", "free", "/b", 1, 9),
]


def test_usage_shows_the_rows_with_most_requests_in_order() -> None:
    assert largest_rows(ROWS, 3) == ROWS
    assert largest_rows(ROWS, 2) == ROWS[1:]
    assert largest_rows(ROWS, 1) == ROWS[1:2]


def test_empty_cells_are_dashes() -> None:
    console = Console(width=100, record=True, quiet=False, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(usage_table(ROWS))
    console.file.close()
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[1] == ["2026-01-01", "-", "anonymous", "-", "5", "0"]
    assert lines[2] == ["2026-01-01", "abcd1234", "free", "/a", "1,000", "2"]


def test_json_has_days_as_text() -> None:
    assert as_objects(ROWS[:1]) == [
        {"day": "2026-01-01", "key": "", "plan": "anonymous", "endpoint": "", "answered": 5, "refused": 0}
    ]
