"""Reads the checkpoint of Spark's streaming query without Spark: committed batches and read positions.

A checkpoint has folders with one file per batch, named by its number, with one line per entry; ``<n>.compact`` replaces
all files up to n. Names that begin with a dot are incomplete files and checksums.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

VERSION: Final = "v1"
"""First line of each file of a log."""
MAX_REMOVED: Final = 100_000
"""Number of names of removed files at which a checkpoint is reset."""
_COMPACT: Final = ".compact"
_OLD: Final = ".old"


def query_id(checkpoint: Path) -> str:
    """Return the identity of the query, created with its checkpoint; batch numbers are valid only within one query."""
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


def read_files(checkpoint: Path, since: int = 0) -> list[Path]:
    """Return the files read by a file source in committed batches.

    Paths of files replaced since are left out: Spark does not read them again, but the new file must not count as read.

    Args:
        checkpoint: the checkpoint.
        since: number of the first batch that counts.
    """
    last = last_committed(checkpoint)
    entries = _entries(checkpoint / "sources" / "0", since)
    return [
        path
        for entry in entries
        if last is not None and entry["batchId"] <= last
        if not _is_replaced(path := _local_path(entry["path"]), entry.get("timestamp"))
    ]


def remove_ingested(checkpoint: Path, since: int = 0) -> None:
    """Remove files whose events are committed, of batches from ``since`` on."""
    for file in read_files(checkpoint, since):
        file.unlink(missing_ok=True)


def begin_anew(checkpoint: Path) -> bool:
    """Remove the checkpoint of a file source if it has :data:`MAX_REMOVED` names of files, none of which exists.

    Spark never forgets the name of a read file, and rewrites all names in every tenth batch (SPARK-17604). Without a
    checkpoint, the next query starts over with the folder's content, which has no read files. Not for a running query,
    or one that must repeat a begun batch. Returns whether it was removed.
    """
    old = checkpoint.with_suffix(_OLD)
    shutil.rmtree(old, ignore_errors=True)
    if max(_batches(checkpoint / "offsets"), default=None) != last_committed(checkpoint):
        return False
    paths = [_local_path(entry["path"]) for entry in _entries(checkpoint / "sources" / "0")]
    if len(paths) < MAX_REMOVED or any(path.exists() for path in paths):
        return False
    # Atomically: a part of it would be the checkpoint of a query that has read less.
    checkpoint.rename(old)
    shutil.rmtree(old, ignore_errors=True)
    return True


def read_offsets(checkpoint: Path) -> dict[str, dict[int, int]]:
    """Return the next offsets of a Kafka source, by topic and partition; empty before its first batch."""
    last = last_committed(checkpoint)
    if last is None:
        return {}
    offsets = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()[2]
    return {topic: {int(p): at for p, at in parts.items()} for topic, parts in json.loads(offsets).items()}


def last_committed(checkpoint: Path) -> int | None:
    """Return the number of the last committed batch, if any."""
    return max(_batches(checkpoint / "commits"), default=None)


def _local_path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _is_replaced(path: Path, read_ms: int | None) -> bool:
    try:
        return read_ms is not None and path.stat().st_mtime_ns // 1_000_000 > read_ms
    except OSError:
        return False


def _entries(log: Path, since: int = 0) -> Iterator[dict[str, Any]]:
    numbers = _batches(log)
    compact = max((n for n, path in numbers.items() if path.suffix == _COMPACT), default=-1)
    for number in sorted(n for n in numbers if n >= max(compact, since)):
        yield from (entry for entry in _parse_log(numbers[number]) if entry["batchId"] >= since)


def _parse_log(file: Path) -> Iterator[dict[str, Any]]:
    version, *lines = file.read_text(encoding="utf-8").splitlines()
    if version != VERSION:
        raise ValueError(f"{file} has version {version}, not {VERSION}")
    yield from map(json.loads, lines)


def _batches(log: Path) -> dict[int, Path]:
    if not log.is_dir():
        return {}
    # Of a batch with both files, the compact one is complete.
    paths = sorted(log.iterdir(), key=lambda path: path.suffix == _COMPACT)
    return {int(path.stem): path for path in paths if path.stem.isdigit() and path.suffix in {"", _COMPACT}}
