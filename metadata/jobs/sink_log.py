"""Read Spark's logs of a streaming query without Spark: committed files of a sink, and progress in a source.

Both are folders with one file per batch, named by its number, with one line per entry; ``<n>.compact`` replaces all
files up to n. Names that begin with a dot are incomplete files and checksums.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

SINK_LOG: Final = "_spark_metadata"
VERSION: Final = "v1"
_COMPACT: Final = ".compact"


def data_files(sink: Path, table: str | None = None) -> list[Path]:
    """Return the committed files of a sink, sorted; all others are leftovers of interrupted attempts.

    Args:
        sink: the folder of a source in the warehouse.
        table: restricts the files to one table.
    """
    paths = [relocate(path, sink) for path in _committed_files(sink)]
    return sorted(path for path in paths if table is None or f"table={table}" in path.parts)


class CommittedFile(NamedTuple):
    """A file that a sink's log names."""

    path: Path
    """Where it is now."""
    size: int
    """Bytes, when it was committed."""

    def is_there(self) -> bool:
        """Return whether this machine sees the whole file."""
        try:
            return self.path.stat().st_size == self.size
        except OSError:
            return False


def latest_files(sink: Path) -> list[CommittedFile]:
    """Return the files in the latest file of a sink's log: those of its last batch, at times also earlier ones."""
    numbers = _batches(sink / SINK_LOG)
    if not numbers:
        return []
    return _added(_parse_log(numbers[max(numbers)]), sink)


def committed_files(sink: Path) -> list[CommittedFile]:
    """Return all files that a sink's log names."""
    return _added(_entries(sink / SINK_LOG), sink)


def _added(entries: Iterable[dict[str, Any]], sink: Path) -> list[CommittedFile]:
    return [
        CommittedFile(relocate(local_path(entry["path"]), sink), entry["size"])
        for entry in entries
        if entry.get("action", "add") == "add"
    ]


def is_relocated(sink: Path) -> bool:
    """Return whether a sink's folder has moved: Spark, given the folder, would look for files at the old path."""
    return any(path != relocate(path, sink) for path in _committed_files(sink))


def read_files(checkpoint: Path) -> list[Path]:
    """Return the files that a file source has read in committed batches.

    A path whose file was replaced since is left out: Spark does not read it again, and the new file must not count as
    read.
    """
    last = last_committed(checkpoint)
    entries = _entries(checkpoint / "sources" / "0")
    return [
        path
        for entry in entries
        if last is not None and entry["batchId"] <= last
        if not _is_replaced(path := local_path(entry["path"]), entry.get("timestamp"))
    ]


def remove_ingested(checkpoint: Path) -> None:
    """Remove files whose events are committed."""
    for file in read_files(checkpoint):
        file.unlink(missing_ok=True)


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


def last_compact(sink: Path) -> Path | None:
    """Return the latest compacted file of a sink's log, if any."""
    numbers = _batches(sink / SINK_LOG)
    return max(
        (path for path in numbers.values() if path.suffix == _COMPACT), key=lambda path: int(path.stem), default=None
    )


def local_path(uri: str) -> Path:
    """Return the path of a file's URI."""
    return Path(unquote(urlsplit(uri).path))


def relocate(path: Path, sink: Path) -> Path:
    """Return the current path of a sink's file: the log holds the folder that it was written to."""
    if path.is_relative_to(sink) or sink.name not in path.parts:
        return path
    return sink.joinpath(*path.parts[len(path.parts) - path.parts[::-1].index(sink.name) :])


def _committed_files(sink: Path) -> list[Path]:
    entries = _entries(sink / SINK_LOG)
    return [local_path(entry["path"]) for entry in entries if entry.get("action", "add") == "add"]


def _is_replaced(path: Path, read_ms: int | None) -> bool:
    try:
        return read_ms is not None and path.stat().st_mtime_ns // 1_000_000 > read_ms
    except OSError:
        return False


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    numbers = _batches(log)
    compact = max((n for n, path in numbers.items() if path.suffix == _COMPACT), default=-1)
    for number in sorted(n for n in numbers if n >= compact):
        yield from _parse_log(numbers[number])


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
