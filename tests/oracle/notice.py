"""I3 for faults that nobody may pass over in silence: was everybody who was connected told live:false in time?"""

from collections.abc import Iterable, Iterator
from math import inf

from tests.oracle.history import Event, Fault, Kind
from tests.oracle.violations import NotTold


def check_told(client: str, events: list[Event], faults: Iterable[Fault]) -> Iterator[NotTold]:
    """Only faults that say ``told`` count, and only connections that are open from their start until then."""
    for fault in faults:
        if fault.told is None:
            continue
        limit = fault.start + fault.told
        if any(start <= fault.start and limit < end for start, end in _live_spans(events)):
            yield NotTold(client, "", (), (fault.start, limit))


def _live_spans(events: Iterable[Event]) -> Iterator[tuple[float, float]]:
    """From when until when each connection was there and believed to tell everything."""
    since: dict[int, float] = {}
    for time, kind, endpoint, _, code, link in events:
        if kind == Kind.OPEN or (kind == Kind.STATUS and code and not endpoint):
            since.setdefault(link, time)
        elif link in since and (kind == Kind.CLOSE or (kind == Kind.STATUS and not endpoint)):
            yield since.pop(link), time
    yield from ((start, inf) for start in since.values())
