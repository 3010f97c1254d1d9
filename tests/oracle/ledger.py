"""Accepted changes, indexed by endpoint for the checks, with what each version holds."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import Any, Final, NamedTuple

from tests.oracle.history import WIPE, Accepted, Fault, Uncertain
from tests.oracle.values import NotPatchable, applied, fingerprint

EARLY: Final = 0.1
"""Seconds by which an expiry may come early: times to live count in whole milliseconds, by another process's clock."""
_MOST_STATES: Final = 64
"""Most values that lost answers may leave possible."""


class Expiry(NamedTuple):
    """The end of an endpoint by its time to live."""

    version: int
    """The version that expires."""
    before: float
    """The version that follows; infinite if there is none."""
    earliest: float
    certain: bool
    """Whether nothing was written before it must have happened."""
    due: float
    """Time from which its version is accepted; that of a change whose answer came then."""
    gone: float
    """Time at which it must have happened; infinite if the store has answered too little since to prove that."""


class Versions:
    """Versions that an endpoint has had, or a collection must have reached.

    Attributes:
        versions: ascending, without repeats.
        times: of the acceptance, beside ``versions``.
    """

    def __init__(self, times: Mapping[int, float]) -> None:
        self.versions = sorted(times)
        self.times = [times[version] for version in self.versions]
        pairs = sorted((time, version) for version, time in times.items())
        self._by_time = [time for time, _ in pairs]
        self._latest = list(accumulate((version for _, version in pairs), max))

    @property
    def latest(self) -> int:
        """Return the greatest version; 0 if there is none."""
        return self.versions[-1] if self.versions else 0

    def latest_at(self, time: float) -> int:
        """Return the greatest version until ``time``."""
        count = bisect_right(self._by_time, time)
        return self._latest[count - 1] if count else 0

    def at_or_after(self, version: int) -> int:
        """Return the index in ``versions`` of the first one that is at least ``version``."""
        return bisect_left(self.versions, version)


class Endpoint(Versions):
    """Accepted changes of one endpoint, and expiries: the version of one, which no answer has, is the next number.

    Attributes:
        changes: of each accepted version the first answer, by version.
        expiries: that may have been, by version.
    """

    def __init__(
        self, changes: Iterable[Accepted], uncertain: Sequence[Uncertain], answers: "Answers", end: float = inf
    ) -> None:
        # The same version twice is the same change, or renews its time to live: its answer counts at its first time.
        first: dict[int, Accepted] = {}
        renewals: dict[int, dict[str, Accepted]] = defaultdict(dict)
        for change in changes:
            known = first.setdefault(change.version, change)
            if change.time < known.time:
                first[change.version] = change
            renewals[change.version].setdefault(change.key, change)
        self.changes = [first[version] for version in sorted(first)]
        self.expiries = list(_expiries(self.changes, renewals, answers))
        due = {change.version: change.time for change in self.changes}
        for expiry in self.expiries:
            if expiry.certain and expiry.due < end:
                due.setdefault(expiry.version + 1, expiry.due)
        super().__init__(due)
        self._known = set(first)
        self._unexplained = list(self.expiries)
        self._uncertain = sorted(write.start for write in uncertain)
        self._stamps, self._uncertain_stamps = _stamps(self.changes, uncertain)

    def is_accepted(self, version: int, time: float) -> bool:
        """Return whether ``version`` was accepted, or may be an expiry or write without answer from before ``time``.

        Each of these explains one version at most.
        """
        if version in self._known:
            return True
        for expiry in self._unexplained:
            if expiry.version < version < expiry.before and expiry.earliest <= time:
                self._unexplained.remove(expiry)
                self._known.add(version)
                return True
        if bisect_left(self._uncertain, time) == 0:
            return False
        self._uncertain.pop(0)
        self._known.add(version)
        return True

    def has_stamp(self, version: int, stamp: int) -> bool:
        """Return whether the data of ``version`` has this stamp, or may have it by a write whose answer was lost."""
        if (known := self._stamps.get(version)) is not None:
            return stamp in known
        if not stamp and any(expiry.version < version < expiry.before for expiry in self.expiries):
            return True
        return stamp in self._uncertain_stamps

    def version_of(self, stamp: int) -> int:
        """Return the version whose data has this stamp; 0 if there is none."""
        return next((version for version, known in self._stamps.items() if stamp in known), 0)

    def exists_at(self, end: float) -> bool:
        """Return whether it exists at the end of the observation."""
        if not self.changes or self.changes[-1].gone:
            return False
        return not any(expiry.before == inf and expiry.due < end for expiry in self.expiries)


