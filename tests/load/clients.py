"""The process of the load clients: commands as JSON lines on standard input, figures on standard output.

The first line is a :class:`Plan`. Then ``{"expect": {endpoint: version}}`` sets the versions that all should reach,
``{"churn": seconds}`` the mean time between swaps of endpoints, ``{"token_seconds": seconds}`` the life of tokens that
are requested from then on; ``{"drop": share}`` aborts the connections of a share of the clients, ``{"count_refreshes":
true}`` counts refreshed tokens from zero, ``{"play": true}`` starts the trace, if there is one, and ``{"finish":
folder}`` ends the run and writes the histories. The process ends with its input.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from time import monotonic, process_time
from typing import Any

import httpx
import orjson
import uvloop
from pydantic import BaseModel

from diem.process.http_transport import HttpTransport
from tests.load.client import LoadClient, PartitionedLoadClient, PollClient, StreamClient
from tests.load.credentials import Credentials
from tests.load.interests import Interests
from tests.load.locator import Locator
from tests.load.mix import kind_of
from tests.load.probe import Fetching, PartitionedProbeClient, ProbeClient
from tests.load.recorder import Recorder
from tests.load.trace import Visit, read_visits
from tests.oracle.history import write_client, write_lists, write_rights
from tests.support.commandline import parser

REPORT_SECONDS = 0.5
SETTLE_SECONDS = 0.5
ORDER_BYTES = 16 * 1024 * 1024
LOCATE_SECONDS = 5.0
LIMITED_EVERY = 10
"""One of so many clients is limited, where there are prefixes for it."""
ATTEMPT_SECONDS = 3.0
"""Mean time between two of its requests for what its token does not cover."""
CHANGE_SECONDS = 0.2
"""A client that is not connected looks so often whether it may change its endpoints."""


class Plan(BaseModel, frozen=True):
    """The clients: their number, where they connect, and what they subscribe to."""

    servers: list[tuple[str, int, str]]
    """Host, port and path."""
    rest: str
    """Base URL of the Data Service, for the probes."""
    metadata: str | None = None
    """Base URL of the metadata service, if clients locate servers themselves."""
    endpoints: list[str]
    clients: int = 500
    subscriptions: int = 10
    communities: int = 0
    """Number of groups of clients with common interests; 0 = every client chooses among all endpoints."""
    addresses: int = 16
    """Loopback addresses that the clients are spread over."""
    probes: int = 0
    """Number of clients that fetch the data after each update."""
    churn_seconds: float = 0.0
    """Mean time between two endpoint swaps of one client; 0 = never."""
    data: float = 0.0
    """Share of the clients that ask for the data of updates."""
    compression: float = 0.0
    """Share of the clients that offer compression: as large a one of those who ask for data as of the others."""
    polls: float = 0.0
    """Share of the clients that make long polls, instead of WebSocket; none where clients locate servers."""
    streams: float = 0.0
    """Share of those that read event streams."""
    filtered: bool = False
    """The clients are sent everything (all-to-all)."""
    start_seconds: float = 2.0
    """The first connections are spread over this time."""
    seed: int = 0
    api_key: str = ""
    """With this API key the clients request tokens; without it they are anonymous."""
    read_key: str = ""
    """API key of the probes; empty: reads need none. A wiped store has no keys."""
    token_seconds: int | None = None
    """Life of a token; None: that of the key's plan."""
    trace: Path | None = None
    """Clients and their subscriptions are those of this trace, and nobody swaps."""
    limited: list[str] = []
    """With an API key: prefixes. Every tenth client has a token for one of these only, and asks for other endpoints."""


