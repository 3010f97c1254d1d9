"""``diem config MODE --hosts``: what it writes runs on three hosts, and loses no update when one is cut off.

Everything is started by the lines ``ExecStart`` and the files of variables of the units that it wrote.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple

import pytest

from tests.load.client import LoadClient
from tests.load.link import Server
from tests.load.writes import Writer
from tests.oracle import Bounds, Fault, History, judge
from tests.support.hosts import OUTSIDE, PYTHON, ROOT, Network, NetworkNamespace, address, connect_here, listen_here
from tests.support.kafka import SharedBroker, options_on
from tests.support.nginx import needs_nginx
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.ports import free_ports
from tests.support.postgres import Cluster

ORIGIN: Final = "https://app.example"
LABELS: Final = ("a", "b", "c")
SERVING: Final = '"event":"serving"'
"""In the log of a Data Service that has the store."""
CLIENTS: Final = 10
CUT_S: Final = 16.0
"""Longer than clients may take to be elsewhere."""
T_CONV_S: Final = 5.0 * FACTOR
T_HEAL_S: Final = 15.0 * FACTOR
ELSEWHERE_S: Final = 15.0 * FACTOR
"""Clients whose server is cut off behind nginx are connected to another one within this time."""
EVERY_MODE: Final = "DIEM_HOSTS"
"""Variable with which all modes are tested, under the restrictions of the units (``make hosts``)."""


class Client(LoadClient):
    """A load client that remembers its server."""

    server = ""

    def message(self, message: dict[str, Any], time: float) -> None:
        if message["type"] == "welcome":
            self.server = message["server"]
        super().message(message, time)


@dataclass
class Machine:
    """A host and what its runner reports."""

    namespace: NetworkNamespace
    lines: list[str] = field(default_factory=list)

    async def read(self) -> None:
        assert self.namespace.process.stdout is not None
        async for line in self.namespace.process.stdout:
            self.lines.append(line.decode().strip())

    @property
    def failures(self) -> list[str]:
        """Exits that nobody asked for, and ends with another code than 0."""
        return [line for line in self.lines if line.startswith(("exit", "stopped")) and not line.endswith(" 0")]


@contextlib.asynccontextmanager
async def machines(network: Network, folder: Path, out: Path) -> AsyncIterator[list[Machine]]:
    """Copy the directory of each host to it, install it there, and start its services."""
    found, reading = [], []
    root = folder / "root"
    root.mkdir()
    for label in LABELS:
        own = folder / "machines" / label
        shutil.copytree(out / "hosts" / label, own / "copied")
        script = own / "copied" / "install.sh"
        # There is no systemd, so its directory may not exist.
        script.write_text(script.read_text().replace("/etc/systemd/system", f"{root}/units").replace("systemctl", ":"))
        (own / "units").mkdir()
        runner = (
            PYTHON,
            "-m",
            "tests.support.units",
            f"{root}/copied/install.sh",
            f"{root}/units",
            *(["restricted"] if EVERY_MODE in os.environ else []),
        )
        mounts = (f"mount --bind {own} {root}", "mount -t tmpfs tmpfs /run")
        log = (folder / f"{label}.log").open("wb")
        namespace = await network.start(*runner, mounts=mounts, stdout=asyncio.subprocess.PIPE, stderr=log)
        log.close()
        found.append(Machine(namespace))
        reading.append(asyncio.create_task(found[-1].read()))
        await network.attach(namespace, len(found))
    try:
        yield found
    finally:
        for machine in found:
            assert machine.namespace.process.stdin is not None
            machine.namespace.process.stdin.close()
        await asyncio.gather(*reading)


def written(folder: Path, mode: str, *options: str) -> Path:
    """Return the directory that ``diem config`` writes for hosts a, b and c."""
    program = folder / "diem"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m deploy "$@"\n')
    program.chmod(0o755)
    hosts = ",".join(f"{label}={address(number)}" for number, label in enumerate(LABELS, 1))
    root = folder / "root"
    where = ("--program", str(program), "--state-dir", f"{root}/state", "--config-dir", f"{root}/etc", "--user", "root")
    command = ("config", mode, "--hosts", hosts, "--out", str(folder / "out"), *where, *options)
    subprocess.run([sys.executable, "-m", "deploy", *command], check=True, cwd=ROOT, capture_output=True)
    return folder / "out"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


def are_current(clients: list[Client], writer: Writer) -> bool:
    """Return whether all clients are live, and have the newest version of what they want."""
    newest = writer.newest()
    return all(
        client.live and all(client.level(endpoint) >= newest[endpoint.decode()] for endpoint in client.wants)
        for client in clients
    )


class Ends(NamedTuple):
    """Where clients connect, and which of them use a server of host c."""

    page_port: int
    edge_port: int
    servers: frozenset[str]
    ready: str = "live"
    """Event in the log of each host with servers from which clients may be on all of them."""


ENDS: Final = {
    "x": Ends(8000, 8000, frozenset({"websocket-2"})),
    "xz": Ends(8000, 8000, frozenset({"composite-2", "proxy-2"}), "server connected"),
    "z-proxy": Ends(8080, 8501, frozenset({"proxy-1"})),
    "x-broadcast": Ends(8000, 8000, frozenset({"websocket-2"})),
}


@dataclass
class Loaded:
    """A system with clients, to which a writer writes until it is stopped."""

    network: Network
    hosts: list[Machine]
    writer: Writer
    clients: list[Client]
    start_up: Fault
    over: asyncio.Event
    writing: asyncio.Task[None]

    async def check(self, *groups: tuple[list[Client], list[Fault]]) -> None:
        """Stop writing, wait until all clients are current, and have the oracle check them, each with its excuses."""
        self.over.set()
        await self.writing
        await until(lambda: are_current(self.clients, self.writer))
        final = await self.writer.final()
        await self.writer.close()
        for client in self.clients:
            client.leave()
        ended, accepted, uncertain = monotonic(), self.writer.accepted, self.writer.uncertain
        for clients, excuses in groups:
            events = {client.name: client.events() for client in clients}
            history = History(accepted, events, ended, [self.start_up, *excuses], uncertain, [], final)
            report = judge(history, Bounds(T_CONV_S, T_HEAL_S))
            assert report.clean, report.figures()


@contextlib.asynccontextmanager
async def loaded(folder: Path, mode: str, service_port: int, *options: str) -> AsyncIterator[Loaded]:
    """Run a mode on three hosts, each of which reaches a service of this machine over its link, under load."""
    sources = folder / "sources.toml"
    sources.write_text("source = []\n")
    front = ("--front-proxy", f"{OUTSIDE}/32", "--origin", ORIGIN, "--anonymous", "on", "--traffic", "off")
    own = ("--config", str(sources), "--drain-seconds", "10")
    out = await asyncio.to_thread(written, folder, mode, *front, *own, *options)
    ends, (page, edge) = ENDS[mode], free_ports(2)
    endpoints = [f"/hosts/{number}" for number in range(20)]
    async with Network() as network, machines(network, folder, out) as hosts:
        network.forward(await network.outside.listen((OUTSIDE, service_port)), lambda: connect_here(service_port))
        for machine in hosts:
            inside = machine.namespace
            listener = await inside.listen(("127.0.0.1", service_port))
            network.forward(listener, functools.partial(inside.connect, (OUTSIDE, service_port)))
            assert inside.process.stdin is not None
            inside.process.stdin.write(b"start\n")
        network.forward(listen_here(page), lambda: network.outside.connect((address(1), ends.page_port)))
        network.forward(listen_here(edge), lambda: network.outside.connect((address(1), ends.edge_port)))
        key = (out / "keys" / "write.key").read_text().strip()
        began = monotonic()
        writer = Writer(f"http://127.0.0.1:{page}", key, endpoints, Random(1), rate=40)
        await writer.put_all()
        logs = [folder / f"{label}.log" for label in LABELS[1:]]
        await until(lambda: all(f'"event":"{ends.ready}"' in log.read_text() for log in logs))
        server = Server("127.0.0.1", edge, "/ws", ORIGIN)
        clients = [
            Client(str(n), "127.0.0.1", [server], Random(n).sample(endpoints, 8), Random(n), filtered=False)
            for n in range(CLIENTS)
        ]
        for client in clients:
            client.start(0)
        await until(lambda: are_current(clients, writer))
        # Services that start are no fault of theirs, and nothing is excused once they have.
        start_up = Fault("start", "all", began, monotonic(), heal=0.0)
        over = asyncio.Event()
        writing = asyncio.create_task(writer.run_until(over))
        yield Loaded(network, hosts, writer, clients, start_up, over, writing)


@needs_nginx
@pytest.mark.takes(35)
@pytest.mark.parametrize("mode", ["x", "xz", "z-proxy"])
async def test_no_update_is_lost_while_a_host_is_cut_off(tmp_path: Path, kafka: SharedBroker, mode: str) -> None:
    if mode != "x" and EVERY_MODE not in os.environ:
        pytest.skip(f"other modes are tested by make hosts ({EVERY_MODE})")
    # The broker of the tests is known by an address of this machine.
    broker = int(kafka.bootstrap_servers.rpartition(":")[2])
    async with loaded(tmp_path, mode, broker, *options_on(kafka)) as system:
        clients = system.clients
        away = [client for client in clients if client.server in ENDS[mode].servers]
        assert len(away) == CLIENTS if mode == "z-proxy" else 0 < len(away) < CLIENTS
        async with system.network.cut(system.hosts[2].namespace):
            start = monotonic()
            await asyncio.sleep(CUT_S)
        end = monotonic()
        await system.check(
            ([client for client in clients if client not in away], []), (away, [Fault("link", "c", start, end)])
        )
        if mode != "z-proxy":  # Proxies keep their clients, and find another server for them.
            opened = [[event.time - start for event in client.events() if event.kind == "open"] for client in away]
            assert all(any(0 < time < ELSEWHERE_S for time in times) for times in opened), opened
        assert any(change.time > start + CUT_S / 2 for change in system.writer.accepted), "nothing changed meanwhile"
    assert [line for machine in system.hosts for line in machine.failures] == []


@needs_nginx
async def test_stand_by_of_another_host_takes_over_without_a_lost_update(tmp_path: Path, postgres: Cluster) -> None:
    if EVERY_MODE not in os.environ:
        pytest.skip(f"this is tested by make hosts ({EVERY_MODE})")
    database = postgres.new_database()
    store = ("--standby", "b", "--database-url", postgres.url(database))
    async with loaded(tmp_path, "x-broadcast", postgres.port, *store) as system:
        # Whichever host was faster has the store.
        serving = [log for log in (tmp_path / "a.log", tmp_path / "b.log") if SERVING in log.read_text()]
        (active,) = [number for number, label in enumerate(LABELS[:2]) if serving == [tmp_path / f"{label}.log"]]
        other = tmp_path / f"{LABELS[1 - active]}.log"
        unit, reported = ("diem-data.service", "diem-data-2.service")[active], system.hosts[active].lines
        (pid,) = [int(line.split()[2]) for line in reported if line.startswith(f"start {unit}")]
        start, before = monotonic(), len(system.writer.accepted)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: SERVING in other.read_text())
        await until(lambda: len(system.writer.accepted) > before)
        await until(lambda: sum(line.startswith(f"start {unit}") for line in reported) == 2)
        end = monotonic()
        await system.check((system.clients, [Fault("kill", "data", start, end)]))
    failures = [line for machine in system.hosts for line in machine.failures]
    assert failures == [f"exit {unit} -9"]
    postgres.empty(database)
