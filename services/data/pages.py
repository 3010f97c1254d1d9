"""A directory with the operator's own pages: checks before serving it, and the file at each path.

Symbolic links are followed within the directory only. Dot files and directories are not served, nor are files that
others on this machine may not read, such as keys.
"""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from diem.errors import ConfigurationError

INDEX: Final = "index.html"
"""The file of a directory."""


@dataclass(eq=False)
class UnusablePages(ConfigurationError):
    """A directory cannot or must not be served."""

    template = "{name} {directory}: {reason}"

    name: str
    """The option or variable."""
    directory: Path
    reason: str


def check_pages(directory: Path, private: Iterable[Path], name: str) -> None:
    """Check that a directory can be served without making any of the ``private`` files or directories public.

    Raises:
        UnusablePages: with the ``name`` of the option.
    """
    if not directory.is_dir():
        raise UnusablePages(name, directory, "not a directory" if directory.exists() else "no such directory")
    if not os.access(directory, os.R_OK | os.X_OK):
        raise UnusablePages(name, directory, "permission denied")
    root = directory.resolve()
    for path in private:
        resolved = path.resolve()
        if root.is_relative_to(resolved) or (resolved.is_relative_to(root) and not _is_hidden(resolved, root)):
            raise UnusablePages(name, directory, f"this would publish {path}: choose a directory with pages alone")


def find(directory: Path, path: str) -> Path | None:
    """Return the file at a URL's decoded path; None if missing or not served. Blocking."""
    parts = path.removeprefix("/").split("/")
    if parts[-1] == "":
        parts[-1] = INDEX
    if not all(parts) or any(part.startswith(".") for part in parts):
        return None
    try:
        root = directory.resolve(strict=True)
        file = root.joinpath(*parts).resolve(strict=True)
        served = file.is_relative_to(root) and not _is_hidden(file, root)
        mode = file.stat().st_mode if served else 0
        readable = stat.S_ISREG(mode) and bool(mode & stat.S_IROTH) and os.access(file, os.R_OK)
    except (OSError, RuntimeError, ValueError):  # missing; a loop of links; a null byte
        return None
    return file if readable else None


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
