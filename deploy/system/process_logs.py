"""Log files of child processes: bounded in size, and polled for lines to show on the terminal.

Separate from ``up``, which only decides when to poll and mute.
"""

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
MAX_LINE_CHARS: Final = 300
LINES_PER_S: Final = 0.2
LINES_BURST: Final = 5.0
"""Burst of lines of one process on the terminal."""
IMPORTANT: Final = frozenset({"warning", "error", "critical"})


class ChildLog:
    """One log file to which a child appends, read from its current end.

    Beyond ``max_bytes`` it is copied to ``NAME.log.1`` and truncated: the child, which appends, continues in the same
    file. Lines written between the two steps are lost. At most about twice ``max_bytes`` are on disk.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._offset = self._size()
        self._partial = b""
        self._last = ""

    @property
    def last(self) -> str:
        """The last important or unstructured line: for a dead child the reason of its death."""
        return self._last

    def reset(self) -> None:
        """Forget the last line, before a new child writes."""
        self.poll()
        self._last = ""

    def poll(self) -> list[str]:
        """Return new important lines as text, from at most the last ``MAX_POLL_BYTES``."""
        new = self._read()
        *lines, self._partial = (self._partial + new).split(b"\n")
        self._partial = self._partial[-MAX_POLL_BYTES:]
        important = []
        for line in lines:
            text, level = _as_text(line, self._path.stem)
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
        with suppress(OSError):  # on a full disk older lines are lost: the bound has priority
            shutil.copy(self._path, copy)
            copy.replace(older)
        with suppress(OSError):
            os.truncate(self._path, 0)
            self._offset = 0


def _as_text(line: bytes, process: str) -> tuple[str, str | None]:
    """Return a log line as text, and its level; None for a line without structure.

    Lines of a composite's children, in its log, begin with their names.
    """
    text = line.decode("utf-8", "replace").strip()
    try:
        event = json.loads(text)
        level = str(event["level"])
    except (ValueError, KeyError, TypeError):
        return _cut(text.removeprefix("diem: ")), None
    hidden = {"event", "level", "timestamp", "process", "exception"}
    details = " ".join(f"{field}={value}" for field, value in event.items() if field not in hidden)
    cause = str(event.get("exception", "")).strip().rpartition("\n")[2]
    name = str(event.get("process", process))
    parts = (
        "" if name.partition("-")[0] == process.partition("-")[0] else f"{name}:",
        str(event.get("event", "")),
        details,
        cause,
    )
    return _cut(" ".join(part for part in parts if part)), level


def _cut(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable if len(printable) <= MAX_LINE_CHARS else f"{printable[: MAX_LINE_CHARS - 1]}…"


class ProcessLogs:
    """Follow the logs of all processes and show important lines on the terminal, at a bounded rate per process."""

    def __init__(self, names: Iterable[str], state: StateDir, terminal: Terminal, clock: Clock) -> None:
        self._logs = {name: ChildLog(state.log_of(name)) for name in names}
        self._buckets = {name: TokenBucket(LINES_PER_S, LINES_BURST) for name in self._logs}
        self._muted_until_s = dict.fromkeys(self._logs, 0.0)
        self._terminal = terminal
        self._clock = clock

    def poll(self, *, show: bool) -> None:
        """Read new lines; with ``show``, print important ones of processes that are not muted."""
        now = self._clock.monotonic()
        for name, log in self._logs.items():
            for line in log.poll():
                if show and now > self._muted_until_s[name] and self._buckets[name].take(now):
                    self._terminal.warn(f"{name}: {line}")

    def mute(self, names: Iterable[str], seconds: float) -> None:
        """Suppress the lines of these processes for some time, for example after their start."""
        self._muted_until_s |= dict.fromkeys(names, self._clock.monotonic() + seconds)

    def reset(self, name: str) -> None:
        """Forget the last line of a process, before its restart."""
        self._logs[name].reset()

    def last(self, name: str) -> str:
        """Return the last important line of a process since its start, or an empty text."""
        return self._logs[name].last

    def last_error(self, name: str) -> str:
        """Return the last important line of a dead process, including lines not yet polled."""
        self._logs[name].poll()
        return self.last(name)
