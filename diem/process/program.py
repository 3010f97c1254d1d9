"""Start one process by its name: the only module that locates the settings and ``main`` of all processes.

``diem run NAME`` and ``python -m diem.process.program NAME`` are equivalent; a composite starts its children the second
way.
"""

import gc
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from diem.errors import ConfigurationError, DiemError
from diem.process.imports import prepare_imports
from diem.process.settings import PROCESSES, ProcessSettings

if TYPE_CHECKING:
    from diem.process.lifecycle import Lifecycle

_TOP_LEVEL: Final = frozenset({"bridge", "metadata", "proxy"})

Main = Callable[[ProcessSettings, "Lifecycle"], Awaitable[None]]


@dataclass(eq=False)
class UnknownProcess(ConfigurationError):
    """There is no process of this name."""

    name: str

    def __str__(self) -> str:
        """Return one line with the known names."""
        return f"no process is called {self.name!r}: there are {', '.join(PROCESSES)}"


class ProcessProgram(NamedTuple):
    """A process: its settings model and its entry point."""

    settings: type[ProcessSettings]
    main: Main


def settings_of(name: str) -> type[ProcessSettings]:
    """Return the settings model of a process, without importing the process itself. Raises :class:`UnknownProcess`."""
    if name not in PROCESSES:
        raise UnknownProcess(name)
    return cast("type[ProcessSettings]", import_module(f"{_package(name)}.settings").Settings)


def program(name: str) -> ProcessProgram:
    """Import a process. Raises :class:`UnknownProcess`."""
    settings = settings_of(name)
    return ProcessProgram(settings, cast("Main", import_module(f"{_package(name)}.main").main))


def start(name: str) -> int:
    """Run a process until it ends; return its exit code. Each fault of its configuration is one line of output."""
    from diem.process import lifecycle, log  # noqa: PLC0415  # after prepare_imports(): they import structlog

    try:
        chosen = program(name)
        settings = chosen.settings.load()
    except DiemError as error:
        for line in str(error).splitlines():
            log.fail(line)
        return lifecycle.EXIT_CONFIGURATION
    gc.enable()  # see prepare_imports
    return lifecycle.run(settings, chosen.main)


def _package(name: str) -> str:
    # The parts of the scaling axes have folders of their own; the services that they scale share one.
    return name if name in _TOP_LEVEL else f"services.{name}"


if __name__ == "__main__":
    prepare_imports()
    sys.exit(start(sys.argv[1]))
