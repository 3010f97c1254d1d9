"""Collects the operator page's data: one poll for all readers, and one in ten seconds without any."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from deploy.admin.counters import REFUSED, SAMPLE_S, Counters, History
from deploy.admin.findings import Situation
from deploy.admin.overview import Move, counter_values, overview
from deploy.clients.data_service import ServiceRefused
from deploy.clients.metadata import MetadataService, MetadataUnavailable, PlanStatus
from deploy.system.description import with_children
from diem.process.clock import Clock
from diem.protocol.partition_map import HOT

EVERY_S: Final = 1.0
"""Shortest time between the beginnings of two polls."""
MAX_SHARE: Final = 0.25
"""Maximum share of time spent on polls, which are further apart in large systems."""
SHOWN_MOVES: Final = 12
MAX_ENDPOINTS: Final = 20_000
"""Maximum size of a plan whose moves are read from the partition map."""

StatusSource = Callable[[], Awaitable[dict[str, Any]]]
"""Returns a status in the form of ``diem status --json``."""
Services = Callable[[Sequence[str]], MetadataService]
"""Returns the client of the metadata services at these base URLs."""


class PlanReader:
    """Reads the plans of a system, and the moves of the current one."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._moves: tuple[str, int | None, list[Move] | None] = ("", None, None)
        """Plan and epoch for which the moves were read last."""

    async def read(self, status: dict[str, Any]) -> tuple[list[PlanStatus], list[Move] | None]:
        """Return all plans, and some moves of the current one; nothing if no metadata service answers."""
        urls = [
            process["urls"]["internal"]
            for _, process in with_children(status["processes"])
            if process["process"] == "metadata" and process.get("report")
        ]
        if not urls:
            return [], None
        service = self._services(urls)
        try:
            plans = await service.plans()
            busy = next((plan for plan in plans if plan.is_in_progress), None)
            return plans, None if busy is None else await self._moves_of(service, busy, status)
        except (MetadataUnavailable, ServiceRefused):
            return [], None

    async def _moves_of(self, service: MetadataService, plan: PlanStatus, status: dict[str, Any]) -> list[Move] | None:
        name, epoch, moves = self._moves
        if (name, epoch) != (plan.id, plan.epoch):
            moves = await self._read_moves(service) if _endpoints(status) <= MAX_ENDPOINTS else None
            self._moves = (plan.id, plan.epoch, moves)
        return moves

    async def _read_moves(self, service: MetadataService) -> list[Move]:
        entries = (await service.snapshot()).map.entries
        moving = sorted((name, entry) for name, entry in entries.items() if entry.target not in {None, entry.home})
        return [
            Move(name.decode(), _partition(entry.home), _partition(entry.target))
            for name, entry in moving[:SHOWN_MOVES]
        ]


def _endpoints(status: dict[str, Any]) -> int:
    return max((int((each.get("report") or {}).get("endpoints") or 0) for each in status["processes"]), default=0)


def _partition(number: int | None) -> str:
    return "hot" if number == HOT else str(number)


class Collector:
    """The latest document of the page, polled on demand, and by :meth:`run` for its history.

    Args:
        source: returns the status of the system.
        plans: reads its plans.
        logs: directory of its logs, for people; None on several hosts.
        clock: paces the polls.
    """

    def __init__(self, source: StatusSource, plans: PlanReader, logs: Path | None, clock: Clock) -> None:
        self._source = source
        self._plans = plans
        self._logs = logs
        self._clock = clock
        self._counters = Counters()
        self._history = History()
        self._polling: asyncio.Task[bytes] | None = None
        self._next_at = -math.inf

    async def latest(self) -> bytes:
        """Return the document as JSON, at most one poll interval old.

        Concurrent callers share one poll, which continues when one of them leaves. Propagates the source's errors.
        """
        if self._polling is None or (self._polling.done() and self._clock.monotonic() >= self._next_at):
            self._polling = asyncio.create_task(self._poll())
        return await asyncio.shield(self._polling)

    async def run(self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Keep the history without readers, until cancelled."""
        while True:
            with suppress(Exception):  # whatever it is: readers get it, too
                await self.latest()
            await sleep(SAMPLE_S)

    async def close(self) -> None:
        """Cancel the current poll."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})

    async def _poll(self) -> bytes:
        begin = self._clock.monotonic()
        try:
            status = await self._source()
            plans, moves = await self._plans.read(status)
            now = self._clock.monotonic()
            self._counters.update(now, counter_values(status))
            situation = Situation(status, self._clock.wall_ms(), self._logs, plans, self._refusals())
            document = overview(situation, self._counters, moves)
            # By its begin: polls last differently, and none of the samples must be left out.
            self._history.add(begin, situation.now_ms, document["totals"])
            return orjson.dumps({**document, "history": self._history.columns()})
        finally:
            duration_s = self._clock.monotonic() - begin
            self._next_at = begin + max(EVERY_S, duration_s / MAX_SHARE)

    def _refusals(self) -> dict[str, dict[str, int]]:
        """Return each process's refused clients of the last minute, by cause."""
        found: dict[str, dict[str, int]] = {}
        for process, name in self._counters.names():
            if name.startswith(f"{REFUSED}.") and (count := self._counters.increase((process, name))):
                found.setdefault(process, {})[name.removeprefix(f"{REFUSED}.")] = count
        return found
