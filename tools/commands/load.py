"""The command ``diem load``: many clients of a running system, and whether each was sent everything."""

import json
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
from tools.load.run import LoadOptions, LoadRun, LoadTest

STOP_S: Final = 20.0
"""Time to complete pending requests and to delete the test's endpoints after Ctrl-C."""
MAX_CLIENTS: Final = 20_000
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
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON into this file, too.")
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
) -> int:
    """Connect many clients to a running system; measure delays, and check that nothing was missed.

    Exit code 0: all clients subscribed and none missed an update; 1: otherwise; 130: interrupted before it was checked.
    """
    state = StateDir(state_dir)
    credentials = credentials_of(key_file, token_file)
    service = data_service(state, url, "URL")
    if write is not None and endpoints is not None and not _is_number(endpoints):
        raise typer.BadParameter(
            f"--write has endpoints of its own: --endpoints is their number, 1 to {MAX_ENDPOINTS}, not {endpoints!r}"
        )
    options = LoadOptions(
        clients=clients,
        subscriptions=subscriptions,
        endpoints=endpoints,
        seconds=seconds,
        rate=rate,
        wait_s=wait,
        write=write,
        write_key=None if write is None else SharedKey.load(write_key_file or state.write_key_file),
        credentials=credentials,
        hosts=tuple(host or ()),
    )
    if json_file is not None:
        _write(json_file, "")  # fail before the test if it cannot be written
    terminal = Terminal(quiet=quiet)
    life = Lifecycle(drain_seconds=STOP_S)
    outcomes: list[LoadRun] = []

    async def work() -> None:
        outcomes.append(await LoadTest(service, options, terminal).run(life.stopping))

    code = lifecycle.serve(life, work)
    if not outcomes:
        return code
    (outcome,) = outcomes
    for line in report.lines(outcome):
        terminal.info(line)
    for line in report.warnings(outcome):
        terminal.warn(line)
    if json_file is not None:
        _write(json_file, json.dumps(report.as_json(outcome), indent=2) + "\n")
    if outcome.interrupted:
        return EXIT_INTERRUPTED
    return lifecycle.EXIT_OK if outcome.passed else lifecycle.EXIT_FAILED


def _is_number(text: str) -> bool:
    return text.isdecimal() and 1 <= int(text) <= MAX_ENDPOINTS


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from None
