"""Check of I3 for faults that every connected client must notice: it gets live:false in time."""

from collections.abc import Iterable, Iterator
from math import inf

from tests.oracle.history import Event, Fault, Kind
from tests.oracle.violations import NotTold


def check_told(client: str, events: list[Event], faults: Iterable[Fault]) -> Iterator[NotTold]:
    """Check faults with ``told``, for connections that are open from the start of the fault until then."""
    for fault in faults:
        if fault.told is None:
            continue
        limit = fault.start + fault.told
        if any(start <= fault.start and limit < end for start, end in _live_spans(events)):
            yield NotTold(client, "", (), (fault.start, limit))


def _live_spans(events: Iterable[Event]) -> Iterator[tuple[float, float]]:
    """Return the times in which each connection was open and live."""
    since: dict[int, float] = {}
    for time, kind, endpoint, _, code, link in events:
        if kind == Kind.OPEN or (kind == Kind.STATUS and code and not endpoint):
            since.setdefault(link, time)
        elif link in since and (kind == Kind.CLOSE or (kind == Kind.STATUS and not endpoint)):
            yield since.pop(link), time
    yield from ((start, inf) for start in since.values())
