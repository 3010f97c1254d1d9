"""The numbers of the figures, and the files that are written of them."""

import csv
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools.size import figures, tables
from tools.size.tables import READINGS, Table

CSV_FILES = 16
FIGURES = 14


def named(name: str) -> Table:
    return next(table for table in tables.all_tables() if table.name == name)


def test_tables_are_rectangular_and_have_names_of_their_own() -> None:
    found = list(tables.all_tables())
    assert len({table.name for table in found}) == len(found) == CSV_FILES
    for table in found:
        assert {len(row) for row in table.rows} == {len(table.headings)}
        assert next(csv.reader(io.StringIO(table.as_csv()))) == list(table.headings)


def test_printed_and_computed_columns_agree() -> None:
    bounds, uniform = named("thesis-5.3-bounds"), named("thesis-5.3-uniform")
    assert [row[-2] for row in bounds.rows] == [row[-1] for row in bounds.rows]
    assert [row[1] for row in uniform.rows] == [row[2] for row in uniform.rows]
    # With three replicas, equation 7 also admits 9 servers, where equation 8 does not.
    assert {row[0]: row[3] for row in uniform.rows} == {24: "9", 36: "", 48: "9", 60: "9", 72: "", 120: "9"}


def test_flows_of_a_server_add_up_to_the_equations() -> None:
    flows = {row[0]: row[2] for row in named("thesis-69-infrastructure").rows}
    assert flows["to storage (eq. 4)"] == flows["from producers"] + flows["from leaders"] == 1  # type: ignore[operator]
    assert flows["network (eq. 5)"] == pytest.approx(5 / 3)


def test_every_reading_agrees_with_the_crossing_that_the_paper_describes() -> None:
    """BroMin uses more brokers than MS-CNFL "for more than 400 consumers" (figure 2)."""
    for reading in READINGS:
        for value, program in tables.programs(2, reading):
            found = tables.curves(program)
            low, mean = found["BroMin"], found["MS-CNFL"]
            assert low is not None
            assert mean is not None
            assert (low.brokers > mean.brokers) == (value > 400)


@pytest.mark.parametrize(("reading", "agrees"), [(READINGS[0], True), (READINGS[1], True), (READINGS[2], False)])
def test_two_readings_agree_with_the_crossing_of_figure_4(reading: tables.Reading, agrees: bool) -> None:
    """BroMin uses more brokers than MS-CNFL "for a replication factor value of more than 10"."""
    crossings = []
    for value, program in tables.programs(4, reading):
        found = tables.curves(program)
        low, mean = found["BroMin"], found["MS-CNFL"]
        assert mean is not None
        if low is not None and low.brokers > mean.brokers:
            crossings.append(value)
    assert (min(crossings) == 11) is agrees


def test_rows_of_both_replication_times_show_that_the_conclusion_flips() -> None:
    rows = {(row[0], row[2]): row[3:] for row in named("paper-replication-time").rows}
    assert rows["printed", 3][:2] == (1333, "replication latency")
    assert rows["cited report", 3][:2] == (8000, "unavailability")
    assert rows["cited report", 5][-1] == 0


def test_numbers_alone_need_no_package(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    assert diem("size", "figures") == 2
    assert capsys.readouterr().err == f"diem: {figures.NoFigures.template}\n"
    assert not (tmp_path / "figures").exists()
    assert diem("size", "figures", "--format", "csv", "--out", "numbers") == 0
    assert len(list((tmp_path / "numbers").iterdir())) == CSV_FILES
    (tmp_path / "file").write_text("")
    assert diem("size", "figures", "--format", "csv", "--out", "file") == 2
    assert "file: File exists" in capsys.readouterr().err


@pytest.mark.takes(15)
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib: make figures")
def test_figures_are_images_and_the_same_every_time(tmp_path: Path) -> None:
    files = list(figures.write_all(tmp_path, "svg"))
    assert len(set(files)) == CSV_FILES + FIGURES
    for file in tmp_path.glob("*.svg"):
        assert ET.fromstring(file.read_text()).tag.endswith("svg")  # noqa: S314 - our own
    name, drawing = next(figures.drawings())
    again = tmp_path / "again" / f"{name}.svg"
    again.parent.mkdir()
    figures.save(drawing(), again)
    assert again.read_bytes() == (tmp_path / again.name).read_bytes()
