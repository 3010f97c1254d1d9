"""What happens to a system on three hosts in its life, one after the other, and no update is lost.

All of it is on one system for each mode, with a stand-by; ``make hosts`` shows what clients noticed of each step.
"""

import asyncio
import contextlib
import functools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest

from diem.client.backoff import Timing
from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import read_map
from diem.protocol.compatibility import OURS
from metadata.plans.plan import encode
from tests.integration.deploy.machines import EVERY_MODE, LABELS, Ends, Loaded, Machine, are_current, loaded
from tests.load.client import LoadClient
from tests.load.plans import draw_plan
from tests.load.trees import Trees, why_not_extracted
from tests.oracle import Bounds, Fault, Kind
from tests.support.hosts import ROOT, address
from tests.support.kafka import SharedBroker, options_on
from tests.support.patience import FACTOR
from tests.support.postgres import Cluster
from tools.hosts.units import ABORT_S, WATCHDOG_S


class Setting(NamedTuple):
    """A mode, and where its processes are."""

    roles: tuple[str, str, str]
    """Of hosts a, b and c."""
    ends: Ends

    @property
    def hosts(self) -> str:
        """The file with the hosts."""
        return "".join(
            f'[[host]]\nname = "{label}"\naddress = "{address(number)}"\nroles = [{roles}]\n'
            for number, (label, roles) in enumerate(zip(LABELS, self.roles, strict=True), 1)
        )


SETTINGS: Final = {
    "z-proxy": Setting(
        ('"data", "metadata"', '"standby", "proxy", "servers"', '"proxy", "servers"'),
        Ends(8080, ((2, 8501), (3, 8502)), frozenset({"proxy-2"}), pages=(1, 2)),
    ),
    # nginx on the host that stays: it is what all clients and writers have.
    "x": Setting(
        ('"data"', '"nginx", "servers"', '"standby", "servers"'),
        Ends(8000, ((2, 8000),), frozenset({"websocket-2"}), pages=(2,)),
    ),
}
EARLIER: Final = "21cab1db"
"""The earliest release whose processes notify systemd, as the units ask for."""
PARTITIONS: Final = 4
BOUNDS: Final = Bounds(15.0 * FACTOR, 15.0 * FACTOR)
"""Those with Kafka."""
MIXED_S: Final = 20.0 * FACTOR
"""All clients are live again within this time after a process was replaced."""
SCALED_S: Final = 60.0 * FACTOR
MOVE_S: Final = 3.0
APPLIED_S: Final = (MOVE_S + 5.0) * FACTOR
COMMAND_S: Final = 5.0 * FACTOR
"""Time that a command itself takes."""
BUSY_S: Final = min(60.0, 5.0 * FACTOR)
CUT_S: Final = 20.0
ELSEWHERE_S: Final = 15.0 * FACTOR
"""Clients whose proxy is gone are connected to another one within this time."""
TAKEN_OVER_S: Final = 20.0 * FACTOR
"""Others serve the endpoints of a pair that stays down within this time."""
REPLACED_S: Final = (WATCHDOG_S + ABORT_S + 15.0) * FACTOR
"""A process that hangs runs again within this time."""
STAND_BY_S: Final = 15.0 * FACTOR
"""The stand-by has the store: PostgreSQL ends the session of a host that is gone within 11 s."""


class Noticed(NamedTuple):
    """What clients noticed of a step."""

    closed: int
    """Connections that ended."""
    without_s: float
    """Longest time of a client without a connection, in seconds."""
    not_live: int
    """Clients that were told that something is not live."""
    not_live_s: float
    """Longest time until a client was told that it is live again, in seconds."""

    def __str__(self) -> str:
        return (
            f"{self.closed} connections closed, at most {self.without_s:.1f} s without one; "
            f"{self.not_live} clients told live:false, for at most {self.not_live_s:.1f} s"
        )


