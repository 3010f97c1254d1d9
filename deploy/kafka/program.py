"""Prepares the programs of a broker: Java, the jars, and an archive of loaded classes.

The archive is created once and shared: it halves the start time and saves memory (JEP 350).
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from deploy.jars import Progress, alone
from deploy.kafka import brokers, java, processes
from deploy.kafka.brokers import BrokerPlan
from deploy.kafka.jars import JARS
from deploy.topology.ports import OWN_RANGE
from diem.process.ports import PortReservations


class KafkaProgram(NamedTuple):
    """Java, class path and archive of a broker."""

    java: Path
    jars: tuple[Path, ...]
    archive: Path | None

    def argv(self, plan: BrokerPlan) -> tuple[str, ...]:
        """Return the command line of one broker."""
        return brokers.argv(self.java, self.jars, plan, self.archive)


def prepare(progress: Progress = lambda _there, _total: None) -> KafkaProgram:
    """Find Java, download the jars and create the archive of classes, once each; blocks, the first time for 15 s.

    Raises:
        NoJava: there is no Java.
        JarsUnavailable: the jars are missing and cannot be downloaded.
    """
    command = java.find()
    class_path = JARS.prepare(progress)
    return KafkaProgram(command, class_path, prepare_archive(command, class_path))


_START_TIMEOUT_S: Final = 60.0
_WRITE_TIMEOUT_S: Final = 60.0
_CHECK_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.05


def prepare_archive(command: Path, jars: Sequence[Path]) -> Path | None:
    """Return the archive for this Java and these jars, created the first time by running a broker for a few seconds.

    None if impossible, as with a Java without an archive of its own classes; the failure is remembered.
    """
    directory = jars[0].parent
    # Java also rejects an archive if the times of the jars have changed.
    identity = [java.described(command), str(command.resolve()), *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)]
    name = f"brokers-{hashlib.sha256('|'.join(identity).encode()).hexdigest()[:16]}"
    made, failed = directory / f"{name}.jsa", directory / f"{name}.none"
    try:
        if not (made.exists() or failed.exists()):
            with alone(directory):
                if not (made.exists() or failed.exists()):
                    _forget_others(directory)
                    if not _record(command, jars, made):
                        failed.touch()
    except OSError:  # an unwritable cache costs only speed
        return None
    return made if made.exists() else None


def _forget_others(directory: Path) -> None:
    """Remove other archives (50 MB each), also of earlier releases, and leftovers of killed processes."""
    for path in (*directory.glob("brokers-*"), *directory.glob("classes-*")):
        path.unlink()
    for path in directory.glob("recording-*"):
        shutil.rmtree(path, ignore_errors=True)


def _record(command: Path, jars: Sequence[Path], made: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=made.parent, prefix="recording-") as name, PortReservations() as ports:
        (plan,) = plans = brokers.plans(Path(name), [(ports.choose(OWN_RANGE), ports.choose(OWN_RANGE))])
        # With users, to archive their classes, too; brokers without users can use the archive as well.
        brokers.write(plans, with_users=True)
        new, log = Path(name) / "new.jsa", Path(name) / "log"
        program, *others = brokers.argv(command, jars, plan)
        broker = processes.start([program, f"-XX:ArchiveClassesAtExit={new}", *others], log, Path(name))
        try:
            _wait_until_started(broker, log)
        finally:
            processes.end(broker, _WRITE_TIMEOUT_S)
        if not new.exists() or not _is_whole(command, jars, new):
            return False
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(made)
    return True


def _wait_until_started(broker: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while broker.poll() is None and time.monotonic() < deadline:
        if brokers.STARTED.encode() in log.read_bytes():
            return
        time.sleep(_POLL_S)


def _is_whole(command: Path, jars: Sequence[Path], new: Path) -> bool:
    """Return whether Java accepts the archive: a truncated one, after a full disk, would crash every broker."""
    options = ("-XX:+UseSerialGC", f"-XX:SharedArchiveFile={new}", "-XX:+VerifySharedSpaces")
    argv = (str(command), *options, "-cp", ":".join(map(str, jars)), "-version")
    log = new.with_name("log")
    checking = processes.start(argv, log, new.parent)
    try:
        return checking.wait(_CHECK_TIMEOUT_S) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        processes.reap(checking)
