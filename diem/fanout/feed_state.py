"""State of a feed's reader: the retained update of every endpoint and its position in every stream.

The rules are those of docs/protocol.md section 1 and docs/internals.md section 2. They were model-checked as a whole:
change them as a whole.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from diem.errors import DiemError
from diem.fanout.data_budget import DataBudget, Retained, bound_data, drop_data
from diem.protocol.feed import Batch, Resume
from diem.protocol.update import FORGOTTEN, GONE_TAIL, MAX_BYTES, without_data

SILENT_AFTER_S: Final = 10.0
"""Seconds without a heartbeat after which a feed counts as lost."""


class Liveness:
    """True while heartbeats arrive on a feed that has caught up.

    Heartbeats during a catch-up do not count, because retained versions may still be older than the source's.
    """

    def __init__(self, silent_after_s: float = SILENT_AFTER_S) -> None:
        self._silent_after_s = silent_after_s
        self._last: float | None = None
        self.live = False

    def heartbeat(self, now: float) -> None:
        """Record a heartbeat: everything sent before it was received. ``now`` is monotonic seconds."""
        self._last = now

    def check(self, now: float) -> bool:
        """Update :attr:`live` by the clock; return whether it has changed."""
        live = self._last is not None and now - self._last < self._silent_after_s
        if live == self.live:
            return False
        self.live = live
        return True

    def silence(self, now: float) -> float | None:
        """Return the seconds since the last heartbeat, None before the first."""
        return None if self._last is None else now - self._last


StreamOf = Callable[[bytes], str | None]
"""Returns the stream of the feed that carries an endpoint's updates; None if none does."""


class UnknownStream(DiemError):
    """A feed sent a stream that its ``hello`` did not announce."""


@dataclass(slots=True)
class _Log:
    """State of one stream of the feed."""

    position: int = 0
    seen: set[bytes] = field(default_factory=set)
    """Endpoints read since the beginning of the log; like the position, kept when the link is lost."""
    unconfirmed: set[bytes] = field(default_factory=set)
    """Endpoints of an earlier source that the current one has not sent yet; dropped at ``caught_up``."""
    catching_up: bool = True
    updated: dict[bytes, int] = field(default_factory=dict)
    """Endpoints whose retained version grew during the catch-up, with their latest version."""


class CatchUp(NamedTuple):
    """Changes to send to subscribers when the catch-up of a stream ends: it has caught up, or is lost."""

    updated: dict[bytes, bytes]
    """Endpoint -> retained value, to be sent to every subscriber."""
    dropped: list[bytes]
    """Endpoints gone from the source, or from this server: every subscriber is sent ``resync``."""


@dataclass(slots=True)
class FeedCounts:
    """Records received (invariant I14): consumed = fresh + stale + caught_up."""

    consumed: int = 0
    stale: int = 0


