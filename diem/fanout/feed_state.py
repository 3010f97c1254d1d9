"""State of a feed's reader: the retained update of every endpoint and its position in every stream.

The rules are those of docs/protocol.md sections 1 and 2; they were model-checked together and belong together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from diem.errors import DiemError
from diem.protocol.feed import Batch, Resume

SILENT_AFTER: Final = 10.0
"""Seconds without a beat after which a feed counts as lost."""


class Liveness:
    """Live while beats arrive on a feed that has caught up.

    Beats during a catch-up do not count: what is retained then may be older than what the source holds.
    """

    def __init__(self, silent_after: float = SILENT_AFTER) -> None:
        self._silent_after = silent_after
        self._last: float | None = None
        self.live = False

    def beat(self, now: float) -> None:
        """The source is alive and everything before was received; ``now`` in monotonic seconds."""
        self._last = now

    def changed(self, now: float) -> bool:
        """Look at the clock; True when :attr:`live` is not what it was at the last look."""
        live = self._last is not None and now - self._last < self._silent_after
        if live == self.live:
            return False
        self.live = live
        return True

    def silence(self, now: float) -> float | None:
        """Seconds since the last beat, None before the first."""
        return None if self._last is None else now - self._last


NameOf = Callable[[bytes], str | None]
"""Endpoint -> a name of the feed that brings its updates now; None if none does."""


class UnknownStream(DiemError):
    """A feed spoke of a name that its ``hello`` did not announce."""


class Retained(NamedTuple):
    """The latest update of an endpoint."""

    version: int
    value: bytes


@dataclass(slots=True)
class _Log:
    """What is known of one name of the feed."""

    position: int = 0
    seen: set[bytes] = field(default_factory=set)
    """Endpoints seen since the beginning of this log: kept with the position, over lost links."""
    before: set[bytes] = field(default_factory=set)
    """Endpoints of an earlier source that this one has not shown yet; dropped at ``caught_up``."""
    catching_up: bool = True
    grown: dict[bytes, bytes] = field(default_factory=dict)
    """Endpoints whose retained version grew during the catch-up, with their latest value."""


class CaughtUpWith(NamedTuple):
    """What subscribers must be sent when the catch-up of a name ends: it has caught up, or is lost."""

    grown: dict[bytes, bytes]
    """Endpoint -> retained value: every subscriber gets it."""
    dropped: list[bytes]
    """Endpoints that no longer exist at the source, or here: every subscriber gets a ``resync``."""


@dataclass(slots=True)
class FeedCounts:
    """Records taken (invariant I14): consumed = fresh + stale + caught_up."""

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
        """A new link begins: what to say first. A link that resumes at its positions is a catch-up too."""
        for log in self._logs.values():
            log.catching_up = True
        return Resume(self.source, self.positions)

    def hello(self, source: str, names: Sequence[str], name_of: NameOf | None = None) -> CaughtUpWith:
        """Take the source and the full set of names.

        What a name that is lost has shown stays, as that of the name which ``name_of`` gives for it, if it gives one:
        the other name may show older versions before it gets so far.

        Returns:
            What was forgotten with names that were lost; and what these had brought during a catch-up, of endpoints
            that other names hold: there, the records of the same versions are stale.
        """
        if source != self.source:
            self.source = source
            for log in self._logs.values():
                log.before |= log.seen
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
        dropped = self._drop({endpoint for log in lost for endpoint in log.seen | log.before})
        grown: dict[bytes, bytes] = {}
        for log in lost:
            grown |= self._current(log.grown)
        return CaughtUpWith(grown, dropped)

    def apply(self, batch: Batch) -> dict[bytes, bytes]:
        """Take a batch; returns endpoint -> value of what subscribers must be told now (nothing while catching up).

        Raises:
            UnknownStream: the batch's name was not announced.
            FeedError: it is cut short. What was taken before is told at the end of the catch-up that must follow:
                the position did not move, but those versions are no longer new.
        """
        log = self._log(batch.name)
        retained, seen = self.retained, log.seen
        catching_up = log.catching_up
        fresh: dict[bytes, bytes] = log.grown if catching_up else {}
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
                    # The one before it is told to nobody: not at the end of the catch-up, either.
                    stale += 1
                retained[endpoint] = make(Retained, (version, value))
                fresh[endpoint] = value
        except DiemError:
            log.grown |= fresh
            raise
        self.counts.consumed += consumed
        self.counts.stale += stale
        log.position = batch.next
        return {} if catching_up else fresh

    def passed(self, name: str, next_: int) -> None:
        """Records of ``name`` that are no updates were taken by somebody else, up to ``next_``.

        Raises:
            UnknownStream: the name was not announced.
        """
        self._log(name).position = next_

    def caught_up_with(self, name: str) -> CaughtUpWith:
        """A name has caught up: it is live from now on.

        Raises:
            UnknownStream: the name was not announced.
        """
        log = self._log(name)
        log.catching_up = False
        gone, log.before = log.before - log.seen, set()
        dropped = self._drop(gone)
        grown, log.grown = self._current(log.grown), {}
        return CaughtUpWith(grown, dropped)

    def _current(self, grown: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """Return what of ``grown`` is still retained; the rest counts as stale.

        A version is announced by the name that brought it. What another name has superseded that one has announced, or
        will: announced again here, after it, the older version would replace the newer one where frames are held back.
        """
        retained = self.retained
        current = {e: value for e, value in grown.items() if e in retained and retained[e].value == value}
        self.counts.stale += len(grown) - len(current)
        return current

    def _drop(self, endpoints: set[bytes]) -> list[bytes]:
        """Forget endpoints unless another name holds them."""
        if not endpoints:
            return []
        for log in self._logs.values():
            endpoints = endpoints - log.seen - log.before
        return [endpoint for endpoint in endpoints if self.retained.pop(endpoint, None) is not None]

    def _log(self, name: str) -> _Log:
        try:
            return self._logs[name]
        except KeyError:
            raise UnknownStream(f"the feed spoke of {name!r} without having announced it") from None
