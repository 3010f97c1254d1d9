"""Log files of child processes: bound them, and pick the lines that a terminal shows."""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.system.state_dir import StateDir
from deploy.terminal import Terminal
from diem.process.clock import Clock
from diem.process.limits import TokenBucket

MAX_BYTES: Final = 10 * 1024 * 1024
MAX_POLL_BYTES: Final = 256 * 1024
MAX_LINE: Final = 300
IMPORTANT: Final = frozenset({"warning", "error", "critical"})


class ChildLog:
    """One log file that a child appends to, from its present end on.

    Above `max_bytes` it is copied to `NAME.log.1` and emptied: the child appends, so it goes on in the same file. What
    it writes between the two is lost. About twice `max_bytes` are on disk at most.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._offset = self._size()
        self._partial = b""
        self._last = ""

    @property
    def last(self) -> str:
        """The last important or plain line that was read: why the child died, when it has died."""
        return self._last

    def begin(self) -> None:
        """Another child writes from now on: what the last one said is not its reason."""
        self.poll()
        self._last = ""

    def poll(self) -> list[str]:
        """Return the important lines that are new, for the eye, from the last `MAX_POLL_BYTES` at most."""
        new = self._read()
        *lines, self._partial = (self._partial + new).split(b"\n")
        self._partial = self._partial[-MAX_POLL_BYTES:]
        important = []
        for line in lines:
            text, level = _for_the_eye(line, self._path.stem)
            if text and (level in IMPORTANT or level is None):
                self._last = text
            if text and level in IMPORTANT:
                important.append(text)
        if self._size() > self._max_bytes:
            self._rotate()
        return important

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _read(self) -> bytes:
        size = self._size()
        if size <= self._offset:
            self._offset = size
            return b""
        skipped = size - self._offset > MAX_POLL_BYTES
        if skipped:
            self._offset, self._partial = size - MAX_POLL_BYTES, b""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read(size - self._offset)
        self._offset += len(new)
        return new.partition(b"\n")[2] if skipped else new

    def _rotate(self) -> None:
        older = self._path.with_name(f"{self._path.name}.1")
        copy = older.with_name(f".{older.name}.new")
        with suppress(OSError):  # on a full disk the older lines are lost: the bound comes first
            shutil.copy(self._path, copy)
            copy.replace(older)
        with suppress(OSError):
            os.truncate(self._path, 0)
            self._offset = 0


def _for_the_eye(line: bytes, process: str) -> tuple[str, str | None]:
    """Return a log line as text and its level; a line that is not ours has none.

    The children of a composite write into its log, and are named.
    """
    text = line.decode("utf-8", "replace").strip()
    try:
        event = json.loads(text)
        level = str(event["level"])
    except (ValueError, KeyError, TypeError):
        return _cut(text.removeprefix("diem: ")), None
    hidden = {"event", "level", "timestamp", "process", "exception"}
    details = " ".join(f"{name}={value}" for name, value in event.items() if name not in hidden)
    cause = str(event.get("exception", "")).strip().rpartition("\n")[2]
    who = str(event.get("process", process))
    parts = (
        "" if who.partition("-")[0] == process.partition("-")[0] else f"{who}:",
        str(event.get("event", "")),
        details,
        cause,
    )
    return _cut(" ".join(part for part in parts if part)), level


def _cut(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable if len(printable) <= MAX_LINE else f"{printable[: MAX_LINE - 1]}…"


LINES_PER_S: Final = 0.2
LINES_BURST: Final = 5.0
"""Of one process."""


class ProcessLogs:
    """The logs of the processes of these names."""

    def __init__(self, names: Iterable[str], state: StateDir, terminal: Terminal, clock: Clock) -> None:
        self._logs = {name: ChildLog(state.log_of(name)) for name in names}
        self._buckets = {name: TokenBucket(LINES_PER_S, LINES_BURST) for name in self._logs}
        self._quiet_until = dict.fromkeys(self._logs, 0.0)
        self._terminal = terminal
        self._clock = clock

    def follow(self, *, aloud: bool) -> None:
        """Read what is new; `aloud`, say what is worth a line."""
        now = self._clock.monotonic()
        for name, log in self._logs.items():
            for line in log.poll():
                if aloud and now > self._quiet_until[name] and self._buckets[name].take(now):
                    self._terminal.warn(f"{name}: {line}")

    def hush(self, names: Iterable[str], seconds: float) -> None:
        """Say nothing of these for a while: they have just been started."""
        self._quiet_until |= dict.fromkeys(names, self._clock.monotonic() + seconds)

    def begin(self, name: str) -> None:
        """A new life of a process begins."""
        self._logs[name].begin()

    def last(self, name: str) -> str:
        """What a process has said last in this life; empty if nothing."""
        return self._logs[name].last

    def last_word(self, name: str) -> str:
        """The same of one that is dead, with what it wrote just before."""
        self._logs[name].poll()
        return self.last(name)
