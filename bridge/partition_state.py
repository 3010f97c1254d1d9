"""State of the partitions that a bridge reads: position, completeness, watermark, lag, stall, commit. Sole owner.

Pure: a session passes in records and measurements, and acts on the results. Times are monotonic seconds.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from diem.errors import DiemError
from diem.protocol.watermark import FIRST_INCARNATION, LogProof, incarnation_of, offset_of, position_of

ANSWERED_WITHIN_S: Final = 3.0
"""Maximum age of every broker's last answer for a heartbeat to be sent."""
WATERMARK_WITHIN_S: Final = 6.0
"""Maximum age of every partition's last watermark for a heartbeat to be sent."""
SLOW_AFTER_S: Final = 1.5
"""Silence of a broker, which normally answers every half second, after which the leaders are refreshed."""
STALLED_AFTER_S: Final = 30.0
"""Time without progress despite unread records, after which a consumer is replaced."""


class LogChanged(DiemError):
    """A log has lost records and grown since: reread it from its beginning."""

    retriable = True


class LogShortened(DiemError):
    """A served log ends before what was read of it: its topic needs a new epoch."""

    retriable = True


class ReaderOutdated(DiemError):
    """The reader may have endpoints whose deletion is no longer in a log: it must start over."""

    retriable = True


@dataclass(slots=True)
class PartitionState:
    """One partition, from its assignment until it is lost or the reader is gone."""

    position: int = 0
    """Next offset to read: everything before it has been written to the link."""
    incarnation: int | None = None
    """Incarnation of the log that the reader has in full up to :attr:`position`; None: maybe not, so no heartbeat."""
    last_incarnation: int | None = None
    """Incarnation in the latest watermark. Inherited by the next reader."""
    caught_up: bool = False
    """The reader has been sent ``caught_up``."""
    watermark_at: float | None = None
    """Time of the publisher's last watermark, or of the start of reading. Inherited by the next reader."""
    committed: int | None = None
    """Offset committed last by this bridge. Inherited by the next reader."""
    is_open: bool = False
    """The bounds of the log are known, and the consumer reads it; the fields below are valid only then."""
    read_from: int = 0
    """Where the consumer started."""
    confirmed: bool = False
    """The consumer has read a valid watermark written after its start."""
    at_end: int = 0
    """The position when the reader last had all that its broker had."""
    known_until: int | None = None
    """Before this offset the reader knows every deletion; None: it is being sent its first records of this log."""
    target: int = 0
    """End of the log when reading began, at which the reader has caught up."""
    end: int = 0
    """End of the log as last reported by its broker."""
    expected_offset: int = 0
    """End of the log at the last tick, which a live reader has reached by now."""
    answered_at: float = 0.0
    """When the broker last answered a fetch."""
    last_progress: float = 0.0
    """When the position last moved, or there was nothing to read."""
    poll_timestamp: int | None = None
    """The broker's timestamp of its last answer: only compared, because its clock may be wrong."""
    served: bool = False
    """The log is of a served topic: it has no watermarks, and its epoch says whether it is the same log."""

    def open(self, begin: int, end: int, now: float) -> None:
        """Start reading a log with these bounds: from the position if the log still has every record after it.

        Otherwise from the beginning: the log was truncated past the position, or ends before it and may hold other
        records than the reader has applied, or the reader may lack records anyway.

        Raises:
            LogShortened: a served log ends before the position.
        """
        if self.served:
            if self.position > end:
                raise LogShortened(f"a log ends at {end}, and was read up to {self.position}")
            self.known_until, self.incarnation = self.position or None, FIRST_INCARNATION if self.position else None
        if not self.known_until and self.position:
            # Whatever it was sent of this log is sent again.
            self.incarnation, self.known_until = None, 0
        elif self.known_until is not None:
            self.position = self.known_until
        if self.incarnation is None or not begin <= self.position <= end:
            if self.known_until is not None and (self.incarnation is None or self.position > end):
                self.known_until = 0
            self.position, self.incarnation = begin, None
        self.read_from, self.confirmed, self.at_end = self.position, self.served, 0
        self.target = self.end = self.expected_offset = end
        self.answered_at = self.last_progress = now
        self.poll_timestamp = None
        self.is_open = True
        if self.watermark_at is None:
            self.watermark_at = now

    def close(self) -> None:
        """Stop reading: the bounds of the log are unknown."""
        self.is_open = False
        self.watermark_at = None

    def advance(self, position: int, now: float) -> None:
        """Move the position: everything before it was written to the link."""
        self.position, self.last_progress = position, now
        # The broker reports the new end slightly later than the records before it.
        self.end = max(self.end, position)

    def apply_watermark(self, offset: int, proof: LogProof | None, now: float) -> None:
        """Record a watermark at ``offset``, unless it proves nothing about the reader's state.

        A watermark older than the start of reading only vouches for that earlier time: a restored broker has old ones
        at its end.

        ``proof`` is None from publishers of earlier releases: such a log is trusted if read from offset 0.

        Raises:
            LogChanged: records already read may have been replaced.
            ReaderOutdated: deletions that the reader may not know are no longer in the log.
        """
        if proof is None:
            if self.incarnation is None and self.read_from > 0:
                return
        elif offset < proof.min_offset:
            return
        elif proof.incarnation != self.incarnation:
            if not self._is_complete(offset, proof):
                return
            self.incarnation = self.last_incarnation = proof.incarnation
        if proof is not None and self.known_until is not None and proof.forgotten > self.known_until:
            raise ReaderOutdated("a log has forgotten endpoints whose deletions its reader may not know")
        if offset >= self.target:
            self.watermark_at, self.confirmed = now, True
            self.known_until = max(self.known_until or 0, self.at_end) or self.known_until

    @property
    def resumable(self) -> int:
        """The position at which the reader may resume, whatever the log forgets meanwhile.

        It follows the watermarks, as only they show that no deletion was missed.
        """
        return position_of(self.known_until, self.incarnation) if self.known_until else 0

    def _is_complete(self, offset: int, proof: LogProof) -> bool:
        """Return whether a consumer that began at :attr:`read_from` has read everything in ``proof``."""
        known = FIRST_INCARNATION if self.last_incarnation is None else self.last_incarnation
        if proof.incarnation == known:
            return proof.complete_from >= self.read_from
        if self.last_incarnation is not None and self.incarnation is None and offset < self.target:
            # History, in a log that is reread for the records at its end.
            return False
        self.incarnation, self.last_incarnation = None, proof.incarnation
        raise LogChanged("a log has lost records, and has grown again since")

    def observe(self, poll_timestamp: int | None, end: int | None, now: float) -> None:
        """Record the broker's last answer: its timestamp, different in each answer, and the end of the log."""
        if poll_timestamp is not None and poll_timestamp != self.poll_timestamp and end is not None:
            self.poll_timestamp, self.answered_at, self.end = poll_timestamp, now, end
            if self.position >= end:
                # What is deleted and forgotten from now on has its deletion before its tombstone.
                self.at_end = self.position
        if self.position >= self.end:
            self.last_progress = now


