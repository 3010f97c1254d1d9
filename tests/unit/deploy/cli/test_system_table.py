"""The table [system] of diem.toml has defaults of the options of `diem up` and `diem config MODE --hosts`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from deploy import topology
from deploy.cli import commands, up
from deploy.cli.system_table import OF_ONE_COMMAND, key_of
from deploy.topology import Mode
from tools.commands import config

Diem = Callable[..., int]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, diem: Diem) -> Callable[..., topology.Options]:
    """Return a function that runs `diem up` and returns the options that it would start with."""

    def run(*arguments: str) -> topology.Options:
        found: list[topology.Options] = []

        def take(options: topology.Options, *_: object, **__: object) -> int:
            found.append(options)
            return 0

        monkeypatch.setattr(up, "_up", take)
        assert diem("up", *arguments) == 0
        (options,) = found
        return options

    return run


def write(text: str, file: Path = Path("diem.toml")) -> None:
    file.write_text(text)


def test_table_has_defaults_and_options_have_priority(planned: Callable[..., topology.Options]) -> None:
    write('[system]\nmode = "xz"\nservers = 3\nhot = ["/a", "/b"]\npartitions = 24\nmax_servers = 9\n')
    options = planned()
    assert (options.mode, options.scaling.servers, options.scaling.max_servers) == (Mode.XZ, 3, 9)
    assert options.content.hot == ("/a", "/b")
    assert options.kafka.partitions == 24
    assert planned("--mode", "z-proxy", "--servers", "2").scaling.servers == 2


def test_variable_has_priority_over_the_table(
    planned: Callable[..., topology.Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[system]\nlog_level = "debug"\n')
    assert planned().log_level == "debug"
    monkeypatch.setenv("DIEM_LOG_LEVEL", "error")
    assert planned().log_level == "error"


def test_file_is_that_of_the_option(planned: Callable[..., topology.Options], tmp_path: Path) -> None:
    write('[system]\nmode = "x"\n', tmp_path / "other.toml")
    assert planned().mode is Mode.SINGLE
    assert planned("--config", str(tmp_path / "other.toml")).mode is Mode.X


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[system]\nserver = 2",
            "diem.toml: [system]: no option is called 'server' (did you mean `servers`",
        ),
        ("[[system]]\nservers = 2", "diem.toml: write [system] with one pair of brackets"),
        ("[system]\nservers = 'two'", "--servers is a number or auto, not two"),
        ("[system]\nmode = 'z'", "Invalid value for '--mode': 'z' is not one of"),
        ("[system]\nmode = ", "diem.toml: line 2, not TOML"),
    ],
)
def test_faults_are_one_line(diem: Diem, capsys: pytest.CaptureFixture[str], text: str, expected: str) -> None:
    write(text)
    assert diem("up") != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line


def test_reference_has_every_option(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("config", "system") == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0] for line in lines if not line.startswith(" ")}
    assert shown == keys(up) - {"config", "help"}
    assert "max_servers  (--max-servers <int>)" in lines


def keys(module: Any) -> set[str]:
    cli = typer.Typer()
    module.register(cli)
    command: Any = typer.main.get_command(cli)
    return {key_of(each) for each in command.params if each.param_type_name == "option"}


def test_options_of_one_command_are_named() -> None:
    assert keys(up) ^ keys(config) == OF_ONE_COMMAND


def test_hosts_take_the_table_of_their_file(diem: Diem, tmp_path: Path) -> None:
    write('[system]\nclients_per_address = 7\norigin = ["https://a.example"]\nfront_proxy = ["10.9.0.0/16"]\n')
    hosts = ("--hosts", "a=10.0.0.1", "--bootstrap-servers", "k:1", "--out", "out", "--config", "diem.toml")
    assert diem("config", "x", *hosts) == 0
    files = [file.read_text() for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert any("CONNECTIONS_PER_ADDRESS=7" in text for text in files)
    assert any("10.9.0.0/16" in text for text in files)


def test_command_line_is_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["diem", "up", "--max-servers", "many"])
    assert commands.main() == 2
