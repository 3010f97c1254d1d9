"""`diem load` as a user runs it beside a `diem up`, while a server is killed."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from deploy.clients.data_service import data_service
from deploy.system.state_dir import StateDir
from tests.integration.deploy.running import DIEM, Running, diem, environment, fine, up
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.required import in_cluster
from tools.load.writer import PREFIX

CLIENTS = 30
MANY = ("--clients-per-address", "2000")
LOAD = ("--clients", str(CLIENTS), "--subscriptions", "5", "--endpoints", "20", "--write", "10", "--rate", "100")
WAIT = ("--wait", str(PATIENCE_S))


async def start_load(running: Running, *options: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *DIEM, "load", *LOAD, *options, cwd=running.cwd, env=environment(), stdout=pipe, stderr=pipe
    )


async def until_subscribed(running: Running) -> None:
    """Wait until all clients have all their subscriptions."""

    def subscriptions(status: dict[str, dict[str, Any]]) -> int:
        return sum((each["report"] or {}).get("subscriptions", 0) for each in status.values())

    await running.until_status(lambda status: subscriptions(status) >= 5 * CLIENTS)


async def load_with_a_killed_server(running: Running) -> dict[str, Any]:
    """Run a load test to its end, of which a server does not see all, and return its result."""
    # The server must be killed within this time.
    loading = await start_load(running, "--seconds", str(10 * FACTOR), "--json", "result.json", *WAIT)
    await until_subscribed(running)
    os.kill(running.pids()["websocket-1"], signal.SIGKILL)
    async with asyncio.timeout(3 * PATIENCE_S):
        out, err = await loading.communicate()
    result: dict[str, Any] = json.loads((running.cwd / "result.json").read_text())
    assert loading.returncode == 0, (out.decode(), err.decode())
    assert f"nothing: {5 * CLIENTS:,} subscriptions checked" in out.decode()
    return result


def check(result: dict[str, Any], *, interrupted: bool = True) -> None:
    """Check that every client was interrupted or not, but missed nothing, and that updates were measured."""
    assert (result["passed"], result["clients"], result["subscribed"]) == (True, CLIENTS, CLIENTS)
    assert (result["missed"]["checked"], result["missed"]["missed"]) == (5 * CLIENTS, 0)
    assert (sum(result["interruptions"].values()) > 0) == interrupted
    assert result["written"]["accepted"] > 0
    assert result["written"]["failed"] == {}
    # Each update goes to 7 clients on average, unless a later one took its place.
    assert result["updates"] == result["delay_ms"]["count"] > 0
    # A message has more than 50 bytes.
    assert result["bytes"] > 50 * result["updates"]
    assert result["delay_ms"]["before_publication"] == 0


async def until_own_endpoints_are_deleted(running: Running) -> None:
    """Wait until the catalogue, which may be a second old, has none of a load test."""
    service = data_service(StateDir(running.cwd / ".diem"), None)
    async with asyncio.timeout(PATIENCE_S):
        while any(name.startswith(PREFIX) for name in await service.endpoints()):
            await asyncio.sleep(0.2)


@in_cluster()
@pytest.mark.takes(30)
async def test_clients_of_a_server_that_is_killed_miss_nothing_and_nothing_is_left_behind(tmp_path: Path) -> None:
    async with up(tmp_path, *MANY, market=True) as running:
        await running.until_status(lambda now: fine(now) and now["data"]["report"]["endpoints"] > 0)
        check(await load_with_a_killed_server(running))
        await until_own_endpoints_are_deleted(running)

        # Without a right to write: the endpoints of the market, which change when they do.
        few = ("--clients", "20", "--subscriptions", "3", "--seconds", "1", "--endpoints", "/load/*", *WAIT)
        code, out, err = await diem("load", *few, cwd=tmp_path)
        assert (code, "nothing: 60 subscriptions checked" in out) == (0, True), (out, err)

        # Ctrl-C prints what was measured so far, claims nothing about the rest, and leaves nothing behind.
        loading = await start_load(running, "--seconds", "3600")
        await until_subscribed(running)
        loading.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            printed, errors = await loading.communicate()
        assert loading.returncode == 130, errors.decode()
        assert b"not checked: interrupted" in printed
        await until_own_endpoints_are_deleted(running)


@in_cluster()
@pytest.mark.takes(30)
async def test_clients_that_find_their_servers_themselves_miss_nothing(
    tmp_path: Path, on_kafka: tuple[str, ...]
) -> None:
    async with up(tmp_path, *on_kafka, *MANY, "--mode", "z-client", "--servers", "2") as running:
        await running.until_status(fine)
        result = await load_with_a_killed_server(running)
        assert result["partitioned"]
        check(result)


@in_cluster()
@pytest.mark.takes(30)
async def test_processes_and_machines_come_to_one_verdict(tmp_path: Path) -> None:
    """Three processes from two addresses, one with the writer; and a second result, as of another machine."""
    async with up(tmp_path, *MANY, market=True) as running:
        await running.until_status(fine)
        several = ("--processes", "3", "--from", "127.0.0.2", "--from", "127.0.0.3", "--seconds", str(3 * FACTOR))
        loading = await start_load(running, *several, "--json", "one.json", *WAIT)
        async with asyncio.timeout(4 * PATIENCE_S):
            out, err = await loading.communicate()
        assert loading.returncode == 0, (out.decode(), err.decode())
        assert "from 3 processes" in out.decode()
        check(json.loads((tmp_path / "one.json").read_text()), interrupted=False)
        code, told, _ = await diem("load", "--merge", "one.json", "--merge", "one.json", cwd=tmp_path)
        assert code == 0
        assert f"nothing: {2 * 5 * CLIENTS:,} subscriptions checked" in told
        (tmp_path / "two.json").write_text("{}")
        code, _, told = await diem("load", "--merge", "one.json", "--merge", "two.json", cwd=tmp_path)
        assert code == 2
        assert "two.json: is no result" in told
        await until_own_endpoints_are_deleted(running)
