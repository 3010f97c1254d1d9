"""The whole system as a user starts it: `diem up` in its own process, with a state directory of its own."""

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.support.patience import PATIENCE_S, until

ROOT = Path(__file__).parents[2]


class Running:
    """A running `diem up`. Processes are ended only by the pids that it reports."""

    def __init__(self, state_dir: Path, up: asyncio.subprocess.Process, http: httpx.AsyncClient) -> None:
        self.state_dir = state_dir
        self.up = up
        self.http = http

    @property
    def described(self) -> dict[str, Any]:
        result: dict[str, Any] = orjson.loads((self.state_dir / "processes.json").read_bytes())
        return result

    @property
    def processes(self) -> dict[str, dict[str, Any]]:
        return {process["name"]: process for process in self.described["processes"]}

    @property
    def page(self) -> str:
        return str(self.described["urls"]["page"])

    @property
    def websocket_urls(self) -> list[str]:
        return [str(url) for url in self.described["urls"]["websocket"]]

    def pid(self, name: str) -> int:
        return int(self.processes[name]["pid"])

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to one of the system's processes; returns its pid."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def kill_pid(self, pid: int) -> None:
        """Kill a process of the system that is not in its status, such as a child of a composite."""
        os.kill(pid, signal.SIGKILL)

    def kill_if_running(self, name: str) -> None:
        """Kill a process if it is running."""
        with contextlib.suppress(ProcessLookupError, KeyError, TypeError):
            self.kill(name)

    @contextlib.asynccontextmanager
    async def held_down(self, *names: str) -> AsyncIterator[None]:
        """Keep processes down: kill them whenever they are restarted."""

        async def kill_again() -> None:
            while True:
                for name in names:
                    self.kill_if_running(name)
                await asyncio.sleep(0.1)

        killing = asyncio.create_task(kill_again())
        try:
            yield
        finally:
            killing.cancel()

    @contextlib.contextmanager
    def down(self, *names: str) -> Iterator[None]:
        """Kill processes while `diem up`, which would restart them at once, stands still: none comes back meanwhile."""
        self.up.send_signal(signal.SIGSTOP)
        try:
            for name in names:
                self.kill(name)
            yield
        finally:
            self.up.send_signal(signal.SIGCONT)

    async def answers(self) -> bool:
        """Return whether the Data Service answers requests."""
        try:
            return (await self.http.get(f"{self.page}v1/endpoints")).is_success
        except httpx.HTTPError:
            return False

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Stop a process (SIGSTOP) for a time; one of ours is replaced after 12 s (``HUNG_AFTER_S``)."""
        pid = self.kill(name, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    @property
    def write_key(self) -> str:
        return (self.state_dir / "write.key").read_text().strip()

    async def put(self, datasets: Mapping[str, float], **headers: str) -> httpx.Response:
        """Write one-point datasets in one request."""
        body = {
            "datasets": [
                {
                    "endpoint": endpoint,
                    "unit": "MW",
                    "resolution": "PT1H",
                    "points": [{"time": "2026-01-01T00:00:00Z", "value": value}],
                }
                for endpoint, value in datasets.items()
            ]
        }
        return await self.http.put(
            f"{self.page}v1/data",
            content=orjson.dumps(body),
            headers={
                "Authorization": f"Bearer {self.write_key}",
                "Content-Type": "application/json",
                **headers,
            },
        )

    async def status(self, name: str) -> dict[str, Any]:
        """Return the `/status` of one process."""
        key = (self.state_dir / "internal.key").read_text().strip()
        answer = await self.http.get(
            f"{self.processes[name]['urls']['internal']}/status", headers={"Authorization": f"Bearer {key}"}
        )
        result: dict[str, Any] = answer.json()
        return result


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    mode: str = "single",
    *,
    config: str = "",
    servers: int | None = None,
    options: tuple[str, ...] = (),
    tls: ssl.SSLContext | None = None,
    launcher: Sequence[str] = (),
) -> AsyncIterator[Running]:
    """Start the system with the given ``diem.toml`` (by default without sources) and wait until it is up.

    ``tls`` verifies its certificate, if ``options`` name one. ``launcher`` starts it, if there is one.
    """
    state_dir = directory / "state"
    file = directory / "diem.toml"
    file.write_text(config)
    argv = [
        "up",
        "--mode",
        mode,
        "--state-dir",
        str(state_dir),
        "--config",
        str(file),
        "--quiet",
        "--free-ports",
        *options,
    ]
    if servers is not None:
        argv += ["--servers", str(servers)]
    up = await asyncio.create_subprocess_exec(
        *(*launcher, sys.executable, "-m", "deploy", *argv), cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=None
    )
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=tls or True) as http:
            system = Running(state_dir, up, http)
            await until(lambda: _is_up(system, up))
            yield system
    finally:
        await end(up)


async def end(process: asyncio.subprocess.Process) -> None:
    """Stop a process in order; kill it if it takes too long."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _is_up(system: Running, up: asyncio.subprocess.Process) -> bool:
    if up.returncode is not None:
        raise AssertionError(f"diem up ended with {up.returncode}")
    try:
        return bool(system.described["up"])
    except (OSError, ValueError, KeyError):
        return False


def alive(pid: int) -> bool:
    """Return whether a process runs, and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
