"""What ``diem up`` shows of its sources."""

from pathlib import Path
from typing import Any

import pytest

from deploy.system.state_dir import StateDir
from deploy.system.up import HealthProbe, Up
from deploy.terminal import Terminal
from deploy.topology import Mode, Options, Planned, Programs, assign_ports, compose, sizes, slots
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing


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


@pytest.fixture
def up(tmp_path: Path) -> Up:
    options, wanted = Options(Mode.SINGLE, tmp_path), slots(Mode.SINGLE, sizes(Mode.SINGLE))
    ports = assign_ports(wanted, {}, lambda default: default, lambda _port: True)
    return Up(options, compose(options, ports, Programs(("diem",))), StateDir(tmp_path), Terminal(quiet=True))


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
