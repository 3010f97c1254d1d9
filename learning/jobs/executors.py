"""Executors of a cluster: ships our packages to them, and examines them before anything is read.

In local mode tasks run on this machine with this Python, and there is nothing to do.
"""

import importlib.metadata
import os
import platform
import secrets
import shutil
import socket
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import diem
import learning
from diem.errors import ConfigurationError
from learning.jobs.spark_options import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHIPPED: Final = (diem, learning)
"""Packages whose functions run in tasks."""
REQUIRED: Final = ("pyspark", "orjson")
"""Distributions needed by these functions, in the driver's versions, so that lines are judged alike."""
PROBES: Final = "_probe"
"""Folder in the warehouse for files that prove a shared disk; readers skip names that begin with an underscore."""
_TOKEN: Final = "token"  # noqa: S105  # the name of a file
_TASK_S: Final = 0.5
"""Minimum duration of a probing task, which occupies its core, so that each core of the cluster gets one."""


class ExecutorReport(NamedTuple):
    """One task's findings at its executor."""

    host: str
    process: int
    versions: dict[str, str | None]
    """Versions of Python and of the required distributions; None: missing."""
    shared: bool
    """True if it read the driver's probe file and wrote its own."""


class ExecutorUnusable(ConfigurationError):
    """An executor lacks a requirement of tasks."""


class DiskNotShared(ExecutorUnusable):
    """An executor has a different folder at the warehouse's path, or none."""


@contextmanager
def prepared_executors(spark: "SparkSession", scratch: Path, folder: Path) -> Iterator[Path | None]:
    """Ship our packages, and examine all executors; yield the proof for :func:`require_proof`, if they need one.

    Args:
        spark: the session.
        scratch: for the archive of the packages.
        folder: folder required at this path on all executors, created if missing.

    Raises:
        ExecutorUnusable: an executor has other versions than the driver.
        DiskNotShared: an executor does not have the folder.
    """
    if is_local(str(spark.sparkContext.master)):
        yield None
        return
    spark.sparkContext.addPyFile(str(archive(scratch)))
    probe = folder / PROBES / secrets.token_hex(8)
    probe.mkdir(mode=0o700, parents=True)
    try:
        (probe / _TOKEN).write_text(probe.name, encoding="utf-8")
        _examine(spark, folder, probe)
        yield probe / _TOKEN
    finally:
        shutil.rmtree(probe, ignore_errors=True)
        # Another command may be probing.
        with suppress(OSError):
            probe.parent.rmdir()


def archive(scratch: Path) -> Path:
    """Write the shipped packages as they are installed here; return the archive."""
    file = scratch / "diem-packages.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for package in SHIPPED:
            folder = Path(package.__path__[0])
            for source in sorted(folder.rglob("*.py")):
                zipped.write(source, source.relative_to(folder.parent))
    return file


def _examine(spark: "SparkSession", folder: Path, probe: Path) -> None:
    context = spark.sparkContext
    # Executors that start later are examined by their own tasks: require_proof.
    tasks = context.defaultParallelism
    reports = context.parallelize(range(tasks), tasks).map(partial(_report, probe)).collect()
    here = versions()
    for report in reports:
        for name, version in here.items():
            if report.versions[name] != version:
                there = report.versions[name] or "none"
                raise ExecutorUnusable(
                    f"the executor at {report.host} has {name} {there}, and the driver {version}: install the same "
                    "there, or name an environment that has it (PYSPARK_PYTHON, --conf spark.archives=...)"
                )
        # The driver must also see the executor's file.
        if not (report.shared and _own_file(probe, report.host, report.process).is_file()):
            raise DiskNotShared(
                f"the executor at {report.host} does not have the folder {folder} of this machine: place it "
                "(--warehouse) on a disk that all workers have at this path; nothing was read"
            )


def _report(probe: Path, _number: int) -> ExecutorReport:
    """Examine the executor that runs this task."""
    host, process = socket.gethostname(), os.getpid()
    shared = _proves(probe / _TOKEN)
    if shared:
        _own_file(probe, host, process).write_text(probe.name, encoding="utf-8")
    time.sleep(_TASK_S)
    return ExecutorReport(host, process, versions(), shared)


def _own_file(probe: Path, host: str, process: int) -> Path:
    return probe / f"{host}-{process}"


def versions() -> dict[str, str | None]:
    """Return the local versions of Python and of the required distributions; None for missing ones."""
    found: dict[str, str | None] = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in REQUIRED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


@cache
def require_proof(token: Path) -> None:
    """Raise ``DiskNotShared`` unless this process sees the driver's probe file. For tasks, before they write."""
    if not _proves(token):
        raise DiskNotShared(f"the executor at {socket.gethostname()} does not have the folder {token.parents[2]}")


def _proves(token: Path) -> bool:
    try:
        return token.read_text(encoding="utf-8") == token.parent.name
    except OSError:
        return False
