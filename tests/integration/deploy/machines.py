"""A system on several hosts, from the files of ``diem config MODE --hosts``, with clients and a writer.

Everything is installed by the scripts that it wrote. In ``make hosts`` systemd runs the units; else a program does that
reads the lines ``ExecStart`` and the files of variables.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final, NamedTuple

from tests.integration.deploy import systemd
from tests.load.client import LoadClient
from tests.load.writes import Writer
from tests.oracle import Bounds, Fault, History, judge
from tests.support.hosts import OUTSIDE, PYTHON, ROOT, Network, NetworkNamespace, address, connect_here, listen_here
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_ports
from tests.support.required import unavailable

ORIGIN: Final = "https://app.example"
LABELS: Final = ("a", "b", "c")
USUAL_HOSTS: Final = ",".join(f"{label}={address(number)}" for number, label in enumerate(LABELS, 1))
"""Hosts with their usual roles: the first one has everything but servers."""
CLIENTS: Final = 10
DATA_PORT, DATA_INTERNAL_PORT = 8080, 9080
EVERY_MODE: Final = "RUN_HOSTS"
"""Variable with which all modes are tested, with systemd on each host (``make hosts``)."""


@dataclass
class Machine:
    """A host and what its service manager reports."""

    namespace: NetworkNamespace
    lines: list[str] = field(default_factory=list)

    async def read(self) -> None:
        assert self.namespace.process.stdout is not None
        async for line in self.namespace.process.stdout:
            self.lines.append(line.decode().strip())

    async def order(self, verb: str, *units: str) -> None:
        """Have units started, stopped or restarted, in the order of their dependencies; return when that is done."""
        done = self.lines.count("done")
        assert self.namespace.process.stdin is not None
        self.namespace.process.stdin.write(f"{' '.join((verb, *units))}\n".encode())
        await until(lambda: self.lines.count("done") > done)

    async def kill(self, unit: str, number: signal.Signals) -> None:
        """Send a signal to the main process of a unit."""
        await self.order("signal", str(number.value), unit)

    def starts(self, unit: str) -> int:
        """Return how often a unit has been started."""
        return self.lines.count(f"start {unit}")

    @property
    def failures(self) -> list[str]:
        """Exits that nobody asked for, and ends with another code than 0."""
        return [line for line in self.lines if line.startswith(("exit", "stopped")) and not line.endswith(" 0")]


@contextlib.asynccontextmanager
async def machines(network: Network, folder: Path, out: Path, installed: Path) -> AsyncIterator[list[Machine]]:
    """Copy the directory of each host to it, and have a service manager there that can install and start it."""
    if EVERY_MODE in os.environ and (reason := systemd.why_not()):
        unavailable("systemd on each host", OSError(reason))
    found, reading = [], []
    for label in LABELS:
        own = folder / "machines" / label
        shutil.copytree(out / "hosts" / label, own / "copied")
        log = (folder / f"{label}.log").open("ab")
        runner, mounts = _systemd(folder, own, installed) if EVERY_MODE in os.environ else _emulated(folder, own)
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
        for label in LABELS:
            systemd.remove_groups(label)


def _systemd(folder: Path, own: Path, installed: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Return the command of a host's service manager, and what it has mounted."""
    runner = (PYTHON, "-m", "tests.integration.deploy.systemd", f"{folder / own.name}.log", str(own), str(installed))
    return runner, ("mount -t tmpfs tmpfs /run",)


def _emulated(folder: Path, own: Path) -> tuple[Sequence[str], Sequence[str]]:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    script = own / "copied" / "install.sh"
    script.write_text(script.read_text().replace("/etc/systemd/system", f"{root}/units").replace("systemctl", ":"))
    (own / "units").mkdir()
    runner = (PYTHON, "-m", "tests.integration.deploy.units", f"{root}/copied/install.sh", f"{root}/units")
    return runner, (f"mount --bind {own} {root}", "mount -t tmpfs tmpfs /run")


def written(folder: Path, mode: str, hosts: str, *options: str) -> Path:
    """Return the directory that ``diem config`` writes for hosts."""
    where: tuple[str, ...] = ()
    if EVERY_MODE not in os.environ:
        # This machine's own paths: its user must be no other than that of the tests, and nothing else be written.
        program, root = folder / "diem", folder / "root"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m deploy "$@"\n')
        program.chmod(0o755)
        where = ("--program", str(program), "--user", "root")
        where += ("--state-dir", f"{root}/state", "--config-dir", f"{root}/etc")
    command = ("config", mode, "--hosts", hosts, "--out", str(folder / "out"), *where, *options)
    subprocess.run([sys.executable, "-m", "deploy", *command], check=True, cwd=ROOT, capture_output=True)
    return folder / "out"


def are_current(clients: Sequence[LoadClient], writer: Writer) -> bool:
    """Return whether all clients are live, and have the newest version of what they want."""
    newest = writer.newest()
    return all(
        client.live and all(client.level(endpoint) >= newest[endpoint.decode()] for endpoint in client.wants)
        for client in clients
    )


