"""What all processes have in common for who runs them: alive and ready mean the same, and files are in one place."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.process.program import program
from diem.process.settings import PROCESSES
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

WITHOUT_KAFKA = ("data", "broadcast", "websocket")
NOT_READY = ("broadcast", "bridge", "websocket", "metadata", "proxy")
"""Processes that need another one, which does not run here."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
written: list[str] | None = None
"""Paths that this process has written, while it is recorded."""


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    if written is None or not arguments or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    if (event == "open" and arguments[2] & WRITES) or event in {"os.mkdir", "os.rename", "os.link", "sqlite3.connect"}:
        written.append(os.fsdecode(arguments[0]))


sys.addaudithook(_record)  # for good: there is no way to remove it


@contextlib.contextmanager
def recorded_writes() -> Iterator[list[str]]:
    """Record paths that are opened to write, but for those of compiled modules."""
    global written  # noqa: PLW0603 - the hook cannot be removed
    found: list[str] = []
    written = found
    try:
        yield found
    finally:
        written = None
        found[:] = [path for path in found if "__pycache__" not in path and path != os.devnull]


@contextlib.asynccontextmanager
async def running(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Run the process in this one, and yield the URL of its health listener."""
    for key in ("internal.key", "write.key"):
        SharedKey.create(directory / key)
    settings, main = program(name)
    module: Any = import_module(main.__module__)
    # This process lives on.
    monkeypatch.setattr(module, "freeze_heap", lambda: None, raising=False)
    monkeypatch.setattr(module, "allow_connections", lambda *_: None, raising=False)
    if name == "data":
        monkeypatch.setattr(module.sys, "setswitchinterval", lambda _seconds: None)
    given: dict[str, Any] = {
        "internal_port": 0,
        "state_dir": directory,
        "health_port": free_port(),
        "drain_seconds": 0.1,
    }
    if "port" in settings.model_fields:
        given["port"] = 0
    if name == "data":
        (directory / "diem.toml").write_text("")
        given["config"] = directory / "diem.toml"
    if name not in WITHOUT_KAFKA:
        given["kafka_bootstrap_servers"] = "127.0.0.1:1"
    life = Lifecycle(0.1)
    work = asyncio.ensure_future(main(settings.model_validate(given), life))
    try:
        yield f"http://127.0.0.1:{given['health_port']}"
    finally:
        life.stop("end of the test")
        await asyncio.wait({work}, timeout=PATIENCE_S)
        if not work.done():
            work.cancel()
            await asyncio.wait({work})


@pytest.mark.parametrize("name", [name for name in PROCESSES if name != "composite"])
async def test_a_process_is_alive_before_it_is_ready_and_writes_to_its_state_directory_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded_writes() as paths:
        await alive_before_ready(name, tmp_path, monkeypatch)
    assert [path for path in paths if not path.removeprefix("file:").startswith(str(tmp_path))] == []
    assert paths, "the keys, which the test makes"


async def alive_before_ready(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(name, tmp_path, monkeypatch) as url, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(httpx.ConnectError):
                    assert (await http.get(f"{url}/livez")).status_code == 200
                    break
                await asyncio.sleep(0.01)
        ready = await http.get(f"{url}/readyz")
        assert ready.status_code == (503 if name in NOT_READY else 200), ready.text
        assert (await http.get(f"{url}/status")).status_code == 404