class Answers:
    """When the store had answered what it was sent after some time: by then it has deleted what expired before.

    It does so with the next writes, or with those after them if these are as many as fit into one transaction.
    """

    def __init__(self, accepted: Iterable[Accepted]) -> None:
        begun = sorted((change.begun, change.time) for change in accepted)
        self._begun = [begin for begin, _ in begun]
        self._first = list(accumulate((time for _, time in reversed(begun)), min))[::-1]
        self.last = max((time for _, time in begun), default=0.0)
        """Time of the last answer."""

    def after(self, time: float) -> float:
        """Return the time of the first answer to a write that began later; infinite if there is none."""
        at = bisect_right(self._begun, time)
        return self._first[at] if at < len(self._first) else inf


def _expiries(
    changes: Sequence[Accepted], renewals: Mapping[int, Mapping[str, Accepted]], answers: Answers
) -> Iterator[Expiry]:
    """Yield what may have expired: nothing that was replaced before it was due."""
    ttl, begun, time = 0.0, 0.0, 0.0
    for change, following in pairwise([*changes, None]):
        assert change is not None
        last = max(renewals[change.version].values(), key=lambda renewal: renewal.time)
        keeps = bool(change.change) and "put" not in change.change and not change.ttl
        if not keeps:
            ttl, begun, time = last.ttl, last.begun, last.time
        if change.gone or not ttl:
            continue
        earliest, latest = begun + ttl - EARLY, time + ttl
        if following is None or following.time >= earliest:
            gone = answers.after(answers.after(latest + EARLY))
            if following is None:
                # At the end the store has nothing else to do.
                due = min(gone, max(latest, answers.last))
                yield Expiry(change.version, inf, earliest, certain=True, due=due, gone=gone)
            else:
                certain = following.begun > gone
                yield Expiry(change.version, following.version, earliest, certain, due=gone, gone=gone)


Stamps = dict[int, set[int]]
"""By version, what its data may be: more than one stamp where answers were lost."""


def _stamps(changes: Sequence[Accepted], uncertain: Sequence[Uncertain]) -> tuple[Stamps, set[int]]:
    """Return the stamps of all versions, and those of versions of which there is no answer."""
    lost = {write.stamp for write in uncertain if not write.change}
    if not any(change.change for change in changes):
        return {change.version: {change.stamp} for change in changes}, lost
    found: Stamps = {}
    # Values, and which of the writes without an answer are in them. None: there is no document.
    states: list[tuple[Any, frozenset[int]]] = [(None, frozenset())]
    for change in changes:
        for number, write in enumerate(uncertain):
            if write.start < change.time:
                more = [(_after(value, write.change), used | {number}) for value, used in states if number not in used]
                states = (states + [state for state in more if state[0] is not None or not write.change])[:_MOST_STATES]
        lost |= {fingerprint(value) for value, used in states if used and value is not None}
        made = [(_after(value, change.change), used) for value, used in states]
        states = [(value, used) for value, used in made if value is not None or change.gone]
        found[change.version] = {0 if value is None else fingerprint(value) for value, _ in states}
        if "put" in (change.change or {}):
            states = states[:1]
    for write in uncertain:
        values = [_after(value, write.change) for value, _ in states]
        lost |= {fingerprint(value) for value in values if value is not None}
    return found, lost


def _after(value: Any, change: Mapping[str, Any] | None) -> Any:
    """Return the value after a change (None: a deletion); None if nothing is there, or the patch does not fit."""
    if change is None:
        return None
    try:
        return applied(value, change)
    except NotPatchable:
        return None


TICKS: Final = 3
"""Versions of a collection that may be ahead of the time of their write: as many writes within a millisecond."""
_MOST_AHEAD: Final = 64
"""Versions of an endpoint that may be so."""


