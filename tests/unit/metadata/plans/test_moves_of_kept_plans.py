"""Plans as operators see them, whatever has become of their files."""

import os
from pathlib import Path

import pytest

from diem.kafka.options import KafkaOptions
from diem.kafka.partition_map import MapReader
from diem.process.clock import SystemClock
from metadata.plans import library
from metadata.plans.driver import Driver
from metadata.plans.library import Library
from metadata.plans.moves import Moves
from metadata.plans.plan import Plan

OPTIONS = KafkaOptions("k:9092")


def plan(number: int) -> Plan:
    return Plan(epoch=number, partitions=4, homes={"/a": 1}, created=f"2026-01-02T03:04:{number:02}Z")


def moves(directory: Path) -> Moves:
    return Moves(OPTIONS, Driver(OPTIONS, MapReader(OPTIONS), SystemClock(), 30.0), Library(directory))


def test_a_plan_that_cannot_be_read_any_more_hides_no_other(tmp_path: Path) -> None:
    for number in (1, 2):
        Library(tmp_path).put(plan(number))
    (tmp_path / f"{plan(1).id}.plan").write_bytes(b"")
    assert [status["id"] for status in moves(tmp_path).all()] == [plan(2).id]


def test_a_plan_that_another_instance_forgets_meanwhile_hides_no_other(tmp_path: Path) -> None:
    Library(tmp_path).put(plan(1))
    (tmp_path / "p-gone.plan").symlink_to(tmp_path / "nowhere")
    assert [status["id"] for status in moves(tmp_path).all()] == [plan(1).id]


def test_a_plan_that_is_submitted_after_the_clock_was_set_back_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "KEPT", 2)
    kept = Library(tmp_path)
    for number in (1, 2):
        kept.put(plan(number))
        os.utime(tmp_path / f"{plan(number).id}.plan", (2e9 + number, 2e9 + number))
    kept.put(plan(3))
    assert set(kept.names()) == {plan(3).id, plan(2).id}
