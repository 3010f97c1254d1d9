"""Location and resources of Spark: the operator's options, and the resulting settings of a session. No JVM.

Settings of the operator win, in this order: options of ``diem``, ``spark-submit``, ``spark-defaults.conf``; the rest
are ours. Without a master Spark runs in this process's own JVM, on loopback only.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

from diem.errors import ConfigurationError, install_command
from diem.process.cores import usable_cores

LOOPBACK: Final = "127.0.0.1"
MAX_LOCAL_CORES: Final = 8
"""Default maximum of concurrent tasks: more need a larger heap as well."""
_MEMORY_OF_CORE_MIB: Final = 512
_MIN_MEMORY_MIB: Final = 1024
_MAX_MEMORY_MIB: Final = 4096
PARTITION_BYTES: Final = 16 << 20
"""Input of a partition of a shuffle, uncompressed: sorted, it fits into a task's share of the heap."""
_MAX_PARTITIONS: Final = 10_000
_LISTING_TASKS: Final = 8
_SERIAL_CORES: Final = 2
"""Concurrent tasks up to which one thread collects their garbage."""
_PROPERTY: Final = re.compile(r"\s*([^\s=:#!]+)(?:\s*[=:]\s*|\s+)(.*?)\s*")
_APPENDED: Final = {"spark.driver.extraJavaOptions": " ", "spark.jars": ","}
"""Settings with several values, and their separators: ours are added to the operator's."""
_QUICK_COMPILER: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Without HotSpot's optimising compiler; the room for code is that with it."""
_LATE_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=40000",
    "-XX:Tier4MinInvocationThreshold=5000",
    "-XX:Tier4CompileThreshold=120000",
    "-XX:Tier4BackEdgeThreshold=320000",
)
"""8 times HotSpot's defaults: much of what its optimising compiler makes is not used often enough to pay."""
QUICK_EVENTS: Final = 200_000
"""Events up to which a run takes less CPU time without the optimising compiler."""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_VARIABLES: Final = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
"""Variables with options of Java."""
_FORCED: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Settings that results depend on. Timestamps of Spark's default type have no statistics in Parquet files."""


@dataclass(eq=False)
class NoSpark(ConfigurationError):
    """A requirement of Spark is not installed."""

    template = (
        f"the pipeline runs on Spark, and {{missing}}: `make spark` or `{install_command('java', 'spark')}` installs it"
    )

    missing: str


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The operator's choice; None: from ``spark-submit``, ``spark-defaults.conf`` or this machine."""

    master: str | None = None
    """URL of the cluster, such as ``spark://host:7077``, ``yarn`` or ``k8s://https://host:6443``; or ``local[N]``."""
    conf: tuple[tuple[str, str], ...] = ()
    """Further settings of Spark."""

    def arguments(self) -> list[str]:
        """Return the equivalent options of ``diem``."""
        named = [] if self.master is None else ["--master", self.master]
        named += [text for key, value in self.conf for text in ("--conf", f"{key}={value}")]
        return named


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options of a session."""

    scratch: Path
    """Folder of its temporary files and its log; created if missing. Absolute."""
    settings: SparkSettings = field(default_factory=SparkSettings)
    jars: tuple[Path, ...] = ()
    """Jars besides PySpark's own."""
    java: Path | None = None
    """The ``java`` program; None for the one that Spark finds."""
    shuffle_partitions: int | None = None
    """None: as the data need."""
    events: float = inf
    """About how many events it is for."""
    archive: Path | None = None
    """Archive of classes that the JVM reads."""
    new_archive: Path | None = None
    """File to which the JVM writes one at its end: see :func:`learning.jobs.spark_session.end_jvm`."""

    @property
    def log(self) -> Path:
        """Log file of the JVM."""
        return self.scratch / "spark.log"

    @property
    def log_configuration(self) -> Path:
        """Configuration file of that log."""
        return self.scratch / "log4j2.properties"


def is_local(master: str) -> bool:
    """Return whether tasks run in the driver's own JVM, which sees the same files."""
    return master == "local" or master.startswith("local[")


def master_of(settings: SparkSettings, given: Mapping[str, str]) -> str:
    """Return the master: that of the options, else of the ``given`` settings, else local.

    Raises:
        ConfigurationError: it is a server of Spark Connect, which runs no functions on RDDs.
    """
    master = settings.master or dict(settings.conf).get("spark.master")
    master = master or given.get("spark.master")
    if master is not None and master.startswith("sc://"):
        raise ConfigurationError(f"{master} is a server of Spark Connect: name the master of its cluster")
    return master or f"local[{default_cores()}]"


