"""Run `diem` itself as child processes, and report their failures."""

import os
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from diem.errors import DiemError
from diem.process.faults import ConfigurationError


@dataclass(eq=False)
class ProcessNotStarted(DiemError):
    """A process did not become ready."""

    template = "{name} does not start: {reason} (see {log})"

    name: str
    reason: str
    log: Path


class Misconfigured(ProcessNotStarted, ConfigurationError):
    """A process did not become ready because its configuration is wrong."""


def command() -> tuple[str, ...]:
    """Return what runs `diem` with this very interpreter and installation."""
    return (sys.executable, "-m", "deploy")


def guarded(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what runs a program that is not ours, so that it ends when `diem up` does."""
    return (sys.executable, "-m", "deploy.guard", *argv)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for children, with a way to our packages when they run from a checkout.

    What is said of Kafka is left out: the plan says it to those processes that use it.
    """
    environ = {name: value for name, value in environ.items() if not name.startswith("DIEM_KAFKA_")}
    root = str(Path(__file__).resolve().parent.parent)
    # Never site-packages: what is on PYTHONPATH comes before the standard library.
    if root in {str(Path(path).resolve()) for path in (*site.getsitepackages(), site.getusersitepackages())}:
        return dict(environ)
    others = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
    return {**environ, "PYTHONPATH": os.pathsep.join([root, *others])}
