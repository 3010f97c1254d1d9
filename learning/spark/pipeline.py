"""The jobs of ``diem pipeline``: start Spark, run them, and show their progress."""

import asyncio
import importlib.util
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.kafka import java
from deploy.kafka.java import NoJava
from deploy.terminal import Terminal
from diem.errors import FileError
from learning.jobs import erasure
from learning.jobs.checkpoint import read_offsets
from learning.jobs.delta_table import committed_files
from learning.jobs.erasure import Erased
from learning.jobs.sources import FileSource, SourceLag, TopicSource, unread_files
from learning.jobs.spark_options import NoSpark, SparkOptions, SparkSettings, is_local, master_of
from learning.jobs.warehouse import EVENTS, NoTraffic, Warehouse, all_statistics, read_window, warehouse_at
from learning.spark import class_archive
from learning.spark.jars import JARS
from learning.statistics.model import duplicate_recorders_warning
from learning.statistics.window import Window

if TYPE_CHECKING:
    from learning.jobs.ingest import CommittedBatch

FOLDER: Final = "traffic"
"""Subfolder of the state directory."""
_SHOWN_AFTER_S: Final = 5.0


class TablesUnavailable(FileError):
    """A file of the warehouse cannot be read or written."""

    template = "the tables cannot be kept: {prefix}{reason}"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of the source."""

    source: FileSource | TopicSource
    remove: bool
    """Remove files after reading them."""
    follow_s: float | None
    keep_days: int | None = None
    """Age of the oldest day that stays in the tables."""


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """The window to compute, or the last one of a length."""

    window: Window | int
    name: str | None


def warehouse(state_dir: Path, place: Path | None = None) -> Warehouse:
    """Return the warehouse in a folder (absolute), by default that of the state directory."""
    return warehouse_at(place, state_dir.absolute() / FOLDER)


def run(
    here: Warehouse,
    reading: ReadOptions | None,
    wanted: WindowOptions | None,
    terminal: Terminal,
    settings: SparkSettings,
) -> Path | None:
    """Read recorded traffic, then compute statistics; return the folder of the statistics, if requested.

    While following, statistics are computed after batches, and that never ends by itself.

    Raises:
        NoSpark: PySpark or Java is not installed.
        DiskNotShared: Spark runs on a cluster, and its workers do not have the warehouse.
        SparkFailed: the JVM did not start, died, or could not read.
        TablesUnavailable: a folder cannot be written, or the disk is full.
        DiemError: any other error that a person can correct.
    """
    find_java()
    source = None if reading is None else reading.source
    unread = SourceLag(0) if source is None else asyncio.run(unread_of(here, source))
    # All of a run, with an end.
    whole = wanted is not None and reading is not None and reading.follow_s is None
    events = _expected_events(here, reading, unread)
    with _spark(here, terminal, settings, source, whole=whole, events=events) as (spark, proof):
        from learning.jobs import ingest, statistics  # noqa: PLC0415  # with PySpark, see find_java

        def compute(window: Window | int, name: str | None) -> Path:
            found = statistics.last_window(here, window) if isinstance(window, int) else window
            with terminal.counting("computing statistics"):
                folder = statistics.compute(spark, here, found, name, terminal.warn)
            _print_statistics(folder, terminal)
            return folder

        if reading is not None:
            with _shown(here, reading, unread, terminal) as show:
                lines = ingest.ingest(
                    spark,
                    reading.source,
                    here,
                    show if reading.follow_s is None or wanted is None else _follow(here, wanted, compute, show),
                    follow_s=reading.follow_s,
                    remove=reading.remove,
                    keep_days=reading.keep_days,
                    proof=proof,
                )
            terminal.info(f"read {lines:,} lines of {reading.source.where}")
        if wanted is not None:
            return compute(wanted.window, wanted.name)
    return None


def _expected_events(here: Warehouse, reading: ReadOptions | None, unread: SourceLag) -> float:
    """Return about how many events a run reads, as lines and from the tables' last day; infinite while following."""
    if reading is not None and reading.follow_s is not None:
        return inf
    files = [file for source in here.sources() for file in committed_files(here.sink(source), EVENTS)]
    last = max((file.day for file in files), default=None)
    return max(unread.unread, unread.size // _LINE_BYTES) + sum(file.rows for file in files if file.day == last)


_LINE_BYTES: Final = 300
"""Mean length of a line."""
CURRENT: Final = "current"
"""Name of statistics that following replaces, until the end of their window."""
_BUSY_SHARE: Final = 1 / 2
"""Largest share of the time that statistics are computed while following. A plan has a change after two or three of
them, because it learns from the windows before the latest: with a quarter, 40 s of work were 7 minutes."""


def _follow(
    here: Warehouse,
    wanted: WindowOptions,
    compute: "Callable[[Window | int, str | None], Path]",
    show: "Callable[[CommittedBatch], None]",
    clock: Callable[[], float] = time.monotonic,
) -> "Callable[[CommittedBatch], None]":
    """Return a function that shows a batch, then computes the statistics of the last window, unless just computed.

    They replace those of before. When no kept statistics are of the window or later, they are kept.
    """
    due = clock()

    def on_batch(batch: "CommittedBatch") -> None:
        nonlocal due
        show(batch)
        if (begun := clock()) < due:
            return
        with suppress(NoTraffic):
            folder = compute(wanted.window, wanted.name or CURRENT)
            if wanted.name is None:
                _keep(here, folder)
        due = begun + (clock() - begun) / _BUSY_SHARE

    return on_batch


def _keep(here: Warehouse, current: Path) -> None:
    """Give the current statistics the name of their window, if the last kept ones are of a window before."""
    window = read_window(current)
    kept = [read_window(each)["to"] for each in all_statistics(here) if each != current]
    if not kept or str(max(map(str, kept))) <= str(window["from"]):
        end = datetime.fromisoformat(str(window["to"]))
        current.rename(current.with_name(f"{end:%Y%m%d-%H%M%S}"))


def run_usage(here: Warehouse, days: tuple[date, date], terminal: Terminal, settings: SparkSettings) -> Path:
    """Compute the usage report of these days (UTC, both included); return its file.

    Raises:
        DiemError: as ``run``.
    """
    with _spark(here, terminal, settings) as (spark, _), terminal.counting("computing usage"):
        from learning.jobs import usage_report  # noqa: PLC0415  # with PySpark

        return usage_report.report(spark, here, *days)


def erase(here: Warehouse, folder: Path, pseudonyms: Collection[str]) -> Erased:
    """Remove the events of clients from a warehouse and from a folder of files; no JVM is started.

    Raises:
        NoSpark: there are tables, and delta-rs is not installed.
        TablesUnavailable: a file cannot be rewritten.
        DiemError: a pipeline reads a source.
    """
    if here.sources():
        _require("deltalake")
    try:
        return erasure.erase(here, folder, pseudonyms)
    except OSError as error:
        raise TablesUnavailable(error) from error


@contextmanager
def _spark(
    here: Warehouse,
    terminal: Terminal,
    settings: SparkSettings,
    source: FileSource | TopicSource | None = None,
    *,
    whole: bool = False,
    events: float = inf,
) -> "Iterator[tuple[Any, Path | None]]":
    """Run Spark with a scratch folder, and with its connector to Kafka; raise what ``run`` does.

    Yields the session, and the proof that its executors share a disk with this machine (None: they need not). The first
    ``whole`` run makes the archive of classes. ``events``: about how many are read.
    """
    command = find_java()
    from learning.jobs import executors, spark_session  # noqa: PLC0415  # with PySpark

    try:
        jars = JARS.prepare() if isinstance(source, TopicSource) else ()
        with _terminated_as_interrupted(), spark_session.scratch_folder() as scratch:
            terminal.info("starting Spark")
            archive = class_archive.find(command, spark_session.HOME, new=whole)
            options = SparkOptions(scratch, settings, jars, command, events=events, **archive._asdict())
            master = master_of(settings, spark_session.given_settings())
            with ExitStack() as opened:
                with _wait_shown(terminal, master) as begin:
                    spark = opened.enter_context(spark_session.open_spark(options, begin))
                    proof = opened.enter_context(executors.prepared_executors(spark, scratch, here.root))
                if (page := spark.sparkContext.uiWebUrl) is not None:
                    terminal.info(f"Spark's page: {page}")
                yield spark, proof
            if archive.new_archive is not None and spark_session.end_jvm():
                archive.keep()
    except OSError as error:
        raise TablesUnavailable(error) from error


@contextmanager
def _wait_shown(terminal: Terminal, master: str) -> Iterator[Callable[[], None]]:
    """Yield a function that begins a wait, and warn of a cluster without free executors after :data:`_SHOWN_AFTER_S`.

    Spark waits for them without a word.
    """
    text = f"waiting for executors of {master}: its page shows if other applications have them (Ctrl-C ends the wait)"
    timer = threading.Timer(_SHOWN_AFTER_S, terminal.warn, (text,))
    try:
        yield (lambda: None) if is_local(master) else timer.start
    finally:
        timer.cancel()


def find_java() -> Path:
    """Return the Java that Spark runs on. Raises ``NoSpark``: PySpark, delta-rs or a recent Java is not installed."""
    _require("pyspark", "deltalake")
    try:
        return java.find()
    except NoJava as error:
        raise NoSpark(f"there is no Java {java.OLDEST} or newer") from error


def _require(*modules: str) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise NoSpark(f"{name} is not installed")


@contextmanager
def _shown(
    here: Warehouse, reading: ReadOptions, unread: SourceLag, terminal: Terminal
) -> "Iterator[Callable[[CommittedBatch], None]]":
    """Show a progress bar at a terminal, unless following; else a line for each batch."""
    what = "files" if isinstance(reading.source, FileSource) else "records"
    if unread.lost:
        terminal.warn(f"{unread.lost:,} records were deleted or lost by Kafka before they were read")
    terminal.info(f"reading {unread.unread:,} {what} of {reading.source.where}")
    if reading.follow_s is not None or not terminal.is_shown:
        yield lambda batch: terminal.info(f"batch {batch.number}: {batch.lines:,} lines in {batch.seconds:.1f} s")
        return
    done = 0
    with terminal.counting("reading") as show:
        show(0, unread.unread)

        def on_batch(batch: "CommittedBatch") -> None:
            nonlocal done
            if isinstance(reading.source, FileSource):
                done = unread.unread - asyncio.run(unread_of(here, reading.source)).unread
            else:
                done += batch.lines
            show(done, max(done, unread.unread))

        yield on_batch


async def unread_of(here: Warehouse, source: FileSource | TopicSource) -> SourceLag:
    """Return the unread and lost amounts of a source.

    Raises:
        KafkaUnavailable: the cluster does not answer.
    """
    checkpoint = here.checkpoint(source.name)
    if isinstance(source, FileSource):
        return unread_files(source.folder, checkpoint)
    from learning.jobs import traffic_topic  # noqa: PLC0415  # its client is an extra

    offsets = read_offsets(checkpoint).get(source.topic, {})
    return await traffic_topic.unread_records(source.options, offsets)


def _print_statistics(folder: Path, terminal: Terminal) -> None:
    read = read_window(folder)
    terminal.info(f"statistics from {read['from']} to {read['to']}: {folder}")
    counted = ("events", "clients", "sessions", "endpoints", "sets", "duplicates", "late")
    terminal.info("  " + ", ".join(f"{read[name]:,} {name}" for name in counted))
    if duplicates := int(read["twins"]):
        terminal.warn(duplicate_recorders_warning(duplicates))


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that the JVM ends too and nothing is left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