def noticed(clients: list[LoadClient], since: float) -> Noticed:
    """Return what clients noticed since a time."""
    closed, told = 0, set()
    without = not_live = 0.0
    for client in clients:
        away: float | None = None
        stale: dict[str, float] = {}
        for event in client.events():
            if event.time < since:
                continue
            if event.kind == Kind.CLOSE:
                closed, away, stale = closed + 1, event.time, {}
            elif event.kind == Kind.OPEN and away is not None:
                without, away = max(without, event.time - away), None
            elif event.kind == Kind.STATUS and not event.code:
                told.add(client.name)
                stale.setdefault(event.endpoint, event.time)
            elif event.kind == Kind.STATUS:
                over = list(stale) if not event.endpoint else [event.endpoint]
                not_live = max([not_live, *(event.time - stale.pop(name) for name in over if name in stale)])
    return Noticed(closed, without, len(told), not_live)


def opened(client: LoadClient, since: float) -> float | None:
    """Return the seconds until the first new connection of a client; None without one."""
    times = (event.time - since for event in client.events() if event.kind == Kind.OPEN and event.time > since)
    return min(times, default=None)


@dataclass
class Story:
    """The system, and what has happened to it."""

    mode: str
    system: Loaded
    folder: Path
    kafka: KafkaOptions
    show: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list)
    noticed: list[Noticed] = field(default_factory=list)
    """What clients noticed of each step."""

    @property
    def clients(self) -> list[LoadClient]:
        return self.system.clients

    # What happens

    async def upgrade(self, exchange: Callable[[], None]) -> None:
        """Install another release, and replace the processes one after the other, in the order of README.txt."""
        readme = (self.system.out / "README.txt").read_text()
        order = readme.partition("in this order\n\n")[2].partition("\n")[0].strip().split(", ")
        assert len(order) == len([each for each in self.placed.values() if not each.get("spare")])
        async with self.step("upgrade", f"of {len(order)} processes", excuses=False) as details:
            has_store, stands_by = await self.data()
            first = order.index("data-2")
            assert order[first : first + 2] == ["data-2", "data"]
            # Whichever was slower stands by: an earlier release that took over now would load modules of the new one.
            order[first : first + 2] = [stands_by, has_store]
            exchange()
            slowest = 0.0
            for name in order:
                start = monotonic()
                await self.machine(name).order("restart", f"diem@{name}.service")
                await self.ready(name, MIXED_S)
                await self.healed(MIXED_S)
                slowest = max(slowest, monotonic() - start)
            details.append(f"each within {slowest:.1f} s")
        reports = await self.reports()
        newest = [report["protocol"]["newest"] for report in reports.values() if report is not None]
        assert newest == [OURS.newest] * len([name for name in order if not name.startswith("nginx")])

    async def scale(self) -> None:
        """Start two more pairs, on two hosts, and stop them again. No client may notice."""
        # The server first: systemd stops those of one command in its order, not in that of dependencies.
        pairs = [(f"diem@websocket-{number}.service", f"diem@bridge-{number}.service") for number in (3, 4)]
        for verb, servers in (("start", 4), ("stop", 2)):
            async with self.step("scale", f"to {servers} pairs", excuses=False) as details:
                started = monotonic()
                await asyncio.gather(
                    *(host.order(verb, *pair) for host, pair in zip(self.system.hosts[1:], pairs, strict=True))
                )
                for name in ("websocket-3", "websocket-4") if verb == "start" else ():
                    await self.ready(name, SCALED_S)
                details.append(f"ready after {monotonic() - started:.1f} s")
                # On the X axis each bridge reads all partitions, and is assigned none.
                share = 0 if self.mode == "x" else PARTITIONS // servers
                while await self.shares() != [share] * servers:
                    assert monotonic() < started + SCALED_S, await self.shares()
            assert self.noticed[-1].closed == 0

    async def plan(self) -> None:
        """Apply a plan by the URL of the metadata service and a key. No client may notice."""
        names = self.system.writer.endpoints
        map_ = await read_map(self.kafka)
        assert map_ is not None
        plan = draw_plan(names, map_, dict.fromkeys(range(PARTITIONS), ""), Random(1))
        file = self.folder / "plan.json"
        file.write_bytes(encode(plan))
        key = self.system.out / "hosts" / LABELS[0] / "keys" / "internal.key"
        by_url = ("--metadata", self.placed["metadata"]["urls"]["internal"], "--key-file", str(key))
        async with self.step("plan", f"of {len(plan.homes)} endpoints", excuses=False):
            start = monotonic()
            await self.system.diem("apply", str(file), "--yes", *by_url)
            assert monotonic() - start < APPLIED_S + COMMAND_S
        map_ = await read_map(self.kafka)
        assert map_ is not None
        assert {name: map_.home(name.encode()) for name in plan.homes} == plan.homes
        assert self.noticed[-1].closed == 0

    async def cut_off(self) -> None:
        """Cut the link of a host with a proxy and a pair for 20 s: its clients go elsewhere, and are live meanwhile."""
        away = await self.spread()
        async with self.step("link down", "of c", excuses=True) as details:
            start = monotonic()
            async with self.system.network.cut(self.system.hosts[2].namespace):
                details.append(await self.live_elsewhere(away, start))
                await asyncio.sleep(start + CUT_S - monotonic())

    async def hang(self) -> None:
        """Stop a server or proxy of host c with SIGSTOP: its clients go elsewhere, and systemd replaces it."""
        away = await self.spread()
        (name,) = SETTINGS[self.mode].ends.servers
        unit, host = f"diem@{name}.service", self.machine(name)
        before = host.starts(unit)
        async with self.step("hang", f"of {name}", excuses=True) as details:
            start = monotonic()
            await host.kill(unit, signal.SIGSTOP)
            details.append(await self.live_elsewhere(away, start))
            await self._until(
                lambda: host.starts(unit) > before, start + REPLACED_S - monotonic(), f"{unit} is replaced"
            )
            details.append(f"replaced after {monotonic() - start:.1f} s")
        assert f"watchdog {unit}" in host.lines

    async def fail_over(self) -> None:
        """Kill the Data Service that has the store."""
        name, other = await self.data()
        unit, host = f"diem@{name}.service", self.machine(name)
        async with self.step("kill", f"of {name}", excuses=True) as details:
            before, changes = host.starts(unit), len(self.system.writer.accepted)
            await host.kill(unit, signal.SIGKILL)
            details.append(f"{other} has the store after {await self.ready(other, STAND_BY_S, {200}):.1f} s")
            await self._until(lambda: len(self.system.writer.accepted) > changes, STAND_BY_S, "writes are accepted")
            await self._until(lambda: host.starts(unit) > before, SCALED_S, f"{unit} is started again")
            await self.ready(name, SCALED_S, {503})

    async def lose_the_host_of_the_store(self) -> None:
        """Cut the link of the host with the store until the stand-by of another one has it."""
        name, other = await self.data()
        async with self.step("link down", f"of the host of {name}", excuses=True) as details:
            async with self.system.network.cut(self.machine(name).namespace):
                details.append(f"{other} has the store after {await self.ready(other, STAND_BY_S, {200}):.1f} s")
                changes = len(self.system.writer.accepted)
                await self._until(lambda: len(self.system.writer.accepted) > changes, STAND_BY_S, "writes are accepted")
            # It has lost the store, and waits for it.
            details.append(f"{name} stands by after {await self.ready(name, SCALED_S, {503}):.1f} s")

    async def lose_a_host(self) -> None:
        """Kill everything on a host, whose link is cut, for good."""
        away = await self.spread()
        host = self.system.hosts[2].namespace
        async with self.step("gone", "is c", excuses=True) as details:
            start = monotonic()
            await self.system.network.detach(host)
            await host.kill()
            details.append(await self.live_elsewhere(away, start))

    # What it needs

    @contextlib.asynccontextmanager
    async def step(self, kind: str, target: str, *, excuses: bool) -> AsyncIterator[list[str]]:
        """Have something happen until the end of the block; then all clients are live and current.

        What is appended to the list is shown with what clients noticed.
        """
        start, details = monotonic(), list[str]()
        self.show(f"{kind} {target} ...")
        yield details
        end = monotonic()
        live_s = await self.healed(BOUNDS.t_heal)
        self.faults.append(Fault(kind, target, start, end, excuses=excuses))
        self.noticed.append(noticed(self.clients, start))
        took = f"{end - start:.1f} s, all live {live_s:.1f} s later"
        self.show(f"{kind} {target}: {'; '.join([took, *details, str(self.noticed[-1])])}")

    async def healed(self, within_s: float) -> float:
        """Wait until all clients are live, with all that was written; return the seconds."""
        start = monotonic()
        await self._until(lambda: are_current(self.clients, self.system.writer), within_s, "clients are live")
        return monotonic() - start

    async def _until(self, condition: Callable[[], object], within_s: float, what: str) -> None:
        limit = monotonic() + within_s
        while not condition():
            states = [f"{client.name} at {client.server}: {client.connected} {client.live}" for client in self.clients]
            assert monotonic() < limit, f"not within {within_s:.0f} s: {what}; {states}"
            await asyncio.sleep(0.05)

    @functools.cached_property
    def placed(self) -> dict[str, dict[str, Any]]:
        """What ``diem config`` has placed where, by name."""
        described = json.loads((self.system.out / "system.json").read_text())
        return {each["name"]: each for each in described["processes"]}

    def machine(self, name: str) -> Machine:
        """Return the host of a process."""
        return self.system.hosts[LABELS.index(self.placed[name]["host"])]

    async def status(self, name: str) -> int | None:
        """Return the HTTP status of a process's ``/readyz``; None without an answer."""
        internal = self.placed[name]["urls"]["internal"]
        with contextlib.suppress(OSError):
            if internal is None:
                # nginx, and the Data Service behind it, which may want another host.
                host, _, port = self.placed[name]["address"].rpartition(":")
                return 200 if await self.system.network.outside.get((host, int(port)), "/config.json") < 500 else None
            url = urlsplit(internal)
            return await self.system.network.outside.get((str(url.hostname), url.port or 0), "/readyz")
        return None

    async def ready(self, name: str, within_s: float, wanted: Collection[int] = ()) -> float:
        """Wait until a process is ready, or has one of the given statuses; return the seconds."""
        start = monotonic()
        # A Data Service may be the stand-by.
        wanted = wanted or ({200, 503} if name.startswith("data") else {200})
        while await self.status(name) not in wanted:
            assert monotonic() < start + within_s, f"{name} is not ready within {within_s:.0f} s"
            await asyncio.sleep(0.05)
        return monotonic() - start

    async def data(self) -> tuple[str, str]:
        """Return the name of the Data Service that has the store, and that of the stand-by."""
        first, second = "data", "data-2"
        return (first, second) if await self.status(first) == 200 else (second, first)

    async def spread(self) -> list[LoadClient]:
        """Have some of the clients connected to host c; return those that are there."""
        # Behind nginx they come to the server with the fewest clients, after an upgrade to the one replaced last.
        for client in self.clients[::2]:
            if client not in self._at_c():
                client.drop()
        within_s = BOUNDS.t_heal + Timing().held_after_s
        await self._until(self._is_spread, within_s, "a quarter of the clients is at host c")
        await self.healed(BOUNDS.t_heal)
        return self._at_c()

    def _at_c(self) -> list[LoadClient]:
        return [client for client in self.clients if client.server in SETTINGS[self.mode].ends.servers]

    def _is_spread(self) -> bool:
        # A client that drops a connection loses it a little later; one that ends within 10 s is a failure to it.
        held = monotonic() - Timing().held_after_s
        all_held = all(client.links and client.links[0].opened < held for client in self.clients)
        return all_held and len(self._at_c()) >= len(self.clients) // 4

    async def live_elsewhere(self, away: list[LoadClient], start: float) -> str:
        """Wait until all clients whose proxy is gone are connected to another one, and live as all are; return when."""
        await self._until(
            lambda: all(opened(client, start) for client in away),
            start + ELSEWHERE_S - monotonic(),
            "clients are connected elsewhere",
        )
        connected_s = monotonic() - start
        await self.healed(start + TAKEN_OVER_S - monotonic())
        return f"{len(away)} clients elsewhere after {connected_s:.1f} s, all live after {monotonic() - start:.1f} s"

    async def reports(self) -> dict[str, dict[str, Any] | None]:
        """Return what processes report to ``diem status --hosts``, by name and host."""
        described = json.loads(await self.system.diem("status", "--hosts", str(self.system.out), "--json"))
        return {each["name"]: each["report"] for each in described["processes"]}

    async def shares(self) -> list[int]:
        """Return the numbers of partitions that bridges are assigned, of all that run."""
        found = await self.reports()
        bridges = [report for name, report in found.items() if name.startswith("bridge-")]
        return [len(report.get("assigned", ())) for report in bridges if report]


