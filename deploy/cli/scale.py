"""The command ``diem scale``: more or fewer servers in the running ``diem up``."""

from typing import Annotated

import typer

from deploy.cli.options import StateDirOption, run_interactive
from deploy.system.scaling import TIMEOUT_S, scale
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, amount


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("scale")(scale_command)


def scale_command(
    servers: Annotated[int, typer.Argument(metavar="N", help="Number of servers, in each clone if there are several.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    time_factor: Annotated[
        float,
        typer.Option(hidden=True, envvar="DIEM_TIME_FACTOR", min=0.1, max=100, help="Factor for the time-out."),
    ] = 1.0,
) -> int:
    """Change the number of servers (of composites in mode xz). Clients of stopped servers reconnect to others."""
    terminal = Terminal()

    async def work() -> None:
        with terminal.counting("scaling") as show:
            before = await scale(StateDir(state_dir), servers, show, TIMEOUT_S * time_factor)
        terminal.info(amount(servers, "server") + (" as before" if servers == before else f" (was {before})"))

    return run_interactive(work)
