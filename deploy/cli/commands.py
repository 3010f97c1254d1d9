"""The command line of `diem`: one group of commands a module; every fault is one clear line and an exit code."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, cast

import typer

from deploy.check import commands as check_commands
from deploy.cli import apply, autoplan, backup, data, keys, pipeline, plan, status, up
from deploy.cli.options import EXIT_INTERRUPTED
from diem import __version__
from diem.errors import DiemError
from diem.process import lifecycle, log
from diem.process.program import settings_of, start
from diem.process.settings import PROCESSES, ProcessSettings, Setting, reference

# The base class of every usage error of the command line parser.
_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__base__)

cli = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> int:
    """Run the command in `sys.argv`; returns the exit code."""
    try:
        result = cli(standalone_mode=False, prog_name="diem")
    except _USAGE_ERROR as error:
        # Without any arguments it has printed the help already, and has nothing more to say.
        if text := str(cast("Any", error).format_message()).replace("Value error, ", ""):
            log.fail(text)
        return lifecycle.EXIT_CONFIGURATION
    except DiemError as error:
        return lifecycle.report(error)
    except (KeyboardInterrupt, typer.Abort):  # before there is a life cycle, as while jars are downloaded
        return EXIT_INTERRUPTED
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


up.register(cli)
status.register(cli)


@cli.command()
def run(
    process: Annotated[str, typer.Argument(metavar="PROCESS", help=f"{', '.join(PROCESSES[:-1])} or {PROCESSES[-1]}.")],
) -> int:
    """Run one process, configured by its environment (see `diem config`)."""
    return start(process)


data.register(cli)
backup.register(cli)
keys.register(cli)
check_commands.register(cli)
pipeline.register(cli)
plan.register(cli)
apply.register(cli)
autoplan.register(cli)


@cli.command()
def config(
    process: Annotated[str | None, typer.Argument(metavar="[PROCESS]", help="One process; default: all.")] = None,
) -> None:
    """Print every setting: variable, type, default, meaning."""
    for line in config_lines([process] if process else PROCESSES):
        typer.echo(line)


def config_lines(names: Iterable[str]) -> Iterator[str]:
    """Describe what all processes share, then what each of `names` has of its own. Raises `UnknownProcess`."""
    own = [(name, reference(settings_of(name), shared=False)) for name in names]
    for title, settings in [("every process", reference(ProcessSettings)), *own]:
        yield f"# {title}"
        for setting in settings:
            yield from _lines(setting)
        yield ""


def _lines(setting: Setting) -> Iterator[str]:
    yield f"{setting.variable}  ({setting.type}; default: {setting.default})"
    yield f"    {setting.description}"