class ClientPool:
    """All clients of the process."""

    def __init__(self, plan: Plan, http: httpx.AsyncClient, locator: Locator) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.expected: dict[bytes, int] = {}
        self.churn_seconds = plan.churn_seconds
        self.locator = locator
        self.credentials = Credentials(http, plan.api_key, plan.token_seconds) if plan.api_key else None
        self.interests = Interests(plan.endpoints, plan.communities, plan.seed)
        self.numbers: Counter[object] = Counter()
        """Clients so far of each kind, and of these that ask for the data of updates, and that do not."""
        self.rights: dict[str, list[str]] = {}
        """The prefixes of the clients that are limited."""
        self.lists: dict[int, tuple[str, ...]] = {}
        """What collections listed, by stamp."""
        self.pause = 0.0
        """Longest delay of a report in seconds: for so long the clients read nothing."""
        self.visits = [] if plan.trace is None else read_visits(plan.trace)
        wants: list[list[str] | None] = [list(visit.endpoints) for visit in self.visits] or [None] * plan.clients
        self.clients = [self._client(number, http, mine) for number, mine in enumerate(wants)]
        self.present = [
            client for number, client in enumerate(self.clients) if not self.visits or not self.visits[number].start
        ]
        """Clients that should be connected."""

    def _client(self, number: int, http: httpx.AsyncClient, wants: list[str] | None) -> Recorder:
        name, address = f"{number:05}", f"127.0.0.{1 + number % self.plan.addresses}"
        limited = self.plan.limited if self.plan.api_key and number % LIMITED_EVERY == LIMITED_EVERY - 1 else []
        if limited:
            prefix = limited[number // LIMITED_EVERY % len(limited)]
            self.rights[name] = [prefix]
            # The collection first.
            wants = sorted(each for each in self.plan.endpoints if each.startswith(f"{prefix}/"))[
                : self.plan.subscriptions
            ]
        elif wants is None:
            wants = self.interests.first(number, self.plan.subscriptions, self.random)
        random = Random(self.random.random())
        kind = self._kind(number)
        data = self._choose(kind, self.plan.data)
        offers = {"data": data, "compression": self._choose((kind, data), self.plan.compression)}
        token = None if self.credentials is None else self.credentials.function(name, self.rights.get(name))
        own: dict[str, Any] = {"token": token, **offers, **({"http": http} if number < self.plan.probes else {})}
        urls = [f"ws://{host}:{port}{path}" for host, port, path in self.plan.servers]
        if issubclass(kind, PartitionedLoadClient):
            client: Recorder = kind(name, address, urls, wants, random, locator=self.locator, **own)
        else:
            client = kind(name, address, urls, wants, random, filtered=self.plan.filtered, **own)
        client.lists = self.lists
        return client

    def _kind(self, number: int) -> type[LoadClient | PartitionedLoadClient]:
        probes = number < self.plan.probes
        if self.plan.metadata:
            return PartitionedProbeClient if probes else PartitionedLoadClient
        if probes:
            return ProbeClient
        if _chosen(number, self.plan.polls):
            return PollClient
        return StreamClient if self._choose("streams", self.plan.streams / (1 - self.plan.polls)) else LoadClient

    def _choose(self, among: object, share: float) -> bool:
        """Return whether the next one of a kind belongs to a share of it."""
        self.numbers[among] += 1
        return _chosen(self.numbers[among] - 1, share)

    def start(self) -> None:
        """Connect everybody who is there from the start."""
        for client in self.present:
            client.start(self.random.random() * self.plan.start_seconds)

    async def play(self) -> None:
        """Let clients come, change their endpoints and leave as in the trace, from now on."""
        start = monotonic()
        async with asyncio.TaskGroup() as tasks:
            for client, visit in zip(self.clients, self.visits, strict=False):
                if visit.start or visit.changes or visit.end is not None:
                    tasks.create_task(self._follow(client, visit, start))

    async def _follow(self, client: Recorder, visit: Visit, start: float) -> None:
        if visit.start:
            await asyncio.sleep(start + visit.start - monotonic())
            self.present.append(client)
            client.start(0.0)
        for time, subscribed, unsubscribed in visit.changes:
            await asyncio.sleep(max(0.0, start + time - monotonic()))
            while not client.connected:
                await asyncio.sleep(CHANGE_SECONDS)
            for endpoint in subscribed:
                await client.add(endpoint)
            for endpoint in unsubscribed:
                await client.remove(endpoint)
        if visit.end is not None:
            await asyncio.sleep(max(0.0, start + visit.end - monotonic()))
            self.present.remove(client)
            client.leave()

    async def churn(self, seconds: float) -> None:
        """Make the swaps that fall into ``seconds``."""
        if self.visits or not self.churn_seconds or self.plan.subscriptions >= len(self.plan.endpoints):
            return
        for client in self.clients:
            if client.name in self.rights:
                if self.random.random() < seconds / ATTEMPT_SECONDS:
                    await client.attempt(self.random.choice(self._others(client)))
            elif self.random.random() < seconds / self.churn_seconds:
                wants = {endpoint.decode() for endpoint in client.wants}
                another = self.interests.another(int(client.name), wants, self.random)
                await client.swap(self.random.choice(sorted(wants)), another)

    def _others(self, client: Recorder) -> list[str]:
        (prefix,) = self.rights[client.name]
        return [name for name in self.plan.endpoints if not name.startswith(f"{prefix}/")]

    def kinds(self) -> list[str]:
        """Return the kinds of the endpoints whose data any client has held."""
        held = {endpoint for client in self.clients for endpoint in client.held}
        return sorted({kind_of(endpoint.decode()) for endpoint in held})

    def issue(self, seconds: int | None) -> None:
        """Set the life of the tokens that clients request from now on; None: that of the key's plan."""
        if self.credentials is not None:
            self.credentials.seconds = seconds

    def count_refreshes(self) -> None:
        """Count refreshed tokens from zero."""
        for client in self.clients:
            client.refreshed = 0

    def drop(self, share: float) -> None:
        """Abort the connections of a share of the clients."""
        for client in self.random.sample(self.clients, round(share * len(self.clients))):
            client.drop()

    def behind(self) -> int:
        """Count the pairs of client and endpoint below the expected version, including those of unconnected clients."""
        expected = self.expected
        return sum(
            client.level(endpoint) < expected.get(endpoint, 0) for client in self.present for endpoint in client.wants
        )

    def figures(self) -> dict[str, Any]:
        """Return the current figures."""
        links = [link for client in self.clients for link in client.links]
        unexpected = [what for client in self.clients for what in client.unexpected]
        return {
            "present": len(self.present),
            "connected": sum(client.connected for client in self.present),
            "live": sum(client.connected and client.live for client in self.present),
            "links": len(links),
            "raw": sum(client.raw for client in self.clients) + sum(link.updates for link in links),
            "events": sum(len(client.rows) for client in self.clients),
            "requests": sum(client.requests for client in self.clients),
            "refused": sum(client.refused for client in self.clients),
            "fetches": sum(client.fetches for client in self.clients if isinstance(client, Fetching)),
            "locates": self.locator.asked,
            "locates_failed": self.locator.failed,
            "locate_s": round(self.locator.longest, 3),
            "moves": sum(client.moves for client in self.clients),
            "with_data": sum(client.with_data for client in self.clients),
            "compressed": sum(client.compressed for client in self.clients)
            + sum(link.deflate.frames for link in links if link.deflate is not None),
            "without_data": sum(client.without_data for client in self.clients),
            "unexpected": len(unexpected),
            "unexpected_first": unexpected[:3],
            "forbidden": sum(client.forbidden for client in self.clients),
            "behind": self.behind() if self.expected else None,
            "tokens": self.credentials.issued if self.credentials else 0,
            "refreshed": sum(client.refreshed for client in self.clients),
            "not_refreshed": sum(not client.refreshed for client in self.clients) if self.credentials else 0,
            "cpu": round(process_time(), 3),
            "pause": round(self.pause, 3),
        }


def _chosen(number: int, share: float) -> bool:
    """Return whether a number belongs to a share of all, spread evenly: with a half of them, every second one."""
    return int((number + 1) * share) > int(number * share)


async def serve() -> None:
    """Run until told to finish."""
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=ORDER_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    plan = Plan.model_validate_json(await orders.readline())
    async with AsyncExitStack() as stack:
        headers = {"Authorization": f"Bearer {plan.read_key}"} if plan.read_key else {}
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=plan.rest, headers=headers, timeout=10, trust_env=False, transport=HttpTransport()
            )
        )
        asking = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=plan.metadata or "", timeout=LOCATE_SECONDS, trust_env=False, transport=HttpTransport()
            )
        )
        pool = ClientPool(plan, http, Locator(asking))
        pool.start()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        ticking = tasks.create_task(_tick(pool))
        await _obey(pool, orders, tasks)
        ticking.cancel()


