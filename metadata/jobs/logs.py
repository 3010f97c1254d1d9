"""Spark's own logs of a streaming query, read without Spark: which files of a sink count, and how far a source is read.

Both are folders of one file a batch, named by its number, with a line for each entry; and `<n>.compact` replaces
all up to it. What begins with a dot is half written or a checksum.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

SINK_LOG: Final = "_spark_metadata"
_VERSION: Final = "v1"
_COMPACT: Final = ".compact"


def data_files(sink: Path, table: str | None = None) -> list[Path]:
    """Return the files of a sink that count, sorted: all others are of attempts that were cut short.

    Args:
        sink: the folder of a source in the warehouse.
        table: only those of this one.
    """
    paths = [local_path(entry["path"]) for entry in _entries(sink / SINK_LOG) if entry.get("action", "add") == "add"]
    return sorted(path for path in paths if table is None or f"table={table}" in path.parts)


def read_files(checkpoint: Path) -> list[Path]:
    """Return the files that a source of files has read, in batches that are committed."""
    last = committed(checkpoint)
    entries = _entries(checkpoint / "sources" / "0")
    return [local_path(entry["path"]) for entry in entries if last is not None and entry["batchId"] <= last]


def read_offsets(checkpoint: Path) -> dict[str, dict[int, int]]:
    """Return where a Kafka source goes on reading, by topic and partition; empty when it has not begun."""
    last = committed(checkpoint)
    if last is None:
        return {}
    offsets = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()[2]
    return {topic: {int(p): at for p, at in parts.items()} for topic, parts in json.loads(offsets).items()}


def committed(checkpoint: Path) -> int | None:
    """Return the number of the last batch that is complete, if there is one."""
    return max(_batches(checkpoint / "commits"), default=None)


def local_path(uri: str) -> Path:
    """Return the path of a file's URI."""
    return Path(unquote(urlsplit(uri).path))


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    numbers = _batches(log)
    compact = max((n for n, path in numbers.items() if path.suffix == _COMPACT), default=-1)
    for number in sorted(n for n in numbers if n >= compact):
        version, *lines = numbers[number].read_text(encoding="utf-8").splitlines()
        if version != _VERSION:
            raise ValueError(f"{numbers[number]} is of another version: {version}")
        yield from map(json.loads, lines)


def _batches(log: Path) -> dict[int, Path]:
    if not log.is_dir():
        return {}
    # A batch that is there both ways is complete in the compact one.
    paths = sorted(log.iterdir(), key=lambda path: path.suffix == _COMPACT)
    return {int(path.stem): path for path in paths if path.stem.isdigit() and path.suffix in {"", _COMPACT}}
