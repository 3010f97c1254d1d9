"""The sink of encoded events, and its implementation as files: ``<dir>/in/<edge>-<incarnation>-<n>.jsonl``, JSON Lines.

The name of a file begins with a dot until it is complete. Readers remove files after reading, so all files are unread;
when their size reaches the limit, new events are dropped. A reader thus never misses events in the middle.
"""

import asyncio
import fcntl
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from diem.errors import DiemError


class SinkUnavailable(DiemError):
    """Events were not written, or may not have been; the caller may write the same ones again."""

    retriable = True

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        """Label of the metric that counts drops meanwhile; one word."""
        self.text = text
        super().__init__(reason, text)

    def __str__(self) -> str:
        return self.text


class EventSink(Protocol):
    """Destination of encoded events."""

    async def write(self, events: Sequence[bytes]) -> None:
        """Write events; called at least every second, without events if there are none.

        Raises:
            SinkUnavailable: the caller may write them again.
        """
        ...

    async def close(self) -> None:
        """Flush and close; the last call."""
        ...


BLOCK_BYTES: Final = 64 * 1024


def complete(path: Path) -> None:
    """Publish a leftover file, without an incomplete last line; a no-op while its process lives.

    Raises:
        OSError: it cannot be read or renamed.
    """
    with suppress(FileNotFoundError), path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # locked by its process
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - BLOCK_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
        if end:
            path.rename(path.with_name(path.name.removeprefix(".")))
        else:
            path.unlink()


FOLDER: Final = "in"
FILE_BYTES: Final = 8 << 20
FILE_AGE_S: Final = 60.0


class NoRoom(OSError):
    """The unread traffic in the directory has reached the limit."""


class Files:
    """Writes the files of one process. Blocking: call it in a thread, one call at a time.

    Args:
        directory: its folder ``in`` has the files.
        edge: name of the process; leftover files of its earlier incarnations are completed.
        incarnation: id of this incarnation.
        now: returns monotonic seconds.
        max_bytes: limit of all files in the folder, of any process; checked when a file is begun.
    """

    def __init__(
        self,
        directory: Path,
        edge: str,
        incarnation: str,
        now: Callable[[], float],
        *,
        max_bytes: int,
        file_bytes: int = FILE_BYTES,
        file_seconds: float = FILE_AGE_S,
    ) -> None:
        self._folder = directory / FOLDER
        self._edge = edge
        self._incarnation = incarnation
        self._now = now
        self._max_bytes = max_bytes
        self._file_bytes = file_bytes
        self._file_seconds = file_seconds
        self._number = 0
        self._recovered = False
        self._file: int | None = None
        self._size = 0
        self._begun_at = 0.0

    @property
    def is_due(self) -> bool:
        """True if a write is due even without events, to recover or complete files."""
        return not self._recovered or self._is_done

    def write(self, events: Sequence[bytes]) -> None:
        """Append events, all or none of them.

        Raises:
            OSError: none was written.
            NoRoom: none was written: the unread traffic has reached the limit.
        """
        if not self._recovered:
            self.recover()
            self._recovered = True
        if self._is_done:
            self.finish()
        if not events:
            return
        file = self._file if self._file is not None else self._begin()
        data = b"\n".join(events) + b"\n"
        try:
            _write_all(file, data)
        except OSError:
            self._cut(file)
            raise
        self._size += len(data)
        if self._is_done:
            self.finish()

    def finish(self) -> None:
        """Complete the open file, if any, and publish it to readers.

        Raises:
            OSError: it was not published; the next :meth:`write` or the next incarnation tries again.
        """
        file, self._file = self._file, None
        if file is None:
            return
        try:
            os.fsync(file)
            if self._size:
                self._path(hidden=True).rename(self._path(hidden=False))
            else:
                self._path(hidden=True).unlink()
        except OSError:
            self._recovered = False
            raise
        finally:
            os.close(file)

    def recover(self) -> None:
        """Complete leftover files of earlier incarnations of this process.

        Raises:
            OSError: one could not be read or renamed.
        """
        form = re.compile(rf"\.{re.escape(self._edge)}-[0-9a-f]{{12}}-\d+\.jsonl")
        if self._folder.is_dir():
            for path in sorted(self._folder.iterdir()):
                if form.fullmatch(path.name):
                    complete(path)

    @property
    def _is_done(self) -> bool:
        return self._file is not None and (
            self._size >= self._file_bytes or self._now() - self._begun_at >= self._file_seconds
        )

    def _begin(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (used := _used_bytes(self._folder)) >= self._max_bytes:
            raise NoRoom(f"{self._folder} holds {used >> 20} MiB that nobody has read")
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._path(hidden=True), flags, 0o600)
        # Held for the life of this process, so that nobody takes the file for a leftover.
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # some network file systems have no locks; the next write tries again
            os.close(file)
            self._path(hidden=True).unlink()
            raise
        self._file, self._size, self._begun_at = file, 0, self._now()
        return file

    def _cut(self, file: int) -> None:
        try:
            os.ftruncate(file, self._size)
        except OSError:
            # The next incarnation removes the incomplete line at its end.
            os.close(file)
            self._file = None

    def _path(self, *, hidden: bool) -> Path:
        return self._folder / f"{'.' if hidden else ''}{self._edge}-{self._incarnation}-{self._number}.jsonl"


class FileSink:
    """Writes files in a thread, so that a slow disk does not block the loop."""

    def __init__(self, files: Files) -> None:
        self._files = files

    async def write(self, events: Sequence[bytes]) -> None:
        """Append, and complete files when due.

        Raises:
            SinkUnavailable: ``disk`` or ``room``.
        """
        if not events and not self._files.is_due:
            return
        try:
            await asyncio.to_thread(self._files.write, events)
        except OSError as error:
            raise SinkUnavailable("room" if isinstance(error, NoRoom) else "disk", str(error)) from error

    async def close(self) -> None:
        """Complete the last file; if that fails, the next incarnation of this process does it."""
        with suppress(OSError):
            await asyncio.to_thread(self._files.finish)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _used_bytes(folder: Path) -> int:
    used = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a reader has just removed it
                used += entry.stat(follow_symlinks=False).st_size
    return used
