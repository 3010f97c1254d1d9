"""`diem canary` beside a running system: a server that swallows updates, and looks well otherwise, is named in time."""

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.deploy.running import DIEM, environment
from tests.load.system import System
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.required import in_cluster
from tests.support.stalls import stalls
from tests.support.swallowing import NAME

NAMED_WITHIN_S = 15.0
"""Promised time from a fault until it is named (docs/operations.md section 3.2)."""


@asynccontextmanager
async def canary(system: System, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[str]]]:
    """Run a canary; yield its process and its output."""
    arguments = ("canary", "--state-dir", str(system.state), *options)
    process = await asyncio.create_subprocess_exec(*DIEM, *arguments, env=environment(), stdout=PIPE, stderr=STDOUT)
    output: list[str] = []

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            output.append(line.decode().rstrip())  # noqa: PERF401 - others read it meanwhile

    reading = asyncio.create_task(read())
    try:
        yield process, output
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
            await reading


async def delays(port: int, key: str) -> set[str]:
    """Return the edges that have a delay; empty while nothing listens."""
    try:
        async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {key}"}) as http:
            status = (await http.get(f"http://127.0.0.1:{port}/status")).json()
    except httpx.HTTPError:
        return set()
    return set(status["delays"])


@pytest.mark.takes(40)
@in_cluster()
async def test_server_that_swallows_updates_is_named_in_time_and_no_other(tmp_path: Path) -> None:
    async with System("x-broadcast", tmp_path, ["--servers", "2"], program=NAME) as system:
        key = (system.state / "metrics.key").read_text().strip()
        async with canary(system, "--once") as (process, output):
            assert await process.wait() == 0
        assert {line.partition(":")[0] for line in output} == {"clients", "websocket-1", "websocket-2"}
        assert all(line.endswith(" ms") for line in output)

        port = free_port()
        async with canary(system, "--metrics-port", str(port)) as (process, output):
            async with asyncio.timeout(PATIENCE_S):
                while len(await delays(port, key)) < 3:
                    await asyncio.sleep(0.1)
            async with stalls() as counted:
                os.kill(system.process("websocket-2").pid or 0, signal.SIGUSR1)
                began = time.monotonic()
                await until(lambda: any("websocket-2" in line for line in output))
                assert time.monotonic() - began - counted.seconds < NAMED_WITHIN_S * FACTOR
            async with httpx.AsyncClient(
                trust_env=False, timeout=PATIENCE_S, headers={"Authorization": f"Bearer {key}"}
            ) as http:
                exposed = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
            assert 'diem_canary_late{edge="websocket-2",partition="0"} 1' in exposed
            assert 'diem_canary_late{edge="websocket-1",partition=""} 0' in exposed
        assert process.returncode == 0
        named = [line for line in output if " is late: " in line]
        assert [line for line in named if line.startswith("websocket-2 is late: nothing for ")]
        # A client may be at either server.
        assert not any(line.startswith("websocket-1") for line in named)

        async with canary(system, "--once") as (process, output):
            assert await process.wait() == 1
        assert any(line.startswith("websocket-2 is late: nothing for ") for line in output)

        # Users do not see the endpoints.
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            assert (await http.get(f"{system.rest}/v1/endpoints?gone=true")).json() == {"endpoints": []}
            assert (await http.get(f"{system.rest}/v1/data/canary/p0")).status_code == 200
