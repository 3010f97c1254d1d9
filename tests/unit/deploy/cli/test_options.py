"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from deploy.cli import commands, options
from deploy.cli.options import (
    EXIT_INTERRUPTED,
    NoCluster,
    find_cluster,
    local_brokers,
    parse_counts,
    parse_share,
)
from deploy.system.state_dir import StateDir
from deploy.topology.kafka_users import KafkaUser, directory_of
from diem.process import lifecycle
from diem.process.settings import BadSettings

PROCESSES: dict[str, Any] = {
    "mode": "z-client",
    "servers": 5,
    "clones": 2,
    "kafka": {"bootstrap_servers": "127.0.0.1:9092,127.0.0.1:9094", "topic_prefix": "told.", "partitions": "24"},
    "processes": [
        {"name": "data", "process": "data", "ports": {"public": 8080, "internal": 9080}},
        {"name": "kafka-1", "process": "kafka", "ports": {"public": 9092, "internal": None}},
        {"name": "kafka-3", "process": "kafka", "ports": {"public": 9094, "internal": None}},
    ],
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    monkeypatch.delenv("DIEM_KAFKA_BOOTSTRAP_SERVERS", raising=False)
    return StateDir(tmp_path)


def test_the_brokers_of_the_diem_up_are_the_default(state: StateDir) -> None:
    state.write_processes(PROCESSES)
    create_passwords(state)
    cluster = find_cluster(state, {"kafka_topic_prefix": "try."}, KafkaUser.CHECK)
    assert cluster.options.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9094"
    assert cluster.options.names.updates == "try.updates"
    assert cluster.options.partitions == 24
    assert cluster.started == {1, 3}
    assert find_cluster(state, {}, KafkaUser.CHECK).options.names.updates == "told.updates"


def create_passwords(state: StateDir) -> None:
    for user in (KafkaUser.CHECK, KafkaUser.PIPELINE):
        file = user.password_file(directory_of(state.path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o600)
        file.write_text(f"the password of {user}\n")


@pytest.mark.parametrize(
    ("mode", "clones", "restart", "servers"),
    [
        ("x", 1, "--mode x --servers 5", None),
        ("z-client", 2, "--mode z-client --servers 5 --clones 2", 5),
        ("xz", 2, "--mode xz --clones 5", None),
    ],
)
def test_commands_know_how_the_diem_up_was_started(
    state: StateDir, mode: str, clones: int, restart: str, servers: int | None
) -> None:
    state.write_processes({**PROCESSES, "mode": mode, "clones": clones})
    create_passwords(state)
    cluster = find_cluster(state, {}, KafkaUser.CHECK)
    assert (" ".join(cluster.restart), cluster.servers) == (restart, servers)


def test_brokers_of_the_diem_up_are_used_as_the_user_of_the_command(state: StateDir) -> None:
    state.write_processes(PROCESSES)
    create_passwords(state)
    for user in (KafkaUser.CHECK, KafkaUser.PIPELINE):
        options = find_cluster(state, {}, user).options
        assert (options.security_protocol, options.sasl_mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-256")
        assert (options.sasl_username, options.sasl_password) == (f"diem-{user}", f"the password of {user}")
        assert "the password" not in repr(options)


def test_options_and_environment_override_the_running_diem_up(state: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    state.write_processes(PROCESSES)
    monkeypatch.setenv("DIEM_KAFKA_BOOTSTRAP_SERVERS", "env.example:1")
    assert find_cluster(state, {}, KafkaUser.CHECK).options.bootstrap_servers == "env.example:1"
    cluster = find_cluster(state, {"kafka_bootstrap_servers": "option.example:1"}, KafkaUser.CHECK)
    assert cluster.options.bootstrap_servers == "option.example:1"
    assert cluster.started == frozenset()


def test_without_a_cluster_the_error_names_the_remedy(state: StateDir) -> None:
    with pytest.raises(NoCluster, match="--bootstrap-servers"):
        find_cluster(state, {}, KafkaUser.CHECK)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kafka_security_protocol": "TLS"}, "--security-protocol: "),
        ({"kafka_partitions": "0"}, "--partitions: "),
        ({"kafka_topic_prefix": "a b"}, "--topic-prefix: a prefix has"),
        ({"kafka_security_protocol": "SASL_SSL"}, "SASL needs"),
    ],
)
def test_an_invalid_option_is_named_as_typed(state: StateDir, given: dict[str, object], expected: str) -> None:
    with pytest.raises(BadSettings) as caught:
        find_cluster(state, {"kafka_bootstrap_servers": "a:1", **given}, KafkaUser.CHECK)
    (line,) = caught.value.lines
    assert line.startswith(expected)


def test_only_brokers_are_listed() -> None:
    assert local_brokers({}) == frozenset()
    assert local_brokers({"processes": [{"name": "kafka-x", "process": "kafka"}, {"name": "data"}]}) == frozenset()


@pytest.mark.parametrize(
    "command",
    ["keys create a --plan b", "keys revoke abcd1234", "backup f", "restore f", "put /a data.csv --url http://h:1"],
)
def test_interrupted_change_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    commands.command_line()  # a module that is first imported below would keep the replacement
    monkeypatch.setattr(options, "run_interactive", lambda _work: lifecycle.EXIT_OK)
    monkeypatch.chdir(tmp_path)
    for file in ("data.csv", "f"):
        (tmp_path / file).touch()
    monkeypatch.setattr(sys, "argv", ["diem", *command.split(), "--state-dir", str(tmp_path)])
    assert commands.main() == EXIT_INTERRUPTED
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("text", "found"), [("0.5%", 0.005), (" 5 %", 0.05), ("100%", 1.0), ("0%", 0.0)])
def test_share_is_a_percentage(text: str, found: float) -> None:
    assert parse_share(text, "--movement") == pytest.approx(found)


@pytest.mark.parametrize("text", ["5", "0.05", "101%", "-1%", "%", "many"])
def test_share_without_a_percent_sign_is_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--movement is a percentage"):
        parse_share(text, "--movement")


def test_counts_are_sorted_and_distinct() -> None:
    assert parse_counts("8, 2,8,4", "--servers") == (2, 4, 8)


@pytest.mark.parametrize("text", ["", "0", "2,", "1001", "a"])
def test_malformed_counts_are_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--servers takes numbers"):
        parse_counts(text, "--servers")
