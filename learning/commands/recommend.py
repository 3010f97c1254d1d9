"""The command ``diem recommend``: mode, number of servers, thresholds, and costs."""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.cli.options import StateDirOption, run_interactive
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console
from diem.process import lifecycle
from diem.process.cores import usable_cores
from learning.commands.options import parse_bytes
from learning.costs import ROLES, UTILISATION, read_role_costs
from learning.modes.load import MAX_VALUE, Data
from learning.modes.recommend import Requirements
from learning.recommend import render
from learning.recommend.advice import Advice
from learning.recommend.source import NUMBERS, LoadSource, from_numbers, from_system, from_traffic, overridden

_FACTOR: Final = re.compile(r"(\d+(?:\.\d+)?)\s*x?")
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("recommend")(recommend_command)


def recommend_command(
    *,
    clients: Annotated[float | None, typer.Option(min=1, max=MAX_VALUE, help="Connected clients.")] = None,
    endpoints: Annotated[float | None, typer.Option(min=1, max=MAX_VALUE, help="Number of endpoints.")] = None,
    updates: Annotated[
        float | None,
        typer.Option(min=1e-3, max=MAX_VALUE, help="Updates a second, of all endpoints together."),
    ] = None,
    subscriptions: Annotated[
        float | None,
        typer.Option(min=0.01, max=1e5, help="Subscriptions of each client. Default: 10."),
    ] = None,
    batch: Annotated[
        float | None,
        typer.Option(min=1, max=1e5, help="Updates that are written together. Default: 10."),
    ] = None,
    data: Annotated[Data | None, typer.Option(help="How clients get data. Default: inline.")] = None,
    data_bytes: Annotated[
        float | None,
        typer.Option(
            "--bytes",
            min=0,
            max=1e7,
            help="Size of an update's data, in bytes. Default: 3500.",
        ),
    ] = None,
    traffic: Annotated[
        Path | None,
        typer.Option(help="Use recorded traffic or statistics instead of the running system."),
    ] = None,
    cores_per_host: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Cores of each host. Default: those of this machine."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory of each host, such as 16G. Default: unlimited."),
    ] = None,
    survive: Annotated[
        int,
        typer.Option(min=0, max=8, help="Processes serving clients that may fail at the same time."),
    ] = 0,
    growth: Annotated[
        str,
        typer.Option(help="Factor by which clients, endpoints and updates will grow."),
    ] = "1x",
    p99: Annotated[
        str | None,
        typer.Option(help="Longest delay of an update, such as 200ms. Default: unlimited."),
    ] = None,
    utilisation: Annotated[
        float,
        typer.Option(
            min=0.05,
            max=1,
            help="Share of its cores that a process may use, from 0 to 1.",
        ),
    ] = UTILISATION,
    one_address: Annotated[
        bool,
        typer.Option(
            "--one-address",
            help="Clients must connect to one address, which excludes z-client.",
        ),
    ] = False,
    costs: Annotated[
        Path | None, typer.Option(help="Output file of `make bench-cost`. Default: built-in figures.")
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Recommend a mode for the running system, for recorded traffic, or for a few numbers.

    For example: `diem recommend --clients 5000 --endpoints 200 --updates 50`.
    """
    given: dict[str, Any] = {
        "clients": clients,
        "endpoints": endpoints,
        "updates": updates,
        "subscriptions": subscriptions,
        "batch": batch,
        "data": data,
        "data_bytes": data_bytes,
    }
    needs = Requirements(
        cores_per_host=cores_per_host or usable_cores(),
        memory_bytes=None if memory is None else parse_bytes(memory, "--memory"),
        survive=survive,
        p99_s=None if p99 is None else _parse_time(p99),
        utilisation=utilisation,
        one_address=one_address,
    )
    factor = _parse_factor(growth)
    roles = ROLES if costs is None else read_role_costs(costs, ROLES)
    state = StateDir(state_dir)
    source = _source(state, traffic, given, Terminal(quiet=as_json))
    advice = Advice(source, roles, needs, factor)
    if as_json:
        typer.echo(json.dumps(advice.as_json()))
        return lifecycle.EXIT_OK
    console = plain_console()
    for each in render.lines(advice, console.width):
        console.print(each)
    return lifecycle.EXIT_OK


def _source(state: StateDir, traffic: Path | None, given: dict[str, Any], terminal: Terminal) -> LoadSource:
    """Return the load: of the named traffic, else of sufficient numbers, else of the running system."""
    if traffic is not None:
        return overridden(from_traffic(traffic, terminal), given)
    if all(given[name] is not None for name in NUMBERS) or not state.socket().exists():
        return from_numbers(given)
    found: list[LoadSource] = []

    async def sample() -> None:
        found.append(await from_system(state))

    code = run_interactive(sample)
    if not found:
        raise typer.Exit(code)
    return overridden(found[0], given)


def _parse_factor(text: str) -> float:
    """Parse ``3x`` to 3.0. Raises ``typer.BadParameter``."""
    match = _FACTOR.fullmatch(text.strip())
    if match is None or not 0.01 <= float(match[1]) <= 1e4:
        raise typer.BadParameter(f"--growth is a factor such as 3x, not {text!r}")
    return float(match[1])


def _parse_time(text: str) -> float:
    """Parse ``200ms`` to seconds. Raises ``typer.BadParameter``."""
    match = _TIME.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"--p99 is a time such as 200ms or 1s, not {text!r}")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)
