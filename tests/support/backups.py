"""Backups in files, and their lines."""

import gzip
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from services.data.backup import backup as backup_module
from services.data.backup import restore as restore_module
from services.data.backup.restore import Restored
from services.data.backup.stream import Header


async def backup(url: str, path: Path, now_ms: int) -> tuple[Header, int]:
    """Back up a store."""
    with path.open("wb") as file:
        return await backup_module.backup(url, file, now_ms)


async def restore(url: str, path: Path, now_ms: int, **options: Any) -> Restored:
    """Restore a backup and its API keys."""
    with path.open("rb") as file:
        return await restore_module.restore(url, file, now_ms, **{"accept_keys": True, **options})


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a backup."""
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


def write_lines(path: Path, lines: list[bytes], *, end: bool = True) -> None:
    """Write lines as a backup; ``end`` appends row counts and digest, as they should be."""
    path.write_bytes(gzip.compress(b"".join([*lines, end_of(lines)] if end else lines)))


def end_of(lines: list[bytes]) -> bytes:
    """Return the last line of a backup with these lines before it."""
    counts: dict[str, int] = {}
    table = ""
    for line in lines[1:]:
        value = orjson.loads(line)
        if isinstance(value, dict):
            table = str(value.get("table"))
            counts[table] = 0
        else:
            counts[table] = counts.get(table, 0) + 1
    digest = blake2b(b"".join(lines), digest_size=16).hexdigest()
    return orjson.dumps({"rows": counts, "digest": digest}) + b"\n"
