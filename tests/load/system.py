"""The system under test: ``diem up`` as a subprocess, found again through its state directory."""

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Self

import httpx
import orjson

from diem.process.auth import SharedKey
from tests.oracle.history import Snapshot

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
_SAMPLE = re.compile(r"^diem_updates_(\w+?)_total (\S+)$", re.MULTILINE)


class NotUp(Exception):
    """The system did not start, or a process did not come back."""


@dataclass(frozen=True)
class Process:
    """One process of the system, as ``processes.json`` describes it."""

    name: str
    pid: int | None
    internal_url: str
    public_port: int | None


class System:
    """A running ``diem up`` without sources of its own. Use it as an asynchronous context."""

    def __init__(self, mode: str, folder: Path) -> None:
        self.mode = mode
        self.state = folder / "state"
        self._log = folder / "up.log"
        self._config = folder / "diem.toml"
        self._up: asyncio.subprocess.Process | None = None
        self._http = httpx.AsyncClient(timeout=5, trust_env=False)
        self._used: dict[tuple[str, int], float] = {}

    async def __aenter__(self) -> Self:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        self._config.write_text("source = []\n", encoding="utf-8")
        options = ["--mode", self.mode, "--state-dir", str(self.state), "--config", str(self._config)]
        with self._log.open("wb") as log:
            self._up = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "deploy", "up", "--quiet", "--free-ports", *options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            await self._until_up()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    # What it is made of

    def described(self) -> dict[str, Any]:
        """The content of ``processes.json``; empty before there is one."""
        with suppress(FileNotFoundError):
            described: dict[str, Any] = orjson.loads((self.state / "processes.json").read_bytes())
            return described
        return {}

    def processes(self) -> list[Process]:
        """Its processes now."""
        return [
            Process(entry["name"], entry["pid"], entry["urls"]["internal"], entry["ports"]["public"])
            for entry in self.described().get("processes", [])
        ]

    def process(self, name: str) -> Process:
        """The process of that name. Raises ``NotUp`` when there is none."""
        for process in self.processes():
            if process.name == name:
                return process
        raise NotUp(f"there is no process {name} in mode {self.mode}")

    @property
    def rest(self) -> str:
        """Base URL of the Data Service."""
        return f"http://127.0.0.1:{self.process('data').public_port}"

    @property
    def servers(self) -> list[tuple[str, int, str]]:
        """Host, port and path of every WebSocket server."""
        ports = [process.public_port for process in self.processes() if process.name.startswith("websocket")]
        return [("127.0.0.1", port, "/ws") for port in ports if port]

    @property
    def write_key(self) -> str:
        """The key that writes need."""
        return (self.state / "write.key").read_text(encoding="utf-8").strip()

    # How it is

    async def is_ready(self, process: Process) -> bool:
        """Whether /readyz says so."""
        try:
            return (await self._http.get(f"{process.internal_url}/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    async def kill(self, name: str) -> int:
        """End a process without warning; returns its process id."""
        pid = self.process(name).pid
        if pid is None:
            raise NotUp(f"{name} does not run")
        self.measure()
        os.kill(pid, signal.SIGKILL)
        return pid

    async def back(self, name: str, killed: int, within: float = START_SECONDS) -> float:
        """Wait until a killed process runs and is ready again; returns when. Raises ``NotUp`` when it does not."""
        limit = monotonic() + within
        while monotonic() < limit:
            process = self.process(name)
            if process.pid not in (None, killed) and await self.is_ready(process):
                return monotonic()
            await asyncio.sleep(POLL_SECONDS)
        raise NotUp(f"{name} was not ready again within {within:.0f} s")

    async def snapshots(self) -> list[Snapshot]:
        """The accounts of every process that fans out (invariant I14)."""
        headers = {"Authorization": SharedKey.load(self.state / "internal.key").header}
        found = []
        for process in self.processes():
            answer = await self._http.get(f"{process.internal_url}/metrics", headers=headers)
            counted = {name: int(float(value)) for name, value in _SAMPLE.findall(answer.text)}
            # A node that only hands on says what it received, not what became of it.
            if "fanned_out" in counted:
                outcomes = ("received", "fanned_out", "not_subscribed", "stale", "bad")
                found.append(Snapshot(process.name, *(counted.get(outcome, 0) for outcome in outcomes)))
        return found

    def measure(self) -> dict[str, float]:
        """CPU seconds by process name, user and system, over restarts: of a killed process until the last call."""
        ticks = os.sysconf("SC_CLK_TCK")
        for process in self.processes():
            with suppress(OSError):
                fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                self._used[process.name, process.pid or 0] = (int(fields[11]) + int(fields[12])) / ticks
        total: dict[str, float] = {}
        for (name, _), seconds in self._used.items():
            total[name] = round(total.get(name, 0.0) + seconds, 2)
        return total

    # How it begins and ends

    async def _until_up(self) -> None:
        assert self._up is not None
        limit = monotonic() + START_SECONDS
        while monotonic() < limit and self._up.returncode is None:
            if self.described().get("up"):
                return
            await asyncio.sleep(POLL_SECONDS)
        raise NotUp(f"diem up did not become ready: {self._log.read_text(encoding='utf-8', errors='replace')[-2000:]}")

    async def _stop(self) -> None:
        await self._http.aclose()
        if self._up is None or self._up.returncode is not None:
            return
        self._up.terminate()
        try:
            await asyncio.wait_for(self._up.wait(), STOP_SECONDS)
        except TimeoutError:
            # Its children notice its end by their standard input.
            self._up.kill()
            await self._up.wait()
