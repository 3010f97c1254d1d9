"""The jars of the local Kafka: named and checksummed in `jars.lock`."""

from pathlib import Path
from typing import Final

from deploy.jars import Fetch, JarSet, JarsUnavailable, Progress, fetch, locked

__all__ = ["LOCK", "VERSION", "JarsUnavailable", "Progress", "cache_directory", "fetch", "locked", "prepare"]

VERSION: Final = "4.4.0"
"""Of Kafka."""
LOCK: Final = Path(__file__).with_name("jars.lock")


def prepare(
    progress: Progress = lambda _there, _total: None, *, directory: Path | None = None, fetch: Fetch = fetch
) -> tuple[Path, ...]:
    """Return the class path; see :meth:`deploy.jars.JarSet.prepare`."""
    return _jars().prepare(progress, directory=directory, fetch=fetch)


def cache_directory() -> Path:
    """Return where the jars are kept."""
    return _jars().cache_directory()


def _jars() -> JarSet:
    return JarSet(f"kafka-{VERSION}", LOCK, "the local Kafka", "--bootstrap-servers does without them")
