"""Start one process by its name: the only module that locates the ``main`` of all processes.

``diem run NAME`` and ``python -m diem.process.program NAME`` are equivalent; a composite starts its children the second
way.
"""

import gc
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from setproctitle import setproctitle

from diem.errors import DiemError
from diem.process.imports import prepare_imports
from diem.process.settings import ProcessSettings, package_of, settings_of

if TYPE_CHECKING:
    from diem.process.lifecycle import Lifecycle

Main = Callable[[ProcessSettings, "Lifecycle"], Awaitable[None]]


class ProcessProgram(NamedTuple):
    """A process: its settings model and its entry point."""

    settings: type[ProcessSettings]
    main: Main


def program(name: str) -> ProcessProgram:
    """Import a process. Raises :class:`~diem.process.settings.UnknownProcess`."""
    return ProcessProgram(settings_of(name), cast("Main", import_module(main_module(name)).main))


def main_module(name: str) -> str:
    """Return the module with the ``main`` of a process. Raises :class:`~diem.process.settings.UnknownProcess`."""
    return f"{package_of(name)}.main"


def start(name: str) -> int:
    """Run a process until it ends; return its exit code. Each configuration fault is one line of output."""
    from diem.process import lifecycle, log  # noqa: PLC0415  # after prepare_imports(): they import structlog

    try:
        chosen = program(name)
        settings = chosen.settings.load()
    except DiemError as error:
        for line in str(error).splitlines():
            log.fail(line)
        return lifecycle.EXIT_CONFIGURATION
    setproctitle(f"diem {settings.process_name}")  # forked, it has the command line of its supervisor
    gc.enable()  # see prepare_imports
    return lifecycle.run(settings, chosen.main)


if __name__ == "__main__":
    prepare_imports()
    sys.exit(start(sys.argv[1]))