async def _obey(pool: ClientPool, orders: asyncio.StreamReader, tasks: asyncio.TaskGroup) -> None:
    playing: asyncio.Task[None] | None = None
    while line := await orders.readline():
        order = orjson.loads(line)
        if "expect" in order:
            pool.expected = {name.encode(): version for name, version in order["expect"].items()}
        elif "churn" in order:
            pool.churn_seconds = order["churn"]
        elif "token_seconds" in order:
            pool.issue(order["token_seconds"])
        elif "count_refreshes" in order:
            pool.count_refreshes()
        elif "play" in order:
            playing = tasks.create_task(pool.play())
        elif "drop" in order:
            pool.drop(order["drop"])
        elif "finish" in order:
            if playing is not None:
                playing.cancel()
            await _finish(pool, Path(order["finish"]))
            return


async def _tick(pool: ClientPool) -> None:
    while True:
        due = monotonic() + REPORT_SECONDS
        await asyncio.sleep(REPORT_SECONDS)
        pool.pause = max(pool.pause, monotonic() - due)
        for client in pool.clients:
            client.watch()
        _say(pool.figures())
        # After the report: a client that has just subscribed would always count as behind.
        await pool.churn(REPORT_SECONDS)


async def _finish(pool: ClientPool, folder: Path) -> None:
    end = monotonic()
    figures = pool.figures()
    for client in pool.clients:
        client.count(end)
        client.leave()
    await asyncio.sleep(SETTLE_SECONDS)
    for client in pool.clients:
        # Events after the end of the observation are not checked.
        write_client(folder, client.name, (event for event in client.events() if event.time <= end))
    write_lists(folder, "clients", pool.lists)
    write_rights(folder, pool.rights)
    _say({**figures, "kinds": pool.kinds(), "end": end})


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(message).decode() + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve standard input until it ends."""
    parser(__spec__, __doc__).parse_args(argv)
    # No pauses for the collector: records are kept until the end, and hardly anything here is cyclic.
    gc.disable()
    uvloop.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
