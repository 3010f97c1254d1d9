"""Read the checkpoint of Spark's streaming query without Spark: which batches are committed, and what was read.

A checkpoint has folders with one file per batch, named by its number, with one line per entry; ``<n>.compact`` replaces
all files up to n. Names that begin with a dot are incomplete files and checksums.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

VERSION: Final = "v1"
"""First line of each file of a log."""
_COMPACT: Final = ".compact"


def query_id(checkpoint: Path) -> str:
    """Return the identity of the query, which begins with its checkpoint: batches of another one are other batches."""
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


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
        if not _is_replaced(path := _local_path(entry["path"]), entry.get("timestamp"))
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


def _local_path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


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
