"""Accepted changes, indexed by endpoint for the checks."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate

from tests.oracle.history import Accepted, Uncertain


class Endpoint:
    """Accepted changes of one endpoint.

    Attributes:
        versions: ascending, without repeats.
        times: of the acceptance, beside ``versions``.
    """

    __slots__ = ("_by_time", "_known", "_latest", "_stamps", "_uncertain", "_uncertain_stamps", "times", "versions")

    def __init__(self, changes: Iterable[Accepted], uncertain: list[Uncertain]) -> None:
        # The same version twice is the same change: the answer of a repeated request counts at its first time.
        first: dict[int, float] = {}
        self._stamps: dict[int, int] = {}
        for change in changes:
            first[change.version] = min(change.time, first.get(change.version, change.time))
            self._stamps[change.version] = change.stamp
        self.versions = sorted(first)
        self.times = [first[version] for version in self.versions]
        pairs = sorted((time, version) for version, time in first.items())
        self._by_time = [time for time, _ in pairs]
        self._latest = list(accumulate((version for _, version in pairs), max))
        self._known = set(first)
        self._uncertain = sorted(write.start for write in uncertain)
        self._uncertain_stamps = {write.stamp for write in uncertain}

    @property
    def latest(self) -> int:
        """Return the greatest accepted version; 0 if there is none."""
        return self.versions[-1] if self.versions else 0

    def latest_at(self, time: float) -> int:
        """Return the greatest version accepted until ``time``."""
        count = bisect_right(self._by_time, time)
        return self._latest[count - 1] if count else 0

    def at_or_after(self, version: int) -> int:
        """Return the index in ``versions`` of the first one that is at least ``version``."""
        return bisect_left(self.versions, version)

    def is_accepted(self, version: int, time: float) -> bool:
        """Return whether ``version`` was accepted, or may have been by a write whose answer was lost before ``time``.

        Every such write explains one version at most.
        """
        if version in self._known:
            return True
        if bisect_left(self._uncertain, time) == 0:
            return False
        self._uncertain.pop(0)
        self._known.add(version)
        return True

    def has_stamp(self, version: int, stamp: int) -> bool:
        """Return whether the data of ``version`` has this stamp, or may have it by a write whose answer was lost."""
        known = self._stamps.get(version)
        return stamp in self._uncertain_stamps if known is None else stamp == known

    def version_of(self, stamp: int) -> int:
        """Return the version whose data has this stamp; 0 if there is none."""
        return next((version for version, known in self._stamps.items() if known == stamp), 0)


class Ledger:
    """All accepted changes by endpoint."""

    def __init__(self, accepted: Iterable[Accepted], uncertain: Iterable[Uncertain] = ()) -> None:
        changes: dict[str, list[Accepted]] = defaultdict(list)
        writes: dict[str, list[Uncertain]] = defaultdict(list)
        for change in accepted:
            changes[change.endpoint].append(change)
        for write in uncertain:
            writes[write.endpoint].append(write)
        names = changes.keys() | writes.keys()
        self._endpoints = {name: Endpoint(changes[name], writes[name]) for name in names}
        self._nothing = Endpoint((), [])

    def __getitem__(self, endpoint: str) -> Endpoint:
        """Return the accepted changes of ``endpoint``, possibly none."""
        return self._endpoints.get(endpoint, self._nothing)

    def items(self) -> Iterable[tuple[str, Endpoint]]:
        """Iterate over the endpoints with a change."""
        return self._endpoints.items()
