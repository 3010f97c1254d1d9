"""One server that owns something wanted: the line to it, whether it is live, when to doubt it and to part from it."""

import asyncio
import math
import random
from collections.abc import Sequence

from diem.links.client.line import Line
from diem.links.client.timing import Timing


class Owner:
    """A server by its URL; the line to it is dialled at once. ``now`` is the time of the running loop."""

    def __init__(self, url: str, line: Line, timing: Timing, now: float) -> None:
        self.url = url
        self.line = line
        self.task = asyncio.create_task(line.run())
        self.named = True
        """It is about to be dialled because it was named."""
        self.live = False
        self.stale: frozenset[str] = frozenset()
        """Endpoints that the server itself says are not live."""
        self._timing = timing
        self._empty_at = math.inf
        self._doubt_at = math.inf
        self._doubt_later(now)

    @property
    def look_at(self) -> float:
        """When it is to be looked at."""
        return min(self._doubt_at, self._empty_at)

    def is_named(self, *, named: bool) -> None:
        """The metadata service was asked about this server: whether it answered, and named it."""
        self.line.cap = self._timing.named_cap if named else self._timing.cap
        if named and self.line.hurry():
            self.named = True

    def says(self, *, live: bool, part: Sequence[str] | None, now: float) -> None:
        """Take a status: without ``part`` it speaks for all, with it for these endpoints alone."""
        if part is not None:
            self.stale = self.stale - set(part) if live else self.stale | set(part)
            return
        if live:
            self._doubt_at = math.inf
        elif self.live:
            self._doubt_later(now)
        self.live, self.stale = live, frozenset()

    def is_doubted(self, now: float) -> bool:
        """Whether it has not been live for a while; once more after another while."""
        doubted = self._doubt_at <= now
        if doubted:
            self._doubt_later(now)
        return doubted

    def is_over(self, *, used: bool, now: float) -> bool:
        """Whether nothing has needed it for a while."""
        if used:
            self._empty_at = math.inf
        elif self._empty_at == math.inf:
            self._empty_at = now + self._timing.empty_after
        return self._empty_at <= now

    def _doubt_later(self, now: float) -> None:
        after = self._timing.doubt_after
        self._doubt_at = now + after + random.uniform(0, after)  # noqa: S311 - spreads clients, is no secret
