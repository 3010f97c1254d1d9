"""State of one link: the stream names announced to the reader and its position in each, across consumers."""

import time

import structlog

from bridge.link import BridgeLink
from bridge.positions import Positions
from bridge.state import BridgeState
from diem.protocol import feed


class StreamState:
    """Begins empty, with the positions of the reader's ``resume`` if they are of this ``source``."""

    def __init__(self, link: BridgeLink, source: str, resume: feed.Resume, shared: BridgeState) -> None:
        self.source = source
        self.names: tuple[str, ...] = ()
        """The names of updates that are read for the reader."""
        self.positions = Positions(marks=shared.marks)
        self._next = dict(resume.positions) if resume.source == source else {}
        self._caught_up: set[str] = set()
        self._link = link
        self._shared = shared

    @property
    def next(self) -> dict[str, int]:
        """Where a consumer begins or goes on; a name that is not in it begins at its log's beginning."""
        return self._next

    def first_names(self, names: tuple[str, ...]) -> None:
        """The reader's positions are for these names: any that comes later begins at its beginning."""
        self._next = {name: next_ for name, next_ in self._next.items() if name in names}
        self._hello(names)

    def rename(self, names: tuple[str, ...]) -> None:
        """The names are others now. Of one that is lost nothing is known any more, and nothing is said of it."""
        lost, gained = set(self.names) - set(names), set(names) - set(self.names)
        if not lost and not gained:
            return
        structlog.get_logger("bridge").info("other names are read", lost=sorted(lost), gained=sorted(gained))
        for name in lost:
            self._next.pop(name, None)
        self._caught_up -= lost
        self.positions.forget(lost)
        self.positions.missing |= gained
        self._hello(names)

    def begin(self, bounds: dict[str, tuple[int, int]]) -> None:
        """A consumer begins to read the logs whose ``bounds`` are known."""
        missing = set(self.names) - set(bounds)
        self.positions.begin(bounds, self._next, self._caught_up, time.monotonic(), missing)

    def moved(self, name: str, next_: int) -> None:
        """Everything before ``next_`` was written to the link."""
        self.positions.moved(name, next_, time.monotonic())
        self._next[name] = next_

    def caught_up(self) -> bool:
        """Tell which names have just caught up; whether the last one has."""
        names = self.positions.newly_caught_up()
        for name in names:
            self._caught_up.add(name)
            self._link.say(feed.CaughtUp(name))
        return bool(names) and self.positions.caught_up

    def _hello(self, names: tuple[str, ...]) -> None:
        self.names = names
        map_ = [] if self._shared.map_name is None else [self._shared.map_name]
        self._link.say(feed.Hello(self.source, (*names, *map_)))
