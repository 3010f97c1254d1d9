"""A histogram of delays in bounded memory; pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

LEAST_MS: Final = 0.5
"""Upper bound of the first bucket: versions are times in whole milliseconds."""
PER_DOUBLING: Final = 16
"""Buckets per doubling: bounds are 4.4 % apart."""
DOUBLINGS: Final = 23
"""The last bucket is for more than an hour."""
BAR_WIDTH: Final = 40


class Delays:
    """Counts of delays by buckets of equal ratios, with the exact maximum."""

    def __init__(self) -> None:
        self.count = 0
        self.early = 0
        """Delays below zero: events before their causes, by clocks that differ."""
        self.max_ms = 0.0
        self._buckets = [0] * (PER_DOUBLING * DOUBLINGS + 1)

    def add(self, delay_ms: float) -> None:
        """Count a delay; one below zero counts as zero."""
        self.count += 1
        self.early += delay_ms < 0
        self.max_ms = max(self.max_ms, delay_ms)
        self._buckets[_bucket(delay_ms)] += 1

    @property
    def buckets(self) -> Sequence[int]:
        """Return the counts of the buckets."""
        return self._buckets

    def merge(self, other: "Delays") -> None:
        """Add the delays of another process."""
        self.count += other.count
        self.early += other.early
        self.max_ms = max(self.max_ms, other.max_ms)
        self._buckets = [mine + its for mine, its in zip(self._buckets, other.buckets, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads: counts of buckets by number, but for empty ones."""
        counts = {str(number): count for number, count in enumerate(self._buckets) if count}
        return {"max": self.max_ms, "before_publication": self.early, "buckets": counts}

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Self:
        """Return the delays of :meth:`as_json`. Raises ``ValueError``, ``LookupError``, ``TypeError``."""
        found = cls()
        found.max_ms, found.early = float(stated["max"]), int(stated["before_publication"])
        for number, count in stated["buckets"].items():
            found._buckets[int(number)] = int(count)
        found.count = sum(found._buckets)
        return found

    def quantile(self, share: float) -> float | None:
        """Return this quantile of the delays in ms, at most 4.4 % too high; None: no delays."""
        if not self.count:
            return None
        wanted = max(1, math.ceil(share * self.count))
        below = 0
        for number, count in enumerate(self._buckets):
            below += count
            if below >= wanted:
                return min(_bound_ms(number), self.max_ms)
        return self.max_ms

    def doublings(self) -> list[tuple[float, float, int]]:
        """Return lower and upper bound in ms and the count of each doubling, from the first to the last with any."""
        found: list[tuple[float, float, int]] = [(0.0, LEAST_MS, self._buckets[0])]
        for first in range(1, len(self._buckets), PER_DOUBLING):
            number = sum(self._buckets[first : first + PER_DOUBLING])
            found.append((_bound_ms(first - 1), _bound_ms(first - 1 + PER_DOUBLING), number))
        filled = [at for at, (_, _, number) in enumerate(found) if number]
        return found[filled[0] : filled[-1] + 1] if filled else []

    def lines(self) -> list[str]:
        """Return the histogram as text, a line for each doubling."""
        rows = self.doublings()
        most = max((number for _, _, number in rows), default=0)
        texts = [(f"{_ms(low)}-{_ms(high)} ms", number) for low, high, number in rows]
        width = max((len(text) for text, _ in texts), default=0)
        return [
            f"{text:>{width}}  {'#' * math.ceil(BAR_WIDTH * number / most):<{BAR_WIDTH}}  {number:,}"
            for text, number in texts
        ]


def _bucket(delay_ms: float) -> int:
    if delay_ms <= LEAST_MS:
        return 0
    # Slightly less, so that a bound belongs to the bucket below it however its logarithm is rounded.
    number = math.ceil(PER_DOUBLING * math.log2(delay_ms / LEAST_MS) - 1e-9)
    return min(number, PER_DOUBLING * DOUBLINGS)


def _bound_ms(bucket: int) -> float:
    return LEAST_MS * 2 ** (bucket / PER_DOUBLING)


def _ms(value: float) -> str:
    return f"{value:,.1f}" if 0 < value < 1 else f"{value:,.0f}"
