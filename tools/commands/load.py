"""The command ``diem load``: many clients of a running system, and whether each was sent everything."""

import asyncio
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.cli.options import EXIT_INTERRUPTED, ApiKeyOption, StateDirOption, TokenOption, UnusableFile
from deploy.clients.data_service import data_service
from deploy.clients.updates import credentials_of
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal
from diem.process import lifecycle
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from tools.load import report
from tools.load.processes import LoadProcesses, shares
from tools.load.result import BadResult, LoadResult, merge
from tools.load.run import CONNECT_S, LoadOptions, LoadTest
from tools.load.writer import PREFIX

STOP_S: Final = 20.0
"""Time to complete pending requests and to delete the test's endpoints after Ctrl-C."""
MAX_CLIENTS: Final = 200_000
MAX_PROCESSES: Final = 64
MAX_ENDPOINTS: Final = 1_000
"""Maximum number of its own endpoints."""


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("load")(load_command)


def load_command(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="Base URL of a Data Service. Default: that of `diem up`.")
    ] = None,
    *,
    clients: Annotated[int, typer.Option(min=1, max=MAX_CLIENTS, help="Number of clients.")] = 200,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_PROCESSES,
            help="Processes that share the clients: each has a core, and a limit of open files, of its own.",
        ),
    ] = 1,
    subscriptions: Annotated[int, typer.Option(min=1, max=1024, help="Subscriptions of each client.")] = 5,
    endpoints: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN|N",
            help="Endpoints that match, such as '/load/*', or the first N of the catalogue. Default: all. "
            "With --write, the number of endpoints of its own. Default: 20.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, max=86_400, help="How long to measure.")] = 30.0,
    rate: Annotated[float, typer.Option(min=0.1, max=1000, help="Clients that connect in a second.")] = 50.0,
    wait: Annotated[
        float,
        typer.Option(min=0, max=3600, help="Most seconds to wait for the last updates before clients are compared."),
    ] = 30.0,
    write: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=5000,
            metavar="N",
            help="Write N updates a second to endpoints of its own below /diem-load, deleted at the end.",
        ),
    ] = None,
    write_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of a write key, for --write. Default: the state directory's."),
    ] = None,
    key_file: ApiKeyOption = None,
    token_file: TokenOption = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another host that may be loaded, if the Data Service names servers there. Repeatable.",
        ),
    ] = None,
    addresses: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="ADDRESS",
            help="An address of this machine to connect from: each has some 28,000 ports to a server. Repeatable.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON into this file, too.")
    ] = None,
    merged: Annotated[
        list[Path] | None,
        typer.Option(
            "--merge",
            metavar="FILE",
            help="Connect nobody: add the results that several machines wrote with --json to one. Repeatable.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, hidden=True, help="Of the clients' endpoints.")] = 0,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
) -> int:
    """Connect many clients to a running system; measure delays, and check that nothing was missed.

    Exit code 0: all clients subscribed and none missed an update; 1: otherwise; 130: interrupted before it was checked.
    """
    if merged:
        return _tell(merge([_read(file) for file in merged]), Terminal(quiet=quiet), json_file)
    state = StateDir(state_dir)
    credentials = credentials_of(key_file, token_file)
    service = data_service(state, url, "URL")
    if write is not None and endpoints is not None and not _is_number(endpoints):
        raise typer.BadParameter(
            f"--write has endpoints of its own: --endpoints is their number, 1 to {MAX_ENDPOINTS}, not {endpoints!r}"
        )
    mine, *others = shares(clients, processes)
    each_rate = rate / (1 + len(others))
    options = LoadOptions(
        clients=mine,
        subscriptions=subscriptions,
        endpoints=endpoints,
        seconds=seconds,
        rate=each_rate,
        wait_s=wait,
        write=write,
        write_key=None if write is None else SharedKey.load(write_key_file or state.write_key_file),
        credentials=credentials,
        hosts=tuple(host or ()),
        addresses=tuple(map(_address, addresses or ())),
        seed=seed,
    )
    if json_file is not None:
        _write(json_file, "")  # fail before the test if it cannot be written
    arguments = [service.base, "--state-dir", str(state_dir), "--subscriptions", str(subscriptions)]
    arguments += ["--seconds", str(seconds), "--wait", str(wait)]
    named: dict[str, Sequence[object]] = {
        "--endpoints": [f"{PREFIX}/*" if write is not None else endpoints],
        "--key-file": [key_file],
        "--token-file": [token_file],
        "--host": options.hosts,
        "--from": options.addresses,
    }
    arguments += [word for name, given in named.items() for each in given if each for word in (name, str(each))]
    terminal = Terminal(quiet=quiet)
    life = Lifecycle(drain_seconds=STOP_S)
    outcomes: list[LoadResult] = []

    async def work() -> None:
        within_s = clients / rate + CONNECT_S + seconds + wait
        async with LoadProcesses(others, arguments, each_rate, within_s, terminal) as helpers:
            stopped = asyncio.create_task(_interrupt(life.stopping, helpers))
            try:
                made = await LoadTest(service, options, terminal, helpers).run(life.stopping)
            finally:
                stopped.cancel()
            outcomes.append(merge(helpers.results(made.result())))

    code = lifecycle.serve(life, work)
    return _tell(outcomes[0], terminal, json_file) if outcomes else code


async def _interrupt(stopping: asyncio.Event, helpers: LoadProcesses) -> None:
    await stopping.wait()
    helpers.interrupt()


def _tell(outcome: LoadResult, terminal: Terminal, json_file: Path | None) -> int:
    """Print a result, write it, and return the exit code."""
    for line in report.lines(outcome):
        terminal.info(line)
    for line in report.warnings(outcome):
        terminal.warn(line)
    if json_file is not None:
        _write(json_file, json.dumps(outcome.as_json(), indent=2) + "\n")
    if outcome.interrupted:
        return EXIT_INTERRUPTED
    return lifecycle.EXIT_OK if outcome.passed else lifecycle.EXIT_FAILED


def _read(file: Path) -> LoadResult:
    try:
        return LoadResult.from_json(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from None
    except (ValueError, BadResult):
        raise UnusableFile(file, "is no result that `diem load --json` of this release wrote") from None


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise typer.BadParameter(f"--from has an IP address of this machine, not {text!r}") from None


def _is_number(text: str) -> bool:
    return text.isdecimal() and 1 <= int(text) <= MAX_ENDPOINTS


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from None