def configuration(options: SparkOptions, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session.

    Args:
        options: those of the session.
        given: settings of ``spark-submit`` or ``spark-defaults.conf``.
    """
    master = master_of(options.settings, given)
    chosen = dict(options.settings.conf)
    collector = _collector(master, [*given.values(), *chosen.values()])
    ours = {**_defaults(options, master, collector), **(_local(options) if is_local(master) else _remote())}
    appended = {
        key: separator.join(filter(None, (ours.get(key), chosen.get(key, given.get(key)))))
        for key, separator in _APPENDED.items()
    }
    return {**ours, **given, **chosen, **appended, **_FORCED, "spark.master": master}


def is_uri(place: str) -> bool:
    """Return whether the operator has given a URI (RFC 3986 section 3.1), not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", place) is not None


def spark_path(path: Path) -> str:
    """Return a path in Spark's form: on a cluster, a path without a scheme may mean another file system."""
    # Not ``as_uri``: Hadoop does not decode what that encodes.
    return f"file://{path}"


def _defaults(options: SparkOptions, master: str, collector: list[str]) -> dict[str, str]:
    java = [
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(_QUICK_COMPILER if options.events <= QUICK_EVENTS else _LATE_COMPILER),
        *collector,
        *_archive(options),
        f"-Dlog4j2.configurationFile={options.log_configuration.as_uri()}",
        f'"-Djava.io.tmpdir={options.scratch}"',
    ]
    return {
        "spark.app.name": "diem",
        "spark.driver.memory": default_memory(master),
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.jars": ",".join(str(jar) for jar in options.jars),
        # Queries are written for the number of partitions that their input needs, and name the joins that broadcast.
        "spark.sql.adaptive.enabled": "false",
        # Rows of clients are sorted anyway: a hash table of all of them would spill.
        "spark.sql.execution.replaceHashWithSortAgg": "true",
        # Rows of a few days and tables need no sort before they are written.
        "spark.sql.maxConcurrentOutputFileWriters": "8",
        # A window has more queries than Spark's 100: the next one in a session would compile them all again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # For each column of a query, PySpark would send the JVM its line in our code: half of all calls.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        # Tables are read by their files, which Spark would list in as many tasks (10,000).
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(_LISTING_TASKS),
        "spark.sql.warehouse.dir": spark_path(options.scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _collector(master: str, given: list[str]) -> list[str]:
    """Return the options of the garbage collector, unless one is given: Java does not start with two."""
    # G1 marks and refines beside the tasks, for short pauses: 2 of 30 s of CPU time of a small run. Classes of a run
    # fill 150 MB; from 21 MB on, their growth would begin a collection.
    name = "Serial" if _cores(master) <= _SERIAL_CORES else "Parallel"
    is_given = any(map(_COLLECTOR.search, (*given, *(os.environ.get(each, "") for each in _JAVA_VARIABLES))))
    return ["-XX:MetaspaceSize=256m", *([] if is_given else [f"-XX:+Use{name}GC"])]


def _archive(options: SparkOptions) -> list[str]:
    files = {"SharedArchiveFile": options.archive, "ArchiveClassesAtExit": options.new_archive}
    given = [f'"-XX:{name}={file}"' for name, file in files.items() if file is not None]
    # Java warns on standard output of each class that it cannot archive, and of an archive of other jars.
    return [*given, "-Xlog:cds*=off"] if given else []


def _local(options: SparkOptions) -> dict[str, str]:
    fixed = options.shuffle_partitions
    return {
        **({} if fixed is None else {"spark.sql.shuffle.partitions": str(fixed)}),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.local.dir": str(options.scratch),
    }


def _remote() -> dict[str, str]:
    # All executors are examined before reading anything.
    return {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}


def settings_for_size(size: int, cores: int) -> dict[str, str]:
    """Return the settings for shuffles of an input of ``size`` bytes."""
    partitions = min(-(-size // PARTITION_BYTES), _MAX_PARTITIONS)
    # No core is idle while another has two.
    return {"spark.sql.shuffle.partitions": str(1 if partitions <= 1 else -(-partitions // cores) * cores)}


def default_cores() -> int:
    """Return the number of concurrent tasks in local mode."""
    return min(MAX_LOCAL_CORES, usable_cores())


def _cores(master: str) -> int:
    number = re.fullmatch(r"local(?:\[(\d+)(?:,\d+)?\])?", master)
    return int(number[1] or 1) if number else default_cores()


def default_memory(master: str) -> str:
    """Return the driver's heap: half a GiB per task, from 1 to 4 GiB, and at most a quarter of the machine's memory."""
    quarter = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (4 << 20)
    wanted = min(_MEMORY_OF_CORE_MIB * _cores(master), _MAX_MEMORY_MIB, quarter)
    return f"{max(_MIN_MEMORY_MIB, wanted)}m"


def read_defaults(folder: Path) -> dict[str, str]:
    """Return the settings of ``spark-defaults.conf`` in a configuration folder; none if there is no such file."""
    try:
        lines = (folder / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigurationError(f"{folder / 'spark-defaults.conf'} cannot be read: {error.strerror}") from error
    return {match[1]: match[2] for line in lines if (match := _PROPERTY.fullmatch(line)) is not None}
