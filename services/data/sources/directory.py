"""The directory source: scans a directory and ingests files once they no longer change."""

import asyncio
import contextlib
import math
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from diem.errors import DiemError
from diem.process.clock import Clock
from diem.protocol import endpoints
from services.data.errors import DataError, DatasetTooLarge, InvalidDataset
from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.files.names import segment
from services.data.files.target import Converter, FileTarget
from services.data.kinds import Representation, series
from services.data.sources.source import Claim, Fault, Health, Sink, batched, fault_of
from services.data.sources.tables import SUFFIXES, DirectoryConfig

_IGNORED: Final = (".", "~", "#", "_")
"""First letters of hidden names and of editors' temporary names."""
MAX_PATH: Final = 200
"""Maximum length of a directory's path in an error."""
_ENTRIES_PER_FILE: Final = 10
"""Directory entries scanned per allowed file."""


class FileStamp(NamedTuple):
    """Identity and size of a file at one scan; a file with equal stamps in two scans is stable."""

    size: int
    modified_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        """Return the stamp of a stat result."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)


class DirectoryListing(NamedTuple):
    """Result of one scan: stamps by name, and whether there are too many files."""

    files: dict[str, FileStamp]
    more: bool


def is_data(name: str, suffixes: tuple[str, ...] = SUFFIXES) -> bool:
    """Return whether a name is a data file's: not hidden, not temporary, of a known format."""
    return name.lower().endswith(suffixes) and not name.startswith(_IGNORED)


def scan(directory: Path, only: str | None, max_files: int, suffixes: tuple[str, ...] = SUFFIXES) -> DirectoryListing:
    """List the data files of a directory; blocks.

    Args:
        directory: the directory.
        only: the only name to list; None for all.
        max_files: the number of files listed, first by name; at most ten times as many entries are scanned.
        suffixes: ends of their names, in lower case.

    Raises:
        OSError: the directory cannot be read. A missing file is no error.
    """
    with os.scandir(directory) as entries:
        if only is not None:
            return DirectoryListing(_regular(directory, [only]), more=False)
        found = list(islice(entries, max_files * _ENTRIES_PER_FILE + 1))
    names = sorted(entry.name for entry in found if is_data(entry.name, suffixes))
    more = len(names) > max_files or len(found) > max_files * _ENTRIES_PER_FILE
    return DirectoryListing(_regular(directory, names[:max_files]), more)


def _regular(directory: Path, names: Sequence[str]) -> dict[str, FileStamp]:
    """Return the stamps of the names of regular files, or links to them."""
    files = {}
    for name in names:
        with contextlib.suppress(OSError):  # removed meanwhile, or a dangling link
            status = (directory / name).stat()
            if stat.S_ISREG(status.st_mode):
                files[name] = FileStamp.of(status)
    return files


def read(path: Path, stamp: FileStamp, max_bytes: int) -> bytes | None:
    """Read a whole file; None if it no longer has ``stamp``, being written. Blocking.

    Raises:
        DatasetTooLarge: the file has more than ``max_bytes``.
        InvalidDataset: the file is a link out of its directory.
        OSError: the file cannot be read.
    """
    if stamp.size > max_bytes:
        raise DatasetTooLarge(f"the file has more than {max_bytes} bytes")
    # Otherwise, anyone with write access here could read this process's files: errors quote the content.
    real = path.resolve()
    if not real.is_relative_to(path.parent.resolve()):
        raise InvalidDataset("it is a symbolic link out of the directory")
    # Non-blocking: the file may have become a pipe, which waits for a writer when opened.
    with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123  # a descriptor
        if FileStamp.of(os.fstat(file.fileno())) != stamp:
            return None
        body = file.read(stamp.size + 1)
        if len(body) != stamp.size or FileStamp.of(os.fstat(file.fileno())) != stamp:
            return None
    return body


RETRY_S: Final = 5.0
"""Longest wait for an unreadable directory: a retry costs next to nothing, so there is no back-off."""
CHANGING_S: Final = 60.0
CHANGING_SCANS: Final = 5
"""Number of consecutive scans, and their time, after which a changing file is reported: it may never become stable."""

Sleep = Callable[[float], Awaitable[None]]


class _DuplicateEndpoint(DataError):
    """Another file has the same endpoint."""

    code = "shadowed"
    retriable = True


@dataclass(slots=True)
class _File:
    """State of a file: its last stamp, the stamp that was ingested, and the last error."""

    stamp: FileStamp | None = None
    done: FileStamp | None = None
    digest: bytes = b""
    error: str | None = None
    fault: Fault = Fault.INVALID
    changing: int = 0
    """Consecutive scans with a changed stamp."""


