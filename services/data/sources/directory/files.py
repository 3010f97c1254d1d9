"""Looking into a directory: which files are there, whether they stand still, and what is in one."""

import contextlib
import os
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from services.data.errors import BodyTooLarge, InvalidDataset

SUFFIXES: Final = (".csv", ".parquet")
_PASSED_OVER: Final = (".", "~", "#", "_")
"""First letters of names that are hidden, or temporary to the programs that write them."""
_ENTRIES_PER_FILE: Final = 10


class Seen(NamedTuple):
    """A file as one look saw it; two looks that see the same saw it stand still."""

    size: int
    modified_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Seen":
        """What a stat says."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)


class Look(NamedTuple):
    """What one look saw: the files by name, and whether there were more than may be."""

    files: dict[str, Seen]
    more: bool


def is_data(name: str) -> bool:
    """Whether a name is that of a data file: not hidden, not temporary, and of a known kind."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(_PASSED_OVER)


def look(directory: Path, only: str | None, max_files: int) -> Look:
    """See which data files there are; blocks.

    Args:
        directory: where.
        only: the one name that counts; None for all.
        max_files: how many may be there; the first by name are taken. Ten times as many entries are looked at.

    Raises:
        OSError: the directory cannot be read. A file that is not there is no error.
    """
    with os.scandir(directory) as entries:
        if only is not None:
            return Look(_regular(directory, [only]), more=False)
        found = list(islice(entries, max_files * _ENTRIES_PER_FILE + 1))
    names = sorted(entry.name for entry in found if is_data(entry.name))
    more = len(names) > max_files or len(found) > max_files * _ENTRIES_PER_FILE
    return Look(_regular(directory, names[:max_files]), more)


def _regular(directory: Path, names: Sequence[str]) -> dict[str, Seen]:
    """Those names that are regular files, or links to one."""
    files = {}
    for name in names:
        with contextlib.suppress(OSError):  # it went away, or is a link to nothing
            status = (directory / name).stat()
            if stat.S_ISREG(status.st_mode):
                files[name] = Seen.of(status)
    return files


def read(path: Path, seen: Seen, max_bytes: int) -> bytes | None:
    """Read a whole file; None when it is not, or no longer, what was seen: it is being written. Blocks.

    Raises:
        BodyTooLarge: it has more than ``max_bytes``.
        InvalidDataset: it is a link that leads out of its directory.
        OSError: it cannot be read.
    """
    if seen.size > max_bytes:
        raise BodyTooLarge(f"the file has more than {max_bytes} bytes")
    # Whoever may write here could else have files read that are not his: errors quote what was read.
    real = path.resolve()
    if not real.is_relative_to(path.parent.resolve()):
        raise InvalidDataset("it is a link that leads out of the directory")
    # Without waiting: what was a file may have become a pipe, on which opening would wait for a writer.
    with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123  # a descriptor
        if Seen.of(os.fstat(file.fileno())) != seen:
            return None
        body = file.read(seen.size + 1)
        if len(body) != seen.size or Seen.of(os.fstat(file.fileno())) != seen:
            return None
    return body
