"""A load test: connect, measure, wait for the last updates, compare."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from deploy.clients.data_service import DataService, DataServiceUnavailable, ServiceRefused
from deploy.clients.updates import ANONYMOUS, Credentials, client_of
from deploy.terminal import Terminal
from diem.client import TokenFunction
from diem.process.auth import SharedKey
from diem.process.backoff import wait
from diem.process.lifecycle import LoopLag
from diem.process.tasks import cancelled_at_the_end
from diem.protocol.page_config import Edges
from tools.load import preflight
from tools.load.client import LoadClient, Received
from tools.load.completeness import Completeness, Difference, Holding, compare, later_than
from tools.load.processes import LoadProcesses
from tools.load.result import LATE_S, LoadResult, Written
from tools.load.selection import NoEndpoints, assign, select
from tools.load.writer import LoadWriter

CATALOGUE_AGE_S: Final = 1.0
"""Maximum age of a Data Service's catalogue."""
CONNECT_S: Final = 10.0
"""Time for the last client to subscribe; refused clients keep retrying."""
POLL_S: Final = 0.25
TOKENS_AT_ONCE: Final = 8
"""Maximum number of pending requests for tokens."""
OWN_ENDPOINTS: Final = 20
"""Default number of our own endpoints."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of a test."""

    clients: int = 200
    subscriptions: int = 5
    """Number per client."""
    endpoints: str | None = None
    """A number of endpoints, or a pattern; None: all."""
    seconds: float = 30.0
    rate: float = 50.0
    """Rate of new connections per second."""
    wait_s: float = 30.0
    """Longest wait for the last updates, and for clients to reconnect, before the comparison."""
    write: float | None = None
    """Updates per second to its own endpoints; None: no writes."""
    write_key: SharedKey | None = None
    credentials: Credentials = ANONYMOUS
    hosts: tuple[str, ...] = ()
    """Further permitted hosts."""
    addresses: tuple[str, ...] = ()
    """Addresses of this machine from which clients connect in turn; none: the system chooses."""
    seed: int = 0
    """Of the clients' endpoints: another for each of several processes."""


@dataclass
class LoadRun:
    """Results of a test."""

    base: str
    options: LoadOptions
    edges: Edges
    endpoints: int
    received: Received
    clients: Sequence[LoadClient]
    clock_difference_s: float = 0.0
    measured_s: float = 0.0
    received_bytes: int = 0
    """Payload of all messages during the measurement."""
    cpu_share: float = 0.0
    """CPU time of this tool during the measurement, as a share of one core."""
    loop_lag_s: float = 0.0
    """Longest delay of this tool's event loop during the measurement."""
    writer: LoadWriter | None = None
    completeness: Completeness | None = None
    """None: the test was interrupted before the comparison, or no client subscribed."""
    interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    """Failures of the tool's own requests."""

    @property
    def subscribed(self) -> int:
        """Number of clients with a confirmed subscription."""
        return sum(client.is_subscribed for client in self.clients)

    @property
    def holdings(self) -> list[Holding]:
        """Each client's latest version of each endpoint."""
        return [each for client in self.clients for each in client.holdings()]

    def result(self) -> LoadResult:
        """Return the results in plain numbers."""
        options, received, writer = self.options, self.received, self.writer
        written = None
        if writer is not None:
            written = Written(options.write or 0.0, writer.accepted, writer.seconds, writer.failed)
        return LoadResult(
            base=self.base,
            clients=len(self.clients),
            subscribed=self.subscribed,
            subscriptions=options.subscriptions,
            endpoints=self.endpoints,
            urls=len(self.edges.servers),
            partitioned=bool(self.edges.metadata),
            wait_s=options.wait_s,
            measured_s=self.measured_s,
            updates=received.updates,
            bytes=self.received_bytes,
            cpu_share=self.cpu_share,
            loop_lag_s=self.loop_lag_s,
            clock_difference_s=self.clock_difference_s,
            interrupted=self.interrupted,
            refused=received.refused.counts,
            rejected=received.rejected.counts,
            interruptions=received.interrupted.counts,
            problems=self.problems,
            delays=received.delays,
            written=written,
            completeness=self.completeness,
        )


