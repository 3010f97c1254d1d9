"""Which cluster a command is about."""

import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import commands, options
from deploy.cli.options import EXIT_INTERRUPTED, NoCluster, find_cluster, local_brokers
from deploy.system.state_dir import StateDir
from diem.process import lifecycle
from diem.process.settings import BadSettings

PROCESSES: dict[str, Any] = {
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
    cluster = find_cluster(state, {"kafka_topic_prefix": "try."})
    assert cluster.options.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9094"
    assert cluster.options.names.updates == "try.updates"
    assert cluster.options.partitions == 24
    assert cluster.started == {1, 3}
    assert find_cluster(state, {}).options.names.updates == "told.updates"


def test_an_option_and_the_environment_come_before_the_diem_up(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.write_processes(PROCESSES)
    monkeypatch.setenv("DIEM_KAFKA_BOOTSTRAP_SERVERS", "env.example:1")
    assert find_cluster(state, {}).options.bootstrap_servers == "env.example:1"
    cluster = find_cluster(state, {"kafka_bootstrap_servers": "option.example:1"})
    assert cluster.options.bootstrap_servers == "option.example:1"
    assert cluster.started == frozenset()


def test_without_any_cluster_the_fault_says_what_to_do(state: StateDir) -> None:
    with pytest.raises(NoCluster, match="--bootstrap-servers"):
        find_cluster(state, {})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka_security_protocol": "TLS"}, "--security-protocol: "),
        ({"kafka_partitions": "0"}, "--partitions: "),
        ({"kafka_topic_prefix": "a b"}, "--topic-prefix: a prefix has"),
        ({"kafka_security_protocol": "SASL_SSL"}, "SASL needs"),
    ],
)
def test_a_wrong_option_is_named_as_it_was_typed(state: StateDir, given: dict[str, object], said: str) -> None:
    with pytest.raises(BadSettings) as caught:
        find_cluster(state, {"kafka_bootstrap_servers": "a:1", **given})
    (line,) = caught.value.lines
    assert line.startswith(said)


def test_processes_that_are_no_brokers_are_left_out() -> None:
    assert local_brokers({}) == frozenset()
    assert local_brokers({"processes": [{"name": "kafka-x", "process": "kafka"}, {"name": "data"}]}) == frozenset()


@pytest.mark.parametrize(
    "command", ["keys create a --plan b", "keys revoke abcd1234", "backup f", "restore f", "put /a f"]
)
def test_who_was_interrupted_is_not_to_believe_that_it_was_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(options, "run_interactive", lambda _work: lifecycle.EXIT_OK)
    monkeypatch.setattr(sys, "argv", ["diem", *command.split(), "--state-dir", str(tmp_path)])
    assert commands.main() == EXIT_INTERRUPTED
    assert capsys.readouterr().out == ""