class Ends(NamedTuple):
    """Where clients connect, and which of them use a server of host c."""

    page_port: int
    edges: tuple[tuple[int, int], ...]
    """Number of the host, and port, of each address for clients."""
    servers: frozenset[str]
    ready: str = "live"
    """Event in the log of each host with servers from which clients may be on all of them."""
    pages: tuple[int, ...] = (1,)
    """Numbers of the hosts that may have the page."""


@dataclass
class Loaded:
    """A system with clients, to which a writer writes until it is stopped."""

    network: Network
    hosts: list[Machine]
    out: Path
    """What ``diem config`` has written."""
    writer: Writer
    clients: list[LoadClient]
    start_up: Fault
    over: asyncio.Event
    writing: asyncio.Task[None]

    async def diem(self, *words: str) -> str:
        """Run a command where the hosts can be reached, and return its output."""
        namespace = ("nsenter", "-t", str(self.network.outside.process.pid), "-n")
        given = {name: value for name, value in os.environ.items() if not name.startswith("DIEM_")}
        process = await asyncio.create_subprocess_exec(
            *(*namespace, PYTHON, "-m", "deploy", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.out.parent,
            env={**given, "PYTHONPATH": str(ROOT)},
        )
        output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0, f"diem {' '.join(words)}: {output.decode()} {errors.decode()}"
        return output.decode()

    async def check(self, bounds: Bounds, *groups: tuple[list[LoadClient], list[Fault]]) -> None:
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
            report = judge(history, bounds)
            assert report.clean, report.figures()


async def _front(network: Network, ends: Ends) -> socket.socket:
    """Connect to the page of the host whose Data Service is ready, as a load balancer with health checks does."""
    if len(ends.pages) == 1:
        return await network.outside.connect((address(ends.pages[0]), ends.page_port))
    for number in ends.pages:
        with contextlib.suppress(OSError):
            if await network.outside.get((address(number), DATA_INTERNAL_PORT), "/readyz") == 200:
                return await network.outside.connect((address(number), ends.page_port))
    raise OSError("no Data Service is ready")


@contextlib.asynccontextmanager
async def loaded(
    folder: Path,
    mode: str,
    ends: Ends,
    services: Sequence[int],
    *options: str,
    hosts: str = USUAL_HOSTS,
    installed: Path = ROOT,
) -> AsyncIterator[Loaded]:
    """Run a mode on three hosts under load.

    Args:
        folder: for everything.
        mode: of the system.
        ends: where clients connect.
        services: ports of this machine, which each host reaches over its link.
        options: further ones of ``diem config``.
        hosts: the option with its hosts.
        installed: directory with the packages of DIEM that are on them, with systemd.
    """
    sources = folder / "sources.toml"
    sources.write_text("source = []\n")
    front = ("--front-proxy", f"{OUTSIDE}/32", "--origin", ORIGIN, "--anonymous", "on", "--traffic", "off")
    own = ("--config", str(sources), "--drain-seconds", "10")
    out = await asyncio.to_thread(written, folder, mode, hosts, *front, *own, *options)
    page, *edges = free_ports(1 + len(ends.edges))
    endpoints = [f"/hosts/{number}" for number in range(20)]
    async with Network() as network, machines(network, folder, out, installed) as found:
        for port in services:
            network.forward(await network.outside.listen((OUTSIDE, port)), functools.partial(connect_here, port))
            for machine in found:
                inside = machine.namespace
                listener = await inside.listen(("127.0.0.1", port))
                network.forward(listener, functools.partial(inside.connect, (OUTSIDE, port)))
        network.forward(listen_here(page), functools.partial(_front, network, ends))
        for edge, (number, port) in zip(edges, ends.edges, strict=True):
            connect = functools.partial(network.outside.connect, (address(number), port))
            network.forward(listen_here(edge), connect)
        key = (out / "keys" / "write.key").read_text().strip()
        began = monotonic()
        await asyncio.gather(*(machine.order("start") for machine in found))
        writer = Writer(f"http://127.0.0.1:{page}", key, endpoints, Random(1), rate=40)
        await writer.put_all()
        logs = [folder / f"{label}.log" for label in LABELS[1:]]
        await until(lambda: all(f'"event":"{ends.ready}"' in log.read_text() for log in logs))
        urls = [f"ws://127.0.0.1:{edge}/ws" for edge in edges]
        clients = [
            LoadClient(str(n), "127.0.0.1", urls, Random(n).sample(endpoints, 8), Random(n), origin=ORIGIN)
            for n in range(CLIENTS)
        ]
        for client in clients:
            client.start(0)
        await until(lambda: are_current(clients, writer))
        # Services that start are no fault of theirs, and nothing is excused once they have.
        start_up = Fault("start", "all", began, monotonic(), heal=0.0)
        over = asyncio.Event()
        writing = asyncio.create_task(writer.run_until(over))
        yield Loaded(network, found, out, writer, clients, start_up, over, writing)
