"""The name that DIEM is installed by, and its version, are the same wherever they are written."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from diem import __version__
from diem.errors import DISTRIBUTION, install_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHERS = re.compile(
    r"\bdiem\[[a-z]"  # with an extra
    r"|\b(?:pip3?|pipx|uv (?:pip|tool)|uv) (?:install|add) [^\n|;&`,]*(?<![-/.\w])diem(?![-/.\w])"
    r"|\b(?:pipx run|uvx|npx)(?: -{1,2}[a-z]\S*)* diem\b(?!-)"
    r"|\bnpm (?:i|install|add) [^\n|;&`,]*(?<![-/.\w])diem(?![-/.\w])"
)
"""Commands that would install another project: ``diem`` on the Python index is a stablecoin's client."""


def others(text: str) -> Iterator[str]:
    return (match[0] for match in OTHERS.finditer(text))


@pytest.mark.parametrize(
    "command",
    [
        "pip install 'diem[kafka]'",
        "pip install diem",
        "pip install --user diem rich",
        "uv add diem",
        "uv tool install diem",
        "uvx diem up",
        "pipx run diem",
        "npm install diem",
    ],
)
def test_a_command_that_installs_another_project_is_found(command: str) -> None:
    assert list(others(command))


@pytest.mark.parametrize(
    "command",
    [
        install_command("kafka"),
        "uvx --from diem-realtime diem up",
        "pipx run --spec diem_realtime-0.1.0-py3-none-any.whl diem up",
        "pip install -r requirements/java.txt, then diem up",
        "npm install diem-client",
        "npm install http://localhost:8080/diem-client-0.1.0.tgz",
    ],
)
def test_a_command_that_installs_diem_is_none(command: str) -> None:
    assert not list(others(command))


def test_no_message_or_page_installs_another_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    suffixes = {".html", ".json", ".md", ".mjs", ".py", ".sh", ".toml", ".ts", ".yaml", "", ".tsx"}
    own = Path(__file__).relative_to(ROOT)
    found = {
        str(path): commands
        for path in map(Path, listed)
        if path.suffix in suffixes and path != own and not path.is_relative_to("docs/benchmarks")
        if (commands := list(others((ROOT / path).read_text(errors="ignore"))))
    }
    assert len(listed) > 500
    assert found == {}


def test_the_distribution_has_the_name_of_the_messages() -> None:
    assert PROJECT["name"] == DISTRIBUTION


def test_packages_and_chart_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"], PROJECT["version"]} == {__version__}
    for file in ("client/package.json", "client/package-lock.json"):
        assert f'"version": "{__version__}",' in (ROOT / file).read_text()[:200]
