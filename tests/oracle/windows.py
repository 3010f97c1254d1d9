"""Times at which a promise is suspended, and the deadlines that follow from them."""

from collections.abc import Iterable

Window = tuple[float, float]
"""Start and end of a suspension."""


def deadline(since: float, bound: float, windows: Iterable[Window], heal: float) -> float:
    """Return the deadline of a promise that began at ``since``.

    That is ``bound`` seconds later, or ``heal`` seconds after a window that began before the promise was due.

    Args:
        since: when the promise began.
        bound: seconds within which it is kept when nothing is suspended.
        windows: in the order of their starts.
        heal: seconds after a window within which everything is caught up.
    """
    limit = since + bound
    for start, end in windows:
        if start > limit:
            break
        limit = max(limit, end + heal)
    return limit


def touches(start: float, end: float, windows: Iterable[Window], heal: float) -> bool:
    """Return whether the time from ``start`` to ``end`` overlaps a window or the recovery after one."""
    return any(first <= end and start <= last + heal for first, last in windows)
