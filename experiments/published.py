"""Datasets of the size of the simulated market's, and a writer of few instructions that takes the time of each request.

One client of the Data Service on one connection: a client library would take more CPU than the requests that it times.
"""

import asyncio
import random
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

import orjson

SHORTEST, LONGEST = 48, 90
"""Points of a dataset: 2.4 to 4.5 KB of JSON."""
TIMEOUT_S: Final = 30.0
IDLE_S: Final = 10.0
"""After this time a new connection is used: the Data Service closes those that were idle for long."""


class Accepted(NamedTuple):
    """One request that was accepted."""

    sent: float
    """Monotonic seconds at which it was sent."""
    seconds: float
    """Until the answer was there."""
    versions: dict[str, int]


class Refused(Exception):
    """The Data Service did not accept a write."""


def dataset(endpoint: str, rng: random.Random) -> dict[str, Any]:
    """Return a dataset with other values than any before; its length depends on the endpoint's number."""
    number = int(endpoint.rpartition("/")[2])
    points = [
        {"time": f"2026-01-{1 + i // 24:02d}T{i % 24:02d}:00:00Z", "value": round(rng.uniform(10, 300), 2)}
        for i in range(SHORTEST + (21 + 29 * number) % (LONGEST - SHORTEST + 1))
    ]
    return {"endpoint": endpoint, "unit": "EUR/MWh", "resolution": "PT1H", "points": points}


class Writer:
    """Writes to a Data Service, one request at a time."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = (
            f"PUT /v1/data HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )
        self._rng = random.Random(1)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used = 0.0

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def put(self, endpoints: Sequence[str]) -> Accepted:
        """Change endpoints, at most 50. Raises ``Refused``."""
        body = orjson.dumps({"datasets": [dataset(endpoint, self._rng) for endpoint in endpoints]})
        request = f"{self._head}{len(body)}\r\n\r\n".encode() + body
        sent = monotonic()
        if sent - self._used > IDLE_S:
            self.close()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, answer = await self._request(request)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.close()
            raise Refused(repr(error)) from error
        if status != 200:
            raise Refused(f"{status} {answer[:200]!r}")
        self._used = monotonic()
        seconds = self._used - sent
        return Accepted(sent, seconds, {each["endpoint"]: each["version"] for each in orjson.loads(answer)["accepted"]})

    async def _request(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        return int(head.split(b" ", 2)[1]), await reader.readexactly(length)
