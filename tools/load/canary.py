"""The endless form of a load test: writes every few seconds, watches every edge, and names late ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.terminal import Terminal
from diem.client import BaseClient, Event, UpdatesClient
from diem.errors import DiemError
from diem.process import metrics
from diem.process.backoff import wait
from diem.process.tasks import cancelled_at_the_end
from tools.load.client import follow
from tools.load.edges import EdgeAddress
from tools.load.lateness import Late, WatchedEdge, Writes

CHECK_EVERY_S: Final = 0.5
REFRESH_EVERY_S: Final = 5.0
"""Interval of checks for added and removed edges."""
NAMES_PER_CLIENT: Final = 100
"""Subscriptions of one client, below the limit of a server (docs/reliability.md S10)."""

FindEdges = Callable[[], Awaitable[list[EdgeAddress]]]
Write = Callable[[], Awaitable[Mapping[str, int]]]
Connect = Callable[[EdgeAddress], BaseClient]


@dataclass
class _Watched:
    address: EdgeAddress
    edge: WatchedEdge
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    late: Late | None = None
    """Content of the last line about it."""


class Canary:
    """Watches one system.

    Args:
        names: its endpoints, with the partition of each.
        find_edges: returns the current edges of the system. May raise ``DiemError``: known ones stay.
        write: writes all endpoints, and returns their versions. May raise ``DiemError``.
        connect: makes a client of an edge.
        terminal: receives a line for each edge that becomes late or recovers.
        every_s: seconds between two writes.
        late_after_s: age at which a write is late.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        names: Mapping[str, int],
        *,
        find_edges: FindEdges,
        write: Write,
        connect: Connect,
        terminal: Terminal,
        every_s: float,
        late_after_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self._find_edges = find_edges
        self._write = write
        self._connect = connect
        self._terminal = terminal
        self._every_s = every_s
        self._late_after_s = late_after_s
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._writes = Writes()
        self._accepted_at = clock()
        """When the last write was accepted, or the canary began."""
        self._accepted_unix_s = 0.0
        self._failure = ""
        """Of the last write, if it was not accepted."""
        self._is_stopped = False
        """A line says that nothing is written."""

    async def run(self, stopping: asyncio.Event, *, once: bool = False) -> bool:
        """Watch until ``stopping``; ``once``: until every edge has delivered each of its partitions, or one is late.

        Returns:
            True if ended by success: every edge has delivered each of its partitions, none is late.
        """
        self._accepted_at = self._clock()
        await self._refresh()
        async with cancelled_at_the_end() as tasks:
            tasks.extend(asyncio.ensure_future(each) for each in (self._keep_written(), self._keep_edges()))
            try:
                while not await wait(stopping, CHECK_EVERY_S) and not any(task.done() for task in tasks):
                    self._check()
                    is_late = self._is_stopped or any(each.late for each in self._watched.values())
                    is_measured = all(each.edge.is_measured() for each in self._watched.values())
                    if once and (is_late or is_measured):
                        return not is_late
            finally:
                for each in self._watched.values():
                    tasks.extend(each.tasks)
        return False

    def lines(self) -> Iterator[str]:
        """Yield a line for each edge with its longest delay."""
        delays = self._delays()
        for name, each in self._watched.items():
            without = "no update yet" if each.edge.deliveries else "no partitions"
            yield f"{name}: " + (f"{1000 * delays[name]:,.0f} ms" if name in delays else without)

    def samples(self) -> Iterable[metrics.Sample]:
        """Yield the metrics."""
        for name, delay_s in self._delays().items():
            yield metrics.CANARY_DELAY.sample(delay_s, name)
        late = self._late()
        for name in self._watched:
            if name not in late:
                yield metrics.CANARY_LATE.sample(0, name, "")
            else:
                for partition in late[name].partitions or ("",):
                    yield metrics.CANARY_LATE.sample(1, name, str(partition))
        yield metrics.CANARY_WRITTEN.sample(self._accepted_unix_s)

    def status(self) -> dict[str, Any]:
        """Return the delays and the late edges."""
        now = self._clock()
        return {
            "ready": True,
            "partitions": len(self._names),
            "delays": {name: round(delay_s, 3) for name, delay_s in self._delays().items()},
            "late": {name: late.line(name, now) for name, late in self._late().items()},
            "failure": self._failure or None,
        }

    def _delays(self) -> dict[str, float]:
        now = self._clock()
        delays = ((name, each.edge.delay_s(self._writes, now)) for name, each in self._watched.items())
        return {name: delay_s for name, delay_s in delays if delay_s is not None}

    def _late(self) -> dict[str, Late]:
        now = self._clock()
        late = ((name, each.edge.late(self._writes, now, self._late_after_s)) for name, each in self._watched.items())
        return {name: found for name, found in late if found is not None}

    async def _keep_written(self) -> None:
        while True:
            began = self._clock()
            try:
                versions = await self._write()
            except DiemError as error:
                self._failure = str(error)
            else:
                now = self._clock()
                if self._is_stopped:
                    self._terminal.info(f"writes are accepted again, after {now - self._accepted_at:.0f} s")
                self._writes.add(versions, now)
                self._accepted_at, self._accepted_unix_s, self._failure, self._is_stopped = now, time.time(), "", False
            await asyncio.sleep(max(0.0, began + self._every_s - self._clock()))

    async def _keep_edges(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_EVERY_S)
            await self._refresh()

    async def _refresh(self) -> None:
        """Watch new edges, and stop watching removed ones."""
        try:
            found = {address.name: address for address in await self._find_edges()}
        except DiemError:
            if not self._watched:
                raise
            return
        for name, each in list(self._watched.items()):
            if found.get(name) != each.address:
                for task in each.tasks:
                    task.cancel()
                del self._watched[name]
        for name, address in found.items():
            if name not in self._watched:
                self._watched[name] = self._watch(address)

    def _watch(self, address: EdgeAddress) -> _Watched:
        """Subscribe at an edge: at a server with one link, else with as many clients as needed."""
        names = list(self._names)
        size = len(names) if address.is_server else NAMES_PER_CLIENT
        parts = [names[first : first + size] for first in range(0, len(names), size)]
        clients = [self._connect(address) for _ in parts]
        several = not address.is_server and (len(parts) > 1 or not isinstance(clients[0], UpdatesClient))
        edge = WatchedEdge(self._names, self._clock(), address.is_partial, several)

        def apply(event: Event, unix_s: float) -> None:
            edge.apply(event, self._clock(), unix_s)

        tasks = [
            asyncio.ensure_future(follow(client, part, apply)) for client, part in zip(clients, parts, strict=True)
        ]
        return _Watched(address, edge, tasks)

    def _check(self) -> None:
        """Print a line for each edge that became late (also for further partitions) or recovered."""
        now, late = self._clock(), self._late()
        for name, each in self._watched.items():
            found, named = late.get(name), each.late
            if found is None:
                if named is not None:
                    self._terminal.info(f"{name} is up to date again, after {now - named.since:.0f} s")
                each.late = None
            elif named is None or {*found.partitions} - {*named.partitions} or named.connected != found.connected:
                self._terminal.warn(found.line(name, now))
                each.late = found if named is None else found._replace(since=named.since)
        if not self._is_stopped and now - self._accepted_at >= self._late_after_s:
            self._is_stopped = True
            self._terminal.warn(
                f"nothing was written for {now - self._accepted_at:.0f} s: {self._failure or 'no answer'}"
            )
