"""A standalone cluster of Spark on loopback, from PySpark's own jars: a master and two workers with a core each.

The second worker has a mount namespace of its own, in which the folder ``private`` is another one, where the system
permits that; its executors inherit it. Executors are processes of their own.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from learning.jobs.spark_options import SparkSettings
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_ports
from tests.support.spark_session import JVM_OPTIONS

HEAP: Final = "512m"
"""Of an executor: the least that Spark accepts."""
_HERE: Final = ("--host", "127.0.0.1")
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


def settings_for(master: str, cores: int) -> SparkSettings:
    """Return the settings to run on a cluster of this machine."""
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": HEAP,
        "spark.executor.memory": HEAP,
        "spark.cores.max": str(cores),
        # All executors are examined, however slowly they start.
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S:.0f}s",
    }
    return SparkSettings(master, tuple(conf.items()))


class Cluster:
    """The running cluster."""

    def __init__(self, folder: Path, java: Path, home: Path) -> None:
        self.private = folder / "private"
        """Another folder for the executors of the second worker."""
        self.shared = folder / "shared"
        """The same folder for all."""
        for made in (self.private, self.shared):
            made.mkdir()
        self._folder, self._java, self._home = folder, java, home
        port, page, *pages = free_ports(4)
        self.master = f"spark://127.0.0.1:{port}"
        self.is_private = may_unshare()
        """Whether ``private`` is."""
        name = "org.apache.spark.deploy.master.Master"
        self._processes = [self._start("master", name, *_HERE, "--port", f"{port}", "--webui-port", f"{page}")]
        for number, its_page in enumerate(pages):
            self._processes.append(self._start_worker(number, its_page))

    def settings(self) -> SparkSettings:
        """Return the settings to run on the cluster."""
        return settings_for(self.master, cores=2)

    def submit(self) -> list[str]:
        """Return ``spark-submit`` with the same settings."""
        memory = ("--driver-memory", HEAP, "--executor-memory", HEAP, "--total-executor-cores", "2")
        conf = [text for name, value in self.settings().conf for text in ("--conf", f"{name}={value}")]
        return [str(self._home / "bin" / "spark-submit"), "--master", self.master, *memory, *conf]

    def executors(self) -> list[psutil.Process]:
        """Return the processes of all executors, the oldest first."""
        found = []
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        if any(_EXECUTOR in argument for argument in child.cmdline()):
                            found.append(child)
        return sorted(found, key=lambda process: process.create_time())

    def wait_until_alive(self) -> None:
        """Wait until both workers have registered with the master."""
        log, deadline = self._folder / "master.log", time.monotonic() + PATIENCE_S
        while log.read_text().count("Registering worker") < 2:
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                raise AssertionError("\n".join(file.read_text()[-2000:] for file in self._folder.glob("*.log")))
            time.sleep(0.1)

    def stop(self) -> None:
        """End all processes, with their children."""
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=PATIENCE_S)

    def _start_worker(self, number: int, page: int) -> "subprocess.Popen[bytes]":
        name = f"worker-{number}"
        own = ("-d", str(self._folder / name), "--webui-port", str(page), *_HERE, self.master)
        (self._folder / name).mkdir()
        prefix = self._unshared() if number and self.is_private else []
        words = ("org.apache.spark.deploy.worker.Worker", "-c", "1", "-m", HEAP, *own)
        return self._start(name, *words, prefix=prefix)

    def _unshared(self) -> list[str]:
        return [*UNSHARED, str(self.private)]

    def _start(self, name: str, *words: str, prefix: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        java = [str(self._java), "-Xmx128m", *JVM_OPTIONS.split(), "-cp", f"{self._home}/jars/*", *words]
        local = self._folder / f"{name}-local"
        local.mkdir()
        environment = os.environ | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Without it, executors are looked for in a source tree.
            "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(self._java.resolve().parents[1]),
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            # A session of its own: its executors end with it.
            return subprocess.Popen([*prefix, *java], env=environment, stdout=log, stderr=log, start_new_session=True)


_UNSHARE: Final = ("unshare", "--mount", "sh", "-c")
UNSHARED: Final = (*_UNSHARE, 'mount -t tmpfs -o size=16m none "$0" && exec "$@"')
"""Before a folder and a command: runs the command with another folder at that path, empty."""


def may_unshare() -> bool:
    """Return whether the system permits a mount namespace."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*_UNSHARE, "mount -t tmpfs none /mnt"], check=False, capture_output=True)
    return tried.returncode == 0


@contextmanager
def spark_cluster(folder: Path, java: Path, home: Path) -> Iterator[Cluster]:
    """Run a cluster in a folder.

    Args:
        folder: existing and empty.
        java: the program.
        home: folder of PySpark.
    """
    cluster = Cluster(folder, java, home)
    try:
        cluster.wait_until_alive()
        yield cluster
    finally:
        cluster.stop()
