"""The directory source: takes files once they stand still, and keeps what it took."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from diem.errors import DiemError
from diem.process.clock import Clock
from diem.protocol import endpoints
from services.data import datasets
from services.data.datasets import Dataset
from services.data.errors import DataError
from services.data.sources.directory.files import Seen, look, read
from services.data.sources.directory.parquet import parse_parquet
from services.data.sources.source import Claim, Fault, Health, Sink, fault_of
from services.data.sources.tables import DirectoryConfig

BACKOFF_CAP_S: Final = 60.0
MOVING_S: Final = 60.0
MOVING_LOOKS: Final = 5
"""A file that was another one at so many looks in a row, and for so long, is told: it may never stand still."""

Sleep = Callable[[float], Awaitable[None]]


class _Shadowed(DataError):
    """Another file gives the same endpoint."""

    code = "shadowed"
    retriable = True


@dataclass(slots=True)
class _File:
    """What is known of a file: how the last look saw it, which state of it was dealt with, and what was wrong."""

    seen: Seen | None = None
    done: Seen | None = None
    digest: bytes = b""
    error: str | None = None
    fault: Fault = Fault.INVALID
    moving: int = 0
    """Looks in a row that saw another state than the one before."""


class DirectorySource:
    """Looks into ``config.path`` every ``config.every`` seconds and takes each file that is new or changed.

    A file is taken when two looks saw the same of it (size, time of change, inode), so one that is being written waits;
    one that was moved into place is taken whole. A file that is wrong is told and the others go on; it is read again
    when it changes. What was stored of a file stays when it is wrong or vanishes. Blocking work is done in a thread.
    """

    def __init__(
        self,
        config: DirectoryConfig,
        clock: Clock,
        *,
        sleep: Sleep = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.name = config.name
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._path = Path(config.path)
        self._sleep = sleep
        self._uniform = uniform
        self._files: dict[str, _File] = {}
        self._in_a_row = 0
        self._more = False

    @property
    def claims(self) -> Sequence[Claim]:
        """Its endpoint, or all below its prefix."""
        return self._config.claims

    async def run(self, sink: Sink) -> None:
        """Look until cancelled."""
        while True:
            await self._sleep(await self.look(sink))

    async def look(self, sink: Sink) -> float:
        """Look once; returns the seconds to wait before the next look."""
        config = self._config
        try:
            seen = await asyncio.to_thread(look, self._path, config.file, config.max_files)
        except OSError as error:
            self.health.failed(f"the directory cannot be read: {error.strerror}", fault=Fault.UNREACHABLE)
            self._in_a_row += 1
            most = min(BACKOFF_CAP_S, config.every * 2 ** min(self._in_a_row, 16))
            return self._uniform(config.every, max(most, config.every))
        self._in_a_row = 0
        self._files = {name: self._files.get(name, _File()) for name in seen.files}
        firsts: dict[str, str] = {}
        faults = 0
        for name, file in self._files.items():
            endpoint = self._endpoint(name)
            first = firsts.setdefault(endpoint, name)
            if first != name:
                # Whatever was taken of it, the endpoint has the other one's data now.
                file.done, file.digest = None, b""
            stands_still, file.seen = file.seen == seen.files[name], seen.files[name]
            file.moving = 0 if stands_still else file.moving + 1
            if not stands_still:
                faults += self._wait_for(file)
            elif file.done != file.seen:
                faults += await self._take(name, file, endpoint, first, sink)
        self._tell(faults, more=seen.more)
        return config.every

    def _endpoint(self, name: str) -> str:
        return self._config.endpoint or f"{self._config.prefix}/{Path(name).stem}"

    def _wait_for(self, file: _File) -> bool:
        """Let a file be written; returns whether that has become a fault now."""
        too_long = file.moving == max(MOVING_LOOKS, math.ceil(MOVING_S / self._config.every))
        if too_long:
            file.done = None
            file.fault = Fault.UNREACHABLE
            file.error = (
                "it changes between any two looks, so it is never taken: write it less often, or look more often"
            )
        return too_long

    async def _take(self, name: str, file: _File, endpoint: str, first: str, sink: Sink) -> bool:
        """Take a file as it is now; returns whether there is a fault that was not there before."""
        before, file.error = file.error, None
        seen = file.seen
        try:
            if first != name:
                raise _Shadowed(f"{_shown(first)} is {endpoint} already")
            if await self._store(name, file, endpoint, sink):
                file.done = seen
        except OSError as error:
            file.error, file.fault = error.strerror or type(error).__name__, Fault.UNREACHABLE
        except DiemError as error:
            file.error, file.fault = str(error), fault_of(error)
            # The same bytes will be as wrong the next time; only what does not depend on them is tried again.
            if not error.retriable:
                file.done = seen
        return file.error is not None and file.error != before

    async def _store(self, name: str, file: _File, endpoint: str, sink: Sink) -> bool:
        """Read, check and store a file; false when it is being written."""
        if file.seen is None:
            return False
        body = await asyncio.to_thread(read, self._path / name, file.seen, self._config.max_bytes)
        if body is None:
            return False
        digest = blake2b(body, digest_size=16).digest()
        if digest != file.digest:
            await sink([await asyncio.to_thread(self._parse, name, endpoint, body)], source=self.name)
            file.digest = digest
        self.health.last_success_ms = self._clock.wall_ms()
        return True

    def _parse(self, name: str, endpoint: str, body: bytes) -> Dataset:
        endpoints.check(endpoint)
        table = parse_parquet(body) if name.lower().endswith(".parquet") else datasets.parse_csv(body)
        (dataset,) = datasets.read_table(table, self._config.declared(endpoint))
        return dataset

    def _tell(self, faults: int, *, more: bool) -> None:
        wrong = [f"{_shown(name)}: {file.error}" for name, file in self._files.items() if file.error is not None]
        faults += more and not self._more
        self._more = more
        if more:
            wrong.append(f"more than {self._config.max_files} files: the others are passed over")
        if not wrong:
            self.health.succeeded()
            return
        faults_now = [file.fault for file in self._files.values() if file.error is not None]
        others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        self.health.failed(wrong[0] + others, times=faults, fault=next(iter(faults_now), Fault.INVALID))


def _shown(name: str) -> str:
    return name.encode(errors="replace").decode()[:80]