@pytest.mark.skipif(EVERY_MODE not in os.environ, reason=f"this is tested by make hosts ({EVERY_MODE})")
@pytest.mark.parametrize("mode", SETTINGS)
async def test_no_update_is_lost_in_the_life_of_a_system_on_three_hosts(
    tmp_path: Path, kafka: SharedBroker, postgres: Cluster, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    setting = SETTINGS[mode]
    trees = None if why_not_extracted(EARLIER) else Trees(tmp_path / "releases", EARLIER)
    hosts, database = tmp_path / "hosts.toml", postgres.new_database()
    hosts.write_text(setting.hosts)
    broker = int(kafka.bootstrap_servers.rpartition(":")[2])
    options = (
        *options_on(kafka),
        *("--database-url", postgres.url(database)),
        *("--servers", "2", "--max-servers", "4"),
        *(("--set", f"metadata:DIEM_METADATA_MOVE_SECONDS={MOVE_S}") if mode == "z-proxy" else ()),
        # What a slow machine takes for an outage of the database would be another takeover.
        *("--set", f"data:DIEM_DATA_BUSY_TIMEOUT={BUSY_S}", "--set", f"data-2:DIEM_DATA_BUSY_TIMEOUT={BUSY_S}"),
    )
    prefix = options[options.index("--topic-prefix") + 1]

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", end="", file=sys.stderr, flush=True)

    installed = ROOT if trees is None else trees.installed
    async with loaded(
        tmp_path, mode, setting.ends, [broker, postgres.port], *options, hosts=str(hosts), installed=installed
    ) as system:
        story = Story(mode, system, tmp_path, KafkaOptions(kafka.bootstrap_servers, topic_prefix=prefix), show)
        await story.upgrade(trees.exchange if trees is not None else lambda: None)
        await story.scale()
        if mode == "z-proxy":
            await story.plan()
        await story.cut_off()
        await story.hang()
        await story.fail_over()
        await story.lose_the_host_of_the_store()
        await story.lose_a_host()
        await system.check(BOUNDS, (system.clients, story.faults))
    # The Data Services: the one that was killed, and the one that had lost the store. The watchdog aborted what hung,
    # and host c was killed at the end.
    failures = [line for machine in system.hosts for line in machine.failures if not line.endswith((" -6", " -9"))]
    assert {line.split()[1] for line in failures} <= {"diem@data.service", "diem@data-2.service"}, failures
    postgres.empty(database)
