"""An archive of the classes that a run of Spark loads (JEP 350): with it, the JVM neither parses nor verifies them.

The first complete run makes it. Java passes over an archive of other jars, or of the same at another path, so that each
installation of PySpark has its own.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from deploy.kafka import java
from learning.spark.jars import JARS

_CLASS_PATH: Final = frozenset(
    ("PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
)
"""Variables with which the class path is the operator's: with folders in it, Java makes no archive, and fails."""


class ClassArchive(NamedTuple):
    """Files of an archive, as in :class:`learning.jobs.spark_options.SparkOptions`."""

    archive: Path | None = None
    new_archive: Path | None = None

    def keep(self) -> None:
        """Give the new archive its name, in place of its installation's; of others, the latest used ones stay."""
        if (new := self.new_archive) is None:
            return
        # An unwritable cache costs only speed.
        with suppress(OSError):
            with new.open("rb") as file:
                os.fsync(file.fileno())
            kept, installation = new.with_suffix(""), new.name.rpartition("-")[0]
            files = {*kept.parent.glob(f"{_PREFIX}*.jsa")}
            mine = {file for file in files if file.name.startswith(f"{installation}-")}
            others = sorted(files - mine, key=lambda file: file.stat().st_mtime_ns)
            for old in (*mine, *others[: 1 - MAX_ARCHIVES]):
                old.unlink()
            new.replace(kept)


_PREFIX: Final = "classes-"
MAX_ARCHIVES: Final = 2
"""Most archives in the cache, each of an installation."""


def find(
    command: Path, home: Path, *, new: bool, directory: Path | None = None, environment: Mapping[str, str] = os.environ
) -> ClassArchive:
    """Return the files of the archive for a Java and a Spark.

    Args:
        command: the ``java`` program.
        home: the folder of PySpark.
        new: whether to make an archive if there is none.
        directory: that of archives; None: the one of jars in the cache.
        environment: that of this process.
    """
    # Packages of Java for Python have no archive of Java's own classes, on which another could be based.
    base = command.resolve().parents[1] / "lib" / "server" / "classes.jsa"
    if not base.exists() or _CLASS_PATH & environment.keys() or (home / "conf").exists():
        return ClassArchive()
    jars = sorted((home / "jars").glob("*.jar"))
    identity = [java.described(command), str(command.resolve()), *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)]
    name = f"{_PREFIX}{_digest(str(home))}-{_digest('|'.join(identity))}.jsa"
    file = (directory or JARS.cache_directory()) / name
    with suppress(OSError):
        os.utime(file)
    if file.exists():
        return ClassArchive(archive=file)
    with suppress(OSError):
        if new:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Of runs that failed: 100 MB each. Of one at the same time: it goes without.
            for left in file.parent.glob(f"{_PREFIX}*.jsa.*"):
                left.unlink()
            made = file.with_name(f"{name}.{os.getpid()}")
            made.touch()  # to record costs as much as a run: not for an unwritable cache
            made.unlink()
            return ClassArchive(new_archive=made)
    return ClassArchive()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