class Span(NamedTuple):
    """Whether an endpoint exists from a version on; None: it cannot be known."""

    version: int
    exists: bool | None
    time: float
    """When that was so at the latest, as far as it is known."""
    presumed: bool | None
    """The same for what is due: a collection must have changed at ``time``, though the version is not known."""
    least: int
    """The least version that the collection can have for it: the time of the write, if others of it came before."""


class Collection(Versions):
    """What is known of a collection by the accepted changes of the endpoints below it.

    Its versions are not in any answer. They are those of their members, which get theirs at the same time, or a little
    greater. So ``versions`` has what its own version must have reached at ``times``.
    """

    def __init__(self, name: str, members: Mapping[str, Sequence[list[Span]]], end: float = inf) -> None:
        """Take the members' names, each with the spans of the endpoints that it consists of."""
        self.name = name
        self._members = members
        events = (span for parts in members.values() for spans in parts for span in spans)
        self._events = sorted(events, key=lambda span: span.version)
        self._at = [span.version for span in self._events]
        due: dict[int, float] = {}
        for parts in members.values():
            for version, time in _changes(parts):
                if time < end:
                    due[version] = min(time, due.get(version, inf))
        super().__init__(due)
        self._bounds: dict[int, tuple[frozenset[str], frozenset[str]]] = {}

    def is_accepted(self, version: int, time: float) -> bool:
        """Return whether something below it was made or deleted then, or may have been."""
        del time
        return bool(self._near(version)) or self._is_unknown(version)

    def _near(self, version: int) -> list[Span]:
        """Return what this version may be for."""
        near = self._events[bisect_left(self._at, version - TICKS) : bisect_right(self._at, version + _MOST_AHEAD)]
        return [span for span in near if span.least <= version]

    def bounds(self, version: int) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names that this version must list, and those that it may list."""
        if (known := self._bounds.get(version)) is None:
            near = self._near(version)
            first, last = version - TICKS, max([version, *(span.version for span in near)])
            if len(near) == 1 and not self._is_unknown(version):
                # The one that this version is for.
                first = last
            states = {name: _together(parts, first, last) for name, parts in self._members.items()}
            must = frozenset(name for name, state in states.items() if state)
            known = self._bounds[version] = (
                must,
                frozenset(name for name, state in states.items() if state is not False),
            )
        return known

    def _is_unknown(self, version: int) -> bool:
        every = (spans for parts in self._members.values() for spans in parts)
        return any(None in _states(spans, version, version) for spans in every)


def _states(spans: Sequence[Span], first: float, last: float) -> set[bool | None]:
    """Return the states from one version to another."""
    at = bisect_right(spans, first, key=lambda span: span.version)
    found: set[bool | None] = {spans[at - 1].exists if at else False}
    return found | {span.exists for span in spans[at:] if span.version <= last}


def _together(parts: Sequence[Sequence[Span]], first: float, last: float) -> bool | None:
    """Return whether any of the parts exists from one version to another; None if that cannot be known."""
    found = [_states(spans, first, last) for spans in parts]
    if {True} in found:
        return True
    return False if all(states == {False} for states in found) else None


def _changes(parts: Sequence[Sequence[Span]]) -> Iterator[tuple[int, float]]:
    """Yield version and time where a member, of one or more endpoints, certainly comes or goes.

    What happens within some milliseconds is one change, or none: the last endpoint may go where another one comes.
    """
    now: list[bool | None] = [False] * len(parts)
    before, first, time = False, 0, 0.0
    events = [(span, number) for number, spans in enumerate(parts) for span in spans]
    events.sort(key=lambda event: event[0].version)
    for place, (span, number) in enumerate(events, 1):
        now[number] = span.presumed
        first, time = min(first or span.least, span.least), max(time, span.time)
        if place < len(events) and events[place][0].least - span.version <= TICKS:
            continue
        after = True in now
        if None in now and not after:
            # It came or went since ``first`` if it is otherwise when it is known again.
            continue
        if before != after:
            yield first, time
        before, first, time = after, 0, 0.0


def spans_of(endpoint: Endpoint, uncertain: Sequence[Uncertain], faults: Sequence[Fault]) -> list[Span]:
    """Return from which versions on an endpoint exists. Around an expiry or a wipe of the store it is unknown."""
    found, before, least = list[Span](), 0, 0
    expiries = {expiry.version: expiry for expiry in endpoint.expiries}
    for change, following in pairwise([*endpoint.changes, None]):
        assert change is not None
        version, time, until = change.version, change.time, inf if following is None else following.time
        # A change within the millisecond of the one before has a version ahead of its time.
        least = least if version == before + 1 else version
        if not found or found[-1].exists is not (not change.gone):
            found.append(Span(version, not change.gone, time, not change.gone, least))
        before = version
        lost = any(time <= write.end and write.start <= until for write in uncertain)
        if lost or any(fault.kind == WIPE and time <= fault.end and fault.start <= until for fault in faults):
            found.append(Span(version + 1, None, time, None, version + 1))
        elif (expiry := expiries.get(version)) is not None:
            # Versions are milliseconds.
            first = max(version + 1, version + int(1000 * (expiry.earliest - time)))
            if first >= expiry.before:
                continue
            # Others below the same collection may come before it goes.
            found.append(Span(first, None, expiry.earliest, None, first))
            last = version + int(1000 * (expiry.due - change.begun)) if expiry.due < inf else inf
            if expiry.certain and last < expiry.before:
                found.append(Span(int(last), False if expiry.gone < inf else None, expiry.due, False, int(last)))
    return found


class Ledger:
    """All accepted changes by endpoint, and the collections that they make."""

    def __init__(
        self,
        accepted: Iterable[Accepted],
        uncertain: Iterable[Uncertain] = (),
        *,
        faults: Sequence[Fault] = (),
        end: float = inf,
    ) -> None:
        changes: dict[str, list[Accepted]] = defaultdict(list)
        writes: dict[str, list[Uncertain]] = defaultdict(list)
        for change in accepted:
            changes[change.endpoint].append(change)
        for write in uncertain:
            writes[write.endpoint].append(write)
        names = changes.keys() | writes.keys()
        answers = Answers(change for each in changes.values() for change in each)
        self._endpoints = {name: Endpoint(changes[name], writes[name], answers, end) for name in names}
        self._nothing = Endpoint((), [], answers)
        self._end = end
        below: dict[str, dict[str, list[list[Span]]]] = defaultdict(lambda: defaultdict(list))
        for name, endpoint in self._endpoints.items():
            spans = spans_of(endpoint, writes[name], faults)
            for collection, member in _above(name):
                below[collection][member].append(spans)
        self._collections = {name: Collection(name, members, end) for name, members in below.items()}

    def __getitem__(self, endpoint: str) -> Endpoint | Collection:
        """Return the accepted changes of an endpoint or collection, possibly none."""
        if endpoint.endswith("/"):
            return self._collections.get(endpoint, self._nothing)
        return self._endpoints.get(endpoint, self._nothing)

    def items(self) -> Iterable[tuple[str, Endpoint | Collection]]:
        """Iterate over the endpoints with a change, and the collections."""
        return [*self._endpoints.items(), *self._collections.items()]

    def endpoints(self) -> Iterable[tuple[str, Endpoint]]:
        """Iterate over the endpoints with a change."""
        return self._endpoints.items()

    def collection(self, name: str) -> Collection | None:
        """Return a collection; None for what is none, or was never there."""
        return self._collections.get(name)

    def members_at_end(self, name: str) -> frozenset[str]:
        """Return what a collection lists at the end of the observation."""
        live = (each for each, endpoint in self._endpoints.items() if endpoint.exists_at(self._end))
        return frozenset(member for each in live for collection, member in _above(each) if collection == name)


def _above(name: str) -> Iterator[tuple[str, str]]:
    """Yield the collections above an endpoint, each with its member on the way: ``/a/``, ``/a/b/`` of ``/a/b/c``."""
    member = name
    while head := member.rstrip("/").rpartition("/")[0]:
        yield f"{head}/", member
        member = f"{head}/"
