"""The libraries for programs, Python's and Node's, and the minimal client in Go at a real system with killed processes.

Also behind proxies that let no WebSocket through, where the libraries make requests instead.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson
import pytest

from diem.client import Client
from tests.e2e.test_public import create_key, wait_for_token_keys
from tests.support.obstacles import Obstacle, proxy
from tests.support.patience import until
from tests.support.required import in_cluster, unavailable
from tests.support.running import ROOT, Running, running

pytestmark = in_cluster("it starts systems, and kills their processes")

CLIENT = ROOT / "client"
NODE = ROOT / "deploy/install/node.sh"
GO = CLIENT / "go"
GO_PROGRAM = ROOT / "build" / "go" / "watch"
MAX_LINES = {"client.go": 300, "tokens.go": 100}
"""Of the minimal client, without comments and blank lines: what it takes to write one, and what tokens add."""
PLAN = """
source = []
[[plan]]
name = "page"
prefixes = ["/lib"]
"""
NAMES = [f"/lib/{number}" for number in range(20)]


class Watcher:
    """What a program has received with a library."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.older = 0
        """Versions that were less than the one before."""
        self.is_websocket = True

    def received(self, name: str, version: int) -> None:
        self.older += version < self.versions.get(name, 0)
        self.versions[name] = version


@contextlib.asynccontextmanager
async def python(url: str) -> AsyncIterator[Watcher]:
    watcher = Watcher()

    async def watch() -> None:
        async with Client(url, on_problem=lambda _: None) as client:
            async for update in client.watch(*NAMES):
                watcher.received(update.endpoint, update.version)
                watcher.is_websocket = client.transport == "websocket"

    watching = asyncio.create_task(watch())
    try:
        yield watcher
        assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@contextlib.asynccontextmanager
