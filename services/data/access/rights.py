"""The endpoints that a reader may see: what plan and token cover together, and where that is among sorted names."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from diem.protocol.endpoints import ancestors, coverage

MAX_CACHED: Final = 128
"""Most remembered combinations of plan and token; the least recently used is evicted."""


@dataclass(frozen=True, slots=True)
class ReadRights:
    """Rights to some endpoints; equal if they cover the same. Rights to all endpoints are None everywhere."""

    prefixes: tuple[str, ...]
    """Endpoints, and everything below them; sorted, none of them below another. Empty: no endpoint."""
    allows: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    """Returns whether an endpoint is one of the prefixes or below one."""

    def __post_init__(self) -> None:
        """Prepare the prefixes once."""
        object.__setattr__(self, "allows", coverage(self.prefixes))

    def overlaps(self, prefix: str) -> bool:
        """Return whether any endpoint below ``prefix``, or itself, could be covered."""
        return self.allows(prefix) or any(each.startswith(f"{prefix}/") for each in self.prefixes)

    def spans(self, names: Sequence[str]) -> list[range]:
        """Return the positions of the covered names in a sorted list, ascending. Takes no time for the others."""
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
    """Return the rights to what each of several lists of prefixes covers; None, for everything, if there is no list."""
    if not granted:
        return None
    found = set(granted[0])
    for other in map(frozenset, granted[1:]):
        found = {each for each in found if _covered(each, other)} | {each for each in other if _covered(each, found)}
    return ReadRights(tuple(sorted(each for each in found if found.isdisjoint(ancestors(each)))))


def _covered(name: str, prefixes: Collection[str]) -> bool:
    return name in prefixes or any(above in prefixes for above in ancestors(name))
