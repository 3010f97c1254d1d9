"""The command ``diem canary``: endpoints that are written every few seconds and watched at every server and proxy."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.cli.options import ApiKeyOption, StateDirOption, TokenOption, UrlOption
from deploy.clients.data_service import DataService, DataServiceUnavailable, base_url, data_service
from deploy.clients.metadata import metadata_service
from deploy.clients.updates import Credentials, client_of, credentials_of
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, amount
from diem.client import BaseClient
from diem.errors import DiemError
from diem.links.internal import InternalListener
from diem.links.internal_client import fetch_status, internal_client
from diem.process import lifecycle, metrics
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from diem.protocol.page_config import Edges
from tools.load.canary import Canary, Connect
from tools.load.edges import EdgeAddress, canary_endpoints, edges_of_groups, edges_of_system
from tools.load.server_client import ServerClient
from tools.load.writer import write_all

METRICS_PORT: Final = 9700
STATUS_S: Final = 5.0
STOP_S: Final = 5.0
MAX_PARTITIONS: Final = 1000
CLIENTS: Final = "clients"
"""Name of the edge reached via the page's address."""


class PartitionsUnknown(DiemError):
    """The Data Service publishes to Kafka, but has not read the partition map yet."""

    template = "the Data Service does not publish to Kafka yet: try again, or give --partitions"
    retriable = True


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("canary")(canary_command)


def canary_command(
    *,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="End when every edge has delivered each of its partitions; exit code 1: one is late."
        ),
    ] = False,
    url: UrlOption = None,
    edge: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="WebSocket of a server or proxy, as ws://host:8101/ws. Repeatable."),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Internal listener of a server that has all endpoints. Repeatable."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Internal listener of a metadata service, which knows the servers of groups."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_PARTITIONS, help="Partitions of the updates topic. Default: as the system says, or 1."
        ),
    ] = None,
    every: Annotated[float, typer.Option(min=0.5, max=60, help="Seconds between two writes.")] = 2.0,
    late: Annotated[float, typer.Option(min=1, max=3600, help="Seconds after which an edge is late.")] = 10.0,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of /metrics and /status; 0: none. None with --once.")
    ] = METRICS_PORT,
    metrics_host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address of that port.")] = "127.0.0.1",
    write_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of a write key. Default: the state directory's.")
    ] = None,
    internal_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File of the internal key, or of one for --server. Default: the state directory's."
        ),
    ] = None,
    key_file: ApiKeyOption = None,
    token_file: TokenOption = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
) -> int:
    """Write an endpoint in each partition every few seconds, and name each server and proxy that delivers it late.

    Exit code with --once: 0, none is late; 1, one is, or nothing can be written. Without it: 0 when it is interrupted.
    """
    state = StateDir(state_dir)
    servers = [base_url(each, "--server") for each in server or ()]
    system = _System(
        state=state,
        service=data_service(state, url),
        named=(
            *(EdgeAddress(each, each) for each in edge or ()),
            *(EdgeAddress(each, f"ws{each.removeprefix('http')}/ws", is_server=True) for each in servers),
        ),
        metadata=None if metadata is None else base_url(metadata, "--metadata"),
        is_local=url is None,
        credentials=credentials_of(key_file, token_file),
        internal_key_file=internal_key_file or state.internal_key_file,
    )
    key = SharedKey.load(write_key_file or state.write_key_file)
    terminal = Terminal(quiet=quiet)
    life = Lifecycle(drain_seconds=STOP_S)
    passed = not once

    async def work() -> None:
        nonlocal passed
        names = canary_endpoints(partitions or await system.partitions())
        canary = Canary(
            names,
            find_edges=system.edges,
            write=lambda: write_all(system.service, key, list(names)),
            connect=await system.connect(),
            terminal=terminal,
            every_s=every,
            late_after_s=late,
        )
        if once:
            passed = await canary.run(life.stopping, once=True)
            for line in canary.lines():
                terminal.info(line)
            return
        terminal.info(f"{amount(len(names), 'endpoint')}, written every {every:g} s; late after {late:g} s")
        async with _listener(metrics_host, metrics_port, system, canary):
            await canary.run(life.stopping)

    code = lifecycle.serve(life, work)
    return code or (lifecycle.EXIT_OK if passed else lifecycle.EXIT_FAILED)


@contextlib.asynccontextmanager
async def _listener(host: str, port: int, system: "_System", canary: Canary) -> AsyncIterator[None]:
    """Serve metrics and status while the block runs, with the keys of internal listeners; port 0: do not."""
    if port == 0:
        yield
        return
    internal = InternalListener(host, port, key=system.keys(), ready=lambda: None, status=canary.status)
    internal.start()
    forget = metrics.register(canary.samples)
    try:
        yield
    finally:
        forget()
        internal.stop()


@dataclass(frozen=True)
class _System:
    """The system to watch: that of the state directory, or of the options."""

    state: StateDir
    service: DataService
    named: tuple[EdgeAddress, ...]
    metadata: str | None
    is_local: bool
    credentials: Credentials
    internal_key_file: Path

    def keys(self) -> KeyRing:
        """Return the keys of internal listeners. Raises ``BadKeyFile``."""
        return KeyRing.load(self.internal_key_file)

    async def edges(self) -> list[EdgeAddress]:
        """Return the current edges. Raises ``MetadataUnavailable``."""
        found = [EdgeAddress(CLIENTS, self.service.base), *self.named]
        if self.is_local:
            found += edges_of_system(self.state.read_processes(), self._targets())
        if self.metadata is not None:
            found += edges_of_groups(await metadata_service([self.metadata], self.keys()).snapshot())
        return found

    async def partitions(self) -> int:
        """Return the number of partitions of the names' hash; 1 without Kafka.

        Raises:
            PartitionsUnknown: it does not publish yet.
            DataServiceUnavailable: the Data Service does not answer.
            MetadataUnavailable: no metadata service does.
        """
        if self.metadata is not None:
            return (await metadata_service([self.metadata], self.keys()).snapshot()).map.head.partitions
        running = self.state.read_processes().get("processes", ()) if self.is_local else ()
        url = next((process["urls"]["internal"] for process in running if process["process"] == "data"), None)
        if url is None:
            return 1
        async with internal_client(self.keys(), STATUS_S) as http:
            status = await fetch_status(http, url)
        if status is None:
            raise DataServiceUnavailable(url, "no status")
        if (publisher := status.get("publisher")) is None:
            return 1
        if not (found := publisher.get("partitions")):
            raise PartitionsUnknown
        return int(found)

    async def connect(self) -> Connect:
        """Return the factory of clients of edges. Raises ``DataServiceUnavailable``."""
        edges, service = await self.service.edges(), self.service
        token = self.credentials.token_function(service)

        def connect(address: EdgeAddress) -> BaseClient:
            if address.is_server:
                return ServerClient(address.name, address.url, self.keys())
            own = edges if address.name == CLIENTS else Edges([address.url], [])
            return client_of(own, service.base, token, service.tls)

        return connect

    def _targets(self) -> list[dict[str, Any]]:
        """Return the addresses for Prometheus, which include all servers; empty while the file is being replaced."""
        try:
            read = json.loads(self.state.targets_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return read if isinstance(read, list) else []
