"""docs/going-public.md and SECURITY.md name only options, settings, alerts and files that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from deploy.cli.commands import command_line
from diem.process.settings import PROCESSES, known_variables, settings_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "going-public.md").read_text()
LINKS = [
    (name, target)
    for name in ("docs/going-public.md", "SECURITY.md")
    for target in re.findall(r"\]\(([^)#:]+)", (ROOT / name).read_text())
]


def options(command: Any) -> set[str]:
    """Return the options of a command and of those below it."""
    found = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for below in getattr(command, "commands", {}).values():
        found |= options(below)
    return found


def test_options_of_diem_exist() -> None:
    lines = [line for line in PAGE.splitlines() if re.search(r"UP_OPTIONS|(^|`)d [a-z]|`--", line)]
    named = {option for line in lines for option in re.findall(r"--[a-z][a-z-]+", line)}
    assert {"--mode", "--listen", "--tls-key", "--anonymous", "--front-proxy", "--expires"} <= named
    assert named <= options(typer.main.get_command(command_line()))


def test_settings_exist() -> None:
    settings = set[str]().union(*(known_variables(settings_of(process)) for process in PROCESSES))
    named = set(re.findall(r"\bDIEM_[A-Z_]*[A-Z]\b", PAGE))
    assert "DIEM_ANONYMOUS_READS" in named
    assert named <= settings


def test_alerts_exist() -> None:
    rules = (ROOT / "tools" / "prometheus" / "alerts.yaml").read_text()
    named = re.findall(r"`(Diem[A-Za-z]+)`", PAGE)
    assert len(named) >= 5
    assert set(named) <= set(re.findall(r"alert: (\w+)", rules))


@pytest.mark.parametrize(("name", "target"), LINKS)
def test_links_lead_to_files(name: str, target: str) -> None:
    assert ((ROOT / name).parent / target).exists()


def test_unit_and_page_agree_on_paths_and_variables() -> None:
    unit = (ROOT / "deploy" / "systemd" / "diem.service").read_text()
    for text in ("/opt/diem/.venv/bin/diem", "/etc/diem/environment", "/var/lib/diem", "UP_OPTIONS"):
        assert text in unit
        assert text in PAGE


def test_variables_of_the_unit_are_settings_or_none_of_ours() -> None:
    """Processes inherit them, and refuse to start with a DIEM_ variable that is no setting."""
    unit = (ROOT / "deploy" / "systemd" / "diem.service").read_text()
    settings = set[str]().union(*(known_variables(settings_of(process)) for process in PROCESSES))
    named = set(re.findall(r"\$\{?([A-Z_]+)", unit)) | set(re.findall(r"^Environment=([A-Z_]+)=", unit, re.MULTILINE))
    assert {"UP_OPTIONS", "HOME"} <= named
    assert {name for name in named if name.startswith("DIEM_")} <= settings
