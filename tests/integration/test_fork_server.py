"""The fork server starts what the interpreter would."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from diem.process.auth import SharedKey
from tests.support import fork_server
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_ports


async def output(*arguments: str, cwd: Path, **settings: str) -> tuple[int | None, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy", *arguments),
        cwd=cwd,
        env=os.environ | settings,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate(b"{")
    return process.returncode, out, err


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--state-dir", "nowhere"),
        ("put", "/a", "-", "--url", "http://127.0.0.1:1"),
        ("run", "data"),
    ],
    ids=" ".join,
)
async def test_a_forked_process_ends_and_prints_as_an_executed_one(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = await output(*arguments, cwd=tmp_path, DIEM_DATA_PORT="none")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", fork_server._execute)
    assert forked == await output(*arguments, cwd=tmp_path, DIEM_DATA_PORT="none")


async def test_a_command_that_is_to_end_with_its_parent_is_forked_as_well(tmp_path: Path) -> None:
    guarded = (sys.executable, "-m", "deploy.system.pdeathsig")
    process = await asyncio.create_subprocess_exec(
        *(*guarded, sys.executable, "-m", "deploy", "--version"), cwd=tmp_path, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert (process.returncode, out, err) == await output("--version", cwd=tmp_path)
    assert not fork_server._is_forked((*guarded, "nginx", "-c", "nginx.conf"))


async def test_a_forked_process_ends_by_signals_and_alone(tmp_path: Path) -> None:
    ports = map(str, free_ports(4))
    settings = {"DIEM_STATE_DIR": str(tmp_path)}
    # Without it they would end, and on a slow machine before they are killed.
    SharedKey.create(tmp_path / "internal.key")
    first, second = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deploy", "run", "websocket"),
            env=os.environ
            | settings
            | {"DIEM_WEBSOCKET_PORT": next(ports), "DIEM_WEBSOCKET_INTERNAL_PORT": next(ports)},
            stdin=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    try:
        assert os.getpgid(first.pid) == first.pid
        os.killpg(first.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            assert await first.wait() == -signal.SIGKILL
        assert second.returncode is None
        second.terminate()
        async with asyncio.timeout(PATIENCE_S):
            assert await second.wait() in {0, -signal.SIGTERM}
    finally:
        for process in (first, second):
            if process.returncode is None:
                process.kill()
                await process.wait()


def test_a_process_that_has_ended_can_be_killed_before_its_exit_code_is_read() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(PATIENCE_S)
    with socket.socket() as unread:
        fork_server._Forked(unread, ended.pid, {}).kill()


async def test_a_request_that_is_cut_short_affects_no_other(tmp_path: Path) -> None:
    assert (await output("--version", cwd=tmp_path))[0] == 0
    assert fork_server._address is not None
    for sent in (b"", b"\x05\x00\x00\x00{"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(fork_server._address)
            connection.sendall(sent)
    assert (await output("--version", cwd=tmp_path))[0] == 0
