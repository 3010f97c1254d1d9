"""The usage report without Spark."""

from datetime import date

from diem.protocol.traffic import Accessed, TrafficEvent, Type
from metadata.statistics.model import UsageRow
from metadata.statistics.reference import usage

DAY = 86_400_000
FIRST = date(2026, 1, 1)
BEGIN = 1_767_225_600_000


def event(number: int, until: int, *requests: Accessed) -> TrafficEvent:
    id_ = f"0000000000aa-{number}"
    return TrafficEvent(Type.ACCESS, id_, until, "data", since=until - 60_000, until=until, requests=requests)


def test_requests_are_summed_by_day_key_plan_and_endpoint() -> None:
    found = usage(
        [
            event(1, BEGIN + 60_000, Accessed("k", "free", "/b", 1, 1), Accessed("k", "free", "/a", 1, 0)),
            event(2, BEGIN + 120_000, Accessed("k", "free", "/a", 4, 0), Accessed("k", "gold", "/a", 2, 0)),
            event(2, BEGIN + 120_000, Accessed("k", "free", "/a", 4, 0), Accessed("k", "gold", "/a", 2, 0)),
            TrafficEvent(Type.CONNECT, "0000000000aa-9", BEGIN, "e", "a" * 16, "b" * 16),
        ],
        FIRST,
        FIRST,
    )
    assert found == [
        UsageRow(FIRST, "k", "free", "/a", 5, 0),
        UsageRow(FIRST, "k", "free", "/b", 1, 1),
        UsageRow(FIRST, "k", "gold", "/a", 2, 0),
    ]


def test_the_last_minute_of_a_day_belongs_to_it() -> None:
    asked = Accessed("", "anonymous", "", 1, 0)
    events = [event(n, BEGIN + n * DAY, asked) for n in range(4)]
    days = [row.day.day for row in usage(events, FIRST, date(2026, 1, 2))]
    assert days == [1, 2]
