"""The commands of `diem`: what each takes, and that every fault is one clear line and an exit code."""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from rich.console import Group
from rich.live import Live

from deploy import control, ports
from deploy import run as processes
from deploy import topology as plan
from deploy.found import data_service
from deploy.launch import command
from deploy.put import Upload, guess_form, put, read
from deploy.reference import config_lines
from deploy.statedir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console, status_tables
from deploy.up import Up, stage_seconds
from deploy.watch import watch
from diem import __version__
from diem.errors import DiemError
from diem.process import lifecycle, log
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.process.settings import PROCESSES
from diem.protocol import endpoints

STATUS_EVERY_S: Final = 1.0

# Every usage error of the command line parser is a kind of this.
_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__base__)

cli = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

StateDirOption = Annotated[
    Path, typer.Option("--state-dir", envvar="DIEM_STATE_DIR", help="Directory of keys, store and logs.")
]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="Base URL of a Data Service elsewhere; default: the one up here.")
]


def main() -> int:
    """Run the command in `sys.argv`; returns the exit code."""
    try:
        result = cli(standalone_mode=False, prog_name="diem")
    except _USAGE_ERROR as error:
        # Without any arguments it has printed the help already, and has nothing more to say.
        if said := str(cast("Any", error).format_message()).replace("Value error, ", ""):
            log.fail(said)
        return lifecycle.EXIT_CONFIGURATION
    except DiemError as error:
        return lifecycle.report(error)
    return result if isinstance(result, int) else lifecycle.EXIT_OK


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diem {__version__}")
        raise typer.Exit


