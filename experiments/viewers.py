"""The clients of ``make bench-display``: processes of C (viewers.c) that count frames and bodies, and sample times."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

from tests.bench.drain import Lost, pin

Fetching = Literal["off", "latest", "version"]
"""What clients do about an update without data: nothing, or request the current data, or that of the version."""
CONNECT_S: Final = 120.0
NICE: Final = "10"
"""Clients give way to the writer, which shares their core and takes the time of its requests."""


class Counts(NamedTuple):
    """What the clients have received since their start."""

    updates: int
    with_data: int
    fetched: int
    """Bodies of responses with status 200."""
    refused: int
    """Other responses, and connections that ended without one."""
    replies: int
    update_bytes: int
    """Bytes of update frames."""
    fetched_bytes: int
    """Bytes of responses, with their header fields."""
    open: int

    def __sub__(self, earlier: "Counts") -> "Counts":
        return Counts(*(now - before for now, before in zip(self, earlier, strict=True)))

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        return cls(*(sum(values) for values in zip(*parts, strict=True)))


class Sample(NamedTuple):
    """The time at which one client had something."""

    endpoint: str
    version: int
    kind: str
    """``u`` = an update without data, ``d`` = an update with data, ``f`` = the body of a response."""
    at: float
    """Seconds of the monotonic clock."""


class _Process:
    """One process of clients, and how many of its clients are subscribed to each endpoint."""

    def __init__(self, process: asyncio.subprocess.Process, count: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.commands, self.answers = process.stdin, process.stdout
        self.counts = Counts(0, 0, 0, 0, 0, 0, 0, count)
        self.subscribers: Counter[str] = Counter()

    def command(self, line: str) -> None:
        self.commands.write(f"{line}\n".encode())

    async def reach(self, updates: int, fetched: int) -> None:
        """Wait until this many more have arrived, and no more. Raises ``Lost``."""
        goal = self.counts.updates + updates
        self.command(f"wait {goal} {self.counts.fetched + self.counts.refused + fetched} 0")
        before, self.counts = self.counts, Counts(*map(int, (await self.answers.readline()).split()))
        if self.counts.updates != goal or self.counts.open != before.open:
            raise Lost(f"expected {updates} updates, got {self.counts - before}")

    async def current(self) -> None:
        """Count what has arrived by now."""
        self.command("wait 0 0 0")
        self.counts = Counts(*map(int, (await self.answers.readline()).split()))

    async def samples(self) -> list[Sample]:
        self.command("samples")
        rows = [(await self.answers.readline()).decode().split() for _ in range(int(await self.answers.readline()))]
        return [Sample(endpoint, int(version), kind, float(at)) for endpoint, version, kind, at in rows]


class Viewers:
    """The clients of several processes, numbered through."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process], each: int) -> None:
        self.count = each * len(processes)
        self._processes = [_Process(process, each) for process in processes]
        self._each = each

    @property
    def counts(self) -> Counts:
        """What has arrived, as of the last :meth:`reach`."""
        return Counts.total(process.counts for process in self._processes)

    async def subscribe(self, number: int, endpoints: Sequence[str], *, data: bool) -> None:
        """Subscribe one client; the endpoints' retained updates will follow."""
        process = self._processes[number // self._each]
        process.subscribers.update(endpoints)
        names = ",".join(f'"{endpoint}":null' for endpoint in endpoints)
        wanted = ',"data":true' if data else ""
        text = f'{{"type":"subscribe","id":1,"endpoints":{{{names}}}{wanted}}}'
        process.command(f"tell {number % self._each} {text}")
        await process.commands.drain()

    async def fetch(self, fetching: Fetching) -> None:
        """Set what clients do about updates without data that arrive after this call."""
        for process in self._processes:
            process.command(f"fetch {fetching}")
        # The answer shows that the commands before have been read.
        await self.reach(())

    async def reach(self, changed: Sequence[str], fetched: Sequence[str] = ()) -> None:
        """Wait until every subscriber has the updates of these changes, and the responses for those ``fetched``.

        Raises:
            Lost: not within half a minute, or there were more updates, or connections were closed.
        """

        def of(process: _Process, endpoints: Sequence[str]) -> int:
            return sum(process.subscribers[endpoint] for endpoint in endpoints)

        await asyncio.gather(*(each.reach(of(each, changed), of(each, fetched)) for each in self._processes))

    async def current(self) -> Counts:
        """Return what has arrived by now."""
        await asyncio.gather(*(process.current() for process in self._processes))
        return self.counts

    async def samples(self) -> list[Sample]:
        """Return the samples since the last call."""
        return [sample for process in self._processes for sample in await process.samples()]


@contextlib.asynccontextmanager
async def viewing(
    program: Path,
    port: int,
    path: str,
    http_port: int,
    *,
    processes: int,
    each: int,
    sampled: int,
    fetchers: int,
    core: int | None,
    compressed: bool = False,
) -> AsyncIterator[Viewers]:
    """Connect ``processes`` times ``each`` clients, of which ``sampled`` in each process take the time.

    ``http_port`` is where they fetch, over ``fetchers`` connections of each process; ``compressed``: they offer
    compression, as browsers do.
    """
    running: list[asyncio.subprocess.Process] = []
    try:
        for net in range(1, processes + 1):
            words = (port, each, net, path, sampled, fetchers, http_port, int(compressed))
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *("nice", "-n", NICE, str(program), *map(str, words)), stdin=pipe, stdout=pipe
            )
            pin(process.pid, core)
            running.append(process)
        async with asyncio.timeout(CONNECT_S):
            for process in running:
                assert process.stdout is not None
                if await process.stdout.readline() != b"ready\n":
                    raise Lost("the clients could not connect")
        yield Viewers(running, each)
    finally:
        for process in running:
            # The end of its input ends it only once all of its clients are connected.
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
