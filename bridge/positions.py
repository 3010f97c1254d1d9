"""Position of a bridge in each partition: caught up, alive, lagging or stalled. Times are monotonic."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

ANSWERED_WITHIN: Final = 3.0
"""Seconds: a beat says that the broker of every partition has answered a fetch so recently."""
MARKED_WITHIN: Final = 6.0
"""Seconds: nor is a beat sent when the publisher has not said for so long that everything accepted is in the log."""
SLOW_AFTER: Final = 1.5
"""Seconds without an answer, though one is due every half second, after which it is asked who leads now."""
STALLED_AFTER: Final = 30.0
"""Seconds without progress, though there is something to read, after which a consumer is replaced."""


def start(position: int | None, begin: int, end: int) -> int:
    """Where to begin in a log that holds the offsets from ``begin`` up to ``end``.

    ``position`` is the reader's, None if it has none in this log. One beyond the end proves that the log has lost
    data, so that what it holds below may be other records than those that the reader has seen.
    """
    if position is None or position > end:
        return begin
    return max(position, begin)


@dataclass(slots=True)
class PartitionPosition:
    """One partition."""

    position: int
    """The next offset to be read: everything before it has been written to the link."""
    target: int
    """The end of the log when reading began: there, the reader has caught up."""
    end: int
    """The end of the log as last heard."""
    answered: float
    """When its broker last answered."""
    at_ease: float
    """When it last went on, or had nothing to read."""
    due: int = 0
    """The end of the log at the last look: by now that must have been read."""
    stamp: int | None = None
    caught_up: bool = False


@dataclass(slots=True)
class Positions:
    """All partitions of one consumer, by name."""

    tracks: dict[str, PartitionPosition] = field(default_factory=dict)
    marks: dict[str, float] = field(default_factory=dict)
    """When the publisher's last mark in each name was read, or reading began: it has 6 s for the first."""
    missing: set[str] = field(default_factory=set)
    """Names that are not read, because nobody says where their logs end: no broker leads them."""
    watched_since: float = 0.0
    """Time in which the link was paused is nobody's fault: the watchdog looks only at what is after this."""

    @property
    def next(self) -> dict[str, int]:
        """The next offset of each name."""
        return {name: track.position for name, track in self.tracks.items()}

    @property
    def lag(self) -> int:
        """Records that are known to be there and were not read yet."""
        return sum(max(0, track.end - track.position) for track in self.tracks.values())

    @property
    def caught_up(self) -> bool:
        """Whether every partition has caught up."""
        return not self.missing and all(track.caught_up for track in self.tracks.values())

    @property
    def went_back(self) -> list[str]:
        """Names whose log ends before what was read of it: it lost data, or is another one."""
        return [name for name, track in self.tracks.items() if track.end < track.position]

    def begin(
        self,
        bounds: Mapping[str, tuple[int, int]],
        positions: Mapping[str, int],
        caught_up: Iterable[str],
        now: float,
        missing: Iterable[str] = (),
    ) -> None:
        """Start in logs of the given begin and end; ``caught_up`` names need not be told so again."""
        told = set(caught_up)
        self.missing = set(missing)
        # In place, because it outlives this: what is known of a name holds for the next reader too, and no other name.
        for name in set(self.marks) - set(bounds):
            del self.marks[name]
        for name in bounds:
            self.marks.setdefault(name, now)
        self.watched_since = now
        self.tracks = {
            name: PartitionPosition(
                start(positions.get(name), first, end), end, end, now, now, end, caught_up=name in told
            )
            for name, (first, end) in bounds.items()
        }

    def add(self, bounds: Mapping[str, tuple[int, int]], positions: Mapping[str, int], now: float) -> None:
        """More logs are read."""
        for name, (first, end) in bounds.items():
            self.tracks[name] = PartitionPosition(start(positions.get(name), first, end), end, end, now, now, end)
            self.marks.setdefault(name, now)
        self.missing -= set(bounds)

    def forget(self, names: Iterable[str]) -> None:
        """These are no longer read here: if they are again one day, nothing is known of them."""
        for name in names:
            self.tracks.pop(name, None)
            self.marks.pop(name, None)
            self.missing.discard(name)

    def newly_caught_up(self) -> list[str]:
        """Names that have just reached the end that the log had in the beginning: each once."""
        names = [name for name, track in self.tracks.items() if not track.caught_up and track.position >= track.target]
        for name in names:
            self.tracks[name].caught_up = True
        return names

    def moved(self, name: str, next_: int, now: float) -> None:
        """Everything before ``next_`` was written to the link."""
        track = self.tracks[name]
        track.position, track.at_ease = next_, now
        # The end is heard a little later than the records before it.
        track.end = max(track.end, next_)

    def marked(self, name: str, now: float) -> None:
        """The publisher had everything in the log."""
        self.marks[name] = now

    def unmarked(self, now: float) -> bool:
        """Whether the publisher has not written to some partition for long, or lags behind what was accepted."""
        return any(now - marked > MARKED_WITHIN for marked in self.marks.values())

    def heard(self, name: str, stamp: int | None, end: int | None, now: float) -> None:
        """What the client knows of the partition: a ``stamp`` that changes with each answer, and the log's end."""
        track = self.tracks[name]
        if stamp is not None and stamp != track.stamp and end is not None:
            track.stamp, track.answered, track.end = stamp, now, end
        if track.position >= track.end:
            track.at_ease = now

    def unanswered(self, now: float) -> bool:
        """Whether the broker of some partition has been silent."""
        return any(now - track.answered > ANSWERED_WITHIN for track in self.tracks.values())

    def slow(self, now: float) -> bool:
        """Whether some broker takes longer than it should."""
        return any(now - track.answered > SLOW_AFTER for track in self.tracks.values())

    def alive(self, now: float) -> bool:
        """Whether a beat may be sent: caught up, answered, not behind, and the publisher is not either."""
        behind = any(track.position < track.due for track in self.tracks.values())
        return self.caught_up and not behind and not self.unanswered(now) and not self.unmarked(now)

    def look(self) -> None:
        """A second is over: what is there now is due at the next look."""
        for track in self.tracks.values():
            track.due = track.end

    def stalled(self, now: float, leaderless: Collection[str] = ()) -> list[str]:
        """Names that need another consumer: something is there and not read, or nobody answers though one should."""
        return [
            name
            for name, track in self.tracks.items()
            if name not in leaderless
            and (
                now - max(track.at_ease, self.watched_since) >= STALLED_AFTER
                or now - max(track.answered, self.watched_since) >= STALLED_AFTER
            )
        ]