@cli.callback()
def root(
    *,
    version: Annotated[  # its callback does the work
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """DIEM tells browsers, within milliseconds, that a dataset they look at has changed."""


@cli.command()
def up(
    *,
    mode: Annotated[plan.Mode, typer.Option(help="Scaling mode.")] = plan.Mode.SINGLE,
    servers: Annotated[int | None, typer.Option(help="WebSocket servers; 2 in x-broadcast.")] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    config: Annotated[
        Path | None, typer.Option(help="Sources; without it ./diem.toml if there is one, else a simulated market.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of page and REST.")] = None,
    websocket_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the first WebSocket server; the others follow.")
    ] = None,
    free_ports: Annotated[bool, typer.Option(help="Take any free ports, not the documented ones.")] = False,
    log_level: Annotated[str, typer.Option(envvar="DIEM_LOG_LEVEL", help="Level of the log files.")] = "info",
    drain_seconds: Annotated[
        float, typer.Option(envvar="DIEM_DRAIN_SECONDS", min=0, max=600, help="Time for clients to leave at a stop.")
    ] = 3.0,
    time_factor: Annotated[
        float, typer.Option(envvar="DIEM_TIME_FACTOR", min=0.1, max=100, help="More patience on slow machines.")
    ] = 1.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what needs attention.")] = False,
) -> int:
    """Start every process of a mode, keep them running, stop them with Ctrl-C."""
    if config is None and "DIEM_DATA_CONFIG" not in os.environ and Path("diem.toml").is_file():
        config = Path("diem.toml")
    options = plan.Options(
        mode=mode,
        state_dir=state_dir.absolute(),
        servers=servers if servers is not None else 2 if mode is plan.Mode.X_BROADCAST else 1,
        config=config.absolute() if config else None,
        log_level=log_level,
        drain_seconds=drain_seconds,
        time_factor=time_factor,
    )
    wanted = plan.slots(options.mode, options.servers)
    fixed = plan.fixed_ports(wanted, port, websocket_port)
    state, terminal = StateDir(options.state_dir), Terminal(quiet=quiet)
    log.configure("warning", "console")
    with state.held():
        first = ports.scattered(random.SystemRandom()) if free_ports else ports.documented
        chosen = plan.assign_ports(wanted, fixed, first, ports.is_free)
        topology = plan.compose(options, chosen, command())
        if not free_ports and not fixed:
            for moved in plan.moved_ports(wanted, chosen):
                terminal.say(moved)
        for variable in plan.overridden(topology, os.environ):
            terminal.warn(f"{variable} has no effect here: diem up decides it (see diem up --help)")
        # Every stage may take its time; the life cycle itself only guards against a supervisor that hangs.
        life = Lifecycle(drain_seconds=4 * stage_seconds(options))
        return lifecycle.serve(life, lambda: Up(options, topology, state, terminal).run(life))


@cli.command()
def run(process: Annotated[str, typer.Argument(metavar="PROCESS", help="data, broadcast or websocket.")]) -> int:
    """Run one process, configured by its environment (see `diem config`)."""
    return processes.start(process)


@cli.command()
def status(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    watching: Annotated[bool, typer.Option("--watch", help="Repeat every second until Ctrl-C.")] = False,
) -> int:
    """Show the processes that `diem up` runs, and how they are."""
    state = StateDir(state_dir)
    console = plain_console()

    async def show() -> None:
        answer = await control.ask(state, "status")
        if as_json:
            typer.echo(json.dumps(answer))
        else:
            console.print(Group(*status_tables(answer, console.width)))

    async def keep_showing() -> None:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                answer = await control.ask(state, "status")
                live.update(Group(*status_tables(answer, console.width)), refresh=True)
                await asyncio.sleep(STATUS_EVERY_S)

    return _attended(keep_showing if watching and not as_json else show)


@cli.command("watch")
def watch_command(
    names: Annotated[list[str], typer.Argument(metavar="ENDPOINT...", help="Names such as /dam/prices/GR.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for every event.")] = False,
) -> int:
    """Print the updates of endpoints as they come, until Ctrl-C."""
    for name in names:
        endpoints.check(name)
    log.configure("error", "console")

    def say(text: str) -> None:
        typer.echo(text)

    def note(text: str) -> None:
        typer.echo(text, err=True)

    return _attended(lambda: watch(data_service(StateDir(state_dir), url), names, say, note, as_json=as_json))


@cli.command("put")
def put_command(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="Name such as /my/endpoint.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV or JSON; `-` reads standard input.")],
    *,
    unit: Annotated[str | None, typer.Option(help="Unit, for CSV that does not say it.")] = None,
    resolution: Annotated[str | None, typer.Option(help="Such as PT1H, for CSV.")] = None,
    form: Annotated[str | None, typer.Option("--format", help="csv or json; default: by name or content.")] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: Annotated[Path | None, typer.Option(help="Write key; default: the state directory's.")] = None,
) -> int:
    """Store a file as the data of an endpoint."""
    if form not in {None, "csv", "json"}:
        raise typer.BadParameter(f"--format is csv or json, not {form}")
    endpoints.check(endpoint)
    state = StateDir(state_dir)
    declared = {name: value for name, value in (("unit", unit), ("resolution", resolution)) if value is not None}

    async def store() -> None:
        service, content = data_service(state, url), read(file)
        key = SharedKey.load(key_file or state.write_key_file)
        answer = await put(service, key, endpoint, Upload(content, form or guess_form(file, content), declared))
        said = "stored as" if answer.get("changed", True) else "already there as"
        typer.echo(f"{endpoint} {said} version {answer.get('version')}")

    return _attended(store)


@cli.command()
def config(
    process: Annotated[str | None, typer.Argument(metavar="[PROCESS]", help="One process; default: all.")] = None,
) -> None:
    """Print every setting: variable, type, default, meaning."""
    for line in config_lines([process] if process else PROCESSES):
        typer.echo(line)


def _attended(work: Callable[[], Awaitable[None]]) -> int:
    """Run a command that a person waits for: Ctrl-C ends it at once and is no fault."""
    life = Lifecycle(drain_seconds=0)
    return lifecycle.serve(life, work)