class DirectorySource:
    """Scans ``config.path`` every ``config.every`` seconds and ingests each new or changed file.

    A file is ingested once two scans found the same stamp (size, modification time, inode, device), so a file being
    written waits, and one moved into place is ingested whole. An invalid file is reported and reread when it changes;
    others are not affected. Stored data stays when its file becomes invalid or vanishes. Blocking work runs in a
    thread.
    """

    def __init__(
        self,
        config: DirectoryConfig,
        clock: Clock,
        *,
        convert: Converter,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._convert = convert
        self.name = config.name
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._path = Path(config.path)
        self._sleep = sleep
        self._files: dict[str, _File] = {}
        self._more = False

    @property
    def claims(self) -> Sequence[Claim]:
        """The configured endpoint, or everything below the prefix."""
        return self._config.claims

    async def run(self, sink: Sink) -> None:
        """Scan until cancelled."""
        while True:
            wait_s = await self.scan(sink)
            self.health.scheduled(wait_s)
            await self._sleep(wait_s)

    async def try_once(self, sink: Sink) -> None:
        """Scan twice without a pause; a file that changes in between is reported as being written."""
        for _ in range(2):
            await self.scan(sink)
        writing = [name for name, file in self._files.items() if file.error is None and file.done != file.stamp]
        if writing and self.health.error is None:
            self.health.failed(f"{_display_name(writing[0])} is being written")

    async def scan(self, sink: Sink) -> float:
        """Scan once; return the seconds to wait before the next scan."""
        config = self._config
        try:
            listing = await asyncio.to_thread(scan, self._path, config.file, config.max_files, config.suffixes)
        except OSError as error:
            self.health.failed(_directory_error(self._path, error), fault=Fault.UNREACHABLE)
            return min(config.every, RETRY_S)
        names = list(listing.files)
        if config.mapping is not None:
            # Several files may have the same endpoints: the last one written decides.
            names.sort(key=lambda name: listing.files[name].modified_ns)
        self._files = {name: self._files.get(name, _File()) for name in names}
        firsts: dict[str, str] = {}
        faults = 0
        for name, file in self._files.items():
            endpoint = self._endpoint(name)
            first = firsts.setdefault(endpoint, name)
            if first != name:
                # If this file was ingested before: the endpoint has the other file's data now.
                file.done, file.digest = None, b""
            stable, file.stamp = file.stamp == listing.files[name], listing.files[name]
            file.changing = 0 if stable else file.changing + 1
            if not stable:
                faults += self._check_still_changing(file)
            elif file.done != file.stamp:
                faults += await self._ingest(name, file, endpoint, first, sink)
        self._report_health(faults, more=listing.more)
        return config.every

    def _endpoint(self, name: str) -> str:
        """Return the endpoint of a file; with a mapping, each file has its own."""
        if self._config.mapping is not None:
            return name
        return self._config.endpoint or f"{self._config.prefix}/{_segment(Path(name).stem)}"

    def _check_still_changing(self, file: _File) -> bool:
        """Report a file that has been changing for too long; return whether this is a new fault."""
        too_long = file.changing == max(CHANGING_SCANS, math.ceil(CHANGING_S / self._config.every))
        if too_long:
            file.done = None
            file.fault = Fault.UNREACHABLE
            file.error = (
                "it changes between any two polls, so it is never read: write it less often, or poll more often"
            )
        return too_long

    async def _ingest(self, name: str, file: _File, endpoint: str, first: str, sink: Sink) -> bool:
        """Ingest a stable file; return whether there is a new fault."""
        before, file.error = file.error, None
        stamp = file.stamp
        try:
            if first != name:
                raise _DuplicateEndpoint(f"{_display_name(first)} is {endpoint} already")
            if await self._store(name, file, endpoint, sink):
                file.done = stamp
        except OSError as error:
            file.error, file.fault = error.strerror or type(error).__name__, Fault.UNREACHABLE
        except DiemError as error:
            file.error, file.fault = str(error), fault_of(error)
            # The same bytes would fail again; only errors independent of them are retried.
            if not error.retriable:
                file.done = stamp
        return file.error is not None and file.error != before

    async def _store(self, name: str, file: _File, endpoint: str, sink: Sink) -> bool:
        """Read, parse and store a file; return False if it is being written."""
        if file.stamp is None:
            return False
        body = await asyncio.to_thread(read, self._path / name, file.stamp, self._config.max_bytes)
        if body is None:
            return False
        digest = blake2b(body, digest_size=16).digest()
        if digest != file.digest:
            for found in batched(await self._parse(name, endpoint, body)):
                await sink(found, source=self.name)
            file.digest = digest
        self.health.last_success_ms = self._clock.wall_ms()
        return True

    async def _parse(self, name: str, endpoint: str, body: bytes) -> Sequence[Representation]:
        config = self._config
        if config.mapping is not None:
            return await self._convert(InputFile(name, body), config.mapping, config.target)
        endpoints.check_written(endpoint)
        declared = config.declared(endpoint)
        if name.lower().endswith(".parquet"):
            unit = None if declared.of(endpoint).unit else "unit"
            return await self._convert(
                InputFile(name, body), Mapping(format="parquet", unit=unit), FileTarget(declared)
            )
        return await asyncio.to_thread(lambda: series.read_table(series.parse_csv(body), declared))

    def _report_health(self, faults: int, *, more: bool) -> None:
        wrong = [f"{_display_name(name)}: {file.error}" for name, file in self._files.items() if file.error is not None]
        faults += more and not self._more
        self._more = more
        if more:
            wrong.append(f"more than {self._config.max_files} files: the others are ignored")
        if not wrong:
            self.health.succeeded()
            return
        faults_now = [file.fault for file in self._files.values() if file.error is not None]
        others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        fault = next(iter(faults_now), Fault.INVALID)
        self.health.failed(wrong[0] + others, times=faults, fault=fault, errors=wrong)


def _segment(stem: str) -> str:
    """Return the segment of an endpoint for a file; the stem itself if it can be one, or if nothing can."""
    if endpoints.is_valid(f"/{stem}"):
        return stem
    try:
        return segment(stem)
    except InvalidDataset:
        return stem


def _directory_error(path: Path, error: OSError) -> str:
    reason = "no such directory" if isinstance(error, FileNotFoundError) else error.strerror or type(error).__name__
    return f"{reason[:1].lower()}{reason[1:]}: {_display_name(str(path), MAX_PATH)}"


def _display_name(name: str, longest: int = 80) -> str:
    return name.encode(errors="replace").decode()[:longest]