async def node(url: str) -> AsyncIterator[Watcher]:
    watcher = Watcher()
    program = await asyncio.create_subprocess_exec(
        *(str(NODE), "node", str(Path(__file__).with_name("watching.mjs")), str(CLIENT / "dist/sdk/node.js")),
        *(f"{url}config.json", *NAMES),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None
    async with _reading(program, watcher):
        yield watcher
        # After `close` nothing keeps the program running.
        program.stdin.close()


@pytest.fixture(scope="module")
def built_in_go() -> None:
    try:
        subprocess.run(["go", "build", "-o", GO_PROGRAM, "./watch"], cwd=GO, check=True)
    except FileNotFoundError as error:
        unavailable("Go (deploy/install/go.sh)", error)


@contextlib.asynccontextmanager
async def go(system: Running, **variables: str) -> AsyncIterator[Watcher]:
    watcher = Watcher()
    program = await asyncio.create_subprocess_exec(
        *(str(GO_PROGRAM), system.websocket_urls[0], f"{system.page}v1", *NAMES),
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
    )
    async with _reading(program, watcher):
        yield watcher
        program.send_signal(signal.SIGINT)


@contextlib.asynccontextmanager
async def _reading(program: asyncio.subprocess.Process, watcher: Watcher) -> AsyncIterator[None]:
    """Read what a program prints until the block has ended it."""

    async def read() -> None:
        assert program.stdout is not None
        async for line in program.stdout:
            found = orjson.loads(line)
            if "endpoint" in found:
                watcher.received(found["endpoint"], found["version"])
            elif "live" not in found:
                watcher.is_websocket = "transport" not in found

    reading = asyncio.create_task(read())
    try:
        yield
        await until(lambda: program.returncode is not None)
        assert program.returncode == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
        await reading


@pytest.fixture(scope="module")
def built() -> None:
    subprocess.run([NODE, "npm", "run", "build:sdk", "--silent"], cwd=CLIENT, check=True)


async def put(system: Running, value: int) -> dict[str, int]:
    """Write all endpoints, trying again until the Data Service has acknowledged it, and return their versions."""
    while True:
        with contextlib.suppress(httpx.HTTPError):
            answer = await system.put(dict.fromkeys(NAMES, value))
            if answer.is_success:
                return {entry["endpoint"]: entry["version"] for entry in answer.json()["accepted"]}
        await asyncio.sleep(0.1)


async def has_arrived(watchers: Mapping[str, Watcher], acknowledged: dict[str, int], fault: str) -> None:
    began = asyncio.get_running_loop().time()
    for name, watcher in watchers.items():
        await until(lambda watcher=watcher: watcher.versions == acknowledged)  # type: ignore[misc]
        print(f"{fault}: {name} after {asyncio.get_running_loop().time() - began:.1f} s")


@pytest.mark.usefixtures("built", "built_in_go")
@pytest.mark.parametrize(
    ("mode", "servers", "killed", "down"),
    [
        ("single", None, ["data"], [["websocket-1"]]),
        ("x", 2, ["data", "bridge-1"], [["websocket-1"], ["websocket-1", "websocket-2"]]),
        ("z-client", 2, ["data", "metadata", "bridge-1"], [["websocket-1"], ["websocket-1", "websocket-2"]]),
        ("z-proxy", 2, ["data", "proxy-1"], [["proxy-1"], ["websocket-1", "websocket-2"]]),
    ],
)
async def test_programs_end_at_the_last_acknowledged_versions_whatever_is_killed(
    tmp_path: Path, mode: str, servers: int | None, killed: Sequence[str], down: Sequence[Sequence[str]]
) -> None:
    async with (
        running(tmp_path, mode, servers=servers) as system,
        python(system.page) as one,
        node(system.page) as other,
        contextlib.AsyncExitStack() as stack,
    ):
        watchers = {f"{mode}, python": one, f"{mode}, node": other}
        if mode != "z-client":
            watchers[f"{mode}, go"] = await stack.enter_async_context(go(system))
        await faults(system, watchers, killed, down)


@pytest.mark.usefixtures("built_in_go")
def test_the_minimal_client_passes_the_cases_of_its_levels_and_stays_small() -> None:
    subprocess.run(["go", "test", "-count=1", "."], cwd=GO, check=True)
    for file, most in MAX_LINES.items():
        lines = [line.strip() for line in (GO / file).read_text().splitlines()]
        assert len([line for line in lines if line and not line.startswith("//")]) <= most


@pytest.mark.usefixtures("built_in_go")
async def test_the_minimal_client_presents_tokens_and_replaces_them_on_its_connection(tmp_path: Path) -> None:
    options = ("--anonymous", "off", "--set", "data:DIEM_DATA_ANONYMOUS_READS=off")
    async with running(tmp_path, config=PLAN, options=options) as system:
        await wait_for_token_keys(system)
        key = (await create_key(system))["key"]
        body = {"seconds": 10}  # replaced after some 4 s
        async with go(system, DIEM_KEY=key, DIEM_TOKEN_BODY=orjson.dumps(body).decode()) as watcher:
            watchers = {"go": watcher}
            await has_arrived(watchers, await put(system, 1), "no fault")

            async def refreshed() -> float:
                headers = {"Authorization": f"Bearer {(system.state_dir / 'metrics.key').read_text().strip()}"}
                url = f"{system.processes['websocket-1']['urls']['internal']}/metrics"
                shown = (await system.http.get(url, headers=headers)).text
                assert "diem_closes_total{" not in shown
                return float(shown.partition('diem_authentications_total{outcome="refreshed"} ')[2].partition("\n")[0])

            while await refreshed() < 2:
                await asyncio.sleep(0.2)
            await faults(system, watchers, ["data"], [["websocket-1"]])


@pytest.mark.usefixtures("built")
async def test_programs_behind_proxies_without_websocket_miss_nothing_either(tmp_path: Path) -> None:
    async with running(tmp_path) as system, contextlib.AsyncExitStack() as stack:
        edge = urlsplit(system.websocket_urls[0]).netloc
        watchers: dict[str, Watcher] = {}
        for obstacle in (Obstacle.STRIPS, Obstacle.BUFFERS):
            between = await stack.enter_async_context(proxy(obstacle, system.page, edge))
            for library in (python, node):
                program = library(f"http://127.0.0.1:{between.port}/")
                watchers[f"{library.__name__}, a proxy that {obstacle}"] = await stack.enter_async_context(program)
        value = 0
        while any(watcher.is_websocket for watcher in watchers.values()):
            await put(system, value := value + 1)
            await asyncio.sleep(0.5)
        await faults(system, watchers, ["data", "websocket-1"], [["websocket-1"]])


async def faults(
    system: Running, watchers: Mapping[str, Watcher], killed: Sequence[str], down: Sequence[Sequence[str]]
) -> None:
    """Kill processes, and check that each program ends at the versions that were acknowledged last."""
    value = 1
    await has_arrived(watchers, await put(system, value), "no fault")
    for names in down:
        await put(system, value := value + 1)
        # What is written meanwhile is acknowledged, and no server or proxy is there to send it.
        with system.down(*names):
            acknowledged = await put(system, value := value + 1)
        await has_arrived(watchers, acknowledged, " and ".join(names) + " down")
    for name in killed:
        await put(system, value := value + 1)
        system.kill(name)
        await has_arrived(watchers, await put(system, value := value + 1), f"{name} killed")
    assert [watcher.older for watcher in watchers.values()] == [0] * len(watchers)
