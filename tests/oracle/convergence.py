"""Checks of I1, I2 and I5 for one interest: the lag of the subscriber behind the accepted changes."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from tests.oracle.history import Fault
from tests.oracle.interest import Interest
from tests.oracle.ledger import Collection, Endpoint
from tests.oracle.violations import AheadOfStore, Away, BarrierBroken, Behind, Bounds, NotConverged, Violation
from tests.oracle.windows import Window, deadline, touches


@dataclass
class Lags:
    """Lags of subscribers, in seconds from the acceptance of a version to the client's event for it."""

    steady: list[float] = field(default_factory=list)
    """Lags outside faults, recovery and suspensions of the client: the distribution of T_conv."""
    arrival: list[float] = field(default_factory=list)
    """Seconds from ``subscribed`` to the update that was due then."""
    faults: dict[Fault, float] = field(default_factory=dict)
    """The longest lag of any subscriber during a fault and its recovery."""


class Convergence:
    """Checks interests one by one. A suspension of the client, like a fault, moves deadlines to its end + T_heal."""

    def __init__(self, bounds: Bounds, faults: list[Fault]) -> None:
        self.lags = Lags(faults=dict.fromkeys(faults, 0.0))
        self._bounds = bounds
        self._each = sorted(((self._window(fault), fault) for fault in faults), key=lambda pair: pair[0])
        self._all: list[Window] = [window for window, _ in self._each]
        self._faults: list[Window] = [window for window, fault in self._each if fault.excuses]

    def check_behind(self, client: str, interest: Interest, changes: Endpoint | Collection) -> Iterator[Behind]:
        """Check I2: find the worst delay beyond its deadline. Also collects the lags of all versions."""
        windows, seen = self._windows(interest), self._all + interest.suspended
        worst, excess = None, 0.0
        for version, since, kept in _obligations(interest, changes):
            if kept < inf:
                self._collect(since, kept, seen, interest)
            end = min(kept, interest.until)
            if end - since <= self._bounds.t_conv:
                continue
            limit = deadline(since, self._bounds.t_conv, windows, self._bounds.t_heal)
            if end - limit > excess:
                excess = end - limit
                worst = Behind(client, interest.endpoint, (version,), (since, limit, end))
        if worst:
            yield worst

    def check_away(self, client: str, interest: Interest) -> Iterator[Away]:
        """Check I2: a disconnected or not live client is back within T_heal, or within T_heal after a fault."""
        for start, end in interest.suspended:
            limit = deadline(start, self._bounds.t_heal, self._faults, self._bounds.t_heal)
            if end > limit:
                yield Away(client, interest.endpoint, (), (start, limit, end))

    def check_barrier(self, client: str, interest: Interest, changes: Endpoint | Collection) -> Iterator[BarrierBroken]:
        """Check I5: the version retained or accepted at ``subscribed`` arrives in time, unless the client left."""
        for time, stated in interest.barriers:
            owed = max(stated, changes.latest_at(time))
            # A client that polls has many of both.
            at = bisect_left(interest.steps, owed, key=lambda step: step[1])
            kept = interest.steps[at][0] if at < len(interest.steps) else inf
            # The suspension that this very reply ended is no excuse: the retained update follows at once.
            later = [window for window in interest.suspended if window[1] > time]
            limit = deadline(time, self._bounds.t_conv, sorted(self._faults + later), self._bounds.t_heal)
            if min(kept, interest.until) > limit:
                yield BarrierBroken(client, interest.endpoint, (stated, owed), (time, limit))

    def check_final(
        self, client: str, interest: Interest, changes: Endpoint | Collection, final: int | None
    ) -> Iterator[NotConverged | AheadOfStore]:
        """Check I1: subscribers at the end know the latest version, which is REST's, and no later one."""
        latest = max(changes.latest, final or 0)
        if not interest.at_end:
            return
        if interest.level < latest:
            yield NotConverged(client, interest.endpoint, (interest.level, latest), (interest.until,))
        if final is not None and interest.level > final:
            yield AheadOfStore(client, interest.endpoint, (interest.level, final), (interest.until,))

    def check(
        self, client: str, interest: Interest, changes: Endpoint | Collection, final: int | None
    ) -> Iterator[Violation]:
        """Run all checks."""
        yield from self.check_behind(client, interest, changes)
        yield from self.check_away(client, interest)
        yield from self.check_barrier(client, interest, changes)
        yield from self.check_final(client, interest, changes, final)

    def _window(self, fault: Fault) -> Window:
        """Return the window of a fault, shifted by the difference of its T_heal from the run's."""
        return fault.start, fault.end + (0 if fault.heal is None else fault.heal - self._bounds.t_heal)

    def _windows(self, interest: Interest) -> list[Window]:
        return sorted(self._faults + interest.suspended) if interest.suspended else self._faults

    def _collect(self, since: float, kept: float, windows: list[Window], interest: Interest) -> None:
        lag = kept - since
        if not windows or not touches(since, kept, windows, self._bounds.t_heal):
            (self.lags.arrival if since == interest.since else self.lags.steady).append(lag)
            return
        # Everybody has converged before the next fault: what is late when one begins, is late for it.
        for window, fault in reversed(self._each):
            if touches(since, kept, [window], self._bounds.t_heal):
                self.lags.faults[fault] = max(lag, self.lags.faults[fault])
                return


def _obligations(interest: Interest, changes: Endpoint | Collection) -> Iterator[tuple[int, float, float]]:
    """Yield (version, time from which it is due, time when it or a later one was known) for an interest.

    Of what was accepted before the interest began only the latest counts: it implies the others.
    """
    since, until, steps = interest.since, interest.until, interest.steps
    versions, times = changes.versions, changes.times
    step, count = 0, len(steps)
    for index in range(changes.at_or_after(changes.latest_at(since)), len(versions)):
        accepted = times[index]
        if accepted > until:
            continue
        version = versions[index]
        while step < count and steps[step][1] < version:
            step += 1
        owed = max(accepted, since)
        yield version, owed, max(owed, steps[step][0]) if step < count else inf
