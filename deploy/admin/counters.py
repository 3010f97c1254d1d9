"""Rates, recent increases and the history of what successive statuses report."""

import math
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

Name = tuple[str, str]
"""Process, and the name of the counter."""
REFUSED: Final = "refused"
"""Refused clients of a process; ``refused.<cause>`` counts one cause."""
WINDOW_S: Final = 60.0
RATE_S: Final = 5.0
"""Seconds over which a rate is averaged, if there are samples."""
SAMPLE_S: Final = 10.0
"""Seconds between two samples of a history."""
SAMPLES: Final = 90
"""Samples of a history: a quarter of an hour."""


class Counters:
    """Samples of the last minute for each counter; bounded by the counters of the last :meth:`update`.

    A decreasing counter was reset with its process: its earlier samples are dropped. So are those before a gap longer
    than the window. A cause of refusals that a process had not reported in the update before was at zero.
    """

    def __init__(self) -> None:
        self._samples: dict[Name, deque[tuple[float, int]]] = {}
        self._updated_at = -math.inf

    def update(self, now: float, values: Mapping[Name, int]) -> None:
        """Add a sample of each counter at ``now`` (monotonic seconds), and forget all other counters."""
        if self._updated_at < now - WINDOW_S:
            self._samples = {}
        known = {process for process, _ in self._samples}
        kept: dict[Name, deque[tuple[float, int]]] = {}
        for name, value in values.items():
            samples = self._samples.get(name) or deque()
            if samples and samples[-1][1] > value:
                samples.clear()
            elif not samples and name[0] in known and name[1].startswith(f"{REFUSED}."):
                samples.append((self._updated_at, 0))
            samples.append((now, value))
            # One sample may be older, to cover the window.
            while len(samples) > 2 and samples[1][0] <= now - WINDOW_S:
                samples.popleft()
            kept[name] = samples
        self._samples = kept
        self._updated_at = now

    def names(self) -> Collection[Name]:
        """Return the counters of the last update."""
        return self._samples.keys()

    def rate(self, name: Name) -> float | None:
        """Return the increase a second over the last :data:`RATE_S`; None before the second sample."""
        samples = self._samples.get(name, deque())
        if len(samples) < 2:
            return None
        end, last = samples[-1]
        # The latest sufficiently old sample, else the last but one.
        before = [sample for sample in samples if sample[0] <= end - RATE_S]
        start, first = before[-1] if before else samples[0]
        return (last - first) / (end - start) if end > start else None

    def increase(self, name: Name) -> int:
        """Return the increase within the last minute, as far as sampled."""
        samples = self._samples.get(name, deque())
        return samples[-1][1] - samples[0][1] if samples else 0


class History:
    """The totals of the last quarter of an hour: at most :data:`SAMPLES`, the oldest are dropped."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Mapping[str, float | None]]] = deque(maxlen=SAMPLES)
        self._next_at = -math.inf

    def add(self, now: float, wall_ms: int, totals: Mapping[str, float | None]) -> None:
        """Add a sample at ``now`` (monotonic seconds), unless there is one of the last :data:`SAMPLE_S`."""
        if now >= self._next_at:
            self._next_at = now + SAMPLE_S
            self._samples.append((wall_ms, totals))

    def columns(self) -> dict[str, list[float | None]]:
        """Return the values by name, the oldest first, and as ``at`` their times in Unix milliseconds."""
        names = self._samples[-1][1] if self._samples else ()
        return {
            "at": [at for at, _ in self._samples],
            **{name: [_rounded(totals.get(name)) for _, totals in self._samples] for name in names},
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
