import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.terminal import Terminal
from deploy.topology import KafkaTopology, Mode, Ports, Programs, PublicAddress, Topology, compose, sizes_of, slots
from tests.support.patience import PATIENCE_S
from tests.unit.deploy.topology.topologies import CLUSTER, SERVED, options_of


def single() -> Topology:
    return topology(Mode.SINGLE)


def topology(mode: Mode, *origins: str, kafka: KafkaTopology = CLUSTER) -> Topology:
    options = options_of(mode, Path("/state"), public=PublicAddress(origins=origins), kafka=kafka)
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(mode, sizes_of(options))}
    return compose(options, ports, Programs(("diem",)))


def test_announcement_has_addresses_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(single(), Path("/a state"), 1.26)
    out = capsys.readouterr().out
    assert "DIEM is up (single) after 1.3 s" in out
    assert "http://localhost:8080/?view=data\n" in out
    for part in ("http://localhost:8080/", "http://127.0.0.1:8080/v1", "ws://127.0.0.1:8101/ws", "Ctrl-C"):
        assert part in out
    assert "diem status --state-dir '/a state'" in out


def test_commands_of_the_announcement_can_be_pasted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / ".venv" / "bin" / "diem"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    Terminal().announce(single(), tmp_path / ".diem", 1.0)
    Terminal().warn("not ready: see `diem status`")
    captured = capsys.readouterr()
    for part in (
        "Write      .venv/bin/diem put /my/",
        "Watch      .venv/bin/diem watch ",
        "Status     .venv/bin/diem status\n",
    ):
        assert part in captured.out
    assert captured.err == "not ready: see `.venv/bin/diem status`\n"


def test_announcement_has_the_operator_page_with_its_key_if_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(single(), Path("/s"), 1.0, ("http://localhost:8090/admin", Path("/s/operator.key")))
    assert "http://localhost:8090/admin (sign in with /s/operator.key)" in capsys.readouterr().out
    Terminal().announce(single(), Path("/s"), 1.0)
    assert "Operator" not in capsys.readouterr().out


def test_announcement_has_the_address_and_the_login_of_local_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(topology(Mode.X, kafka=KafkaTopology(brokers=1)), Path("/state"), 1.0)
    login = "SASL_PLAINTEXT, SCRAM-SHA-256; login in /state/kafka/operator.properties"
    assert f"Kafka      127.0.0.1:9092 ({login})\n" in capsys.readouterr().out
    Terminal().announce(topology(Mode.X), Path("/state"), 1.0)
    assert "Kafka" not in capsys.readouterr().out


def test_announcement_names_the_topic_where_nothing_can_be_put(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(topology(Mode.X, kafka=SERVED), Path("/state"), 1.0)
    out = capsys.readouterr().out
    assert "Write      to topic orders\n" in out
    assert "diem put" not in out


def test_announcement_has_nginx_instead_of_the_servers_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(topology(Mode.X_BROADCAST), Path("/state"), 1.0)
    out = capsys.readouterr().out
    for part in ("http://localhost:8000/", "http://127.0.0.1:8000/v1", "ws://127.0.0.1:8000/ws"):
        assert part in out
    assert "81" not in out


def test_announcement_tells_the_page_from_other_pages_that_are_admitted(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(topology(Mode.SINGLE, "https://app.example", "http://localhost:5173"), Path("/state"), 1.0)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert ["Page", "https://app.example/"] in rows
    assert ["Admitted", "pages", "of", "http://localhost:5173"] in rows
    assert ["Page", "http://localhost:5173/"] not in rows


def test_download_is_announced_once_if_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal().downloads():
        pass
    assert capsys.readouterr().out == ""
    with Terminal().downloads() as progress:
        progress(0, 44)
        progress(1, 44)
    assert capsys.readouterr().out == "downloading the local Kafka, once: 44 of 44 files\n"


def test_default_state_directory_needs_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(single(), Path(".diem").absolute(), 1.0)
    assert "--state-dir" not in capsys.readouterr().out


def test_progress_without_a_terminal_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal().progress(1) as ready:
        ready("data")
    assert capsys.readouterr().out == "data is ready\n"


def test_quiet_leaves_only_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(quiet=True)
    terminal.info("fine")
    terminal.announce(single(), Path("/state"), 1.0)
    with terminal.progress(1) as ready:
        ready("data")
    terminal.warn("websocket-1 died")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "websocket-1 died\n")


def test_texts_are_printed_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().warn("[red]x[/] :smile: " + "y" * 300)
    assert capsys.readouterr().err == "[red]x[/] :smile: " + "y" * 300 + "\n"


def test_closed_output_does_not_end_the_command() -> None:
    script = (
        "import sys; from deploy.terminal import plain_console\n"
        "console = plain_console()\n"
        "for _ in range(2000): console.print('x' * 200)\n"
        "sys.exit(7)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr is not None
    output = child.stderr.read()
    child.stderr.close()
    assert (child.wait(PATIENCE_S), output) == (7, b"")


def test_announcement_has_running_servers_and_the_metadata_service(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Terminal().announce(topology(Mode.Z_CLIENT), Path("/state"), 1.0)
    out = capsys.readouterr().out
    assert "Metadata   http://127.0.0.1:8400/v1" in out
    assert ("8101/ws" in out, "8102/ws" in out) == (True, False)
