"""Entry of the command line: registers the commands; every error is one line and an exit code."""

import gc
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, cast

import typer

from deploy.cli.help import CommandGroups
from deploy.cli.options import EXIT_INTERRUPTED
from deploy.invocation import pasteable
from diem import __version__
from diem.errors import DiemError
from diem.process import lifecycle, log
from diem.process.program import start
from diem.process.settings import PROCESSES

# The base class of every usage error of the command line parser.
_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__base__)

ENTRY_POINTS: Final = "diem.commands"
"""The group of entry points in which packages register commands: name, and ``register(cli)`` of its module."""


def command_line(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the parser of all commands; if the first argument is one of them, of that module's alone.

    A short command needs a fifth less CPU time without the other modules.
    """
    points = entry_points(group=ENTRY_POINTS)
    first = arguments[0] if arguments else ""
    wanted = () if first == "run" else points.select(name=first) or points
    cli = typer.Typer(
        cls=CommandGroups,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": 100},
    )
    cli.callback()(root)
    for register in {point.value: point for point in wanted}.values():
        register.load()(cli)
    cli.command()(run)
    for group in cli.registered_groups:
        group.cls = CommandGroups
    return cli


def main() -> int:
    """Run the command in ``sys.argv``; returns the exit code."""
    log.configure("error", "console")  # processes and ``diem up`` have settings of their own
    log.rewrite_failures(pasteable)
    try:
        cli = command_line(sys.argv[1:])
        gc.enable()  # see deploy.cli.app
        result = cli(standalone_mode=False, prog_name="diem")
    except _USAGE_ERROR as error:
        # Without arguments the help has been printed, and the message is empty.
        if text := str(cast("Any", error).format_message()).replace("Value error, ", ""):
            log.fail(text)
        return lifecycle.EXIT_CONFIGURATION
    except DiemError as error:
        return lifecycle.report(error)
    except (KeyboardInterrupt, typer.Abort):  # outside a life cycle, as during a download of jars
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else lifecycle.EXIT_OK


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diem {__version__}")
        raise typer.Exit


def root(
    *,
    version: Annotated[  # handled by the callback
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """DIEM notifies browsers within milliseconds when a dataset that they display has changed."""


def run(
    process: Annotated[str, typer.Argument(metavar="PROCESS", help=f"{', '.join(PROCESSES[:-1])} or {PROCESSES[-1]}.")],
) -> int:
    """Run one process, configured by its environment (see `diem config`)."""
    return start(process)
