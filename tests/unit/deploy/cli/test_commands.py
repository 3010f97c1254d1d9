import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import pytest
import typer.core
import typer.main

from deploy.cli.commands import ENTRY_POINTS, command_line
from deploy.cli.help import GROUPS
from deploy.system.state_dir import StateDir
from diem.process import program
from diem.process.settings import PROCESSES, UnknownProcess, settings_of
from tools.commands.config import config_lines

BY_MODULE = {
    module: tuple(point.name for point in entry_points(group=ENTRY_POINTS) if point.value == module)
    for module in sorted({point.value for point in entry_points(group=ENTRY_POINTS)})
}
Diem = Callable[..., int]
COMMANDS = (
    *("up", "scale", "run", "status", "watch", "get", "put", "delete"),
    *("plan", "apply", "rollback", "plans", "autoplan", "config"),
)


def test_version_is_printed(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("--version") == 0
    assert capsys.readouterr().out.startswith("diem 0.")


def test_help_names_every_command(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("--help") == 0
    out = capsys.readouterr().out
    assert all(f" {command} " in out for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["nonsense"], 2, "diem: No such command 'nonsense'."),
        (["up", "--nonsense"], 2, "diem: No such option"),
        (["up", "--mode", "z"], 2, "diem: Invalid value for '--mode': 'z' is not one of"),
        (["up", "--mode", "single", "--servers", "2"], 2, "diem: single runs one WebSocket server, not 2"),
        (["up", "--mode", "x-broadcast", "--servers", "0"], 2, "diem: x-broadcast runs 1 to 64"),
        (["up", "--max-servers", "2"], 2, "diem: single runs one WebSocket server, not 2"),
        (["up", "--mode", "x", "--brokers", "2"], 2, "diem: a local Kafka has 1 or 3 brokers, not 2"),
        (
            ["up", "--brokers", "3"],
            2,
            "diem: --brokers is for --mode x, z-client, z-proxy, z-composite, xz: mode single",
        ),
        (["up", "--mode", "all-to-all", "--partitions", "3"], 2, "diem: --partitions is for --mode x"),
        (["up", "--mode", "x", "--ca-file", "f"], 2, "diem: --ca-file is for --bootstrap-servers"),
        (["up", "--mode", "x", "--clones", "2"], 2, "diem: --clones is for --mode z-client and xz: x has none"),
        (["up", "--mode", "z-proxy", "--clones", "2"], 2, "diem: --clones is for --mode z-client and xz"),
        (
            ["up", "--mode", "z-proxy", "--proxy", "passthrough"],
            2,
            "diem: Invalid value for '--proxy': passthrough has",
        ),
        (["up", "--hot", "/a"], 2, "diem: --hot is for partitioned modes: every server of single has every endpoint"),
        (["up", "--mode", "xz", "--hot", "a"], 2, "diem: --hot: 'a' is not an endpoint name"),
        (["up", "--mode", "z-client", "--clones", "40", "--servers", "2"], 2, "diem: z-client runs 1 to 64 clones"),
        (["up", "--mode", "z-composite", "--brokers", "2"], 2, "diem: a local Kafka has 1 or 3 brokers, not 2"),
        (["up", "--pages", "missing"], 2, "diem: --pages missing: no such directory"),
        (["up", "--pages", ".", "--state-dir", "state"], 2, "diem: --pages .: this would publish state: "),
        *(
            (
                [
                    "up",
                    "--pages",
                    ".",
                    "--state-dir",
                    "/s",
                    "--mode",
                    "x",
                    "--bootstrap-servers",
                    "k:1",
                    option,
                    "secret",
                ],
                2,
                "diem: --pages .: this would publish /",
            )
            for option in ("--sasl-password-file", "--key-file", "--certificate-file")
        ),
        (["up", "--set", "x"], 2, "diem: --set takes NAME:VARIABLE=VALUE"),
        (["up", "--set", "bridge-1:A=b"], 2, "diem: --set: no process is called 'bridge-1' here"),
        (["scale"], 2, "diem: Missing argument 'N'"),
        (["scale", "many"], 2, "diem: Invalid value for 'N'"),
        (["scale", "2"], 1, "diem: diem is not up in "),
        (["up", "--port", "0"], 2, "diem: Invalid value for '--port'"),
        (["status"], 1, "diem: diem is not up in "),
        (["watch"], 2, "diem: Missing argument 'ENDPOINT...'"),
        (["watch", "dam/prices"], 1, "diem: 'dam/prices' is not an endpoint name"),
        (["watch", "/a"], 1, "diem: diem is not up in "),
        (["watch", "/a", "--url", "x"], 2, "diem: --url is http(s)://host[:port][/path], not 'x'"),
        (["put", "/a b", "f.csv"], 1, "diem: '/a b' is not an endpoint name"),
        (["put", "/a", "f.csv", "--url", "http://127.0.0.1:1"], 2, "diem: f.csv: No such file"),
        (
            ["put", "/a", "/dev/null", "--url", "http://h:1", "--type", "xml"],
            2,
            "--type is json, series, csv, text or",
        ),
        (["put", "/a/", "f.csv"], 1, "it ends with '/', as collections do"),
        (["put", "/a", "f", "--create", "--if-match", "5"], 2, "--create and --if-match: choose one of them"),
        (["put", "/a", "f", "--ttl", "0"], 2, "diem: Invalid value for '--ttl'"),
        (["patch", "/a", "f", "--type", "xml"], 2, "--type is merge, json-patch"),
        (["notify", "/a/"], 1, "it ends with '/', as collections do"),
        (["notify", "/*/"], 1, "it ends with '/', as collections do"),
        (["delete", "*"], 1, "diem: '*' is not an endpoint name"),
        (["delete", "/*"], 1, "diem: diem is not up in "),
        (["get"], 2, "diem: Missing argument 'ENDPOINT'"),
        (["get", "a"], 1, "diem: 'a' is not an endpoint name"),
        (["get", "/a"], 1, "diem: diem is not up in "),
        (["get", "/a", "--version", "0"], 2, "diem: Invalid value for '--version'"),
        (["get", "/a", "--url", "x"], 2, "diem: --url is http(s)://host[:port][/path], not 'x'"),
        (["get", "/a", "--url", "http://127.0.0.1:1", "--key-file", "k"], 2, "diem: key file k: No such file"),
        (["get", "/a", "--url", "http://127.0.0.1:1"], 1, "the Data Service at http://127.0.0.1:1 does not answer"),
        (["delete", "a"], 1, "diem: 'a' is not an endpoint name"),
        (["delete", "/a"], 1, "diem: diem is not up in "),
        (["delete", "/a", "--yes", "--url", "http://127.0.0.1:1"], 2, "diem: key file "),
        (["plan"], 1, "diem: diem is not up in "),
        (["plan", "--metadata", "x"], 2, "diem: --metadata is http(s)://host:port of an internal listener, not 'x'"),
        (["plan", "--movement", "5"], 2, "--movement is a percentage such as 0.5%, not '5'"),
        (["plan", "--hot-budget", "101%"], 2, "--hot-budget is a percentage"),
        (["plan", "--servers", "2,x"], 2, "--servers takes numbers from 1 to 1000, separated by commas, not '2,x'"),
        (["plan", "--window", "soon"], 2, "diem: 'soon' is not a length of time"),
        (["plan", "--from", "2026-01-01"], 2, "--from needs --to"),
        (["plan", "--movement", "1%", "--partitions", "48"], 2, "--movement goes without --partitions"),
        (["apply"], 1, "diem: diem is not up in "),
        (["apply", "pyproject.toml"], 1, "diem: diem is not up in "),
        (["rollback"], 1, "diem: diem is not up in "),
        (["plans"], 1, "diem: diem is not up in "),
        (["plans", "--metadata", "http://127.0.0.1:1"], 2, "diem: key file "),
        (["autoplan", "--every", "often"], 2, "diem: 'often' is not a length of time"),
        (["autoplan", "--movement", "x"], 2, "--movement is a percentage"),
        (["config", "nonsense"], 2, "diem: no process is called 'nonsense': there are data, broadcast, bridge"),
        (["run", "nonsense"], 2, "diem: no process is called 'nonsense'"),
        (["run"], 2, "diem: Missing argument 'PROCESS'"),
    ],
)
def test_every_error_is_one_line_and_an_exit_code(
    diem: Diem, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, expected: str
) -> None:
    assert diem(*arguments) == code
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_second_up_in_a_state_directory_is_refused(
    diem: Diem, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with StateDir(tmp_path / ".diem").lock():
        assert diem("up") == 1
    assert "diem is already up in" in capsys.readouterr().err


def test_key_file_readable_by_others_is_refused(diem: Diem, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with StateDir(tmp_path / ".diem").lock():
        pass
    (tmp_path / ".diem" / "write.key").chmod(0o644)
    assert diem("up") == 2
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("up",), ("status",), ("put", "/a", "f.csv"), ("keys", "list"), ("backup", "f"), ("plan",)]
)
def test_every_command_refuses_a_state_directory_that_others_may_write(
    diem: Diem,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setattr("deploy.cli.up.Up", None)  # nothing is to be started
    (tmp_path / ".diem").mkdir()
    (tmp_path / ".diem").chmod(0o777)
    assert diem(*arguments) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"others may write it: run chmod go-w {tmp_path}/.diem" in err
    assert not any((tmp_path / ".diem").iterdir())


def test_invalid_environment_is_reported_line_by_line(
    diem: Diem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIEM_WEBSOCKET_PROT", "1")
    monkeypatch.setenv("DIEM_WEBSOCKT_PORT", "1")
    assert diem("run", "websocket") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("diem: DIEM_WEBSOCK") and "DIEM_WEBSOCKET_PORT" in line for line in lines)


def test_reference_describes_every_setting_of_every_process(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("config") == 0
    lines = capsys.readouterr().out.splitlines()
    for name in PROCESSES:
        assert f"# {name}" in lines
    named = [index for index, line in enumerate(lines) if line.startswith("DIEM_")]
    assert len(named) > 25
    assert all(len(lines[index + 1].strip()) > 10 for index in named)
    assert 'DIEM_FEED_URL  (list a,b; default: ["ws://127.0.0.1:9080/feed"])' in lines


def test_reference_of_one_process_excludes_the_others() -> None:
    text = "\n".join(config_lines(["broadcast"]))
    assert "DIEM_FEED_URL" in text
    assert "DIEM_STATE_DIR" in text
    assert "DIEM_HISTORY_DAYS" not in text


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_has_settings_of_its_own(name: str) -> None:
    assert settings_of(name).process == name


def test_unknown_process_is_refused_before_anything_is_imported() -> None:
    with pytest.raises(UnknownProcess):
        program.program("os.path")


def typer_commands(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    return dict(cast("typer.core.TyperGroup", typer.main.get_command(command_line(arguments))).commands)


def commands(*arguments: str) -> set[str]:
    return set(typer_commands(arguments))


def test_help_has_every_command() -> None:
    every = typer_commands()
    assert every.keys() == {"run"}.union(*BY_MODULE.values())
    summaries = {name: each.get_short_help_str(limit=200) for name, each in every.items()}
    assert summaries == {name: text for names in GROUPS.values() for name, text in names.items()}
    assert commands("--help") == commands("no-such-command") == commands("--") == every.keys()


def run_alone(prepared: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, after (and with) some lines of Python."""
    code = f"import atexit, sys\n{prepared}\nfrom deploy.cli import app\napp()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_help_of_all_imports_no_command() -> None:
    loaded = "any(name.startswith(('tools.', 'learning.', 'aiokafka')) for name in sys.modules)"
    done = run_alone(f"atexit.register(lambda: print({loaded}))", "--help")
    assert "Audit a Kafka cluster" in done.stdout
    assert done.stdout.endswith("\nFalse\n")


@pytest.mark.parametrize("command", [["check"], ["topics", "--print"], ["size", "--updates", "10"]], ids=" ".join)
def test_a_missing_extra_is_a_one_line_error(command: list[str]) -> None:
    done = run_alone("sys.modules['aiokafka'] = None", *command)
    expected = "diem: this needs aiokafka, which is not installed: pip install 'diem-realtime[kafka]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_commands_of_other_packages_are_in_the_help(
    diem: Diem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other-1.dist-info").mkdir()
    (tmp_path / "other-1.dist-info" / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nother = other:register\n")
    (tmp_path / "other.py").write_text("def register(cli):\n    cli.command('other', help='Of a package.')(print)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert diem("--help") == 0
    assert "Other commands:\n  other  Of a package.\n" in capsys.readouterr().out


@pytest.mark.parametrize("names", BY_MODULE.values(), ids=map("+".join, BY_MODULE.values()))
def test_a_command_is_registered_without_the_other_modules(names: tuple[str, ...]) -> None:
    for name in names:
        assert commands(name, "--help") == {*names, "run"}


def test_a_process_is_run_without_the_modules_of_commands() -> None:
    assert commands("run") == {"run"}
