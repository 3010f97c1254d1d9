"""Kill a Data Service at random moments during writes, and compare its store with the accepted changes."""

import asyncio
import contextlib
import random
import signal
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import orjson

from tests.integration.data.process import DataProcess, bulk, serving
from tests.support.patience import PATIENCE_S

WRITERS = 4
NAMES = 25
"""Endpoints of one writer, and of one request."""


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class WriteRecord:
    """Accepted changes over all lives of the process. A writer sends a greater value with every request."""

    accepted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The last accepted version of each endpoint with its value."""
    attempted: dict[str, int] = field(default_factory=dict)
    """The last value that was sent, accepted or not."""
    values: dict[tuple[str, int], int] = field(default_factory=dict)
    """The value of each version that was ever seen."""
    answers: int = 0
    streamed: int = 0
    kills: int = 0
    in_doubt: int = 0
    """Number of changes found although their answer was lost."""

    def add_version(self, endpoint: str, version: int, value: int) -> None:
        """Record the value of a version. Raises ``Broken`` if it had another one before."""
        if self.values.setdefault((endpoint, version), value) != value:
            raise Broken(f"version {version} of {endpoint} was {self.values[endpoint, version]} and is {value}")

    def accept(self, endpoint: str, version: int, value: int) -> None:
        """Record an answered change."""
        if version <= self.accepted.get(endpoint, (0, 0))[0]:
            raise Broken(f"{endpoint} had version {self.accepted[endpoint][0]} and was given {version}")
        self.add_version(endpoint, version, value)
        self.accepted[endpoint] = (version, value)

    def check_stored(self, endpoint: str, version: int, value: int) -> None:
        """Record and check an endpoint of the store after a restart."""
        self.add_version(endpoint, version, value)
        last, known = self.accepted.get(endpoint, (0, 0))
        if (version, value) == (last, known):
            return
        if version < last or not known < value <= self.attempted[endpoint]:
            raise Broken(f"{endpoint} had {known} as version {last} and has {value} as version {version}")
        self.in_doubt += 1
        self.accepted[endpoint] = (version, value)


async def kill_repeatedly(state: Path, kills: int, seed: int, **settings: str) -> WriteRecord:
    """Start, write, kill and compare, repeatedly. Raises ``Broken``."""
    moments = random.Random(seed)
    record = WriteRecord()
    for _ in range(kills):
        async with serving(state, **settings) as process:
            await _compare(process, record)
            writers = [asyncio.create_task(_write(process, number, record)) for number in range(WRITERS)]
            writers.append(asyncio.create_task(_stream(process, record)))
            before = record.answers
            async with asyncio.timeout(PATIENCE_S):  # at any moment, but under load
                while record.answers < before + WRITERS:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(moments.uniform(0, 0.25))
            await process.end(signal.SIGKILL)
            await asyncio.gather(*writers)
            record.kills += 1
    async with serving(state, **settings) as process:
        await _compare(process, record)
    return record


async def _write(process: DataProcess, writer: int, record: WriteRecord) -> None:
    names = [f"/w{writer}/e{number}" for number in range(NAMES)]
    async with httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http:
        with contextlib.suppress(httpx.TransportError):
            while True:
                value = record.attempted.get(names[0], 0) + 1
                record.attempted.update(dict.fromkeys(names, value))
                answer = await http.put("/v1/data", json=bulk(dict.fromkeys(names, value)))
                if answer.status_code != 200:
                    raise Broken(answer.text)
                for one in answer.json()["accepted"]:
                    record.accept(one["endpoint"], one["version"], value)
                record.answers += 1


async def _stream(process: DataProcess, record: WriteRecord) -> None:
    """Write as many values as the service takes, over one connection."""
    names = [f"/s/e{number}" for number in range(NAMES)]
    reader, writer = await asyncio.open_connection("127.0.0.1", process.serving.result()["port"])
    fields = ["Host: localhost", *(f"{name}: {value}" for name, value in process.write.items())]
    fields += ["Content-Type: application/x-ndjson", "Transfer-Encoding: chunked", "", ""]
    sent = deque[tuple[str, int]]()

    async def send() -> None:
        writer.write("\r\n".join(["POST /v1/data HTTP/1.1", *fields]).encode())
        while True:
            lines = []
            for name in names:
                value = record.attempted[name] = record.attempted.get(name, 0) + 1
                sent.append((name, value))
                point = {"time": "2026-01-01T00:00:00Z", "value": value}
                series = {"unit": "MW", "resolution": "PT1H", "points": [point]}
                lines.append(orjson.dumps({"endpoint": name, "series": series}, option=orjson.OPT_APPEND_NEWLINE))
            chunk = b"".join(lines)
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
            await asyncio.sleep(0)

    async def receive() -> None:
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readline() or b"0", 16):
            for line in (await reader.readexactly(size + 2)).splitlines():
                answer, (name, value) = orjson.loads(line or b"null"), sent[0]
                if answer is not None and "version" not in answer:
                    raise Broken(str(answer))
                if answer is not None:
                    sent.popleft()
                    record.accept(name, answer["version"], value)
                    record.streamed += 1

    sending = asyncio.create_task(send())
    try:
        with contextlib.suppress(OSError, EOFError):
            await receive()
    finally:
        sending.cancel()
        writer.close()
        await asyncio.gather(sending, return_exceptions=True)


async def _compare(process: DataProcess, record: WriteRecord) -> None:
    async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
        listed = {one["endpoint"] for one in (await http.get("/v1/endpoints")).json()["endpoints"]}
        if missing := record.accepted.keys() - listed:
            raise Broken(f"{min(missing)} is gone")
        for prefix in ("/s/", *(f"/w{writer}/" for writer in range(WRITERS))):
            seen = {name: await _read(http, name) for name in listed if name.startswith(prefix)}
            if prefix != "/s/" and len({value for _, value in seen.values()}) > 1:
                raise Broken("a request was stored in part")
            for endpoint, (version, value) in seen.items():
                record.check_stored(endpoint, version, value)
            if seen:
                await _compare_history(http, min(seen), record)


async def _read(http: httpx.AsyncClient, endpoint: str, **query: int) -> tuple[int, int]:
    body = (await http.get(f"/v1/data{endpoint}", params=query)).json()
    return body["version"], body["points"][0]["value"]


async def _compare_history(http: httpx.AsyncClient, endpoint: str, record: WriteRecord) -> None:
    """Check that the history has exactly the accepted changes."""
    kept = (await http.get(f"/v1/history{endpoint}")).json()["versions"]
    values = []
    for each in kept[:5]:
        version, value = await _read(http, endpoint, version=each["version"])
        record.add_version(endpoint, version, value)
        values.append(value)
    oldest = min(each["version"] for each in kept)
    for (name, version), value in record.values.items():
        if name == endpoint and version >= oldest and version not in {each["version"] for each in kept}:
            raise Broken(f"version {version} of {endpoint} ({value}) is not in its history")
