"""What processes say in their logs while `diem up` runs: a little of it goes to the terminal, the last is kept."""

from collections.abc import Iterable
from typing import Final

from deploy.childlog import ChildLog
from deploy.statedir import StateDir
from deploy.terminal import Terminal
from diem.process.clock import Clock
from diem.process.limits import TokenBucket

LINES_PER_S: Final = 0.2
LINES_BURST: Final = 5.0
"""Of one process."""


class Voices:
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
