"""How the usage report is shown."""

import sys
from datetime import date
from pathlib import Path

import pytest
from rich.console import Console

from deploy.cli import commands
from deploy.cli.usage import as_objects, most, table
from diem.process import lifecycle
from metadata.statistics.usage import UsageRow

DAY = date(2026, 1, 1)
ROWS = [
    UsageRow(DAY, "", "anonymous", "", 5, 0),
    UsageRow(DAY, "abcd1234", "free", "/a", 1000, 2),
    UsageRow(DAY, "abcd1234", "free", "/b", 1, 9),
]


def test_the_rows_of_most_requests_are_shown_in_their_order() -> None:
    assert most(ROWS, 0) == most(ROWS, 3) == ROWS
    assert most(ROWS, 2) == ROWS[1:]
    assert most(ROWS, 1) == ROWS[1:2]


def test_what_is_empty_is_a_dash() -> None:
    console = Console(width=100, record=True, quiet=False, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(table(ROWS))
    console.file.close()
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[1] == ["2026-01-01", "-", "anonymous", "-", "5", "0"]
    assert lines[2] == ["2026-01-01", "abcd1234", "free", "/a", "1,000", "2"]


def test_json_has_days_as_text() -> None:
    assert as_objects(ROWS[:1]) == [
        {"day": "2026-01-01", "key": "", "plan": "anonymous", "endpoint": "", "answered": 5, "refused": 0}
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "2026-01-02", "--to", "2026-01-01"], "--from 2026-01-02 is after --to 2026-01-01"),
        (["--from", "yesterday"], "yesterday"),
        (["--memory", "1t"], "--memory is such as 512m"),
    ],
)
def test_a_wrong_option_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["diem", "pipeline", "usage", *options])
    assert commands.main() == lifecycle.EXIT_CONFIGURATION
    assert said in capsys.readouterr().err
