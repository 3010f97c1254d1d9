"""The command ``diem why``: what keeps updates of an endpoint from a client."""

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
import orjson
import typer

from deploy.admin.findings import Situation, listed
from deploy.cli.options import StateDirOption, run_interactive
from deploy.clients.metadata import MetadataService, MetadataUnavailable
from deploy.invocation import pasteable
from deploy.system import control
from deploy.system.description import with_children
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, plain_console
from diem.links import client_report
from diem.links.internal_client import internal_client
from diem.process import lifecycle
from diem.process.key_ring import KeyRing
from diem.protocol import endpoints
from diem.protocol.assignment import Snapshot
from tools.commands.options import HostsOption
from tools.diagnosis import Diagnosis, State, as_json_values, has_fault, print_table
from tools.why import Evidence, cause_of, hops

TIMEOUT_S: Final = 3.0
_NO_PROCESS: Final = {"endpoint", "client", "clients"}
"""Hops that are unknown because of a process."""
MAX_COLUMNS: Final = 120


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("why")(why_command)


def why_command(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="Name such as /dam/prices/GR.")],
    *,
    client: Annotated[
        str | None,
        typer.Option(
            metavar="ID|ADDRESS",
            help="The client: its session (in `welcome`), its address, or the user of its token. Default: any.",
        ),
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    hosts: HostsOption = None,
) -> int:
    """Explain why a client does not get updates of an endpoint: each hop, the cause, and what to do.

    The exit code is 1 if a hop is at fault.
    """
    endpoints.check(endpoint)
    state = StateDir(state_dir)
    chain: list[Diagnosis] = []

    async def explain() -> None:
        chain.extend(hops(await read_evidence(state, endpoint, client, hosts)))
        cause = cause_of(chain)
        if as_json:
            shown = {"endpoint": endpoint, "client": client, "hops": as_json_values(chain)}
            typer.echo(json.dumps(shown | {"cause": None if cause is None else cause._asdict()}))
        else:
            _print(chain, cause)

    code = run_interactive(explain)
    return lifecycle.EXIT_FAILED if code == lifecycle.EXIT_OK and has_fault(chain) else code


async def read_evidence(state: StateDir, endpoint: str, client: str | None, hosts: Path | None = None) -> Evidence:
    """Read the documents of a running system, those of all processes at once.

    Args:
        state: directory of ``diem up``, unless there are hosts.
        endpoint: its name.
        client: session, address or user; None: any client.
        hosts: directory of ``diem config MODE --hosts``; None: one machine.

    Raises:
        NotUp, ControlFailed: there is no status.
        ConfigurationError: a key cannot be used, or the directory of hosts.
    """
    http_of: Callable[[], httpx.AsyncClient]
    if hosts is None:
        status = await control.request(state, "status")
        http_of = partial(internal_client, KeyRing.load(state.internal_key_file), TIMEOUT_S)
    else:
        from tools.hosts.status import hosts_client, read_status  # noqa: PLC0415  # of several hosts alone

        status = await read_status(hosts)
        http_of = partial(hosts_client, hosts, TIMEOUT_S)
    urls = {
        name: (row["process"], row["urls"]["internal"] if row.get("report") else None)
        for name, row in with_children(status["processes"])
        if row["process"] in {"data", "websocket", "proxy"}
    }
    of_client = f"{client_report.PATH}/{quote(client or client_report.EVERYBODY, safe='*')}{endpoint}"
    async with http_of() as http:
        answers = await asyncio.gather(
            *(
                _read(http, url, f"/v1/endpoints{endpoint}" if kind == "data" else of_client)
                for kind, url in urls.values()
            )
        )
    found = {name: (kind, answer) for (name, (kind, _)), answer in zip(urls.items(), answers, strict=True)}
    return Evidence(
        endpoint,
        client,
        Situation(status, time.time_ns() // 1_000_000, state.logs if hosts is None else None),
        next((answer for kind, answer in found.values() if kind == "data" and answer), None),
        {name: answer for name, (kind, answer) in found.items() if kind != "data"},
        await _snapshot(status, http_of),
    )


async def _read(http: httpx.AsyncClient, url: str | None, path: str) -> dict[str, Any] | None:
    if url is None:
        return None
    try:
        reply = await http.get(f"{url}{path}")
        return dict(orjson.loads(reply.content)) if reply.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None


async def _snapshot(status: dict[str, Any], http_of: Callable[[], httpx.AsyncClient]) -> Snapshot | None:
    urls = [
        row["urls"]["internal"]
        for _, row in with_children(status["processes"])
        if row["process"] == "metadata" and row.get("report")
    ]
    try:
        return await MetadataService(urls, http_of).snapshot() if urls else None
    except MetadataUnavailable:
        return None


def _print(chain: list[Diagnosis], cause: Diagnosis | None) -> None:
    console = plain_console()
    console.width = min(console.width, MAX_COLUMNS)
    print_table(console, "hop", chain, with_remedies=False)
    if cause is None:
        text = (
            "Every hop is well. `diem canary --once` writes and watches endpoints at every server, as a client would."
        )
        console.print(f"\n{pasteable(text)}")
        return
    console.print(f"\n{'Cause' if cause.state is State.FAULT else 'Note '}  {cause.name}: {cause.text}")
    if cause.remedy:
        console.print(f"Do     {pasteable(cause.remedy)}")
    others = [
        hop.name for hop in chain if hop.state is State.UNKNOWN and hop is not cause and hop.name not in _NO_PROCESS
    ]
    if others:
        console.print(f"Or     {listed(others)}, which cannot be asked")
