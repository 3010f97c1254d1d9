"""The libraries for programs, Python's and Node's, at a real system, while its processes are killed."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import orjson
import pytest

from diem.client import connect
from tests.support.nginx import needs_nginx
from tests.support.patience import until
from tests.support.required import in_cluster
from tests.support.running import ROOT, Running, running

pytestmark = in_cluster("it starts systems, and kills their processes")

CLIENT = ROOT / "client"
NODE = ROOT / "deploy/install/node.sh"
NAMES = [f"/lib/{number}" for number in range(20)]


class Watcher:
    """What a program has received with a library."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.older = 0
        """Versions that were less than the one before."""
        self.transport: str | None = None

    def received(self, name: str, version: int) -> None:
        self.older += version < self.versions.get(name, 0)
        self.versions[name] = version


@contextlib.asynccontextmanager
async def python(url: str) -> AsyncIterator[Watcher]:
    watcher = Watcher()

    async def watch() -> None:
        async with connect(url, on_problem=lambda _: None) as client:
            async for update in client.watch(*NAMES):
                watcher.received(update.endpoint, update.version)

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

    async def read() -> None:
        assert program.stdout is not None
        async for line in program.stdout:
            found = orjson.loads(line)
            if "endpoint" in found:
                watcher.received(found["endpoint"], found["version"])
            else:
                watcher.transport = found.get("transport")

    reading = asyncio.create_task(read())
    try:
        yield watcher
        # After `close` nothing keeps the program running.
        program.stdin.close()
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


@needs_nginx
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("mode", "servers", "killed", "down"),
    [
        ("single", None, ["data"], [["websocket-1"]]),
        ("x", 2, ["data", "nginx", "bridge-1"], [["websocket-1"], ["websocket-1", "websocket-2"]]),
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
    ):
        value = 0

        async def has_arrived(acknowledged: dict[str, int], fault: str) -> None:
            began = asyncio.get_running_loop().time()
            for name, watcher in (("python", one), ("node", other)):
                await until(lambda watcher=watcher: watcher.versions == acknowledged)  # type: ignore[misc]
                print(f"{mode}, {fault}: {name} after {asyncio.get_running_loop().time() - began:.1f} s")

        await has_arrived(await put(system, value := value + 1), "no fault")
        for names in down:
            await put(system, value := value + 1)
            # What is written meanwhile is acknowledged, and no server or proxy is there to send it.
            with system.down(*names):
                acknowledged = await put(system, value := value + 1)
            await has_arrived(acknowledged, " and ".join(names) + " down")
        for name in killed:
            await put(system, value := value + 1)
            system.kill(name)
            await has_arrived(await put(system, value := value + 1), f"{name} killed")
        assert (one.older, other.older) == (0, 0)
