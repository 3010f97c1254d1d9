"""The commands of `diem` for what runs on this machine already: `scale` and `status`."""

import asyncio
import json
from typing import Annotated, Final

import typer
from rich.console import Group
from rich.live import Live

from deploy import control
from deploy.cli.options import StateDirOption, attended
from deploy.scale import WITHIN_S, scale
from deploy.statedir import StateDir
from deploy.tables import status_tables
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console

STATUS_EVERY_S: Final = 1.0


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("scale")(scale_command)
    cli.command()(status)


def scale_command(
    servers: Annotated[
        int, typer.Argument(metavar="N", help="How many there shall be; of each clone, if there are several.")
    ],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    time_factor: Annotated[
        float, typer.Option(envvar="DIEM_TIME_FACTOR", min=0.1, max=100, help="More patience on slow machines.")
    ] = 1.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing when all goes well.")] = False,
) -> int:
    """Change how many servers, in mode xz composites, run; clients of those that leave are told to come back."""
    terminal = Terminal(quiet=quiet)

    async def work() -> None:
        with terminal.counting("scaling") as show:
            before = await scale(StateDir(state_dir), servers, show, WITHIN_S * time_factor)
        terminal.say(
            f"{servers} server{'' if servers == 1 else 's'}"
            + (" as before" if servers == before else f", {before} before")
        )

    return attended(work)


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

    return attended(keep_showing if watching and not as_json else show)
