"""Starts one process by its name: the only place that knows where each process's settings and `main` are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final, NamedTuple, cast

from diem.errors import DiemError
from diem.process import lifecycle, log
from diem.process.faults import ConfigurationError
from diem.process.lifecycle import Lifecycle
from diem.process.settings import PROCESSES, ProcessSettings

_TOP_LEVEL: Final = frozenset({"bridge", "metadata", "proxy"})

Main = Callable[[ProcessSettings, Lifecycle], Awaitable[None]]


@dataclass(eq=False)
class UnknownProcess(ConfigurationError):
    """There is no process of this name."""

    name: str

    def __str__(self) -> str:
        """Return the text."""
        return f"no process is called {self.name!r}: there are {', '.join(PROCESSES)}"


class ProcessProgram(NamedTuple):
    """A process: how it is configured and what it does."""

    settings: type[ProcessSettings]
    main: Main


def settings_of(name: str) -> type[ProcessSettings]:
    """Return the settings model of a process, without importing the process itself.

    Raises:
        UnknownProcess: there is no such process.
    """
    if name not in PROCESSES:
        raise UnknownProcess(name)
    return cast("type[ProcessSettings]", import_module(f"{_package(name)}.settings").Settings)


def program(name: str) -> ProcessProgram:
    """Import a process. Raises `UnknownProcess`."""
    settings = settings_of(name)
    return ProcessProgram(settings, cast("Main", import_module(f"{_package(name)}.main").main))


def _package(name: str) -> str:
    # Parts of the axes of scaling are folders of their own; the services that they scale are below one.
    return name if name in _TOP_LEVEL else f"services.{name}"


def start(name: str) -> int:
    """Run a process until it ends; returns its exit code. Every fault of its configuration is one line."""
    try:
        chosen = program(name)
        settings = chosen.settings.load()
    except DiemError as error:
        for line in str(error).splitlines():
            log.fail(line)
        return lifecycle.EXIT_CONFIGURATION
    return lifecycle.run(settings, chosen.main)
