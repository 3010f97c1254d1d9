"""The loop of a canary: writes, watches every edge, and names those that are late."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from deploy.terminal import amount
from diem.errors import DiemError
from diem.process import metrics
from diem.process.backoff import wait
from tools.canary.edges import EdgeAddress
from tools.canary.lateness import LATE_AFTER_S, Late, LatenessTracker
from tools.canary.watchers import Observer

WRITE_EVERY_S: Final = 2.0
CHECK_EVERY_S: Final = 0.5
REFRESH_EVERY_S: Final = 5.0
"""Seconds between two looks for edges that were added or removed."""
MAX_SHOWN: Final = 12
"""Partitions that a line names."""


class Output(Protocol):
    """Where lines go."""

    def info(self, text: str) -> None:
        """Print a line."""
        ...

    def warn(self, text: str) -> None:
        """Print a warning."""
        ...


class Watcher(Protocol):
    """A connection to one edge."""

    async def run(self) -> None:
        """Watch until cancelled."""
        ...

    def request_missing(self) -> None:
        """Request again what the edge has refused."""
        ...


Watch = Callable[[EdgeAddress, Observer], Watcher]
FindEdges = Callable[[], Awaitable[list[EdgeAddress]]]
Write = Callable[[], Awaitable[dict[str, int]]]


@dataclass(frozen=True, slots=True)
class CanaryOptions:
    """Times of a canary, in seconds."""

    every_s: float = WRITE_EVERY_S
    late_after_s: float = LATE_AFTER_S


@dataclass
class _Running:
    address: EdgeAddress
    watcher: Watcher
    task: asyncio.Task[None]


@dataclass
class _Writes:
    """What is known of the writes."""

    accepted_at: float
    """When the last write was accepted, or the canary began; monotonic."""
    accepted_unix_s: float = 0.0
    failure: str = ""
    named: bool = False
    """The failure was printed."""


class Canary:
    """Watches one system (it is the ``Observer`` of its edges).

    Args:
        names: its endpoints, with the partition of each.
        find_edges: returns the edges of the system as it is now. May raise ``DiemError``: those that are known stay.
        write: writes all endpoints, and returns their versions. May raise ``DiemError``.
        watch: makes the watcher of an edge.
        output: receives a line for each edge that is late, and for each that has recovered.
        options: times.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        names: dict[str, int],
        *,
        find_edges: FindEdges,
        write: Write,
        watch: Watch,
        output: Output,
        options: CanaryOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self.tracker = LatenessTracker(len(names), self._options.late_after_s)
        self._partitions = names
        self._find_edges = find_edges
        self._write_all = write
        self._watch = watch
        self._output = output
        self._running: dict[str, _Running] = {}
        self._named: dict[str, Late] = {}
        self._late_since: dict[str, float] = {}
        self._clock = clock
        self._writes = _Writes(self._clock())

    async def run(self, stopping: asyncio.Event) -> None:
        """Watch until ``stopping``."""
        await self._run(stopping, once=False)

    async def run_once(self, stopping: asyncio.Event) -> bool:
        """Watch until every edge has delivered each of its partitions once, or is late; return whether none is."""
        await self._run(stopping, once=True)
        return self.tracker.is_measured() and not self._named and not self._writes.named and not stopping.is_set()

    def lines(self) -> Iterator[str]:
        """Yield a line for each edge with its longest delay."""
        delays = dict(self.tracker.delays(self._clock()))
        for edge in self.tracker.edges:
            delay_s = delays.get(edge)
            without = "no update yet" if self.tracker.partitions_of(edge) else "no partitions"
            yield f"{edge}: " + (without if delay_s is None else f"{1000 * delay_s:,.0f} ms")

    def samples(self) -> Iterable[metrics.Sample]:
        """Yield the metrics."""
        now = self._clock()
        for edge, delay_s in self.tracker.delays(now):
            yield metrics.CANARY_DELAY.sample(delay_s, edge)
        late = {each.edge: each for each in self.tracker.late(now)}
        for edge in self.tracker.edges:
            if edge not in late:
                yield metrics.CANARY_LATE.sample(0, edge, "")
            else:
                for partition in late[edge].partitions or ("",):
                    yield metrics.CANARY_LATE.sample(1, edge, str(partition))
        yield metrics.CANARY_WRITTEN.sample(self._writes.accepted_unix_s)

    def status(self) -> dict[str, Any]:
        """Return the delays and the edges that are late."""
        now = self._clock()
        return {
            "ready": True,
            "partitions": len(self._partitions),
            "delays": {edge: round(delay_s, 3) for edge, delay_s in self.tracker.delays(now)},
            "late": {late.edge: describe(late) for late in self.tracker.late(now)},
            "failure": self._writes.failure or None,
        }

    # Observer

    def opened(self, edge: str) -> None:
        """Apply an opened connection."""
        if edge in self._running:
            self.tracker.opened(edge)

    def lost(self, edge: str, reason: str) -> None:
        """Apply a lost connection."""
        if edge in self._running:
            self.tracker.lost(edge, self._clock(), reason)

    def confirmed(self, edge: str, name: str, version: int) -> None:
        """Apply a subscription."""
        if (partition := self._partition(edge, name)) is not None:
            self.tracker.confirmed(edge, partition, version, self._clock())

    def refused(self, edge: str, name: str, reason: str) -> None:
        """Apply a refused subscription."""
        if (partition := self._partition(edge, name)) is not None:
            self.tracker.refused(edge, partition, reason)

    def updated(self, edge: str, name: str, version: int) -> None:
        """Apply an update; its version is the Unix time of the commit in ms, so clocks have to agree."""
        if (partition := self._partition(edge, name)) is not None:
            self.tracker.delivered(edge, partition, version, time.time() - version / 1000)

    def _partition(self, edge: str, name: str) -> int | None:
        """Return the partition of an endpoint; None for what is not ours, or no longer an edge."""
        return self._partitions.get(name) if edge in self._running else None

    # The loop

    async def _run(self, stopping: asyncio.Event, *, once: bool) -> None:
        over = asyncio.Event()
        self._writes = _Writes(self._clock())
        await self._refresh()
        loops: list[Coroutine[Any, Any, None]] = [self._keep_written(over), self._keep_edges(over)]
        tasks = [asyncio.ensure_future(each) for each in loops]
        try:
            while not await wait(stopping, CHECK_EVERY_S):
                self._check()
                for task in tasks:
                    if task.done():
                        task.result()
                if once and (self._named or self._writes.named or self.tracker.is_measured()):
                    return
        finally:
            over.set()
            running = [each.task for each in self._running.values()]
            for task in running:
                task.cancel()
            await asyncio.gather(*tasks, *running, return_exceptions=True)

    async def _keep_written(self, over: asyncio.Event) -> None:
        while not over.is_set():
            began = self._clock()
            try:
                versions = await self._write_all()
            except DiemError as error:
                self._writes.failure = str(error)
            else:
                self._apply_write(versions)
            for running in self._running.values():
                running.watcher.request_missing()
            await wait(over, max(0.0, began + self._options.every_s - self._clock()))

    def _apply_write(self, versions: dict[str, int]) -> None:
        now = self._clock()
        self.tracker.written({self._partitions[name]: version for name, version in versions.items()}, now)
        if self._writes.named:
            self._output.info(f"writes are accepted again, after {now - self._writes.accepted_at:.0f} s")
        self._writes = _Writes(now, time.time())

    async def _keep_edges(self, over: asyncio.Event) -> None:
        while not await wait(over, REFRESH_EVERY_S):
            await self._refresh()

    async def _refresh(self) -> None:
        """Watch edges that are new, and no longer those that have left the system."""
        try:
            found = {address.name: address for address in await self._find_edges()}
        except DiemError:
            if not self._running:
                raise
            return
        for name, running in list(self._running.items()):
            if found.get(name) != running.address:
                running.task.cancel()
                del self._running[name]
                self._named.pop(name, None)
                self.tracker.remove(name)
        for name, address in found.items():
            if name not in self._running:
                self.tracker.add(name, self._clock(), partial=address.is_partial)
                watcher = self._watch(address, self)
                self._running[name] = _Running(address, watcher, asyncio.ensure_future(watcher.run()))

    def _check(self) -> None:
        """Print a line for each edge that has become late, also for further partitions, or has recovered."""
        now = self._clock()
        late = {each.edge: each for each in self.tracker.late(now)}
        for edge, found in late.items():
            named = self._named.get(edge)
            if named is None or (set(found.partitions) - set(named.partitions)) or named.connected != found.connected:
                self._output.warn(describe(found))
                self._late_since.setdefault(edge, now - found.seconds)
                self._named[edge] = found
        for edge in self._named.keys() - late.keys():
            del self._named[edge]
            self._output.info(f"{edge} is up to date again, after {now - self._late_since.pop(edge, now):.0f} s")
        writes = self._writes
        if not writes.named and now - writes.accepted_at >= self._options.late_after_s:
            writes.named = True
            self._output.warn(
                f"nothing was written for {now - writes.accepted_at:.0f} s: {writes.failure or 'no answer'}"
            )


def describe(late: Late) -> str:
    """Return the line about an edge that is late."""
    text = f"{late.edge} is late: "
    shown = ", ".join(map(str, late.partitions[:MAX_SHOWN])) + (", ..." if len(late.partitions) > MAX_SHOWN else "")
    if late.connected:
        text += (
            f"nothing for {late.seconds:.0f} s of {'partition' if len(late.partitions) == 1 else 'partitions'} {shown}"
        )
    else:
        text += f"not connected for {late.seconds:.0f} s"
        text += f" ({amount(len(late.partitions), 'partition')}: {shown})" if late.partitions else ""
    return f"{text}: {late.reason}" if late.reason else text