class LoadTest:
    """One test of the system at a Data Service."""

    def __init__(
        self, service: DataService, options: LoadOptions, terminal: Terminal, others: LoadProcesses | None = None
    ) -> None:
        self._service = service
        self._others = others
        self._options = options
        self._terminal = terminal
        self._bearer = options.credentials.bearer()
        self._token_slots = asyncio.Semaphore(TOKENS_AT_ONCE)

    async def run(self, stopping: asyncio.Event) -> LoadRun:
        """Run the test; when ``stopping`` is set, end with the results so far.

        Raises:
            ConfigurationError: a check before the first connection failed.
            DataServiceUnavailable: the Data Service does not answer, or names no servers.
            ServiceRefused: it does not accept writes.
        """
        service, options = self._service, self._options
        edges = await service.edges()
        if not edges.servers:
            raise DataServiceUnavailable(service.base, "it names no WebSocket server")
        preflight.check_hosts(service.base, [*edges.servers, *edges.metadata], options.hosts)
        preflight.check_open_files(options.clients, _connections(edges, options))
        async with AsyncExitStack() as stack:
            writer = None
            if options.write is not None and options.write_key is not None:
                count = int(options.endpoints or OWN_ENDPOINTS)
                writer = await stack.enter_async_context(LoadWriter(service, options.write_key, count, options.write))
            before, difference_s = await self._catalogue()
            names = select(before, options.endpoints) if writer is None else writer.names
            if not names:
                raise NoEndpoints(service.base, "at all" if options.endpoints is None else options.endpoints)
            received = Received()
            wanted = assign(names, options.clients, options.subscriptions, options.seed)
            clients = [LoadClient(number, mine, before, received) for number, mine in enumerate(wanted, 1)]
            outcome = LoadRun(service.base, options, edges, len(names), received, clients, difference_s, writer=writer)
            tasks = await stack.enter_async_context(cancelled_at_the_end())
            if self._others is not None:
                await self._others.start()
            await self._connect(outcome, tasks, stopping)
            if outcome.subscribed and not stopping.is_set():
                await self._measure(outcome, tasks, stopping)
            # The writer's endpoints are there until all have compared.
            if self._others is not None:
                await self._others.finish()
            outcome.interrupted = stopping.is_set() and outcome.completeness is None
        if writer is not None and writer.left:
            outcome.problems.append(writer.left)
        return outcome

    async def _catalogue(self) -> tuple[dict[str, int], float]:
        """Return the versions of the catalogue, and the offset of its service's clock."""
        sent_s = time.time()
        reply = await self._service.request("GET", "/config.json")
        difference_s = preflight.clock_difference_s(reply.headers.get("Date"), sent_s, time.time())
        return await self._service.versions(self._bearer), difference_s

    async def _connect(self, outcome: LoadRun, tasks: list[asyncio.Task[None]], stopping: asyncio.Event) -> None:
        """Start all clients at the given rate, and wait a limited time for their subscriptions."""
        options, loop = self._options, asyncio.get_running_loop()
        began, received, total = loop.time(), outcome.received, len(outcome.clients)
        give_up = began + total / options.rate + CONNECT_S
        with self._terminal.counting("connecting") as show:
            while received.complete < total and loop.time() < give_up:
                due = min(total, 1 + int((loop.time() - began) * options.rate))
                started = outcome.clients[len(tasks) : due]
                tasks.extend(loop.create_task(self._follow(client, outcome.edges)) for client in started)
                show(received.complete, total)
                pause_s = min(POLL_S, 1 / options.rate) if len(tasks) < total else POLL_S
                if await wait(stopping, pause_s):
                    return

    async def _follow(self, client: LoadClient, edges: Edges) -> None:
        service, addresses = self._service, self._options.addresses
        local = addresses[client.number % len(addresses)] if addresses else None
        token = self._token(client.number)
        await client.run(client_of(edges, service.base, token, service.tls, local_address=local))

    def _token(self, number: int) -> TokenFunction | None:
        """Return a client's source of tokens; with an API key, each client is a separate user."""
        function = self._options.credentials.token_function(self._service, f"load-{number}")
        if function is None or self._options.credentials.key_file is None:
            return function

        async def request() -> str:
            async with self._token_slots:
                token = function()
                return token if isinstance(token, str) else await token

        return request

    async def _measure(self, outcome: LoadRun, tasks: list[asyncio.Task[None]], stopping: asyncio.Event) -> None:
        """Count for the duration of the test, then wait for missing versions, and compare."""
        loop, received = asyncio.get_running_loop(), outcome.received
        over = asyncio.Event()
        if outcome.writer is not None:
            tasks.append(loop.create_task(outcome.writer.run(over)))
        lag = LoopLag(loop, LATE_S)
        began, cpu, payload = loop.time(), time.process_time(), _received_bytes(outcome.clients)
        received.measure()
        try:
            await self._wait(began, stopping)
            over.set()
            if outcome.writer is not None:
                await tasks[-1]
            latest = None if stopping.is_set() else await self._latest(outcome, stopping)
        finally:
            # Zero if interrupted at once: the loop's clock stops during an iteration.
            outcome.measured_s = loop.time() - began
            outcome.cpu_share = (time.process_time() - cpu) / outcome.measured_s if outcome.measured_s else 0.0
            outcome.received_bytes = _received_bytes(outcome.clients) - payload
            outcome.loop_lag_s = lag.pop()
            lag.close()
        received.finish(latest or {})
        if latest is not None:
            await self._compare(outcome, latest, stopping)

    async def _wait(self, began: float, stopping: asyncio.Event) -> None:
        loop, seconds = asyncio.get_running_loop(), self._options.seconds
        with self._terminal.counting("measuring, seconds") as show:
            while (passed := loop.time() - began) < seconds:
                show(int(passed), int(seconds))
                if await wait(stopping, min(POLL_S, seconds - passed)):
                    return

    async def _latest(self, outcome: LoadRun, stopping: asyncio.Event) -> dict[str, int] | None:
        """Return a catalogue no older than this call; None if unreadable."""
        if await wait(stopping, CATALOGUE_AGE_S):
            return None
        try:
            return await self._service.versions(self._bearer)
        except (DataServiceUnavailable, ServiceRefused) as error:
            outcome.problems.append(str(error))
            return None

    async def _compare(self, outcome: LoadRun, latest: Mapping[str, int], stopping: asyncio.Event) -> None:
        """Compare until nothing is missing, or for ``wait_s``."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._options.wait_s
        with self._terminal.counting("waiting for the last updates") as show:
            while True:
                found = outcome.completeness = compare(outcome.holdings, latest)
                show(found.checked - found.missed, found.checked)
                if not found.missed or loop.time() > give_up:
                    break
                if await wait(stopping, POLL_S):
                    outcome.completeness = None
                    return
        if later := later_than(outcome.holdings, latest):
            # Others may have written since; but the store has a version before clients do.
            newer = await self._latest(outcome, stopping)
            if newer is None:
                outcome.completeness = None
                return
            found.ahead += [
                Difference(each.client, each.endpoint, each.version, newer[each.endpoint])
                for each in later_than(later, newer)
            ]


def _connections(edges: Edges, options: LoadOptions) -> int:
    """Return the maximum number of a client's connections: with metadata services, one per needed server, plus one."""
    return 1 if not edges.metadata else 1 + min(len(edges.servers), options.subscriptions)


def _received_bytes(clients: Sequence[LoadClient]) -> int:
    return sum(client.received_bytes for client in clients)
