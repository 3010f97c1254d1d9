"""``diem config MODE --hosts``: what it writes runs on three hosts, and loses no update when one is cut off.

Everything is started by the lines ``ExecStart`` and the files of variables of the units that it wrote.
"""

import asyncio
import contextlib
import functools
import os
import shutil
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

ORIGIN: Final = "https://app.example"
LABELS: Final = ("a", "b", "c")
CLIENTS: Final = 10
CUT_S: Final = 20.0
T_CONV_S: Final = 5.0 * FACTOR
T_HEAL_S: Final = 15.0 * FACTOR
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


CASES: Final = {
    "x": Ends(8000, 8000, frozenset({"websocket-2"})),
    "xz": Ends(8000, 8000, frozenset({"composite-2", "proxy-2"})),
    "z-proxy": Ends(8080, 8501, frozenset({"proxy-1"})),
}


@needs_nginx
@pytest.mark.takes(35)
@pytest.mark.parametrize("mode", CASES)
async def test_no_update_is_lost_while_a_host_is_cut_off(tmp_path: Path, kafka: SharedBroker, mode: str) -> None:
    if mode != next(iter(CASES)) and EVERY_MODE not in os.environ:
        pytest.skip(f"other modes are tested by make hosts ({EVERY_MODE})")
    ends = CASES[mode]
    sources = tmp_path / "sources.toml"
    sources.write_text("source = []\n")
    front = ("--front-proxy", f"{OUTSIDE}/32", "--origin", ORIGIN, "--anonymous", "on", "--traffic", "off")
    out = await asyncio.to_thread(
        written, tmp_path, mode, *front, *options_on(kafka), "--config", str(sources), "--drain-seconds", "2"
    )
    broker = int(kafka.bootstrap_servers.rpartition(":")[2])
    page, edge = free_ports(2)
    endpoints = [f"/hosts/{number}" for number in range(20)]
    async with Network() as network, machines(network, tmp_path, out) as hosts:
        # The broker of the tests is known by an address of this machine: each host reaches it over its link.
        network.forward(await network.outside.listen((OUTSIDE, broker)), lambda: connect_here(broker))
        for machine in hosts:
            inside = machine.namespace
            listener = await inside.listen(("127.0.0.1", broker))
            network.forward(listener, functools.partial(inside.connect, (OUTSIDE, broker)))
            assert inside.process.stdin is not None
            inside.process.stdin.write(b"start\n")
        network.forward(listen_here(page), lambda: network.outside.connect((address(1), ends.page_port)))
        network.forward(listen_here(edge), lambda: network.outside.connect((address(1), ends.edge_port)))
        key = (out / "keys" / "write.key").read_text().strip()
        began = monotonic()
        writer = Writer(f"http://127.0.0.1:{page}", key, endpoints, Random(1), rate=40)
        await writer.put_all()
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
        away = [client for client in clients if client.server in ends.servers]
        assert len(away) == CLIENTS if mode == "z-proxy" else 0 < len(away) < CLIENTS
        over = asyncio.Event()
        writing = asyncio.create_task(writer.run_until(over))
        async with network.cut(hosts[2].namespace):
            start = monotonic()
            await asyncio.sleep(CUT_S)
        end = monotonic()
        over.set()
        await writing
        await until(lambda: are_current(clients, writer))
        final = await writer.final()
        await writer.close()
        for client in clients:
            client.leave()
        ended = monotonic()
        accepted, uncertain = writer.accepted, writer.uncertain
        faults = [start_up, Fault("link", "c", start, end)]
        for these, excuses in (([c for c in clients if c not in away], [start_up]), (away, faults)):
            events = {client.name: client.events() for client in these}
            history = History(accepted, events, ended, excuses, uncertain, [], final)
            report = judge(history, Bounds(T_CONV_S, T_HEAL_S))
            assert report.clean, report.figures()
        cut_off = [event for client in away for event in client.events() if start + T_CONV_S < event.time < end]
        assert mode == "z-proxy" or not cut_off, f"the host was not cut off at {start}: {cut_off[:9]}"
        assert any(change.time > start + CUT_S / 2 for change in accepted), "nothing changed meanwhile"
    assert [line for machine in hosts for line in machine.failures] == []
