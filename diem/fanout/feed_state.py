"""State of a feed's reader: the retained update of every endpoint and its position in every stream.

The rules are those of docs/protocol.md sections 1 and 2; they were model-checked together and belong together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from diem.errors import DiemError
from diem.protocol.feed import Batch, Resume

SILENT_AFTER_S: Final = 10.0
"""Without a heartbeat after which a feed counts as lost."""


class Liveness:
    """Live while heartbeats arrive on a feed that has caught up.

    Heartbeats during a catch-up do not count: what is retained then may be older than what the source holds.
    """

    def __init__(self, silent_after_s: float = SILENT_AFTER_S) -> None:
        self._silent_after_s = silent_after_s
        self._last: float | None = None
        self.live = False

    def heartbeat(self, now: float) -> None:
        """Note a heartbeat: everything sent before it was received; ``now`` in monotonic seconds."""
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


NameOf = Callable[[bytes], str | None]
"""Endpoint -> a name of the feed that brings its updates now; None if none does."""


class UnknownStream(DiemError):
    """A feed sent a name that its ``hello`` did not announce."""


class Retained(NamedTuple):
    """The latest update of an endpoint."""

    version: int
    value: bytes


@dataclass(slots=True)
class _Log:
    """State of one name of the feed."""

    position: int = 0
    seen: set[bytes] = field(default_factory=set)
    """Endpoints seen since the beginning of this log: kept with the position when a link is lost."""
    unconfirmed: set[bytes] = field(default_factory=set)
    """Endpoints of an earlier source that this one has not sent yet; dropped at ``caught_up``."""
    catching_up: bool = True
    updated: dict[bytes, bytes] = field(default_factory=dict)
    """Endpoints whose retained version grew during the catch-up, with their latest value."""


class CatchUp(NamedTuple):
    """Changes to send to subscribers when the catch-up of a name ends: it has caught up, or is lost."""

    updated: dict[bytes, bytes]
    """Endpoint -> retained value: every subscriber gets it."""
    dropped: list[bytes]
    """Endpoints that no longer exist at the source, or here: every subscriber gets a ``resync``."""


@dataclass(slots=True)
class FeedCounts:
    """Records received (invariant I14): consumed = fresh + stale + caught_up."""

    consumed: int = 0
    stale: int = 0


class FeedState:
    """Retained updates and positions: applies only greater versions, so every link may repeat.

    Bounded by the number of endpoints that the source has.
    """

    def __init__(self) -> None:
        self.source: str | None = None
        self.retained: dict[bytes, Retained] = {}
        self.counts = FeedCounts()
        self._logs: dict[str, _Log] = {}

    @property
    def caught_up(self) -> bool:
        """Whether the source is known and every name of it has caught up."""
        return self.source is not None and not any(log.catching_up for log in self._logs.values())

    @property
    def positions(self) -> dict[str, int]:
        """The next position of every name."""
        return {name: log.position for name, log in self._logs.items()}

    def resume(self) -> Resume:
        """Return the first message of a new link. Resuming at known positions is a catch-up, too."""
        for log in self._logs.values():
            log.catching_up = True
        return Resume(self.source, self.positions)

    def hello(self, source: str, names: Sequence[str], name_of: NameOf | None = None) -> CatchUp:
        """Set the source and the full set of names.

        Endpoints of a lost name are kept if ``name_of`` names another one that brings them now: that may send older
        versions before it gets as far.

        Returns:
            What was forgotten with names that were lost; and what these had brought during a catch-up, of endpoints
            that other names hold: there, the records of the same versions are stale.
        """
        if source != self.source:
            self.source = source
            for log in self._logs.values():
                log.unconfirmed |= log.seen
                log.seen = set()
                log.position = 0
                log.catching_up = True
        for name in names:
            self._logs.setdefault(name, _Log())
        lost = [self._logs.pop(name) for name in list(self._logs) if name not in names]
        if name_of is not None:
            for endpoint in {endpoint for log in lost for endpoint in log.seen}:
                if (heir := name_of(endpoint)) is not None:
                    self._logs[heir].seen.add(endpoint)
        dropped = self._drop({endpoint for log in lost for endpoint in log.seen | log.unconfirmed})
        updated: dict[bytes, bytes] = {}
        for log in lost:
            updated |= self._current(log.updated)
        return CatchUp(updated, dropped)

    def apply(self, batch: Batch) -> dict[bytes, bytes]:
        """Apply a batch; return endpoint -> value of what subscribers must be sent now (nothing while catching up).

        Raises:
            UnknownStream: the batch's name was not announced.
            FeedError: it is truncated. What was applied before is sent at the end of the catch-up that must follow:
                the position did not move, but those versions are no longer new.
        """
        log = self._log(batch.name)
        retained, seen = self.retained, log.seen
        catching_up = log.catching_up
        fresh: dict[bytes, bytes] = log.updated if catching_up else {}
        # What a named tuple's own constructor does, without its call: this loop runs for every update of the system.
        make = tuple.__new__
        consumed = stale = 0
        try:
            for _, endpoint, version, _, value in batch.records:
                consumed += 1
                seen.add(endpoint)
                known = retained.get(endpoint)
                if known is not None and version <= known[0]:
                    stale += 1
                    continue
                if catching_up and endpoint in fresh:
                    # The one before it is never sent, not at the end of the catch-up either.
                    stale += 1
                retained[endpoint] = make(Retained, (version, value))
                fresh[endpoint] = value
        except DiemError:
            log.updated |= fresh
            raise
        self.counts.consumed += consumed
        self.counts.stale += stale
        log.position = batch.next
        return {} if catching_up else fresh

    def advance(self, name: str, next_: int) -> None:
        """Advance a name whose records are no updates and were applied elsewhere, up to ``next_``.

        Raises:
            UnknownStream: the name was not announced.
        """
        self._log(name).position = next_

    def finish_catch_up(self, name: str) -> CatchUp:
        """End the catch-up of a name: it is live from now on.

        Raises:
            UnknownStream: the name was not announced.
        """
        log = self._log(name)
        log.catching_up = False
        gone, log.unconfirmed = log.unconfirmed - log.seen, set()
        dropped = self._drop(gone)
        updated, log.updated = self._current(log.updated), {}
        return CatchUp(updated, dropped)

    def _current(self, updated: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """Return what of ``updated`` is still retained; the rest counts as stale.

        A version is announced by the name that brought it. What another name has superseded that one has announced, or
        will: announced again here, after it, the older version would replace the newer one where frames are held back.
        """
        retained = self.retained
        current = {e: value for e, value in updated.items() if e in retained and retained[e].value == value}
        self.counts.stale += len(updated) - len(current)
        return current

    def _drop(self, endpoints: set[bytes]) -> list[bytes]:
        """Forget endpoints unless another name holds them."""
        if not endpoints:
            return []
        for log in self._logs.values():
            endpoints = endpoints - log.seen - log.unconfirmed
        return [endpoint for endpoint in endpoints if self.retained.pop(endpoint, None) is not None]

    def _log(self, name: str) -> _Log:
        try:
            return self._logs[name]
        except KeyError:
            raise UnknownStream(f"the feed sent {name!r} without having announced it") from None
