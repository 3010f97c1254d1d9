"""Make, apply and roll back plans by commands alone, while a client is served."""

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.client import PartitionedClient
from diem.process.auth import SharedKey
from diem.protocol.traffic import Type
from tests.integration.data.process import bulk
from tests.integration.deploy.clients import NAME, Client, put
from tests.integration.deploy.running import DIEM, Running, diem, environment, fine, up
from tests.support.internal import http_client
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster
from tests.support.traffic import MINUTE, write
from tests.unit.learning.planning.recorded_traffic import MINUTES, events

MOVE_S = 6
"""Longer than a command that looks every half second may stand still: it would not see the phase."""


@in_cluster()
@pytest.mark.takes(60)
async def test_commands_make_apply_and_roll_back_a_plan(tmp_path: Path, on_kafka: tuple[str, ...]) -> None:
    options = (*on_kafka, "--partitions", "12", "--mode", "z-client", "--servers", "2", "--traffic", "off")
    quick = f"metadata:DIEM_METADATA_MOVE_SECONDS={MOVE_S}"
    accepts = "websocket-1:DIEM_WEBSOCKET_CAPACITY=900"
    async with up(tmp_path, *options, "--set", quick, "--set", accepts) as running:
        await running.until_status(fine)
        async with subscribed(running) as client:
            await publish(running, record(tmp_path / ".diem" / "traffic" / "in"))
            await client.sees(await put(running, 1))
            before = await homes(running)
            recent = ("plan", "--window", f"{MINUTES}m")
            code, _, err = await diem(*recent, "--capacity", "300", cwd=tmp_path)
            assert (code, " of 2 would have " in err, " clients of 300: " in err) == (1, True, True), err
            planned = json.loads(await output_of(tmp_path, *recent, "--json"))
            assert planned["pays"], planned["why"]
            assert planned["submitted"]
            assert planned["report"]["capacity"]["limits"]["clients"] == 900, "the least of the running servers"
            name = planned["plan"]
            figures = planned["report"]["servers"]["2"]
            assert figures["plan"]["connections"] < figures["current"]["connections"]
            assert f"{name}  ready" in await output_of(tmp_path, "plans")

            # Without a terminal there is no question.
            code, _, err = await diem("apply", name, cwd=tmp_path)
            assert (code, "add --yes" in err) == (2, True)
            applying = await begun(tmp_path, "apply", planned["file"], "--yes")
            lines = await until(applying, "waiting for clients to move")
            os.kill(running.pids()["metadata"], signal.SIGKILL)
            lines += await until(applying, f"{name} is applied")
            assert await applying.wait() == 0, lines
            assert any("would move, with" in line for line in lines)
            assert any("the connections of clients, one to each server" in line for line in lines)
            after = await homes(running)
            moved = {each: home for each, home in after.items() if before.get(each) != home}
            assert 0 < len(moved) <= planned["report"]["moves"]["endpoints"]
            await client.sees(await put(running, 2))

            taking_back = await begun(tmp_path, "rollback", "--yes")
            await until(taking_back, "back: ")
            taking_back.send_signal(signal.SIGINT)
            await until(taking_back, f"{name} continues without this command; its progress: diem rollback {name}")
            assert await taking_back.wait() == 0
            assert "rolled back" in await output_of(tmp_path, "rollback"), "by now, or while it is watched"
            assert await homes(running) == before
            await client.sees(await put(running, 3))


async def test_autoplan_without_traffic_does_nothing_and_reports_it(tmp_path: Path) -> None:
    code, out, _ = await diem("autoplan", "--once", "--no-spark", cwd=tmp_path)
    assert code == 1
    assert "failed: diem plan: diem is not up in" in out
    (entry,) = (tmp_path / ".diem" / "autoplan.jsonl").read_text().splitlines()
    assert json.loads(entry)["what"] == "failed"

    loop = await begun(tmp_path, "autoplan", "--no-spark", "--every", "1h")
    await until(loop, "failed: ")
    code, _, err = await diem("autoplan", "--once", "--no-spark", cwd=tmp_path)
    assert (code, "another `diem autoplan` runs here" in err) == (1, True)
    loop.terminate()
    async with asyncio.timeout(PATIENCE_S):
        assert await loop.wait() == 0


def record(folder: Path) -> list[str]:
    """Record clients of pairs of endpoints, and some with our endpoint and another one; return the other names."""
    # So many that the saving is more than chance.
    recorded = events(clients=800)
    life_begin = recorded[0].time
    ours: list[Any] = []
    for number in range(10):
        client = f"{0xFF00 + number:016x}"
        for type_, names in ((Type.CONNECT, ()), (Type.SUBSCRIBE, (NAME, "/my/other"))):
            made = recorded[0]._replace(
                type=type_, id=f"{0xA1:012x}-{10_000 + len(ours)}", time=life_begin + number, endpoints=names
            )
            ours.append(made._replace(client=client, connection=client))
    assert all(event.time < life_begin + MINUTE for event in ours)
    write(folder, "websocket-1-a-1.jsonl", [*recorded, *ours])
    return sorted({name for event in (*recorded, *ours) for name in event.endpoints} - {NAME})


async def publish(running: Running, names: list[str]) -> None:
    """Store a dataset for each name: unpublished names are not moved."""
    key = (running.cwd / ".diem" / "write.key").read_text().strip()
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        url = f"{running.described()['urls']['page']}v1/data"
        body = bulk(dict.fromkeys(names, 1.0))
        answer = await http.put(url, json=body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text


async def homes(running: Running) -> dict[str, list[int | None]]:
    """Return the entries of the metadata service's map."""
    status = await running.status()
    async with http_client(SharedKey.load(running.cwd / ".diem" / "internal.key")) as http:
        url = f"{status['metadata']['urls']['internal']}/v1/partitions"
        entries: dict[str, list[int | None]] = (await http.get(url)).json()["entries"]
    return entries


async def output_of(cwd: Path, *arguments: str) -> str:
    """Return the output of a successful command."""
    code, out, err = await diem(*arguments, cwd=cwd)
    assert code == 0, err
    return out


async def begun(cwd: Path, *arguments: str) -> asyncio.subprocess.Process:
    """Start a command; standard error is merged into its output."""
    return await asyncio.create_subprocess_exec(
        *DIEM, *arguments, cwd=cwd, env=environment(), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )


async def until(process: asyncio.subprocess.Process, text: str) -> list[str]:
    """Return the output lines of a command up to one with a text."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(2 * PATIENCE_S):
        async for line in process.stdout:
            lines.append(line.decode().rstrip())
            if text in lines[-1]:
                return lines
    raise AssertionError(lines)


@contextlib.asynccontextmanager
async def subscribed(running: Running) -> AsyncIterator[Client]:
    """Run a client that locates its endpoint, and follows it when it moves."""
    urls = running.described()["urls"]
    origin = urls["page"].rstrip("/").replace("127.0.0.1", "localhost")
    made = Client()

    async def follow() -> None:
        async with PartitionedClient(urls["websocket"], hosts={"127.0.0.1"}, origin=origin) as client:
            await client.subscribe({NAME: None})
            async for event in client:
                made.seen.append(event)

    task = asyncio.create_task(follow())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])
