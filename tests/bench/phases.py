"""The measurements of the fan-out benchmark, a few rounds each."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.drain import Drain, Lost, draining, probing
from tests.bench.figures import Figure, figure
from tests.bench.procfs import rss_kib
from tests.bench.servers import SETTLE, Block, Carrying, Diem, Server, Target, diem, measured
from tests.support.tokens import Issuer, key_set

HOT = [f"/bench/hot/{number}" for number in range(8)]
FILL = [f"/bench/fill/{number}" for number in range(50)]
FOREIGN = [f"/bench/foreign/{number}" for number in range(10_000)]
MARKER = "/bench/marker"
CATALOGUE = [f"/bench/catalogue/{number}" for number in range(200)]
QUIET = [*FILL, HOT[0]]
QUIET_CLIENTS = 10
DATA_BYTES = 1024
STALLED_CLIENTS = 50
SERIES, DOCUMENT, SERIES_AGAIN = "a series", "a document", "a series again"


def subscribe(*endpoints: str, data: bool = False) -> str:
    """A request."""
    names = ",".join(f'"{endpoint}":null' for endpoint in endpoints)
    more = ',"data":true' if data else ""
    return f'{{"type":"subscribe","id":1,"endpoints":{{{names}}}{more}}}'


@dataclass(frozen=True)
class Plan:
    """Size of the measurements."""

    clients: int
    rounds: int
    ticks: int
    """Ticks of a block with one update per client and tick."""
    foreign_batches: int
    idle_clients: int


async def interleaved(targets: Mapping[str, Target], endpoints: list[str], ticks: int) -> dict[str, Block]:
    """Measure one round: every server twice, in ABBA order, so that drift affects all alike."""
    blocks: dict[str, list[Block]] = {name: [] for name in targets}
    for name in [*targets, *reversed([*targets])]:
        blocks[name].append(await targets[name].block(endpoints, ticks))
    return {
        name: Block(statistics.mean(b.cpu_us for b in pair), statistics.mean(b.writes for b in pair))
        for name, pair in blocks.items()
    }


def ratios(rounds: list[dict[str, Block]], name: str, base: str) -> Figure:
    """Return the CPU per delivery of one server, as a multiple of another's in the same round."""
    return figure([blocks[name].cpu_us / blocks[base].cpu_us for blocks in rounds])


async def foreign(server: Diem, batches: int) -> float:
    """Measure the CPU of an update without subscribers, from the feed to its discard, in microseconds."""
    async with probing(server.port) as probe:
        await probe.subscribe(MARKER)
        spent = 0.0
        for number in range(batches + 1):
            before = await measured(server)
            server.feed.put(*FOREIGN)
            await probe.reach(MARKER, server.feed.put(MARKER))
            # The first batch fills the retained map.
            spent += (await measured(server) - before).cpu if number else 0.0
    return spent / (batches * len(FOREIGN)) * 1e6


async def requests(target: Target, pairs: int) -> float:
    """Measure the CPU of a subscribe or unsubscribe of one endpoint, with its reply, in microseconds."""
    drain = target.drain
    before = await measured(target.server)
    for _ in range(pairs):
        drain.send_all('{"type":"subscribe","id":2,"endpoints":{"/bench/own/#":null}}')
        await drain.reach(replies=drain.count)
        drain.send_all('{"type":"unsubscribe","id":3,"endpoints":["/bench/own/#"]}')
        await drain.reach(replies=drain.count)
    return (await measured(target.server) - before).cpu / (2 * pairs * drain.count) * 1e6


@dataclass(frozen=True)
class Stalled:
    """Effect of clients that do not read on the others, in one round."""

    cpu: float
    """CPU per delivery to the others, relative to the server without such clients."""
    writes: float


async def stalled(pair: Mapping[str, Target], program: Path, core: int | None, ticks: int) -> Stalled:
    """Connect clients to the first of two equal servers, let them stall, and compare."""
    server = next(iter(pair.values())).server
    # Retained, so that every round begins alike.
    server.publish(*FILL)
    async with draining(program, server.port, QUIET_CLIENTS, net=9, core=core) as quiet:
        for number in range(QUIET_CLIENTS):
            quiet.send(number, subscribe(*QUIET))
        await quiet.reach(replies=QUIET_CLIENTS, updates=QUIET_CLIENTS * len(QUIET))
        await _block(server, quiet)
        # What follows in the feed shows that all of it has been taken.
        for target in pair.values():
            await target.block(HOT[:1], 1)
        blocks = await interleaved(pair, HOT[:1], ticks)
    with_, without = blocks.values()
    return Stalled(with_.cpu_us / without.cpu_us, with_.writes / without.writes)