class PartitionTable:
    """The partitions read for one reader, by stream name.

    Args:
        names: the first assignment.
        positions: the reader's resume positions; later assignments start at the beginning of their logs.
        previous: the previous reader's table, from which partitions still read inherit watermarks and commits.
        served: the source of the positions, if the partitions are of a served topic.
    """

    def __init__(
        self,
        names: Iterable[str] = (),
        positions: Mapping[str, int] | None = None,
        previous: "PartitionTable | None" = None,
        *,
        served: str | None = None,
    ) -> None:
        self._source = served
        self.watched_since = 0.0
        """Start of the time in which stalls count: the consumer's start, or the end of the link's last pause."""
        self._states: dict[str, PartitionState] = {}
        for name in names:
            resumed = (positions or {}).get(name, 0)
            state = self._states[name] = PartitionState(
                offset_of(resumed), incarnation_of(resumed), served=served is not None
            )
            state.last_incarnation, state.known_until = state.incarnation, state.position if resumed else None
            if previous is not None and (inherited := previous.get(name)) is not None:
                state.watermark_at, state.committed = inherited.watermark_at, inherited.committed
                if inherited.last_incarnation not in {None, state.incarnation}:
                    state.incarnation, state.last_incarnation = None, inherited.last_incarnation

    def __getitem__(self, name: str) -> PartitionState:
        return self._states[name]

    def get(self, name: str) -> PartitionState | None:
        """Return the state of a partition, None if it is not assigned."""
        return self._states.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of the assignment."""
        return tuple(self._states)

    @property
    def positions(self) -> dict[str, int]:
        """The next offset of each open partition."""
        return {name: state.position for name, state in self._states.items() if state.is_open}

    @property
    def missing(self) -> set[str]:
        """Names not read yet: the bounds of their logs are unknown."""
        return {name for name, state in self._states.items() if not state.is_open}

    @property
    def lag(self) -> int:
        """Unread records in the logs, as far as known."""
        return sum(max(0, state.end - state.position) for state in self._open)

    @property
    def caught_up(self) -> bool:
        """True if the reader was sent ``caught_up`` for every partition."""
        return all(state.is_open and state.caught_up for state in self._states.values())

    @property
    def has_truncated_log(self) -> bool:
        """True if some log ends before its position: it has lost data, or was replaced."""
        return any(state.end < state.position for state in self._open)

    @property
    def _open(self) -> list[PartitionState]:
        return [state for state in self._states.values() if state.is_open]

    def reached_in(self, source: str | None) -> dict[str, int]:
        """Return the next offset of each partition, open or not, if they are of this source of a served topic."""
        return {name: state.position for name, state in self._states.items()} if self._source == source else {}

    # Changes

    def assign(self, names: Collection[str]) -> tuple[list[str], list[str]]:
        """Replace the assignment; return the names lost and gained. The state of a lost name is dropped."""
        lost, gained = sorted(self._states.keys() - set(names)), sorted(set(names) - self._states.keys())
        if lost or gained:
            self._states = {
                name: self._states.get(name) or PartitionState(served=self._source is not None) for name in names
            }
        return lost, gained

    def begin(self, bounds: Mapping[str, tuple[int, int]], now: float) -> None:
        """Start over with a new consumer: open the logs with known ``bounds`` at their positions, close the others."""
        self.watched_since = now
        for name, state in self._states.items():
            if name in bounds:
                state.open(*bounds[name], now)
            else:
                state.close()

    def add(self, bounds: Mapping[str, tuple[int, int]], now: float) -> None:
        """Open logs missing when the consumer started, or assigned later."""
        for name, (begin, end) in bounds.items():
            state = self._states[name]
            state.caught_up = False
            state.open(begin, end, now)

    def pop_caught_up(self) -> list[str]:
        """Return the names that reached their target since the last call."""
        names = [
            name
            for name, state in self._states.items()
            if not state.caught_up and state.is_open and state.position >= state.target
        ]
        for name in names:
            self._states[name].caught_up = True
        return names

    def tick(self) -> None:
        """Set the current ends of the logs as the goal of the next tick, a second later."""
        for state in self._open:
            state.expected_offset = state.end

    # Liveness

    def is_live(self, now: float) -> bool:
        """Return whether a heartbeat may be sent: nothing missing or overdue, brokers answering, watermarks current."""
        if not all(state.confirmed for state in self._open):
            return False
        overdue = any(state.position < state.expected_offset for state in self._open)
        return self.caught_up and not overdue and not self.is_unanswered(now) and not self.is_watermark_late(now)

    def is_watermark_late(self, now: float) -> bool:
        """Return whether, for some partition, the publisher is gone or lags behind accepted data."""
        return any(not state.served and now - (state.watermark_at or 0.0) > WATERMARK_WITHIN_S for state in self._open)

    def is_unanswered(self, now: float) -> bool:
        """Return whether the broker of some partition is silent."""
        return any(now - state.answered_at > ANSWERED_WITHIN_S for state in self._open)

    def is_slow(self, now: float) -> bool:
        """Return whether the broker of some partition answers too slowly."""
        return any(now - state.answered_at > SLOW_AFTER_S for state in self._open)

    def stalled(self, now: float, leaderless: Collection[str] = ()) -> list[str]:
        """Return the names in need of a new consumer: records are waiting, or their leader does not answer."""
        return [
            name
            for name, state in self._states.items()
            if state.is_open
            and name not in leaderless
            and now - max(min(state.last_progress, state.answered_at), self.watched_since) >= STALLED_AFTER_S
        ]

    # Commits

    def uncommitted(self, topic: str | None = None) -> dict[str, int]:
        """Return the positions that differ from the committed ones; with ``topic``, of its partitions only."""
        prefix = "" if topic is None else f"{topic}/"
        return {
            name: state.position
            for name, state in self._states.items()
            if state.is_open and state.position != state.committed and name.startswith(prefix)
        }

    def set_committed(self, offsets: Mapping[str, int]) -> None:
        """Record a commit; names lost meanwhile are skipped."""
        for name, offset in offsets.items():
            if (state := self.get(name)) is not None:
                state.committed = offset
