"""``diem sources check``: a table that fits, the remedy of what fails, and an exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.cli.sources import render
from deploy.terminal import plain_console
from diem.protocol.media_types import DOCUMENT, SERIES
from services.data.sources.trial import PublishedData, SourceTrial

Diem = Callable[..., int]
CONFIG = """\
[[source]]
type = "directory"
name = "{name}"
path = "{path}"
prefix = "/{path}"
unit = "MW"
resolution = "PT1H"

"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("time,value\n2026-01-01T00:00:00Z,1\n")
    return tmp_path


def test_a_source_that_works_is_shown_with_its_endpoints(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "diem.toml").write_text(CONFIG.format(name="files", path="incoming"))
    assert diem("sources", "check") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["source type state endpoints points", "files directory ok 1 1"]
    assert "/incoming/a 1 MW PT1H 2026-01-01 00:00 2026-01-01 00:00" in lines
    assert lines[-1] == "1 source checked: none fails"
    assert not (here / ".diem").exists()


def test_a_failing_source_has_a_remedy_and_an_exit_code(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = (CONFIG.format(name=name, path=path) for name, path in (("files", "incoming"), ("load", "nowhere")))
    (here / "other.toml").write_text("".join(tables))
    assert diem("sources", "check", "--config", "other.toml") == 1
    lines = capsys.readouterr().out.splitlines()
    assert "load fails: no such directory: nowhere" in lines
    assert "  create the directory or correct `path`; it is read within seconds once it is there" in lines
    assert lines[-1] == "1 of 2 sources fails"
    assert diem("sources", "check", "--config", "other.toml", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["ok"]) for each in found["sources"]] == [("files", True), ("load", False)]
    assert found["sources"][0]["endpoints"][0]["points"] == 1
    assert (found["failing"], found["config"]) == (1, "other.toml")


def test_faults_of_the_file_are_lines_and_nothing_is_tried(
    diem: Diem, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "diem.toml").write_text(CONFIG.format(name="files", path="incoming").replace("path", "paht"))
    assert diem("sources", "check") == 2
    written = capsys.readouterr()
    assert "unknown field `paht` (did you mean `path`?)" in written.err
    assert written.out == ""


def test_outcomes_fit_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    times = ("2026-01-01T00:00:00Z", "2026-01-02T23:45:00Z")
    endpoints = tuple(
        PublishedData(
            f"/generation/forecast/IT-SUD/wind-onshore-{n}", SERIES, 600_000, 12_345, "EUR/MWh", "PT15M", *times
        )
        for n in range(9)
    )
    name = "a-source-with-a-name-of-64-characters-which-is-as-long-as-it-gets"[:64]
    tried = [
        SourceTrial(name, "simulation", None, None, endpoints),
        SourceTrial("load", "directory", "no such directory: " + "/srv/data" * 12, "create it", ()),
        SourceTrial("none", "http", None, "no data yet", ()),
        SourceTrial("games", "league", None, None, (PublishedData("/game/42", DOCUMENT, 1234),)),
    ]
    console = plain_console()
    console.width = 80
    for part in render(tried):
        console.print(part)
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "…" not in out
    assert "and 4 endpoints more of " in out
    assert "none: no data yet" in out
    assert any(line.split() == ["/game/42", "1.23", "KB", "application/json"] for line in out.splitlines())
