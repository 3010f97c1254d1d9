import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe

import psutil
import pytest

from diem.process.fork_server import EXIT_UNKNOWN, ForkServer
from diem.process.lifecycle import EXIT_CONFIGURATION
from diem.process.supervisor import ChildEvent, Spec, Supervisor
from tests.support.patience import until

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open(2), of Linux")

PROGRAM = ("/bin/sh", "-c", "exec cat")
"""In place of the Data Service where it is not forked."""


@pytest.fixture
def server() -> Iterator[ForkServer]:
    found = ForkServer.start(["data"])
    assert found is not None
    yield found
    found.close()


def data(directory: Path) -> Spec:
    env = {"PATH": os.environ["PATH"], "DIEM_STATE_DIR": str(directory), "DIEM_SUPERVISED": "true"}
    ports = {"DIEM_DATA_PORT": "0", "DIEM_DATA_INTERNAL_PORT": "0"}
    return Spec("data", PROGRAM, env | ports, directory / "data.log", process="data")


def make_keys(directory: Path) -> None:
    for name in ("write.key", "internal.key"):
        (directory / name).touch(0o600)
        (directory / name).write_text(token_urlsafe(32))


@asynccontextmanager
async def supervised(spec: Spec, server: ForkServer) -> AsyncIterator[list[ChildEvent]]:
    events: list[ChildEvent] = []
    supervisor = Supervisor([spec], on_event=events.append, fork_server=server)
    supervisor.start()
    try:
        yield events
    finally:
        await supervisor.stop(5)


async def started(events: list[ChildEvent], number: int) -> psutil.Process:
    found = await until(lambda: [event.pid for event in events if event.kind == "started"][number - 1 : number])
    return psutil.Process(found[0])


def codes(events: list[ChildEvent], kind: str) -> list[int | None]:
    return [event.code for event in events if event.kind == kind]


async def test_processes_are_forked_restarted_and_stopped(tmp_path: Path, server: ForkServer) -> None:
    make_keys(tmp_path)
    async with supervised(data(tmp_path), server) as events:
        first = await started(events, 1)
        await until(lambda: first.cmdline()[0].startswith("diem data"))
        assert (first.ppid(), os.getsid(first.pid)) == (server.pid, first.pid)
        os.kill(first.pid, signal.SIGKILL)
        second = await started(events, 2)
        assert second.ppid() == server.pid
        assert codes(events, "died") == [-signal.SIGKILL]
        await until(lambda: "serving" in (tmp_path / "data.log").read_text())
    assert codes(events, "stopped") == [0]


async def test_exit_code_and_reason_of_a_forked_process_are_its_own(tmp_path: Path, server: ForkServer) -> None:
    async with supervised(data(tmp_path), server) as events:
        await until(lambda: codes(events, "failed"))
    assert codes(events, "failed") == [EXIT_CONFIGURATION]
    assert "write.key" in (tmp_path / "data.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_children_outlive_a_lost_fork_server_and_are_then_programs(
    tmp_path: Path, server: ForkServer, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(tmp_path)
    async with supervised(data(tmp_path), server) as events:
        first = await started(events, 1)
        os.kill(server.pid, number)
        monkeypatch.setattr("diem.process.fork_server.ANSWER_WITHIN_S", 0.1)
        assert first.is_running()
        first.kill()
        second = await started(events, 2)
        assert codes(events, "died") == [EXIT_UNKNOWN]
        # While a process executes its program, its command line is empty.
        await until(lambda: second.cmdline() == ["cat"])
