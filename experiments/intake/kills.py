"""Kills a Data Service at random while a source of it reads, and judges its store at the end."""

import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import httpx

from experiments.intake.oracle import Faults, Numbers, judge, versions
from tests.integration.data.process import RESTARTED, DataProcess, start
from tests.support.patience import PATIENCE_S

LIFE_S: Final = 1.2
"""Longest life of a process after its start."""
READ_SHARE: Final = 0.8
"""Share of the lives that last until the source reads; the others may end before."""
READING_S: Final = 5.0
KEPT: Final = 1000
"""Versions of an endpoint: the origin writes fewer records of each key."""


class Origin(Protocol):
    """Where records come from."""

    prefix: str
    """Of the endpoints of its source."""

    @property
    def table(self) -> str:
        """The ``[[source]]`` of ``diem.toml``."""
        ...

    async def write(self, ended: asyncio.Event) -> None:
        """Write records with unique members ``n`` at a steady rate until ``ended``."""
        ...

    async def restart(self) -> None:
        """Kill the broker or the database, and start it again."""
        ...

    async def written(self) -> dict[str, Numbers]:
        """Return the numbers of the records of each endpoint, in their order."""
        ...


class Outcome(NamedTuple):
    """What the oracle has found."""

    kills: int
    records: int
    endpoints: int
    progressed: int
    """Lives in which records were stored."""
    faults: Faults


async def kill_again(
    origin: Origin,
    folder: Path,
    kills: int,
    step: Callable[[str], Any],
    *,
    launcher: Sequence[str] = (),
    url: str | None = None,
) -> Outcome:
    """Kill the service so many times under load, with a restart of the origin in between; return the outcome.

    Args:
        origin: whose source is read.
        folder: of the service's state.
        kills: how many.
        step: is called with the progress.
        launcher: begins the command line of the service.
        url: of the database; None: SQLite in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"HISTORY_VERSIONS": str(KEPT), "DATABASE_URL": url or f"sqlite:///{folder / 'data.db'}"}
    if url is not None:
        settings |= RESTARTED
    ended, draw, progressed = asyncio.Event(), random.Random(kills), 0

    async def life() -> DataProcess:
        process = await start(folder, config=origin.table, launcher=launcher, **settings)
        await process.ready()
        return process

    writing, restarting = asyncio.create_task(origin.write(ended)), None
    for number in range(kills):
        if number % 20 == 0:
            step(f"{number} kills")
        process = await life()
        if number == kills // 2:
            restarting = asyncio.create_task(origin.restart())
        if draw.random() < READ_SHARE:
            with suppress(TimeoutError):
                await asyncio.wait_for(_reading(process), READING_S)
        await asyncio.sleep(draw.uniform(0, LIFE_S))
        progressed += (await status(process))["records"] > 0
        await asyncio.sleep(draw.uniform(0, 0.05))
        await process.end(signal.SIGKILL)
    if restarting is not None:
        await restarting
    ended.set()
    await writing
    wanted = await origin.written()
    process = await life()
    async with asyncio.timeout(4 * PATIENCE_S):
        while (found := await status(process))["lag"] != 0 or not found["ok"]:
            await asyncio.sleep(0.1)
    await process.end()
    faults = judge(wanted, await versions(settings["DATABASE_URL"], origin.prefix))
    return Outcome(kills, sum(map(len, wanted.values())), len(wanted), progressed, faults)


async def _reading(process: DataProcess) -> None:
    while (await status(process))["records"] == 0:
        await asyncio.sleep(0.05)


async def status(process: DataProcess) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        answer = await http.get(f"{process.internal}/status", headers=process.shared)
    found: dict[str, Any] = answer.json()["sources"][0]
    return found
