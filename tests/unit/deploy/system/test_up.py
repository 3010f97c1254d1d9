"""What ``diem up`` shows of its sources, and how it keeps the targets of Prometheus."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from deploy.admin.collector import Collector, PlanReader
from deploy.kafka import processes
from deploy.system.state_dir import StateDir
from deploy.system.up import PROBE_TIMEOUT_S, HealthProbe, Up
from deploy.terminal import Terminal
from deploy.topology import KafkaTopology, Mode, Planned, Programs, assign_ports, compose, sizes_of, slots
from diem.process.auth import SharedKey
from diem.process.clock import ManualClock
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from diem.process.supervisor import ChildEvent
from tests.unit.deploy.topology.topologies import options_of


class Probe(HealthProbe):
    """Reports of the Data Service, one after the other; then none is expected."""

    def __init__(self, *reports: dict[str, Any] | None) -> None:
        super().__init__(KeyRing.of(SharedKey("k" * 32)))
        self.reports_left = list(reports)

    async def report(self, process: Planned) -> dict[str, Any] | None:
        assert process.process == "data"
        return self.reports_left.pop(0)


def sources(*errors: str | None, known: bool = True) -> dict[str, Any]:
    entries = [{"name": f"s{n}", "ok": known and error is None, "error": error} for n, error in enumerate(errors)]
    return {"ready": True, "sources": entries}


def of_mode(mode: Mode, directory: Path) -> Up:
    kafka = KafkaTopology(brokers=1) if mode.uses_kafka else KafkaTopology()
    options = options_of(mode, directory, kafka=kafka)
    ports = assign_ports(slots(mode, sizes_of(options)), {}, lambda default: default, lambda _port: True)
    topology = compose(options, ports, Programs(("diem",)))
    return Up(options.durations, topology, StateDir(directory), Terminal(quiet=True))


@pytest.fixture
def up(tmp_path: Path) -> Up:
    return of_mode(Mode.SINGLE, tmp_path)


async def test_failing_sources_are_shown_once_when_all_were_tried(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    up._sources_until_s = up._clock.monotonic() + 1000
    async with Probe(None, sources(None, "x", known=False), sources(None, "no such directory: /l")) as probe:
        for _ in range(5):
            await up._show_failing_sources(probe)
        assert probe.reports_left == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("1 of 2 sources fails: s1: no such directory: /l (`")


async def test_sources_that_were_not_tried_in_time_are_not_waited_for(
    up: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    up._sources_until_s = up._clock.monotonic() - 1
    async with Probe(sources(None, "x", known=False)) as probe:
        await up._show_failing_sources(probe)
    assert capsys.readouterr().err.startswith("1 of 2 sources fails: s1: x ")


async def test_nothing_is_shown_where_all_work(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    up._sources_until_s = up._clock.monotonic() + 1000
    async with Probe(sources(None)) as probe:
        await up._show_failing_sources(probe)
        await up._show_failing_sources(probe)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("factor", [1.0, 4.0])
async def test_time_of_a_probe_follows_the_time_factor(factor: float) -> None:
    async with HealthProbe(KeyRing.of(SharedKey("k" * 32)), factor) as probe:
        for client in (probe._client, probe._internal):
            assert client.timeout.read == client.timeout.connect == PROBE_TIMEOUT_S * factor


class HangingComposites(HealthProbe):
    """Composites never answer; nothing else is probed."""

    def __init__(self) -> None:
        super().__init__(KeyRing.of(SharedKey("k" * 32)))
        self.probed: list[str] = []

    async def report(self, process: Planned) -> dict[str, Any] | None:
        self.probed.append(process.process)
        await asyncio.Event().wait()
        return None


class Passes:
    """A life of some passes of supervision."""

    def __init__(self, number: int) -> None:
        self.stopping = asyncio.Event()
        self.left = number

    async def pause(self, _seconds: float) -> None:
        self.left -= 1
        if not self.left:
            self.stopping.set()
        await asyncio.sleep(0)


async def test_process_that_hangs_does_not_delay_supervision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up = of_mode(Mode.XZ, tmp_path)
    monkeypatch.setattr(up, "_scale_continuously", asyncio.Event().wait)

    async def hanging() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    collector = Collector(hanging, PlanReader(lambda _urls: pytest.fail("no plans are read")), tmp_path, ManualClock())
    async with HangingComposites() as probe, asyncio.timeout(30):
        await up._supervise(cast("Lifecycle", Passes(5)), probe, collector)
        await collector.close()
    assert probe.probed
    assert {*probe.probed} == {"composite"}


async def test_targets_without_composites_need_no_probes(up: Up) -> None:
    async with HangingComposites() as probe, asyncio.timeout(30):
        await up._write_targets(probe)
    assert probe.probed == []
    assert b"127.0.0.1" in up._state.targets_file.read_bytes()


def test_a_slow_start_is_one_line_every_15_s_with_what_is_waited_for_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    up = of_mode(Mode.X, tmp_path)
    clock = ManualClock()
    monkeypatch.setattr(up, "_clock", clock)
    up._started, up._lateness_due_s = clock.monotonic(), clock.monotonic() + 10
    waiting = list(up._topology.processes)
    named = waiting[2].name
    up._state.log_of(named).write_text('{"event": "no broker is known", "level": "warning"}\n')
    lines: list[str] = []
    for second in range(46):
        up._poll_logs()
        up._show_missing(waiting[second // 40 * (len(waiting) - 1) :])
        if shown := capsys.readouterr().err:
            lines.append(shown)
        clock.advance(1)
    first, *others = (process.name for process in waiting)
    names = f"{first}, {others[0]}, {others[1]} and {len(waiting) - 3} more"
    assert lines == [
        *(f"not ready after {second} s: {names}; {named}: no broker is known\n" for second in (10, 25)),
        f"not ready after 40 s: {others[-1]}\n",
    ]


def test_a_broker_that_dies_of_a_full_disk_is_reported_with_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("logs", "kafka"):
        (tmp_path / each).mkdir()
    monkeypatch.setattr(processes, "FULL_BYTES", 1 << 62)
    up = of_mode(Mode.X, tmp_path)
    up._up = True
    for name in ("kafka-1", "data"):
        up._logs.reset(name)
        up._state.log_of(name).write_text("\tat kafka.Kafka.main(Kafka.scala)\n")
        up._on_event(ChildEvent(name, "died", code=1))
    broker, data = capsys.readouterr().err.splitlines()
    assert broker.startswith("kafka-1 died (exit 1: disk full: ")
    assert str(tmp_path / "kafka") in broker
    assert "disk full" not in data


def test_a_start_whose_processes_are_ready_says_nothing(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    up._lateness_due_s = 0
    up._show_missing([])
    assert capsys.readouterr().err == ""
