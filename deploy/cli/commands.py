"""Entry of the command line: registers the commands; every error is one line and an exit code."""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from deploy.cli.help import GROUPS, CommandGroups
from deploy.cli.options import EXIT_INTERRUPTED, STATE_DIR
from deploy.invocation import pasteable
from diem import __version__
from diem.errors import ConfigurationError, DiemError, install_command
from diem.process import lifecycle, log
from diem.process.program import start
from diem.process.settings import PROCESSES

# Base class of the parser's usage errors.
_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__base__)

ENTRY_POINTS: Final = "diem.commands"
"""The group of entry points in which packages register commands: name, and ``register(cli)`` of its module."""


def command_line(arguments: Sequence[str] | None = None) -> typer.Typer:
    """Return the parser of all commands, or of those that a command line needs: to list the others takes no import.

    Raises:
        ConfigurationError: a command needs an extra that is not installed.
    """
    points = entry_points(group=ENTRY_POINTS)
    summaries = {name: text for names in GROUPS.values() for name, text in names.items()}
    cli = typer.Typer(
        cls=CommandGroups,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": 100},
    )
    cli.callback()(root)
    cli.command()(run)
    wanted: Iterable[EntryPoint] = points
    # Of options before the command, only --state-dir has a value.
    words = [word for before, word in pairwise(["", *(arguments or ())]) if before != "--state-dir"]
    first = next((word for word in words if not word.startswith("-")), None)
    if first == "run":
        wanted = ()
    elif first in points.names:
        wanted = points.select(name=first)
    elif arguments is not None:
        wanted = [point for point in points if point.name not in summaries]
        for name in points.names & summaries.keys():
            cli.command(name, help=summaries[name])(root)
    for point in {point.value: point for point in wanted}.values():
        _load(point)(cli)
    for group in cli.registered_groups:
        group.cls = CommandGroups
    return cli


def _load(point: EntryPoint) -> Callable[[typer.Typer], None]:
    try:
        return cast("Callable[[typer.Typer], None]", point.load())
    except ModuleNotFoundError as error:
        if not point.extras:
            raise
        remedy = install_command(*point.extras)
        raise ConfigurationError(f"this needs {error.name}, which is not installed: {remedy}") from None


def main() -> int:
    """Run the command in ``sys.argv``; returns the exit code."""
    log.configure("error", "console")  # processes and ``diem up`` have their own settings
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
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar=STATE_DIR,
            help="Directory of keys, store and logs, also as an option of each command.  [default: .diem]",
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001  # handled by the callback
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """DIEM notifies browsers within milliseconds when a dataset that they display has changed."""
    if state_dir is not None:
        os.environ[STATE_DIR] = str(state_dir)


def run(
    process: Annotated[str, typer.Argument(metavar="PROCESS", help=f"{', '.join(PROCESSES[:-1])} or {PROCESSES[-1]}.")],
) -> int:
    """Run one process, configured by its environment (see `diem config`)."""
    return start(process)
