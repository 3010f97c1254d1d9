"""Jars of a lock file with checksums, downloaded once into a cache directory."""

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from diem.errors import DiemError

Progress = Callable[[int, int], None]
"""Called with the number of jars in the cache, and their total."""
Fetch = Callable[[str, Path], Path]
"""Download the jar of a coordinate below an empty directory and return its path; raises ``JarsUnavailable``."""


@dataclass(eq=False)
class JarsUnavailable(DiemError):
    """The jars are not in the cache and cannot be downloaded now."""

    retriable = True

    reason: str
    of: str = ""
    advice: str = ""

    def __str__(self) -> str:
        """Return the text."""
        of, advice = f" of {self.of}" if self.of else "", f"; {self.advice}" if self.advice else ""
        return f"the jars{of} are not available: {self.reason}{advice}"


def print_progress(what: str) -> Progress:
    """Return a function that writes one line to standard error when a download starts."""

    def write(there: int, total: int) -> None:
        if there == 0:
            sys.stderr.write(f"Downloading {what} ({total} jars, once) ...\n")

    return write


class Jar(NamedTuple):
    """One line of the lock file."""

    coordinate: str
    """``group:artifact:version``."""
    sha256: str

    @property
    def file(self) -> str:
        """File name in the cache, with the group: artifact names are not unique across groups."""
        return f"{self.coordinate.replace(':', '-')}.jar"

    def is_intact(self, path: Path) -> bool:
        """Return whether the file exists and is this jar."""
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


def locked(text: str) -> tuple[Jar, ...]:
    """Parse a lock file: lines of ``coordinate sha256``, and comments."""
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return tuple(Jar(coordinate, sha256) for coordinate, sha256 in lines)


def fetch(coordinate: str, scratch: Path) -> Path:
    """Download one jar with jgo; nothing is written outside ``scratch``."""
    context = maven(scratch)
    group, artifact, version = coordinate.split(":")
    try:
        found = context.project(group, artifact).at_version(version).artifact().resolve()
    except OSError as error:  # also the base of requests' errors
        raise JarsUnavailable(f"{coordinate} cannot be downloaded ({_short(error)})") from error
    except RuntimeError as error:
        raise JarsUnavailable(f"{coordinate} is not in the registry") from error
    return Path(found)


def maven(cache: Path) -> Any:  # noqa: ANN401  # jgo has no types
    """Return jgo with a cache. Raises ``JarsUnavailable``."""
    try:
        from jgo.maven import MavenContext  # noqa: PLC0415  # only needed for a download
    except ImportError:
        raise JarsUnavailable("they are downloaded with jgo, which is not installed (pip install jgo)") from None
    return MavenContext(repo_cache=cache)


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars of one lock file."""

    name: str
    """Name of their directory in the cache: program and version."""
    lock: Path
    of: str
    """Name of the jars' program, for messages."""
    advice: str
    """Alternative to the jars, for messages."""

    def cache_directory(self) -> Path:
        """Return the directory of the jars: below XDG_CACHE_HOME, else below ``~/.cache``."""
        base = os.environ.get("XDG_CACHE_HOME", "")
        # The XDG specification: ignore relative paths.
        root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
        return root / "diem" / self.name

    def prepare(
        self,
        progress: Progress = lambda _there, _total: None,
        *,
        directory: Path | None = None,
        fetch: Fetch = fetch,
    ) -> tuple[Path, ...]:
        """Return the jars, downloading missing and broken ones; blocks while another process downloads.

        The order is fixed: an archive of classes is valid for one order only.

        Raises:
            JarsUnavailable: no network, a wrong checksum, or an unwritable cache. Complete downloads are kept.
        """
        try:
            return self._prepare(progress, directory or self.cache_directory(), fetch)
        except JarsUnavailable as error:
            raise JarsUnavailable(error.reason, self.of, self.advice) from error

    def _prepare(self, progress: Progress, directory: Path, fetch: Fetch) -> tuple[Path, ...]:
        jars = locked(self.lock.read_text(encoding="utf-8"))
        paths = tuple(sorted(directory / jar.file for jar in jars))
        if _missing(jars, directory):
            try:
                directory.mkdir(parents=True, exist_ok=True)
                with alone(directory):
                    _download(jars, directory, progress, fetch)
            except OSError as error:
                raise JarsUnavailable(f"{directory} cannot be written ({_short(error)})") from error
        return paths


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Lock the directory against other processes; the system releases the lock when this process ends."""
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _missing(jars: tuple[Jar, ...], directory: Path) -> list[Jar]:
    return [jar for jar in jars if not jar.is_intact(directory / jar.file)]


def _download(jars: tuple[Jar, ...], directory: Path, progress: Progress, fetch: Fetch) -> None:
    missing = _missing(jars, directory)  # recheck: another process may have downloaded them meanwhile
    scratch = directory / "partial"
    for number, jar in enumerate(missing):
        progress(len(jars) - len(missing) + number, len(jars))
        shutil.rmtree(scratch, ignore_errors=True)  # also of a killed process
        scratch.mkdir()
        try:
            found = fetch(jar.coordinate, scratch)
            if not jar.is_intact(found):
                raise JarsUnavailable(f"{jar.coordinate} was downloaded with a wrong checksum")
            found.replace(directory / jar.file)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    progress(len(jars), len(jars))


def _short(error: OSError) -> str:
    """Return the kind of error in a word or two: a connection error's text fills half a screen."""
    return error.strerror or type(error).__name__
