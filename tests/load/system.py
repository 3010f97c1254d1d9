"""The system under test: ``diem up`` as a subprocess, found again through its state directory."""

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import orjson

from deploy.system.scaling import scale
from deploy.system.state_dir import StateDir
from diem.links.internal_client import internal_client
from diem.process.auth import SharedKey
from diem.process.http_transport import HttpTransport
from tests.load.processes import Cpu, Process
from tests.load.trees import Trees
from tests.oracle.history import Snapshot
from tests.support.patience import PATIENCE_S

START_SECONDS = PATIENCE_S
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
PLAN = "load"
"""A plan without limits."""
ANSWER_SECONDS = 5.0
"""Longest wait for a process that may hang."""
_EVICTED = re.compile(r"^diem_retained_data_evicted_total (\S+)$", re.MULTILINE)
_SAMPLE = re.compile(r"^diem_updates_(\w+?)_total (\S+)$", re.MULTILINE)


class NotUp(Exception):
    """The system did not start, or a process did not restart."""


class System:
    """A running ``diem up`` without sources, as an asynchronous context manager.

    ``options`` are those of ``diem up``, besides the mode and where it keeps its state; ``settings`` are variables of
    all processes, ``tables`` further tables of ``diem.toml``. ``program`` is the module that is run as ``diem``, from
    what is installed in ``trees``, if given.
    """

    def __init__(
        self,
        mode: str,
        folder: Path,
        options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        tables: str = "",
        *,
        program: str = "deploy",
        trees: Trees | None = None,
    ) -> None:
        self.mode = mode
        self._program = program
        self.trees = trees
        self._options = tuple(options)
        self._settings = dict(settings or {})
        self._tables = tables
        self.state = folder / "state"
        self._log = folder / "up.log"
        self._config = folder / "diem.toml"
        self._up: asyncio.subprocess.Process | None = None
        self._http = httpx.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False, transport=HttpTransport())
        self._cpu = Cpu()
        self.kills: Counter[str] = Counter()
        """Number of kills by full name of the process."""

    async def __aenter__(self) -> Self:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        # Without a table, the Data Service has sources of its own.
        sources = "" if "[[source]]" in self._tables else "source = []\n"
        self._config.write_text(f'{sources}[[plan]]\nname = "{PLAN}"\n{self._tables}', encoding="utf-8")
        options = ["--mode", self.mode, "--state-dir", str(self.state), "--config", str(self._config), *self._options]
        with self._log.open("wb") as log:
            self._up = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._program, "up", "--quiet", "--free-ports", *options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Elsewhere than in this checkout, whose packages would come first.
                cwd=None if self.trees is None else self.state.parent,
                env={**os.environ, **self._settings, **({} if self.trees is None else self.trees.variables)},
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

    @property
    def supervisor_pid(self) -> int:
        """Process id of ``diem up`` itself."""
        assert self._up is not None
        return self._up.pid

    def described(self) -> dict[str, Any]:
        """Return the content of ``processes.json``; empty if there is none."""
        with suppress(FileNotFoundError):
            described: dict[str, Any] = orjson.loads((self.state / "processes.json").read_bytes())
            return described
        return {}

    def processes(self) -> list[Process]:
        """Return the running processes."""
        return [Process.described(entry) for entry in self.described().get("processes", [])]

    def process(self, name: str) -> Process:
        """Return the process of that name. Raises ``NotUp`` if there is none."""
        for process in self.processes():
            if process.name == name:
                return process
        raise NotUp(f"there is no process {name} in mode {self.mode}")

    async def find(self, name: str) -> Process:
        """Return the process of that name, with composites also a child of the first one: ``proxy`` means ``proxy-1``.

        A child of another composite is named ``composite-2/websocket-1``. Raises ``NotUp``.
        """
        for process in self.processes():
            if name in (process.name, process.name.removesuffix("-1")):
                return process
        parent, _, child = name.rpartition("/")
        for process in await self.children(self.process(parent or "composite-1")):
            if process.name == f"{parent or 'composite-1'}/{child}":
                return process
        raise NotUp(f"there is no process {name} in mode {self.mode}")

    async def children(self, composite: Process) -> list[Process]:
        """Return the children that a composite reports; none while it does not answer."""
        with suppress(httpx.HTTPError, LookupError, ValueError):
            answer = await self._http.get(f"{composite.internal_url}/status", headers=self._authorised)
            return [Process.described(child, composite.name) for child in answer.json()["children"]]
        return []

    async def everything(self) -> list[Process]:
        """Return the running processes, including the children of composites."""
        found = []
        for process in self.processes():
            found.append(process)
            if process.name.startswith("composite-"):
                found += await self.children(process)
        return found

    @property
    def _authorised(self) -> dict[str, str]:
        return {"Authorization": SharedKey.load(self.state / "internal.key").header}

    @property
    def metadata(self) -> str | None:
        """Base URL of the metadata service, if clients locate servers themselves."""
        urls = self.described()["urls"].get("metadata")
        return f"{urls[0]}/" if urls else None

    @property
    def rest(self) -> str:
        """Base URL of the Data Service."""
        return f"http://127.0.0.1:{self.process('data').public_port}"

    @property
    def page(self) -> tuple[str, int]:
        """Host and port of the address for pages: of the Data Service, or nginx."""
        url = urlsplit(self.described()["urls"]["page"])
        return url.hostname or "", url.port or 0

    @property
    def servers(self) -> list[tuple[str, int, str]]:
        """Host, port and path of the addresses for clients: all WebSocket servers, or nginx."""
        urls = map(urlsplit, self.described()["urls"]["websocket"])
        return [(url.hostname or "", url.port or 0, url.path) for url in urls]

    @property
    def write_key(self) -> str:
        """The write key."""
        return (self.state / "write.key").read_text(encoding="utf-8").strip()

    # How it is

    async def is_ready(self, process: Process) -> bool:
        """Return whether a process is ready: by /readyz; nginx if it answers, a broker if it accepts connections."""
        try:
            if process.internal_url:
                return (await self._http.get(f"{process.internal_url}/readyz")).status_code == 200
            if process.name == "nginx":
                return bool(await self._http.get(f"http://127.0.0.1:{process.public_port}/"))
            _, writer = await asyncio.open_connection("127.0.0.1", process.public_port)
        except (httpx.HTTPError, OSError):
            return False
        writer.close()
        return True

    async def ask(
        self, name: str, method: str, path: str, body: bytes | None = None, within: float = ANSWER_SECONDS
    ) -> httpx.Response:
        """Return a response of a process's internal listener. Raises ``NotUp`` if there is no such process."""
        url = f"{(await self.find(name)).internal_url}{path}"
        async with internal_client(SharedKey.load(self.state / "internal.key"), within) as http:
            return await http.request(method, url, content=body)

    async def create_api_key(self, plan: str = PLAN) -> str:
        """Create an API key, by default for all endpoints without limits."""
        return await self._create_key({"name": "load", "plan": plan})

    async def create_write_key(self, prefix: str, endpoints: int) -> str:
        """Create a write key for so many endpoints below a prefix, without a limit of their changes."""
        return await self._create_key({"name": "load", "writes": True, "prefixes": [prefix], "endpoints": endpoints})

    async def _create_key(self, terms: dict[str, object]) -> str:
        answer = await self.ask("data", "POST", "/v1/keys", orjson.dumps(terms), PATIENCE_S)
        answer.raise_for_status()
        return str(answer.json()["key"])

    async def scale(self, servers: int) -> None:
        """Scale to a number of servers; return when they are ready and the others are gone."""
        await scale(StateDir(self.state), servers, lambda _ready, _total: None)

    async def kill(self, name: str, with_signal: signal.Signals = signal.SIGKILL) -> int:
        """Kill a process, or stop it in order; return its process id."""
        process = await self.find(name)
        if process.pid is None:
            raise NotUp(f"{name} does not run")
        self.measure()
        self.end(process, with_signal)
        return process.pid

    def end(self, process: Process, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process, which may have ended already."""
        self.kills[process.name] += 1
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, with_signal)

    async def unexplained(self) -> dict[str, int]:
        """Return the restarts by process without those caused by this run; brokers and nginx are excluded."""
        found = {
            process.name: process.restarts - self.kills[process.name]
            for process in await self.everything()
            if process.internal_url
        }
        return {name: more for name, more in found.items() if more > 0}

    async def back(self, name: str, killed: int, within: float = START_SECONDS) -> float:
        """Wait until a killed process is ready again; return the time. Raises ``NotUp`` after a time-out."""
        limit = monotonic() + within
        while monotonic() < limit:
            with suppress(NotUp):
                process = await self.find(name)
                if process.pid not in (None, killed) and await self.is_ready(process):
                    return monotonic()
            await asyncio.sleep(POLL_SECONDS)
        raise NotUp(f"{name} was not ready again within {within:.0f} s")

    async def snapshots(self) -> list[Snapshot]:
        """Return the counters of every process that fans out (invariant I14)."""
        found = []
        for process in await self.everything():
            counted = await self.counted(process)
            # A node that only hands on says what it received, not what became of it.
            if "fanned_out" in counted:
                # What a later one of the same batch has replaced was as old when it came.
                counted["stale"] = counted.get("stale", 0) + counted.get("conflated", 0)
                outcomes = ("received", "fanned_out", "not_subscribed", "stale", "bad")
                found.append(Snapshot(process.name, *(counted.get(outcome, 0) for outcome in outcomes)))
        return found

    async def counted(self, process: Process) -> dict[str, int]:
        """Return the metrics ``diem_updates_NAME_total`` of a process by NAME."""
        return {name: int(float(value)) for name, value in _SAMPLE.findall(await self._metrics(process))}

    async def evicted(self) -> dict[str, int]:
        """Return, by process, the retained updates that have lost their data to others since it started."""
        found = {process.name: _EVICTED.search(await self._metrics(process)) for process in await self.everything()}
        return {name: int(float(sample[1])) for name, sample in found.items() if sample is not None}

    async def _metrics(self, process: Process) -> str:
        if not process.internal_url:
            return ""
        # A process that is asked for its counters is well, and only slow if the machine is.
        url, headers = f"{process.internal_url}/metrics", self._authorised
        return (await self._http.get(url, headers=headers, timeout=PATIENCE_S)).text

    def measure(self) -> dict[str, float]:
        """Return CPU seconds by process name."""
        return self._cpu.measure(self.processes())

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