class FeedState:
    """Retained updates and positions. Applies only greater versions, so links may repeat updates.

    Memory is bounded by the source's number of endpoints, and by ``budget`` for the data in updates; None: updates
    without data are requested.
    """

    def __init__(self, budget: DataBudget | None = None) -> None:
        self.budget = budget
        self.source: str | None = None
        self.retained: dict[bytes, Retained] = {}
        self.suspect: set[bytes] = set()
        """Endpoints of which the feed had a record that is no update, and no newer update since: what is retained may
        be outdated. As many as the log has such records with different keys."""
        self.counts = FeedCounts()
        self._forgotten: set[bytes] = set()
        """Deleted endpoints to drop once every stream has caught up: one may still have older records of them."""
        self._logs: dict[str, _Log] = {}

    @property
    def caught_up(self) -> bool:
        """True if the source is known and every stream has caught up."""
        return self.source is not None and not any(log.catching_up for log in self._logs.values())

    def has_caught_up(self, name: str | None) -> bool:
        """Return whether one stream has caught up; None: all."""
        log = None if name is None else self._logs.get(name)
        return self.caught_up if log is None else not log.catching_up

    @property
    def positions(self) -> dict[str, int]:
        """The next position of every stream."""
        return {name: log.position for name, log in self._logs.items()}

    def resume(self) -> Resume:
        """Return the first message of a new link, and start a catch-up from the known positions."""
        for log in self._logs.values():
            log.catching_up = True
            if not log.position:
                # It is sent from its beginning, and what it has lost meanwhile is not repeated.
                log.unconfirmed |= log.seen
                log.seen = set()
        return Resume(self.source, self.positions, data=self.budget is not None)

    def hello(self, source: str, names: Sequence[str], stream_of: StreamOf | None = None) -> CatchUp:
        """Set the source and the full set of streams (``names``).

        Endpoints of a lost stream are kept if ``stream_of`` returns another stream for them, which may send older
        versions before it reaches the retained one.

        Returns:
            Endpoints dropped with lost streams; and updates that lost streams delivered during a catch-up for endpoints
            held by other streams, where records of the same versions will be stale.
        """
        if source != self.source:
            self.source = source
            # All of its records follow, including those that are no updates.
            self.suspect.clear()
            for log in self._logs.values():
                log.unconfirmed |= log.seen
                log.seen = set()
                log.position = 0
                log.catching_up = True
        for name in names:
            self._logs.setdefault(name, _Log())
        lost = [self._logs.pop(name) for name in list(self._logs) if name not in names]
        if stream_of is not None:
            for endpoint in {endpoint for log in lost for endpoint in log.seen}:
                if (heir := stream_of(endpoint)) is not None:
                    self._logs[heir].seen.add(endpoint)
        dropped = self._drop({endpoint for log in lost for endpoint in log.seen | log.unconfirmed})
        updated: dict[bytes, bytes] = {}
        for log in lost:
            updated |= self._current(log.updated)
        return CatchUp(updated, dropped)

    def apply(self, batch: Batch) -> dict[bytes, bytes]:
        """Apply a batch; return endpoint -> value of the updates to send now (none while catching up).

        Raises:
            UnknownStream: the batch's stream was not announced.
            FeedError: the batch is truncated. The records before are sent at the end of the catch-up that must follow:
                the position has not moved, but on repetition their versions are no longer fresh.
        """
        log = self._log(batch.name)
        retained, seen = self.retained, log.seen
        catching_up, updated = log.catching_up, log.updated
        fresh: dict[bytes, bytes] = {}
        consumed = stale = 0
        try:
            for _, endpoint, version, kind, value in batch.records:
                consumed += 1
                seen.add(endpoint)
                if kind == FORGOTTEN:
                    self._forgotten.add(endpoint)
                known = retained.get(endpoint)
                if known is not None and version <= known[0]:
                    stale += 1
                    continue
                if catching_up:
                    # Its predecessor in there is never sent, not even at the end of the catch-up.
                    stale += endpoint in updated
                    updated[endpoint] = version
                retained[endpoint] = (version, value)
                fresh[endpoint] = value
        except DiemError:
            updated.update((endpoint, retained[endpoint][0]) for endpoint in fresh)
            raise
        finally:
            if self.suspect:
                self.suspect.difference_update(fresh)
            # A cheap check: nothing to count if no update has data.
            if self.budget is not None and fresh and (self.budget or max(map(len, fresh.values())) > MAX_BYTES):
                bound_data(self.budget, retained, fresh, without_data)
        self.counts.consumed += consumed
        self.counts.stale += stale
        log.position = batch.next
        if not catching_up:
            self._drop_forgotten()
        return {} if catching_up else fresh

    def mark_suspect(self, endpoints: Collection[bytes]) -> None:
        """Drop the data of retained updates that an invalid record followed: it may be outdated.

        Until a later update arrives, new subscribers are sent ``resync`` after the retained version.
        """
        self.suspect.update(endpoints)
        drop_data(self.retained, endpoints, without_data)
        self._release(endpoints)

    def advance(self, name: str, next_: int) -> None:
        """Advance a stream of records other than updates, applied elsewhere, to ``next_``.

        Raises:
            UnknownStream: the stream was not announced.
        """
        self._log(name).position = next_

    def finish_catch_up(self, name: str) -> CatchUp:
        """End the catch-up of a stream.

        Raises:
            UnknownStream: the stream was not announced.
        """
        log = self._log(name)
        log.catching_up = False
        gone, log.unconfirmed = log.unconfirmed - log.seen, set()
        dropped = self._drop(gone)
        updated, log.updated = self._current(log.updated), {}
        self._drop_forgotten()
        return CatchUp(updated, dropped)

    def _current(self, updated: dict[bytes, int]) -> dict[bytes, bytes]:
        """Return the still retained part of ``updated``; the rest counts as stale.

        Each version is announced by the stream that delivered it. If another stream has superseded a version, that
        stream announces the newer one; announcing the older one afterwards would replace it in blocked sessions.
        """
        retained = self.retained
        latest = ((endpoint, version, retained.get(endpoint)) for endpoint, version in updated.items())
        current = {endpoint: held[1] for endpoint, version, held in latest if held is not None and held[0] == version}
        self.counts.stale += len(updated) - len(current)
        return current

    def _drop_forgotten(self) -> None:
        if not self._forgotten or not self.caught_up:
            return
        # Others were made again meanwhile.
        held = ((endpoint, self.retained.get(endpoint)) for endpoint in self._forgotten)
        gone = [endpoint for endpoint, known in held if known is not None and known[1].endswith(GONE_TAIL)]
        for endpoint in gone:
            del self.retained[endpoint]
        self._release(gone)
        for log in self._logs.values():
            log.seen.difference_update(gone)
        self._forgotten.clear()

    def _drop(self, endpoints: set[bytes]) -> list[bytes]:
        """Drop endpoints that no other stream holds; return them."""
        if not endpoints:
            return []
        for log in self._logs.values():
            endpoints = endpoints - log.seen - log.unconfirmed
        self._release(endpoints)
        return [endpoint for endpoint in endpoints if self.retained.pop(endpoint, None) is not None]

    def _release(self, endpoints: Iterable[bytes]) -> None:
        if self.budget is not None:
            for endpoint in endpoints:
                self.budget.release(endpoint)

    def _log(self, name: str) -> _Log:
        try:
            return self._logs[name]
        except KeyError:
            raise UnknownStream(f"the feed sent {name!r} without having announced it") from None
