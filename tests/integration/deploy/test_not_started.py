from pathlib import Path

import pytest

from deploy.system import up as module
from deploy.system.launch import Misconfigured, ProcessNotStarted
from deploy.system.state_dir import StateDir
from deploy.system.up import Up
from deploy.terminal import Terminal
from deploy.topology import Mode, Programs, assign_ports, compose, sizes, slots
from deploy.topology.ports import OWN_RANGE
from diem.process.lifecycle import Lifecycle
from diem.process.ports import PortReservations
from tests.unit.deploy.topology.topologies import options_of


async def failure(tmp_path: Path, script: str) -> ProcessNotStarted:
    """Run `diem up` with a shell script as its children, until it gives up."""
    options = options_of(Mode.SINGLE, tmp_path, drain_seconds=0.0)
    wanted = slots(Mode.SINGLE, sizes(Mode.SINGLE))
    state = StateDir(tmp_path)
    with state.lock(), PortReservations() as reservations, pytest.raises(ProcessNotStarted) as caught:
        ports = assign_ports(wanted, {}, lambda _default: OWN_RANGE.start, reservations.reserve)
        topology = compose(options, ports, Programs(("/bin/sh", "-c", script)))
        await Up(options.durations, topology, state, Terminal(quiet=True)).run(Lifecycle(10))
    assert state.read_processes() == {}
    return caught.value


async def test_start_fails_with_the_last_line_of_a_process_that_keeps_dying(tmp_path: Path) -> None:
    error = await failure(tmp_path, "echo 'diem: the port is taken' >&2; exit 1")
    assert "does not start: exit 1: the port is taken" in str(error)
    assert not isinstance(error, Misconfigured)


async def test_start_fails_at_once_on_an_invalid_configuration(tmp_path: Path) -> None:
    error = await failure(tmp_path, "echo 'diem: DIEM_X: no such setting' >&2; exit 2")
    assert isinstance(error, Misconfigured)
    assert "does not start: DIEM_X: no such setting (see " in str(error)


async def test_start_fails_when_a_process_never_becomes_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_WITHIN_S", 0.2)
    error = await failure(tmp_path, "exec cat")
    assert "data does not start: it does not become ready" in str(error)
    assert not list(tmp_path.glob("control*"))
