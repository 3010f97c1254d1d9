"""Open connections by address, of all processes that share one public port (docs/adr/0043).

Each process counts in a table of its own, in one file that all of them map, and adds up everybody's: a count has one
writer, so none needs a lock. A lock that the kernel releases with its process marks the tables of the living.
"""

import fcntl
import mmap
import os
import struct
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

from diem.errors import ConfigurationError

MAX_PROCESSES: Final = 64
ROWS: Final = 4
CELLS: Final = 1 << 16
"""Counters of each row of a table. An address has one in each row, and its count is the lowest one."""
_TABLE_BYTES: Final = ROWS * CELLS * 4
_HEAD_BYTES: Final = mmap.PAGESIZE
"""The seed, then a byte for each table: whether it was ever used."""
_SEED_BYTES: Final = 16
_HASH: Final = struct.Struct(f"={ROWS}I")


class SharedCounts:
    """The table of one process among those of ``file``, created by the first one.

    Counts are never too low. Where other addresses have the same counters in all rows, they are too high by those of
    the others: of 10,000 connected addresses, four are. Processes that admit clients of one address in the same instant
    may exceed a limit by one connection each.

    Args:
        file: the same for all that share a port.
        number: of this process among them, from 1; no other living one may have it.

    Raises:
        ConfigurationError: another process has the number, or the number is beyond 64.
    """

    def __init__(self, file: Path, number: int) -> None:
        if not 1 <= number <= MAX_PROCESSES:
            raise ConfigurationError(f"at most {MAX_PROCESSES} processes can share a port: there is no number {number}")
        self._file = file
        self._own = number - 1
        lock = self._lock(self._own)
        if lock is None:
            raise ConfigurationError(f"another process with the number {number} shares the port")
        self._held = lock
        """Locked for as long as the process lives."""
        self._map = _mapped(file)
        self._seed = self._map[:_SEED_BYTES]
        cells = memoryview(self._map)[_HEAD_BYTES:].cast("I")
        self._tables = [cells[start : start + ROWS * CELLS] for start in range(0, len(cells), ROWS * CELLS)]
        self._clear(self._own)
        self._map[_SEED_BYTES + self._own] = 1

    def close(self) -> None:
        """Free the number; the connections counted with it are forgotten."""
        self._held.close()

    def add(self, key: str, number: int) -> None:
        """Add to the count of an address, or subtract with a negative number."""
        for cell in self._cells(key):
            self._tables[self._own][cell] += number

    def exceeds(self, key: str, limit: int, own: int) -> bool:
        """Return whether an address with ``own`` connections here has ``limit`` or more in all processes."""
        cells = self._cells(key)
        others = {
            number: there
            for number, table in enumerate(self._tables)
            if self._map[_SEED_BYTES + number] and number != self._own and (there := min(table[cell] for cell in cells))
        }
        if own + sum(others.values()) < limit:
            return False
        # Only now it matters which of them are alive.
        for number in [*others]:
            if (lock := self._lock(number)) is not None:
                with lock:
                    self._clear(number)
                del others[number]
        return own + sum(others.values()) >= limit

    def _cells(self, key: str) -> list[int]:
        found = _HASH.unpack(blake2b(key.encode(), digest_size=_HASH.size, key=self._seed).digest())
        return [row * CELLS + number % CELLS for row, number in enumerate(found)]

    def _lock(self, number: int) -> BinaryIO | None:
        """Return the locked file of a table's process; None if a living one has the lock."""
        lock = Path(f"{self._file}.{number + 1}").open("ab")  # noqa: SIM115 - open for as long as it is locked
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return None
        return lock

    def _clear(self, number: int) -> None:
        if self._map[_SEED_BYTES + number]:
            start = _HEAD_BYTES + number * _TABLE_BYTES
            self._map[start : start + _TABLE_BYTES] = bytes(_TABLE_BYTES)
            self._map[_SEED_BYTES + number] = 0


def _mapped(file: Path) -> mmap.mmap:
    """Return the file of all tables, in memory; the first process creates it, with holes for unused ones."""
    with file.open("a+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        if not opened.seek(0, os.SEEK_END):
            opened.write(os.urandom(_SEED_BYTES))
            opened.flush()
            opened.truncate(_HEAD_BYTES + MAX_PROCESSES * _TABLE_BYTES)
        # The map keeps the file open, and with it the lock.
        fcntl.flock(opened, fcntl.LOCK_UN)
        return mmap.mmap(opened.fileno(), 0)
