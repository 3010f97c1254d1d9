"""``diem metrics``: the list of metrics, and the files for Prometheus and Grafana."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from deploy.system import control
from deploy.topology import Mode
from diem.process.metrics import ALL
from tests.unit.tools.hosts.systems import system
from tests.unit.tools.prometheus.described import described
from tools.commands.metrics import metrics
from tools.hosts.output import write_system
from tools.hosts.status import NoSystem
from tools.prometheus.configuration import ALERTS, DASHBOARD


def test_without_an_option_every_metric_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(ALL)
    assert "diem_messages_total  (counter; labels: type)" in lines
    assert lines[lines.index("diem_clients  (gauge)") + 1] == "    Open client connections."


def test_dashboard_and_alerts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics(dashboard=True) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(DASHBOARD.read_text())
    assert metrics(alerts=True) == 0
    assert capsys.readouterr().out == ALERTS.read_text()


@pytest.mark.parametrize(
    "options",
    [
        {"dashboard": True, "alerts": True},
        {"static": True},
        {"key_file": Path("k")},
        {"hosts": Path("system")},
    ],
    ids=["two", "static", "key_file", "hosts"],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(typer.BadParameter):
        metrics(**options)


def test_configuration_is_of_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def request(*_arguments: object) -> dict[str, Any]:
        return described(Mode.SINGLE)

    monkeypatch.setattr(control, "request", request)
    assert metrics(prometheus=True, state_dir=tmp_path) == 0
    (job,) = yaml.safe_load(capsys.readouterr().out)["scrape_configs"]
    assert job["authorization"] == {"credentials_file": str(tmp_path / "metrics.key")}
    assert job["file_sd_configs"] == [{"files": [str(tmp_path / "targets.json")]}]
    assert metrics(prometheus=True, static=True, key_file=Path("/k"), state_dir=tmp_path) == 0
    (job,) = yaml.safe_load(capsys.readouterr().out)["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "/k"}
    assert [group["targets"] for group in job["static_configs"]] == [["127.0.0.1:9080"], ["127.0.0.1:9101"]]


def test_without_a_running_system_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics(prometheus=True, state_dir=tmp_path) == 1
    assert capsys.readouterr().err.count("diem is not up in") == 1


def test_configuration_of_several_hosts_has_the_targets_that_were_written_and_their_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_system(system(Mode.X), tmp_path, None, None)
    assert metrics(prometheus=True, hosts=tmp_path) == 0
    (job,) = yaml.safe_load(capsys.readouterr().out)["scrape_configs"]
    assert job["authorization"] == {"credentials_file": str(tmp_path / "keys" / "metrics.key")}
    found = {group["targets"][0]: group["labels"] for group in job["static_configs"]}
    described = json.loads((tmp_path / "system.json").read_text())["processes"]
    internal = [each["urls"]["internal"] for each in described]
    assert list(found) == [url.partition("://")[2] for url in internal if url is not None]
    assert found["10.0.0.2:9101"] == {"process": "websocket", "number": "1", "host": "b", "mode": "x"}
    assert metrics(prometheus=True, hosts=tmp_path, key_file=Path("/k")) == 0
    assert '"/k"' in capsys.readouterr().out


def test_clones_on_several_hosts_are_a_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_system(system(Mode.Z_CLIENT, clones=2), tmp_path, None, None)
    assert metrics(prometheus=True, hosts=tmp_path) == 0
    (job,) = yaml.safe_load(capsys.readouterr().out)["scrape_configs"]
    servers = [each["labels"] for each in job["static_configs"] if each["labels"]["process"] == "websocket"]
    assert {each["clone"] for each in servers} == {"1", "2"}


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSystem):
        metrics(prometheus=True, hosts=tmp_path)
