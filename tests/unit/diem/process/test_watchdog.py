import asyncio
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from diem.process import watchdog
from diem.process.watchdog import HangDetector, has_heartbeat, heartbeats
from tests.support.patience import PATIENCE_S


@pytest.fixture
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "HEARTBEAT_S", 0.01)


def test_process_hangs_after_so_many_checks_without_a_heartbeat_and_only_once() -> None:
    detector = HangDetector(3)
    assert not detector.check(received=True)
    assert [detector.check(received=False) for _ in range(6)] == [False, False, True, False, False, False]
    assert not detector.check(received=True)
    assert [detector.check(received=False) for _ in range(3)] == [False, False, True]


def test_late_heartbeat_counts() -> None:
    detector = HangDetector(3)
    assert not any(detector.check(received=number % 3 == 0) for number in range(30))


def test_process_that_has_not_sent_any_does_not_hang() -> None:
    detector = HangDetector(3)
    assert not any(detector.check(received=False) for _ in range(100))
    detector.check(received=True)
    detector.reset()
    assert not any(detector.check(received=False) for _ in range(100)), "its successor has not sent any"


async def receive(link: socket.socket, count: int) -> list[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        return [await asyncio.get_running_loop().sock_recv(link, 100) for _ in range(count)]


@pytest.mark.usefixtures("frequent")
async def test_supervised_process_sends_heartbeats_to_its_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        monkeypatch.setattr("sys.__stdin__", SimpleNamespace(fileno=theirs.fileno))
        assert not has_heartbeat(ours)
        monkeypatch.setenv("WATCHDOG_USEC", "12000000")
        with heartbeats(supervised=True):
            await receive(ours, 3)
        has_heartbeat(ours)
        await asyncio.sleep(0.05)
        assert not has_heartbeat(ours), "they have ended"
        # A supervisor of an earlier release wants none, and would take them for the end of the process.
        with heartbeats(supervised=True):
            await asyncio.sleep(0.05)
        assert not has_heartbeat(ours)
        monkeypatch.setenv("WATCHDOG_USEC", "12000000")
        with heartbeats(supervised=False):
            await asyncio.sleep(0.05)
        assert not has_heartbeat(ours)
        monkeypatch.setenv("WATCHDOG_USEC", "12000000")
        with heartbeats(supervised=True):
            assert has_heartbeat(ours)
            ours.close()
            await asyncio.sleep(0.05)  # to nobody: no error


@pytest.mark.usefixtures("frequent")
@pytest.mark.parametrize("abstract", [False, True])
async def test_systemd_is_notified_and_children_are_not_to_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        # Of an abstract one the kernel chooses the name.
        manager.bind("" if abstract else str(tmp_path / "notify"))
        name = manager.getsockname()
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name[1:].decode()}" if abstract else name)
        monkeypatch.setenv("WATCHDOG_USEC", "15000000")
        monkeypatch.setenv("WATCHDOG_PID", "1")
        with heartbeats(supervised=False):
            assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()
            assert await receive(manager, 4) == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1"]