async def memory(
    directory: Path, program: Path, cores: tuple[int | None, int | None], clients: int
) -> dict[str, float]:
    """Measure KiB per connection of a new server: idle, with 10 subscriptions of 200, and without a reading client."""
    async with diem(directory, core=cores[0]) as server:
        server.publish(*CATALOGUE)
        await asyncio.sleep(0.2)
        empty = rss_kib(server.pid)
        async with draining(program, server.port, clients, net=1, core=cores[1]) as drain:
            idle = await _settled(server.pid)
            for number in range(clients):
                drain.send(number, subscribe(*(CATALOGUE[(7 * number + 3 * i) % 200] for i in range(10))))
            await drain.reach(replies=clients, updates=10 * clients)
            subscribed = await _settled(server.pid)
            async with draining(program, server.port, STALLED_CLIENTS, net=2, core=cores[1]) as quiet:
                server.publish(*FILL)
                quiet.send_all(subscribe(*FILL))
                await quiet.reach(replies=quiet.count, updates=quiet.count * len(FILL))
                before = await _settled(server.pid)
                await _block(server, quiet)
                held = await _settled(server.pid) - before
                if not await server.conflated():
                    raise Lost("clients that do not read were not blocked")
    return {
        "idle": (idle - empty) / clients,
        "subscribed": (subscribed - empty) / clients,
        "held": held / STALLED_CLIENTS,
    }


async def memory_with_token(
    directory: Path, program: Path, cores: tuple[int | None, int | None], clients: int, *, data: bool
) -> float:
    """Measure KiB per connection of a new server, each with a token of a user of its own and 10 subscriptions of 200.

    ``data``: they ask for data, and every update carries :data:`DATA_BYTES` of it.
    """
    issuer, keys = Issuer(), directory / "keys.json"
    keys.write_bytes(key_set(issuer))
    now = time.time()
    tokens = [issuer.token(now, sub=f"user {number}", prefixes=["/bench"]) for number in range(clients)]
    async with diem(directory, core=cores[0], more={"DIEM_WEBSOCKET_TOKEN_KEYS": f'["{keys}"]'}) as server:
        server.feed.put(*CATALOGUE, size=DATA_BYTES if data else None)
        async with probing(server.port) as probe:
            # The process has what all connections share, as the library that verifies, before the first is measured.
            await probe.authenticate(issuer.token(now, sub="probe", prefixes=["/bench"]))
            await probe.subscribe(*CATALOGUE[:10], data=data)
            await probe.reach(CATALOGUE[9], 1)
            if bool(probe.with_data) != data:
                raise Lost(f"{probe.with_data} updates carried data")
        empty = await _settled(server.pid)
        async with draining(program, server.port, clients, net=1, core=cores[1]) as drain:
            for number, token in enumerate(tokens):
                drain.send(number, f'{{"type":"auth","id":0,"token":"{token}"}}')
                mine = (CATALOGUE[(7 * number + 3 * i) % 200] for i in range(10))
                drain.send(number, subscribe(*mine, data=data))
            await drain.reach(replies=clients, updates=10 * clients)
            return (await _settled(server.pid) - empty) / clients


async def with_data(
    directory: Path, program: Path, cores: tuple[int | None, int | None], plan: Plan
) -> list[dict[str, Block]]:
    """Measure deliveries of updates with data, by turns of a series, a document of the same size, and the series."""
    kinds = {SERIES: "", DOCUMENT: "application/json", SERIES_AGAIN: ""}
    async with (
        diem(directory, core=cores[0]) as server,
        draining(program, server.port, plan.clients, net=1, core=cores[1]) as drain,
    ):
        drain.send_all(subscribe(HOT[0], data=True))
        await drain.reach(replies=drain.count)
        targets = {name: Target(Carrying(server, DATA_BYTES, kind), drain) for name, kind in kinds.items()}
        return [await interleaved(targets, HOT[:1], plan.ticks) for _ in range(plan.rounds)]


async def _block(server: Server, quiet: Drain) -> None:
    """Stop clients from reading, and fill the kernel's buffers of both ends and the 32 KiB in the server."""
    quiet.stall()
    await asyncio.sleep(SETTLE)
    for _ in range(800):
        server.publish(*FILL)
        await asyncio.sleep(0.001)


async def _settled(pid: int) -> int:
    await asyncio.sleep(0.3)
    return rss_kib(pid)


async def per_connection(pid: int, connect: Callable[[], Awaitable[Drain]]) -> tuple[Drain, float]:
    """Connect clients to a server without clients; return them and the KiB of each."""
    before = rss_kib(pid)
    drain = await connect()
    return drain, (await _settled(pid) - before) / drain.count
