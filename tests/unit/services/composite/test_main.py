"""The whole process of a composite, with fake children that only serve their status."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.typing import Subprotocol

from diem.process.auth import SharedKey
from services.composite.control import PATH, SUBPROTOCOL
from services.composite.plan import child_names
from services.composite.settings import Settings
from tests.support.fork_server import FAKED_COMPOSITE
from tests.support.internal import InternalConnect
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port, free_ports
from tests.support.running import alive
from tests.unit.services.composite.faked_composite import CHILD_PORTS

ROOT = Path(__file__).parents[4]


class Running:
    def __init__(self, process: Process, port: int, key: SharedKey, http: httpx.AsyncClient) -> None:
        self.process = process
        self.address = f"127.0.0.1:{port}"
        self.key = key
        self.http = http

    async def ready(self) -> bool:
        try:
            return (await self.http.get(f"http://{self.address}/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    async def page(self, path: str) -> str:
        reply = await self.http.get(f"http://{self.address}{path}", headers={"Authorization": self.key.header})
        assert reply.status_code == 200
        return reply.text

    async def children(self) -> dict[str, dict[str, Any]]:
        return {child["name"]: child for child in orjson.loads(await self.page("/status"))["children"]}

    async def urls(self) -> dict[str, str]:
        return {name: child["urls"]["internal"] for name, child in (await self.children()).items()}

    async def pids(self) -> dict[str, int]:
        return {name: child["pid"] for name, child in (await self.children()).items()}

    async def answered(self, count: int) -> dict[str, int]:
        """Wait until children have answered, which have installed their SIGTERM handler by then; return their ids."""
        async with asyncio.timeout(PATIENCE_S):
            while sum(child["report"] is not None for child in (await self.children()).values()) < count:
                await asyncio.sleep(0.05)
        return await self.pids()


@asynccontextmanager
async def running(tmp_path: Path, **environment: str) -> AsyncIterator[Running]:
    key = SharedKey.create(tmp_path / "internal.key")
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIEM_")}
    env = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "FAKE_FOLDER": str(tmp_path),
        "DIEM_STATE_DIR": str(tmp_path),
        "DIEM_INTERNAL_KEY_FILE": str(tmp_path / "internal.key"),
        "DIEM_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DIEM_COMPOSITE_PORT": "0",
        "DIEM_COMPOSITE_INTERNAL_PORT": str(port),
        # A child that is killed, because the machine stands still, does not say that it has stopped.
        "DIEM_DRAIN_SECONDS": "60",
        **environment,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", FAKED_COMPOSITE, env=env, cwd=tmp_path, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            yield Running(process, port, key, http)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until_ready(composite: Running) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await composite.ready():
            assert composite.process.returncode is None
            await asyncio.sleep(0.05)


async def test_composite_runs_from_its_environment_scales_and_stops_in_order(tmp_path: Path) -> None:
    health, state = free_port(), tmp_path / "missing" / "state"
    variables = {"DIEM_COMPOSITE_PAIRS": "1", "DIEM_HEALTH_PORT": str(health), "DIEM_STATE_DIR": str(state)}
    async with running(tmp_path, **variables) as composite:
        await until_ready(composite)
        assert "why_not_ready" in orjson.loads(await composite.page("/status"))
        assert (state / "composite-1.ports.json").exists()
        # A child that does not answer for a second has no status until it is polled again.
        async with asyncio.timeout(PATIENCE_S):
            while (await composite.http.get(f"http://127.0.0.1:{health}/readyz")).text != "ok\n":
                await asyncio.sleep(0.05)
        url = f"ws://{composite.address}{PATH}"
        async with InternalConnect(url, composite.key, subprotocols=[Subprotocol(SUBPROTOCOL)]) as control:
            await control.send('{"pairs": 2}')
            assert await control.recv() == '{"pairs":2}'
        pids = await composite.answered(6)
        assert set(pids) == set(child_names(2))
        async with asyncio.timeout(PATIENCE_S):
            while "diem_composite_clients 3.0" not in (metrics := await composite.page("/metrics")):
                await asyncio.sleep(0.05)
        assert "diem_pairs 2.0" in metrics
        assert 'diem_child_up{child="websocket-2",url="http://127.0.0.1:1' in metrics
        composite.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            await composite.process.wait()
        assert composite.process.returncode == 0
        assert not any(alive(pid) for pid in pids.values())
        gone = (tmp_path / "stopped").read_text().split()
        assert [name.rstrip("-12") for name in gone] == ["proxy", *["websocket"] * 2, *["bridge"] * 2, "metadata"]


async def test_children_of_a_killed_composite_end_and_their_addresses_are_used_again(
    tmp_path: Path,
) -> None:
    # Of this process alone: between the two composites, others of the run would take some of the usual ones.
    environment = {"DIEM_COMPOSITE_PAIRS": "1", "FAKE_PORTS": str(free_ports(CHILD_PORTS).start)}
    async with running(tmp_path, **environment) as composite:
        await until_ready(composite)
        pids, urls = await composite.pids(), await composite.urls()
        composite.process.kill()
        await until(lambda: not any(alive(pid) for pid in pids.values()))
    async with running(tmp_path, **environment) as composite:
        await until_ready(composite)
        assert await composite.urls() == urls


async def test_children_that_do_not_stop_are_killed_within_the_drain_time(tmp_path: Path) -> None:
    stubborn = {"FAKE_STUBBORN": "websocket-1 bridge-1 metadata", "DIEM_DRAIN_SECONDS": "1"}
    async with running(tmp_path, DIEM_COMPOSITE_PAIRS="1", **stubborn) as composite:
        await until_ready(composite)
        pids = await composite.answered(4)
        composite.process.terminate()
        async with asyncio.timeout(PATIENCE_S):  # else they would never end
            await composite.process.wait()
        assert not any(alive(pid) for pid in pids.values())


async def test_composite_ends_with_its_children_when_its_supervisor_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path, DIEM_COMPOSITE_PAIRS="1", DIEM_SUPERVISED="1") as composite:
        await until_ready(composite)
        pids = await composite.pids()
        assert composite.process.stdin is not None
        composite.process.stdin.close()
        await until(lambda: composite.process.returncode is not None)
        await until(lambda: not any(alive(pid) for pid in pids.values()))


@pytest.mark.parametrize(
    ("environment", "code", "error"),
    [
        ({"DIEM_KAFKA_BOOTSTRAP_SERVERS": ""}, 2, "diem: DIEM_KAFKA_BOOTSTRAP_SERVERS: Kafka is needed here"),
        ({"DIEM_INTERNAL_KEY_FILE": "/nowhere/key"}, 2, "diem: "),
        ({"FAKE_WRONG": "websocket-2"}, 2, "diem: websocket-2 cannot be started"),
    ],
)
async def test_configuration_error_ends_the_composite_with_one_line(
    tmp_path: Path, environment: dict[str, str], code: int, error: str
) -> None:
    async with running(tmp_path, **environment) as composite:
        async with asyncio.timeout(PATIENCE_S):
            _, err = await composite.process.communicate()
        assert composite.process.returncode == code
        assert error in err.decode()


def test_composites_are_named_by_number_and_have_the_documented_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DIEM_")]:
        monkeypatch.delenv(name)
    settings = Settings.load()
    assert (settings.port, settings.internal_port, settings.pairs) == (8601, 9601, 2)
    monkeypatch.setenv("DIEM_COMPOSITE_NUMBER", "3")
    assert Settings.load().process_name == "composite-3"
