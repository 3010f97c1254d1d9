"""Compact the small files of a past day into one, and drop old days, in the tables and in the log of their sink.

Exactly once, whatever is killed: readers trust the log, and one rename replaces it for all compacted days. Spark has no
such operation (its log only grows) and must not write meanwhile, so the caller holds the source's lock. Separate from
its only caller, ``ingest``, because it edits Spark's files behind Spark's back instead of running a query.
"""

import json
import os
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from metadata.jobs import tables
from metadata.jobs.sink_log import VERSION, data_files, last_compact, local_path, relocate
from metadata.jobs.spark_options import spark_path
from metadata.jobs.spark_session import SparkFailed

MIN_FILES: Final = 8
"""Small files of one table and day from which on they are merged."""
SMALL_BYTES: Final = 64 << 20
"""Size from which on a file is left alone."""
REMOVAL_DELAY_S: Final = 86_400.0
"""Delay before a file that left the log is removed: a reader may still use it."""
_WORK: Final = "_compacting"
"""Work folder within the sink; readers skip names that begin with an underscore."""


def compact(spark: SparkSession, sink: Path, today: date, keep_days: int | None = None) -> int:
    """Compact the days before ``today`` (UTC); return by how many files. The caller holds the source's lock.

    Of days more than ``keep_days`` before it no rows are left; their files are removed a day later. Files of the last
    batches, nine at most, wait until Spark has compacted their entries in its log.

    Raises:
        SparkFailed: a day could not be written completely, and is unchanged. This error, and any that Spark raises for
            a day it cannot read, is raised after all other days have been compacted.
    """
    log = last_compact(sink)
    if log is None:
        return 0
    version, *lines = log.read_text(encoding="utf-8").splitlines()
    if version != VERSION:
        return 0
    remove_unreferenced(sink)
    expired = set[str]() if keep_days is None else _before(sink, lines, today - timedelta(days=keep_days))
    days = _compactable(sink, [line for line in lines if line not in expired], today)
    if not days and not expired:
        return 0
    new, replaced, faults = list[str](), set[str](), list[Exception]()
    for folder, own in days.items():
        try:
            new.append(_merge_files(spark, sink, folder, own))
        except Exception as error:  # noqa: BLE001  # one unreadable day must not keep the others from being compacted
            faults.append(error)
        else:
            replaced.update(own)
    for line in replaced | expired:
        # Before the log drops them: a query that has begun to read them has a day from now.
        with suppress(OSError):
            os.utime(_file(sink, line))
    if new or expired:
        _replace_log(log, [version, *(line for line in lines if line not in replaced | expired), *new])
    if faults:
        raise faults[0]
    return len(replaced) - len(new)


def _before(sink: Path, lines: Sequence[str], first: date) -> set[str]:
    """Return the log entries of days before ``first``."""
    folders = ((line, _file(sink, line).parent.name) for line in lines)
    return {line for line, name in folders if name.startswith("day=") and name < f"day={first.isoformat()}"}


def _compactable(sink: Path, lines: Sequence[str], today: date) -> Mapping[Path, list[str]]:
    """Return the log entries to merge, by folder."""
    found = defaultdict[Path, list[str]](list)
    for line in lines:
        entry, folder = json.loads(line), _file(sink, line).parent
        is_past = folder.name.startswith("day=") and folder.name < f"day={today.isoformat()}"
        if is_past and entry.get("action", "add") == "add" and entry["size"] < SMALL_BYTES:
            found[folder].append(line)
    return {folder: own for folder, own in found.items() if len(own) >= MIN_FILES}


def _merge_files(spark: SparkSession, sink: Path, folder: Path, lines: Sequence[str]) -> str:
    """Write one file with the rows of several, not yet visible to readers, and return its log entry."""
    work, files = sink / _WORK, [spark_path(_file(sink, line)) for line in lines]
    shutil.rmtree(work, ignore_errors=True)
    frame = spark.read.schema(tables.FILE_SCHEMA).parquet(*files).select(*tables.FILE_COLUMNS)
    frame.coalesce(1).write.parquet(spark_path(work))
    (part,) = work.glob("*.parquet")
    expected, written = frame.count(), spark.read.parquet(spark_path(part)).count()
    if written != expected:
        raise SparkFailed(f"{written} of {expected} rows in {folder} were written into one file")
    file = folder / f"part-compacted-{uuid.uuid4()}.snappy.parquet"
    _sync(part)
    part.rename(file)
    _sync(folder)
    shutil.rmtree(work)
    # Like Spark's own entries, with the folder that the sink was in when they were written.
    entry = json.loads(lines[0])
    path, stat = f"{entry['path'].rpartition('/')[0]}/{file.name}", file.stat()
    return json.dumps(
        entry | {"path": path, "size": stat.st_size, "modificationTime": stat.st_mtime_ns // 1_000_000},
        separators=(",", ":"),
    )


def _replace_log(log: Path, lines: Sequence[str]) -> None:
    new = log.with_name(f".{log.name}.new")
    new.write_text("\n".join(lines), encoding="utf-8")
    _sync(new)
    # The checksum file is of the old content; without one, Spark verifies nothing.
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    new.replace(log)
    _sync(log.parent)


def remove_unreferenced(sink: Path) -> None:
    """Remove files that were replaced by compaction a day ago, and leftovers of interrupted attempts."""
    named, before = set(data_files(sink)), time.time() - REMOVAL_DELAY_S
    if not all(file.is_relative_to(sink) for file in named):
        # The folder was renamed: which of its files count is not known.
        return
    for file in sink.glob("table=*/day=*/*.parquet"):
        with suppress(OSError):
            if file not in named and file.stat().st_mtime < before:
                file.unlink()
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _file(sink: Path, line: str) -> Path:
    return relocate(local_path(json.loads(line)["path"]), sink)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
