"""Any number of readers leaves connections for writers."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import orjson

from tests.integration.data.http_readers import HttpReaders
from tests.integration.data.process import DataProcess, bulk, serving
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.stalls import stalls

SLOWEST_S = 10.0 * FACTOR
"""A write is accepted within this on any machine; usually milliseconds, and never without a reserved connection."""


async def put(process: DataProcess, value: float) -> tuple[bytes, float]:
    """Write once, on a connection of its own; return the status and the seconds."""
    body = orjson.dumps(bulk({"/a": value}))
    head = (
        f"PUT /v1/data HTTP/1.1\r\nHost: localhost\r\nAuthorization: {process.write['Authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    start = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", process.serving.result()["port"])
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
    return answer[9:12], time.monotonic() - start


async def writes_under(process: DataProcess, readers: HttpReaders, writes: int) -> list[float]:
    """Write while the readers send requests; every write must be accepted. Return their seconds, sorted."""
    assert (await put(process, 0))[0] == b"200"
    async with readers.running():
        done = [await put(process, value + 1) for value in range(writes)]
        deadline = time.monotonic() + PATIENCE_S
        while not readers.have_all_connections:
            assert time.monotonic() < deadline, readers.answers
            await asyncio.sleep(0.02)
    assert Counter(status for status, _ in done) == {b"200": writes}
    return sorted(seconds for _, seconds in done)


async def test_writes_are_accepted_while_a_herd_of_readers_has_all_connections(tmp_path: Path) -> None:
    async with serving(tmp_path / "state", CONNECTIONS="20", RESERVED_CONNECTIONS="2", CONCURRENT_READS="4") as process:
        readers = HttpReaders(int(process.serving.result()["port"]), "/v1/data/a", asking=100, held=50)
        async with stalls() as stalled:
            took = await writes_under(process, readers, 20)
    assert took[-1] < SLOWEST_S + stalled.seconds
    # Readers get the data, or a Retry-After.
    assert readers.answers.keys() <= {"200", "503", "idle"}, readers.answers
