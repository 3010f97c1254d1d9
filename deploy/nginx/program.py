"""The program nginx on this machine: where it is, what it needs to be started, and how many files it may open."""

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from diem.errors import ConfigurationError

# Where Debian keeps it is on root's PATH only.
PLACES: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")
MAX_OPEN_FILES: Final = 65_536


@dataclass(eq=False)
class NoNginx(ConfigurationError):
    """nginx, or what renders its configuration, is not installed."""

    template = "{what} is not installed, and this mode needs it: {remedy}, or use --mode single"

    what: str
    remedy: str


def find() -> str:
    """Return the program. Raises `NoNginx`."""
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *PLACES))
    found = shutil.which("nginx", path=places)
    if found is None:
        raise NoNginx("nginx", "install the package nginx (Debian, Ubuntu: apt install nginx)")
    return found


def config_file(directory: Path) -> Path:
    """Return the configuration file in nginx's own directory."""
    return directory / "nginx.conf"


def argv(program: str, directory: Path) -> tuple[str, ...]:
    """Return nginx's command line. Before it has read the configuration it would log to a file of its own."""
    return (program, "-p", str(directory), "-c", str(config_file(directory)), "-e", "stderr")


def write(directory: Path, text: str) -> None:
    """Write the configuration file into `directory`, which is made (mode 0700)."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    config_file(directory).write_text(text, encoding="utf-8")


def open_files() -> int:
    """Return how many files a worker may open: what this process could raise its own limit to, within reason."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
