"""``make bench-points``: the CPU of a PATCH of one point of a year by the hour, of that of a PUT of one point.

Requests one after another, each a change; rounds of both take turns; histories are full. ``QUICK=1``: fewer.
"""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import httpx
import orjson

from diem.protocol.media_types import POINTS_PATCH, SERIES
from services.data.kinds.series import iso_seconds
from tests.bench.figures import Figure, figure
from tests.bench.procfs import cost
from tests.bench.report import Report
from tests.bench.stores import stores
from tests.integration.data.process import DataProcess, serving
from tests.load.bench import Goal, exit_code, write
from tests.support.commandline import parser
from tests.support.postgres import Cluster
from tests.support.size import sized

HOURS: Final = 8760
START_S: Final = 1_767_225_600
ROUNDS, REQUESTS, WARM = sized((9, 200, 100), (5, 100, 60), (1, 3, 2))
"""Warm: patches and PUTs beforehand, so that histories are full."""
RATIO_GOAL: Final = 3.0


class Client:
    """Changes two endpoints of a Data Service: one of a single point, and a year."""

    def __init__(self, process: DataProcess, http: httpx.AsyncClient) -> None:
        self.process = process
        self._http = http
        self._value = 0
        self._random = random.Random(1)

    async def create(self) -> None:
        """Put the year."""
        values = (round(self._random.uniform(0, 300), 2) for _ in range(HOURS))
        points = [{"time": _time(hour), "value": value} for hour, value in enumerate(values)]
        await self._send("PUT", "/year", SERIES, {"unit": "EUR/MWh", "resolution": "PT1H", "points": points})

    async def put(self) -> None:
        """Replace the single point."""
        points = [self._point(0)]
        await self._send("PUT", "/one", SERIES, {"unit": "EUR/MWh", "resolution": "PT1H", "points": points})

    async def patch(self) -> None:
        """Replace one point of the year."""
        await self._send("PATCH", "/year", POINTS_PATCH, {"points": [self._point(self._random.randrange(HOURS))]})

    def _point(self, hour: int) -> dict[str, object]:
        self._value += 1
        return {"time": _time(hour), "value": self._value}

    async def _send(self, method: str, endpoint: str, media_type: str, body: object) -> None:
        headers = {"Content-Type": media_type}
        answer = await self._http.request(method, f"/v1/data{endpoint}", content=orjson.dumps(body), headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["changed"]


def _time(hour: int) -> str:
    return iso_seconds(START_S + hour * 3600)


@contextlib.asynccontextmanager
async def running(folder: Path, name: str, cluster: Cluster | None) -> AsyncIterator[Client]:
    """Run a Data Service, with the year and full histories."""
    place = folder / name
    url = f"sqlite:///{place / 'data.db'}" if cluster is None else cluster.url(cluster.new_database())
    async with (
        serving(place, DATABASE_URL=url) as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=60) as http,
    ):
        client = Client(process, http)
        await client.create()
        for _ in range(WARM):
            await client.put()
            await client.patch()
        yield client


async def measure(client: Client) -> tuple[float, float]:
    """Run one round; return the CPU of a PUT and of a PATCH in milliseconds."""
    found = []
    for change in (client.put, client.patch):
        before = cost(client.process.child.pid).cpu
        for _ in range(REQUESTS):
            await change()
        found.append((cost(client.process.child.pid).cpu - before) / REQUESTS * 1000)
    put, patch = found
    return put, patch


async def run(cluster: Cluster | None, folder: Path, report: Report) -> dict[str, dict[str, Figure]]:
    """Return the figures of each store."""
    figures = {}
    for name, of in {"sqlite": None, **({"postgresql": cluster} if cluster else {})}.items():
        report.step(f"filling: {name}")
        async with running(folder, name, of) as client:
            rounds = []
            for number in range(ROUNDS):
                report.step(f"round {number + 1}: {name}")
                rounds.append(await measure(client))
        figures[name] = {
            "put_ms": figure([put for put, _ in rounds]),
            "patch_ms": figure([patch for _, patch in rounds]),
            "ratio": figure([patch / put for put, patch in rounds]),
        }
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/points.json and print the figures."""
    parser(__spec__, __doc__, report="build/bench/points.json", quick="fewer rounds").parse_args(argv)
    with stores("points") as (folder, cluster), Report((1 if cluster is None else 2) * (1 + ROUNDS)) as report:
        figures = asyncio.run(run(cluster, folder, report))
        found = [
            Goal(f"{name}: CPU of a PATCH of a point, of a PUT of one", "x", RATIO_GOAL, of["ratio"].median)
            for name, of in figures.items()
        ]
        report.medians(figures)
        report.goals(found)
    print(f"written: {write('points', {'points': HOURS, 'requests': REQUESTS, 'stores': figures}, found)}")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main())
