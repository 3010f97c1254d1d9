import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from diem.links.listener import Listener
from diem.process import watchdog
from diem.process.listeners import bind
from diem.process.watchdog import ChildLink, HangDetector, heartbeats, lend
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


def test_time_without_a_core_is_not_missed() -> None:
    detector = HangDetector(3)
    detector.check(received=True)
    waited = iter([5.0, 6.0, 7.0, 7.75, 7.75])
    # The first check has nothing to compare with; the fourth missed a quarter.
    assert not any(detector.check(received=False, waited_s=lambda: next(waited)) for _ in range(5))
    assert detector.is_silent
    assert detector.check(received=False, waited_s=lambda: 7.75)
    assert not detector.check(received=False, waited_s=lambda: 7.75)


async def receive(link: socket.socket, count: int) -> list[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        return [await asyncio.get_running_loop().sock_recv(link, 100) for _ in range(count)]


@pytest.mark.usefixtures("frequent")
async def test_supervised_process_sends_heartbeats_to_its_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ChildLink(ours) as link, theirs:
        monkeypatch.setattr("sys.__stdin__", SimpleNamespace(fileno=theirs.fileno))
        assert not link.has_heartbeat()
        monkeypatch.setenv("WATCHDOG_USEC", "12000000")
        with heartbeats(supervised=True):
            await receive(ours, 3)
        link.has_heartbeat()
        await asyncio.sleep(0.05)
        assert not link.has_heartbeat(), "they have ended"
        # A supervisor of an earlier release wants none, and would take them for the end of the process.
        with heartbeats(supervised=True):
            await asyncio.sleep(0.05)
        assert not link.has_heartbeat()
        monkeypatch.setenv("WATCHDOG_USEC", "12000000")
        with heartbeats(supervised=False):
            await asyncio.sleep(0.05)
        assert not link.has_heartbeat()
        monkeypatch.setenv("WATCHDOG_USEC", "12000000")
        with heartbeats(supervised=True):
            assert link.has_heartbeat()
            link.close()
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


@pytest.fixture
def borrowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ChildLink, socket.socket]]:
    """A supervisor's link, and a listening socket that the process at the other end has lent to it."""
    ours, theirs = socket.socketpair()
    with ChildLink(ours) as link, theirs, bind("127.0.0.1", 0) as listener:
        monkeypatch.setattr("sys.__stdin__", SimpleNamespace(fileno=theirs.fileno))
        assert not link.pause_listening(), "it has lent none"
        lend([listener])
        assert link.has_heartbeat()
        yield link, listener


def _listens(listener: socket.socket) -> bool:
    return bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def test_silent_process_listens_again_after_its_next_heartbeat(borrowed: tuple[ChildLink, socket.socket]) -> None:
    link, listener = borrowed
    with socket.create_connection(listener.getsockname()) as waiting:
        assert link.pause_listening()
        assert not link.pause_listening()
        assert not _listens(listener)
        with pytest.raises(ConnectionResetError):
            waiting.recv(1)
        assert link.resume_listening()
        assert not link.resume_listening()
        assert _listens(listener)
        socket.create_connection(listener.getsockname()).close()


def test_sockets_of_a_process_that_stopped_listening_stay_closed(borrowed: tuple[ChildLink, socket.socket]) -> None:
    link, listener = borrowed
    link.pause_listening()
    lend([])
    link.has_heartbeat()
    assert not link.resume_listening()
    assert not _listens(listener)


def test_lent_socket_stops_listening_with_its_process(borrowed: tuple[ChildLink, socket.socket]) -> None:
    _, listener = borrowed
    address = listener.getsockname()
    Listener((listener,), asyncio.Protocol).stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_lent_socket_ends_with_its_process_whatever_other_children_there_are(
    borrowed: tuple[ChildLink, socket.socket],
) -> None:
    link, listener = borrowed
    address = listener.getsockname()
    # uvloop starts children with all that they may inherit.
    other = subprocess.Popen(("sleep", "60"), close_fds=False)
    listener.close()
    link.close()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    finally:
        other.kill()
        other.wait()


def test_process_is_silent_after_a_quarter_of_the_time() -> None:
    detector = HangDetector(12)
    detector.check(received=True)
    silent = []
    for _ in range(4):
        detector.check(received=False)
        silent.append(detector.is_silent)
    assert silent == [False, False, True, True]
    detector.check(received=True)
    assert not detector.is_silent
