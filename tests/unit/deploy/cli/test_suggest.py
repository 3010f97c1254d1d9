"""``diem sources suggest``: the table, points as they would be published, what is unsure; --write changes no byte."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.cli.suggest import block_chart
from services.data.sources.config import layout_of

Diem = Callable[..., int]
TABLE = """\
[[source]]
type = "directory"
name = "load"
path = "in"
file = "load_2025.csv"
endpoint = "/load"
resolution = "PT1H"
"""
TABLE += 'mapping = { delimiter = ";", header = 2, time = "Start", time_format = "%d.%m.%Y %H:%M", decimal = ",", '
TABLE += 'value = "Load [MW]" }\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIEM_DATA_CONFIG", raising=False)
    (tmp_path / "in").mkdir()
    rows = [f"13.01.2025 {hour:02}:00;{hour},5" for hour in range(24)]
    rows[3] = "13.01.2025 03:00;"
    (tmp_path / "in" / "load_2025.csv").write_text("\n".join(["Local times", "Start;Load [MW]", *rows]))
    return tmp_path


def test_the_table_the_points_and_what_is_unsure_are_shown(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diem("sources", "suggest", "in/load_2025.csv") == 0
    out, hint = capsys.readouterr()
    assert hint == "--write adds the table to diem.toml\n"
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert TABLE in out
    assert lines[0] == "in/load_2025.csv: 1 series"
    assert "/load MW PT1H 2025-01-13 00:00 0.5 2025-01-13 23:00 23.5 24 1" in lines
    assert "▁▁▂ ▂▃▃▃▃▄▄▄▅▅▅▆▆▆▆▇▇▇██  /load" in out
    assert "unit: MW, by the headings" in lines
    unsure = "zone = 'UTC': no time has an offset, and no day of 23 or 25 hours is in the sample; "
    assert lines[-2:] == ["unsure:", f"{unsure}answer with --zone Europe/Berlin or --zone America/New_York"]
    assert not (here / "diem.toml").exists()


def test_an_answer_leaves_nothing_unsure(diem: Diem, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("sources", "suggest", "in/load_2025.csv", "--zone", "Europe/Athens", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["unsure"], found["problem"], found["preset"]) == ([], None, None)
    assert tomllib.loads(found["toml"])["source"][0]["zone"] == "Europe/Athens"
    (endpoint,) = found["endpoints"]
    assert endpoint["first"] == {"time": "2025-01-12T22:00:00Z", "value": 0.5}
    assert (endpoint["gaps"], endpoint["points"]) == (1, 24)


def test_a_written_table_works_and_changes_no_other_byte(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (
        b'\xef\xbb\xbf# mine\r\n[[source]]\r\ntype = "directory"  # kept\r\nname = "a"\r\npath = "in"\r\nprefix = "/a"'
    )
    (here / "diem.toml").write_bytes(before)
    (here / "diem.toml").chmod(0o640)
    assert diem("sources", "suggest", "in/load_2025.csv", "--write") == 0
    after = (here / "diem.toml").read_bytes()
    assert after.startswith(before + b"\r\n\r\n# unsure: zone: no time has an offset")
    assert after.endswith(TABLE.replace("\n", "\r\n").encode())
    assert (here / "diem.toml").stat().st_mode & 0o777 == 0o640
    capsys.readouterr()
    assert diem("sources", "check", "--json") == 1
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["sources"]}
    assert (found["load"]["ok"], [each["points"] for each in found["load"]["endpoints"]]) == (True, [24])

    assert diem("sources", "suggest", "in/load_2025.csv", "--write") == 2
    assert "there is a source named 'load' already: give another name with --name" in capsys.readouterr().err
    assert diem("sources", "suggest", "in/load_2025.csv", "--write", "--name", "no name") == 2
    assert (here / "diem.toml").read_bytes() == after
    assert sorted(each.name for each in here.iterdir()) == ["diem.toml", "in"]


def test_a_new_diem_toml_is_created_where_it_is_named(diem: Diem, here: Path) -> None:
    assert diem("sources", "suggest", "in/load_2025.csv", "--zone", "UTC", "--write", "--config", "other.toml") == 0
    assert (here / "other.toml").read_text() == TABLE


def test_several_series_are_of_the_one_file_and_its_layout_can_be_written(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"2025-01-01T0{hour}:00Z,{hour},{hour}" for hour in range(9)]
    (here / "in" / "both.csv").write_text("\n".join(["time,a [MW],b [MW]", *rows]))
    assert diem("sources", "suggest", "in/both.csv", "--write", "--layout", "own.toml") == 0
    told = capsys.readouterr()
    assert 'file = "both.csv"\nprefix = "/both"' in told.out
    assert "added to diem.toml: try it with `diem sources check`, and restart `diem up`" in told.err
    assert (here / "own.toml").read_text().startswith('resolution = "PT1H"\n\n[mapping]\nvalue = ')
    assert layout_of("own.toml", "/p", {}).prefix == "/p"
    assert diem("sources", "check", "--json") == 0
    (checked,) = json.loads(capsys.readouterr().out)["sources"]
    assert [each["endpoint"] for each in checked["endpoints"]] == ["/both/a", "/both/b"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (("prose.txt", "nothing but\nwords here\n"), "prose.txt: no source is found: there is no table in it"),
        (("data.1", "time,a [MW]\n2025-01-01T00:00Z,1\n2025-01-01T01:00Z,2\n2025-01-01T02:00Z,2\n"), "rename data.1"),
    ],
)
def test_no_source_is_one_line_and_an_exit_code(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str], file: tuple[str, str], expected: str
) -> None:
    name, text = file
    (here / name).write_text(text)
    assert diem("sources", "suggest", name, "--write") == 1
    assert expected in capsys.readouterr().out
    assert not (here / "diem.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nowhere.csv",), "nowhere.csv: No such file or directory"),
        (("in",), "in: it is a directory: name one of its files"),
        (("in/load_2025.csv", "--set", "colour=red"), "--set takes KEY=VALUE with one of zone, unit"),
        (("http://127.0.0.1:9/a.csv",), "http://127.0.0.1:9/a.csv: "),
        (
            ("kafka://127.0.0.1:9/orders", "--set", "sasl_user=x"),
            "--set sasl_user: unknown key (did you mean `sasl_username`",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert diem("sources", "suggest", *arguments) != 0
    assert expected in " ".join(capsys.readouterr().err.split())


def test_a_chart_has_blanks_for_gaps_and_a_block_for_several_values() -> None:
    assert block_chart([1, None, 2, 3], 10) == "▁ ▅█"
    assert block_chart([*range(80)], 8) == "▁▂▃▄▅▆▇█"
    assert block_chart([5, 5], 10) == "▁▁"
    assert block_chart([None], 10) == " "
