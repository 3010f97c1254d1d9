"""The endpoints a reader may read: covered by plan and token, with their positions among sorted names."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from diem.protocol.endpoints import ancestors, coverage

MAX_CACHED: Final = 128
"""Maximum number of cached combinations of plan and token; the least recently used is evicted."""


@dataclass(frozen=True, slots=True)
class ReadRights:
    """Rights to some endpoints; equal if they cover the same. Rights to all endpoints are None everywhere."""

    prefixes: tuple[str, ...]
    """Prefixes of endpoints, sorted, none below another. Empty: no endpoint."""
    allows: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    """Predicate for endpoints equal to or below one of the prefixes."""

    def __post_init__(self) -> None:
        """Prepare the prefixes once."""
        object.__setattr__(self, "allows", coverage(self.prefixes))

    def overlaps(self, prefix: str) -> bool:
        """Return whether any endpoint at or below ``prefix`` could be covered."""
        return self.allows(prefix) or any(each.startswith(f"{prefix}/") for each in self.prefixes)

    def spans(self, names: Sequence[str]) -> list[range]:
        """Return the positions of the covered names in a sorted list, ascending, at no cost for the others."""
        found: list[range] = []
        for prefix in self.prefixes:
            at = bisect_left(names, prefix)
            if at < len(names) and names[at] == prefix:
                found.append(range(at, at + 1))
            # Names between the two, such as /dam-old, are not below /dam. "0" is the character after "/".
            start = bisect_left(names, f"{prefix}/", at)
            stop = bisect_left(names, f"{prefix}0", start)
            if start < stop:
                found.append(range(start, stop))
        return sorted(found, key=lambda span: span.start)


@lru_cache(MAX_CACHED)
def common_rights(granted: tuple[tuple[str, ...], ...]) -> ReadRights | None:
    """Return the rights common to several lists of prefixes; None, for everything, without a list."""
    if not granted:
        return None
    found = set(granted[0])
    for other in map(frozenset, granted[1:]):
        found = {each for each in found if _covered(each, other)} | {each for each in other if _covered(each, found)}
    return ReadRights(tuple(sorted(each for each in found if found.isdisjoint(ancestors(each)))))


def _covered(name: str, prefixes: Collection[str]) -> bool:
    return name in prefixes or any(above in prefixes for above in ancestors(name))
