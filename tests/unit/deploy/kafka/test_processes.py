"""Why a broker has ended: a full disk is measured, because its log names another cause."""

import subprocess
from pathlib import Path

import pytest

from deploy.kafka import processes
from deploy.kafka.brokers import BrokerPlan
from tests.support.local_cluster import _reason

TRACE = "java.lang.InternalError: a fault occurred\n\tat kafka.Kafka.main(Kafka.scala)\n"


@pytest.fixture
def plan(tmp_path: Path) -> BrokerPlan:
    (tmp_path / "broker.log").write_text(TRACE)
    return BrokerPlan(1, 9092, 9093, tmp_path)


@pytest.fixture
def ended() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(["false"])
    process.wait()
    return process


def test_a_broker_on_a_full_disk_is_reported_with_its_directory(
    plan: BrokerPlan, ended: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "FULL_BYTES", 1 << 62)
    assert _reason(ended, plan).startswith("exit 1: disk full: ")
    assert _reason(ended, plan).endswith(f" KiB are free for {plan.directory}")


def test_with_room_the_last_line_of_the_log_counts(plan: BrokerPlan, ended: "subprocess.Popen[bytes]") -> None:
    assert _reason(ended, plan) == "exit 1: java.lang.InternalError: a fault occurred"


def test_a_directory_that_cannot_be_measured_is_not_called_full(tmp_path: Path) -> None:
    assert processes.full_disk(tmp_path / "missing") == ""
