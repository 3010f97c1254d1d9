"""The partitioned modes as a user starts them, with real processes."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.system.description import with_children
from deploy.system.scrape_targets import file_sd, scrape_targets
from tests.integration.deploy.clients import NAME, Client, clients, clients_at, put, scale
from tests.integration.deploy.running import Running, fine, report_of, up
from tests.integration.deploy.scraping import check_key_opens_nothing_else, check_scrapes, status_of
from tests.support.nginx import needs_nginx
from tests.support.patience import PATIENCE_S, until
from tests.support.running import alive

INSIDE = ["metadata", "bridge-1", "websocket-1", "proxy"]


def inside(composite: str) -> list[str]:
    return [f"{composite}/{name}" for name in INSIDE]


async def everything(running: Running) -> dict[str, dict[str, Any]]:
    """Return the running processes, including the children of composites, which only these report."""
    return dict(with_children((await status_of(running))["processes"]))


async def pids(running: Running) -> list[int]:
    return [process["pid"] for process in (await everything(running)).values()]


async def stop(running: Running) -> None:
    """Stop the system with Ctrl-C, and check that nothing is left and nothing was killed."""
    last = await pids(running)
    running.process.send_signal(signal.SIGINT)
    await until(lambda: running.process.returncode is not None)
    assert running.process.returncode == 0
    assert not any(alive(pid) for pid in last)
    assert not any("was killed" in line for line in running.output), running.output


async def test_clients_that_ask_for_the_owner_are_served_by_every_clone(
    tmp_path: Path, on_kafka: tuple[str, ...]
) -> None:
    async with up(
        tmp_path, *on_kafka, "--mode", "z-client", "--servers", "1", "--clones", "2", "--max-servers", "2"
    ) as running:
        names = ["data", "metadata", "bridge-1", "bridge-3", "websocket-1", "websocket-3"]
        assert list(running.pids()) == names
        urls = running.described()["urls"]
        assert len(urls["websocket"]) == 2
        await running.until_status(fine)
        async with contextlib.AsyncExitStack() as stack:
            seen = [await stack.enter_async_context(located(running, clone)) for clone in (1, 2)]
            version = await put(running, 1)
            for client in seen:
                await client.sees(version)
        await check_scrapes(running)
        assert await scale(running, 2) == {*names, "bridge-2", "bridge-4", "websocket-2", "websocket-4"}
        assert len(running.described()["urls"]["websocket"]) == 4
        await stop(running)


async def test_unmodified_clients_are_served_through_the_proxy(tmp_path: Path, on_kafka: tuple[str, ...]) -> None:
    # With time for a server that stops to be replaced, however slow the machine is; it ends before.
    options = ("--mode", "z-proxy", "--servers", "2", "--drain-seconds", str(PATIENCE_S / 2))
    async with up(tmp_path, *on_kafka, *options) as running:
        names = ["data", "metadata", "bridge-1", "bridge-2", "websocket-1", "websocket-2", "proxy-1"]
        assert list(running.pids()) == names
        await running.until_status(fine)
        await check_scrapes(running)
        async with clients(running, 1) as (client,):
            await client.sees(await put(running, 1))
            # The server that has the endpoint is removed, when another one has taken it over.
            assert await scale(running, 1) == set(names) - {"bridge-2", "websocket-2"}
            assert "others own the partitions" in (tmp_path / ".diem" / "logs" / "websocket-2.log").read_text()
            await client.sees(await put(running, 2))
            assert client.closed == []
        await stop(running)


async def test_composite_serves_clients_and_keeps_its_number_of_pairs(
    tmp_path: Path, on_kafka: tuple[str, ...]
) -> None:
    async with up(tmp_path, *on_kafka, "--mode", "z-composite", "--servers", "1") as running:
        names = ["data", "composite-1"]
        assert list(await everything(running)) == [*names, *inside("composite-1")]
        async with clients(running, 1) as (client,):
            await client.sees(await put(running, 1))
            assert await scale(running, 2) == set(names)
            assert {"composite-1/bridge-2", "composite-1/websocket-2"} < set(await everything(running))
            status = await check_scrapes(running)
            assert await check_key_opens_nothing_else(running) == {
                *("data", "composite", "metadata", "bridge", "websocket", "proxy")
            }
            # Prometheus finds the added pair, which only the composite knows.
            targets = tmp_path / ".diem" / "targets.json"
            await until(lambda: targets.exists() and targets.read_bytes() == file_sd(scrape_targets(status)))
            await client.sees(await put(running, 2))
            assert client.closed == []

            before = await pids(running)
            os.kill(running.pids()["composite-1"], signal.SIGKILL)
            await until(lambda: running.pids().get("composite-1") not in {None, *before})
            await running.until_status(lambda status: report_of(status, "composite-1").get("ready_pairs") == 2)
            await client.sees(await put(running, 3))
            await until(lambda: [pid for pid in before if alive(pid)] == [running.pids()["data"]])
        await stop(running)


@pytest.mark.usefixtures("executed_processes")
async def test_children_of_a_composite_end_with_a_killed_diem_up(tmp_path: Path, on_kafka: tuple[str, ...]) -> None:
    async with up(tmp_path, *on_kafka, "--mode", "z-composite", "--servers", "1") as running:
        killed = running.pids()["data"]
        os.kill(killed, signal.SIGKILL)
        await until(lambda: running.pids().get("data") not in {None, killed})
        await running.until_status(fine)
        last = await pids(running)
        running.process.kill()
        await running.process.wait()
        await until(lambda: not any(alive(pid) for pid in last))


@needs_nginx
async def test_composites_are_clones_behind_nginx(tmp_path: Path, on_kafka: tuple[str, ...]) -> None:
    async with up(tmp_path, *on_kafka, "--mode", "xz", "--nginx", "--servers", "1", "--clones", "2") as running:
        names = ["data", "nginx", "composite-1", "composite-2"]
        assert list(running.pids()) == names
        await running.until_status(fine)
        async with clients(running, 2) as both:
            version = await put(running, 1)
            for client in both:
                await client.sees(version)
            status = await running.until_status(
                lambda s: [report_of(s, name).get("clients") for name in ("composite-1", "composite-2")] == [1, 1]
            )
            await check_scrapes(running)
            assert status["composite-2"]["report"]["mode"] == "xz"
            assert await scale(running, 1) == set(names) - {"composite-2"}
            version = await put(running, 2)
            for client in both:
                await client.sees(version)
            assert sorted(map(len, (client.closed for client in both))) == [0, 1]
        await stop(running)


@contextlib.asynccontextmanager
async def located(running: Running, clone: int) -> AsyncIterator[Client]:
    """Connect a client to the owner of the endpoint in a clone."""
    urls = running.described()["urls"]
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        reply = await http.post(f"{urls['metadata'][0]}/locate", json={"endpoints": [NAME], "clone": clone})
    owner = reply.json()["endpoints"][NAME]["owner"]
    assert owner in urls["websocket"]
    async with clients_at(running, [owner]) as (client,):
        yield client
