"""How fast a Data Service reads a topic, how far its clients are behind, and how soon one record is on the screen."""

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from websockets import Subprotocol
from websockets.asyncio.client import connect

from diem.protocol.messages import SUBPROTOCOL
from experiments.intake.kills import status
from experiments.intake.topic import BATCH_BYTES, TopicOrigin
from experiments.viewers import viewing
from tests.bench import native
from tests.bench.procfs import cost
from tests.integration.data.process import serving
from tests.load.system import System
from tests.support.kafka_source import producer
from tests.support.patience import PATIENCE_S

REST_S: Final = 0.03
"""Pause between two records of an idle system."""
SAMPLE_S: Final = 0.2
TICK_S: Final = 0.02
CONNECTIONS: Final = {"DIEM_WEBSOCKET_CONNECTION_RATE_PER_ADDRESS": "100000"}
"""All clients connect at once, from one address."""


class Drained(NamedTuple):
    """A topic that was read from its beginning."""

    records: int
    per_s: float
    per_core_s: float
    """For a second of the service's CPU."""


async def drain(origin: TopicOrigin, folder: Path, count: int, core: int | None) -> Drained:
    """Fill a topic, and read it by a Data Service on one core; this process is on another."""
    async with producer(origin.options, max_batch_size=BATCH_BYTES) as made:
        for _ in range(0, count, 2000):
            await origin.send(made, min(2000, count - origin.number), tombstones=False)
        await made.flush()
    launcher = () if core is None else ("taskset", "-c", str(core))
    async with serving(folder, config=origin.table, launcher=launcher) as process:
        began, before = time.perf_counter(), cost(process.child.pid).cpu
        async with asyncio.timeout(10 * PATIENCE_S):
            while (await status(process))["records"] < count:
                await asyncio.sleep(0.1)
        elapsed, cpu = time.perf_counter() - began, cost(process.child.pid).cpu - before
    return Drained(count, count / elapsed, count / cpu)


class Displayed(NamedTuple):
    """A system of mode single whose clients display the documents of a topic."""

    clients: int
    p50_ms: float
    """From the topic to the frame, while it is idle."""
    p99_ms: float
    rate: float
    """Records a second that were written under load."""
    lag_s: float
    """Median over the last half, in records of a second."""
    last_lag_s: float
    frames_per_s: float
    data_ms: float
    """CPU of the Data Service for a record."""
    reached: bool
    """Every client has displayed the last document of its endpoint."""


async def display(
    origin: TopicOrigin,
    folder: Path,
    step: Callable[[str], Any],
    *,
    clients: int,
    latencies: int,
    rate: int,
    seconds: float,
) -> Displayed:
    """Measure one record at a time, then a load, with clients of which each displays one endpoint."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(producer(origin.options, max_batch_size=BATCH_BYTES))
        system = await stack.enter_async_context(
            System("single", folder, ("--traffic", "off"), CONNECTIONS, origin.table)
        )
        step("one record at a time")
        _, port, path = system.servers[0]
        found = sorted(await _latencies(origin, made, f"ws://127.0.0.1:{port}{path}", latencies))
        step(f"{rate} records a second to {clients} clients")
        viewers = await stack.enter_async_context(
            viewing(
                native.program("viewers"), port, path, 0, processes=1, each=clients, sampled=0, fetchers=0, core=None
            )
        )
        for number in range(clients):
            await viewers.subscribe(number, [f"{origin.prefix}order-{number}"], data=True)
        data = system.process("data").pid or 0
        before, counts, began = cost(data).cpu, await viewers.current(), time.perf_counter()
        first = origin.number
        lags = await _load(system, origin, made, rate, seconds)
        written = origin.number - first
        actual = written / (time.perf_counter() - began)
        await _drained(system)
        cpu = cost(data).cpu - before
        frames = ((await viewers.current()).updates - counts.updates) / (time.perf_counter() - began)
        reached = await _one_more(origin, made, viewers, clients)
    half = lags[len(lags) // 2 :]
    return Displayed(
        clients,
        found[len(found) // 2] * 1000,
        found[int(len(found) * 0.99)] * 1000,
        actual,
        statistics.median(half) / actual,
        lags[-1] / actual,
        frames,
        cpu / written * 1000,
        reached,
    )


async def _latencies(origin: TopicOrigin, made: Any, url: str, count: int) -> list[float]:
    found = []
    async with connect(url, subprotocols=[Subprotocol(SUBPROTOCOL)]) as client:
        await client.send('{"type":"subscribe","id":1,"endpoints":{"/orders/one":null},"data":true}')
        for number in range(-10, count):
            began = time.perf_counter()
            await made.send(origin.topic, b'{"n":%d}' % number, key=b"one")
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frame = orjson.loads(await client.recv())
                    if frame["type"] == "update" and frame["data"]["n"] == number:
                        break
            if number >= 0:
                found.append(time.perf_counter() - began)
            await asyncio.sleep(REST_S)
    return found


async def _load(system: System, origin: TopicOrigin, made: Any, rate: int, seconds: float) -> list[int]:
    """Write at a rate; return the lag from time to time."""
    lags = []
    began = time.perf_counter()
    first, sampled = origin.number, began
    while (elapsed := time.perf_counter() - began) < seconds:
        await origin.send(made, max(0, int(elapsed * rate) - (origin.number - first)), tombstones=False)
        if time.perf_counter() - sampled > SAMPLE_S:
            sampled = time.perf_counter()
            lags.append(await _lag(system) or 0)
        await asyncio.sleep(TICK_S)
    return lags or [0]


async def _lag(system: System) -> int | None:
    found = (await system.ask("data", "GET", "/status")).json()["sources"][0]
    return found["lag"] if found["ok"] else None


async def _drained(system: System) -> None:
    async with asyncio.timeout(10 * PATIENCE_S):
        while await _lag(system) != 0:
            await asyncio.sleep(0.1)


async def _one_more(origin: TopicOrigin, made: Any, viewers: Any, clients: int) -> bool:
    """Write one more document of each key, and return whether each client displays it."""
    while (await viewers.current()).updates != (await _later(viewers)).updates:
        pass
    await origin.send(made, -origin.number % clients, tombstones=False)
    await made.flush()
    while (before := (await viewers.current()).updates) != (await _later(viewers)).updates:
        pass
    await origin.send(made, clients, tombstones=False)
    async with asyncio.timeout(PATIENCE_S):
        while (await viewers.current()).updates < before + clients:
            await asyncio.sleep(0.05)
    return bool((await _later(viewers)).updates == before + clients)


async def _later(viewers: Any) -> Any:
    await asyncio.sleep(0.5)
    return await viewers.current()
