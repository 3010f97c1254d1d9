"""Backups with a key beside them, for tests that are about something else."""

import gzip
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from diem.process.auth import SharedKey
from services.data.backup import backup as backup_module
from services.data.backup import restore as restore_module
from services.data.backup.backup_file import BackupReader, Contents, Header
from services.data.backup.restore import Restored
from services.data.backup.seal import BackupKey, RestoreKeys, SealedWriter


def key_file(path: Path) -> Path:
    """Return the key file beside a backup, which is created if it does not exist."""
    file = path.parent / "backup.key"
    SharedKey.create(file)
    return file


def keys_of(path: Path, **options: Any) -> RestoreKeys:
    """Return how to verify a backup made here."""
    return RestoreKeys(key_file(path), **options)


async def backup(url: str, path: Path, now_ms: int, *, encrypt: bool = False) -> tuple[Header, int]:
    """Back up a store."""
    return await backup_module.backup(url, path, now_ms, key=lambda: BackupKey.of_file(key_file(path)), encrypt=encrypt)


async def restore(url: str, path: Path, now_ms: int, **options: Any) -> Restored:
    """Restore a backup and its API keys."""
    return await restore_module.restore(url, path, now_ms, keys=keys_of(path), **{"accept_keys": True, **options})


def check(path: Path) -> Contents:
    """Check a whole backup."""
    with BackupReader(path, keys_of(path)) as file:
        return file.check()


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a backup."""
    with BackupReader(path, keys_of(path)) as file:
        return [line for line, _ in file._lines()]


def write_lines(path: Path, lines: list[bytes], *, end: bool = True) -> None:
    """Write lines as an authentic backup; ``end`` appends row counts and digest, as they should be."""
    if end:
        lines = [*lines, end_of(lines)]
    with path.open("wb") as file:
        sealed = SealedWriter(file, BackupKey.of_file(key_file(path)), encrypt=False)
        sealed.write(gzip.compress(b"".join(lines)))
        sealed.finish()


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
