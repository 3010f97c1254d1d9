"""Statistics of a window and usage, case by case (docs/traffic.md sections 3 and 4)."""

from collections.abc import Iterable
from datetime import date

import pytest

from diem.protocol.traffic import Accessed, TrafficEvent, Type
from learning.statistics.model import EndpointRow, SetRow, Statistics, UsageRow, WasteRow
from learning.statistics.reference import Arrival, recorded_since, statistics, union_length, usage
from learning.statistics.window import Window
from tests.support.traffic import BEGIN, MINUTE, Life

WINDOW = Window(BEGIN + 10 * MINUTE, BEGIN + 20 * MINUTE)
SECOND = 1000


def of(*events: TrafficEvent | Iterable[TrafficEvent]) -> Statistics:
    flat = [each for event in events for each in ([event] if isinstance(event, TrafficEvent) else event)]
    return statistics([Arrival(event, event.time) for event in flat], WINDOW)


def life(number: int = 1, edge: str = "websocket-1") -> Life:
    return Life(edge, number, BEGIN, WINDOW.end)


def minute(number: float) -> int:
    return BEGIN + round(number * MINUTE)


def alive(one: Life) -> TrafficEvent:
    """A sign of life near the end of the window."""
    return one.counts(minute(18), minute(19))


def session(
    one: Life, connection: int, begin: float, end: float | None, *endpoints: str, client: int = 1
) -> list[TrafficEvent]:
    made = [one.event(Type.CONNECT, minute(begin), client, connection)]
    if endpoints:
        made.append(one.event(Type.SUBSCRIBE, minute(begin), client, connection, *endpoints))
    return [*made, *([one.event(Type.DISCONNECT, minute(end), client, connection)] if end is not None else [])]


def sets(found: Statistics) -> list[tuple[list[str], int, int]]:
    names = [row.endpoint for row in found.endpoints]
    return [([names[each] for each in row.endpoints], row.weight, row.clients) for row in found.sets]


def test_without_events_all_tables_are_empty() -> None:
    found = of()
    assert (found.endpoints, found.sets, found.waste) == ((), (), ())
    assert set(found.summary) == {0}


def test_a_session_counts_with_its_part_in_the_window() -> None:
    one = life()
    found = of(session(one, 1, 5, 15, "/a"), session(one, 2, 18, None, "/b", client=2), alive(one))
    assert sets(found) == [(["/a"], 300, 1), (["/b"], 120, 1)]
    assert [(row.endpoint, row.subscribers) for row in found.endpoints] == [("/a", 0.5), ("/b", 0.2)]
    assert (found.summary.sessions, found.summary.clients, found.summary.unended) == (2, 2, 0)
    assert found.summary.active_minutes == 7


def test_minutes_with_several_clients_count_once_and_those_without_do_not() -> None:
    one = life()
    overlapping = (session(one, number, 10.9 + number, 12.5 + number, "/a", client=number) for number in range(3))
    found = of(*overlapping, session(one, 9, 17.2, 17.3, "/a", client=9))
    # From 10:54 to 14:30 minutes, and within the minute 17.
    assert found.summary.active_minutes == 6


def test_records_begin_with_the_first_event_and_the_interval_that_it_covers() -> None:
    one = life()
    assert recorded_since([], WINDOW) is None
    assert recorded_since([one.counts(minute(12), minute(13))], WINDOW) == minute(12)
    assert recorded_since([one.event(Type.CONNECT, minute(8)), one.counts(minute(12), minute(13))], WINDOW) == minute(8)
    # So long ago that nothing was recorded afterwards, or after the window.
    assert recorded_since([one.event(Type.CONNECT, minute(each)) for each in (6.9, 20)], WINDOW) is None


def test_sessions_before_or_after_the_window_do_not_count() -> None:
    one = life()
    found = of(session(one, 1, 5, 10, "/a"), session(one, 2, 20, 25, "/b"), alive(one))
    assert (found.sets, found.endpoints, found.summary.clients) == ((), (), 0)


def test_overlapping_connections_of_a_client_count_once() -> None:
    one = life()
    found = of(session(one, 1, 10, 14, "/a"), session(one, 2, 12, 16, "/a", "/b"), alive(one))
    assert sets(found) == [(["/a", "/b"], 360, 1)]
    assert [row.subscribers for row in found.endpoints] == [0.6, 0.4]


def test_equal_sets_are_merged_and_their_weights_added() -> None:
    one = life()
    made = [session(one, each, 10, 10 + each, "/b", "/a", client=each) for each in (1, 2, 3)]
    found = of(*made, alive(one))
    assert found.sets == (SetRow((0, 1), 360, 3),)


@pytest.mark.parametrize(("ms", "has"), [(999, False), (1000, True)])
def test_an_endpoint_is_in_the_set_if_it_was_held_for_a_second(ms: int, has: bool) -> None:
    one = life()
    more = one.event(Type.UNSUBSCRIBE, minute(10) + ms, 1, 1, "/b")
    found = of(session(one, 1, 10, 20, "/a", "/b"), more, alive(one))
    assert sets(found) == [(["/a", "/b"] if has else ["/a"], 600, 1)]
    # It still counts as a subscriber.
    assert found.endpoints[1] == EndpointRow("/b", 0.0, ms / 600_000, 0, 0, 0.0)


def test_repeated_subscribe_and_stray_unsubscribe_change_nothing() -> None:
    one = life()
    events = [
        one.event(Type.UNSUBSCRIBE, minute(10), 1, 1, "/a"),
        one.event(Type.SUBSCRIBE, minute(12), 1, 1, "/a"),
        one.event(Type.SUBSCRIBE, minute(14), 1, 1, "/a"),
        one.event(Type.UNSUBSCRIBE, minute(15), 1, 1, "/a"),
        one.event(Type.DISCONNECT, minute(16), 1, 1),
        one.event(Type.SUBSCRIBE, minute(17), 1, 1, "/late"),
    ]
    found = of(events, alive(one))
    assert [(row.endpoint, row.subscribers) for row in found.endpoints] == [("/a", 0.3)]
    assert sets(found) == [(["/a"], 360, 1)]


def test_events_of_one_millisecond_are_in_the_order_of_their_numbers() -> None:
    one = life()
    on, off = (one.event(kind, minute(12), 1, 1, "/a") for kind in (Type.SUBSCRIBE, Type.UNSUBSCRIBE))
    found = of(off, on, one.event(Type.DISCONNECT, minute(14), 1, 1), alive(one))
    assert (found.sets, found.summary.clients) == ((), 1)


def test_unpublished_names_are_left_out() -> None:
    one = life()
    named = ("/real", "/invented", "/updated", "/elsewhere", "/asked")
    stranger = one.event(Type.SUBSCRIBE, minute(10), 1, 1, *named)._replace(unknown=named[1:])
    other = one.event(Type.SUBSCRIBE, minute(11), 2, 2, "/elsewhere", "/invented")._replace(unknown=("/invented",))
    asked = (Accessed("", "anonymous", "/asked", 1, 0), Accessed("", "anonymous", "", 1, 0))
    found = of(
        one.event(Type.CONNECT, minute(10), 1, 1),
        stranger,
        other,
        one.counts(minute(12), minute(13), updated=(1, 1)),
        TrafficEvent(
            Type.ACCESS, "0000000000d1-1", minute(5), "data", since=minute(4), until=minute(5), requests=asked
        ),
        alive(one),
    )
    assert [row.endpoint for row in found.endpoints] == ["/asked", "/elsewhere", "/real", "/updated"]
    assert sets(found) == [(["/asked", "/elsewhere", "/real", "/updated"], 600, 1), (["/elsewhere"], 540, 1)]


def test_a_client_with_only_invented_names_has_no_set() -> None:
    one = life()
    stranger = one.event(Type.SUBSCRIBE, minute(10), 1, 1, "/invented")._replace(unknown=("/invented",))
    found = of(stranger, alive(one))
    assert (found.endpoints, found.sets, found.summary.clients) == ((), (), 1)


def test_clients_of_one_address_share_the_weight_of_one() -> None:
    one = life()

    def shared(client: int, *sharers: int) -> list[TrafficEvent]:
        events = session(one, client, 10, 16, "/a", client=client)
        return [event._replace(sharers=count) for event, count in zip(events, sharers, strict=True)]

    # The largest number counts, which is known once the last of them has connected.
    assert sets(of(shared(1, 1, 1, 3), shared(2, 2, 2, 3), shared(3, 3, 3, 1), alive(one))) == [(["/a"], 360, 3)]
    assert sets(of(shared(1, 1, 1, 361), shared(2, 1, 1, 1), alive(one))) == [(["/a"], 360, 1)]
    assert [row.subscribers for row in of(shared(1, 2, 2, 2), shared(2, 2, 2, 2), alive(one)).endpoints] == [1.2]


def test_sessions_of_a_killed_process_end_with_its_last_sign_of_life() -> None:
    one = life()
    found = of(session(one, 1, 10, None, "/a"), one.counts(minute(11), minute(12)))
    assert (sets(found), found.summary.unended) == ([(["/a"], 120, 1)], 1)


def test_sessions_of_an_earlier_incarnation_end_with_it() -> None:
    one, two = life(1), life(2)
    found = of(
        session(one, 1, 18, None, "/a"), one.counts(minute(18), minute(19)), two.counts(minute(19), minute(19.5))
    )
    assert (sets(found), found.summary.unended) == ([(["/a"], 60, 1)], 1)


@pytest.mark.parametrize(("silent", "unended"), [(180_000, 0), (180_001, 1)])
def test_a_silent_process_counts_as_killed(silent: int, unended: int) -> None:
    one = life()
    found = of(session(one, 1, 10, None, "/a"), one.counts(minute(11), WINDOW.end - silent))
    assert found.summary.unended == unended


def test_a_session_older_than_the_history_begins_with_its_first_known_event() -> None:
    one = life()
    week = 7 * 24 * 60
    old = session(one, 1, 10 - week - 1, None, "/old")
    found = of(old, one.event(Type.SUBSCRIBE, minute(15), 1, 1, "/a"), alive(one))
    assert sets(found) == [(["/a"], 300, 1)]


def test_a_repeated_event_counts_once_with_the_delay_of_its_first_arrival() -> None:
    one = life()
    events = [*session(one, 1, 10, 15, "/a"), alive(one)]
    late = 5 * MINUTE + 1
    arrivals = [Arrival(event, event.time + delay) for delay in (late, 0) for event in events]
    found = statistics([*arrivals, Arrival(one.counts(minute(12), minute(13)), minute(13) + late)], WINDOW)
    assert sets(found) == [(["/a"], 300, 1)]
    assert (found.summary.events, found.summary.duplicates, found.summary.late) == (5, 4, 1)


def test_the_rate_is_that_of_the_edge_that_received_most_in_each_minute() -> None:
    one, two = life(1), life(2, "websocket-2")
    found = of(
        one.counts(minute(10), minute(11), a=(30, 60)),
        two.counts(minute(10), minute(11), a=(20, 0)),
        one.counts(minute(11), minute(11.5), a=(10, 10)),
        one.counts(minute(11.5), minute(12), a=(10, 10)),
        two.counts(minute(11), minute(12), a=(40, 40)),
    )
    assert found.endpoints == (EndpointRow("/a", 70 / 600, 0.0, 110, 120, 0.5),)


def test_the_busy_rate_is_that_of_the_minutes_with_the_most_frames() -> None:
    one = life()
    counts = [
        one.counts(minute(at), minute(at + 1), a=(at, 20 if at in {13, 15} else 5), b=(6, 0)) for at in range(10, 20)
    ]
    # The earlier one of two; a twentieth of ten minutes is one.
    assert [row.busy_rate for row in of(*counts).endpoints] == [13 / 60, 6 / 60]


@pytest.mark.parametrize(("begin", "twins"), [(11, 1), (12.9, 1), (13.1, 0), (14, 0), (15, 0)])
def test_two_processes_of_one_name_are_distinguished_from_a_restart(begin: float, twins: int) -> None:
    one, two, other = life(1), life(2), life(3, "websocket-2")
    first = [one.counts(minute(at), minute(at + 1), a=(60, 0)) for at in (10, 11, 12, 13)]
    second = [two.counts(minute(begin + at - 1), minute(begin + at), a=(60, 0)) for at in (0, 1, 2)]
    found = of(first, second, other.counts(minute(10), minute(11)), other.counts(minute(17), minute(18)))
    assert found.summary.twins == twins
    # In another window, the incarnations do not overlap.
    assert statistics([Arrival(e, e.time) for e in first + second], Window(minute(15), minute(20))).summary.twins == 0


def test_counts_belong_to_the_window_with_their_middle() -> None:
    one = life()
    found = of(
        one.counts(minute(9.4), minute(10.4), before=(1, 1)),
        one.counts(minute(9.5), minute(10.5), first=(1, 1)),
        one.counts(minute(19.4), minute(20.4), last=(1, 1)),
        one.counts(minute(19.5), minute(20.5), after=(1, 1)),
    )
    assert [row.endpoint for row in found.endpoints] == ["/first", "/last"]


def test_waste_is_updates_received_and_delivered_to_nobody() -> None:
    one, two = life(1), life(2, "proxy-1")
    found = of(
        one.counts(minute(10), minute(11), a=(10, 5), b=(30, 0)),
        one.counts(minute(11), minute(12), a=(20, 0)),
        two.counts(minute(11), minute(12)),
    )
    assert found.waste == (WasteRow("proxy-1", 0, 0, 0, 0.0), WasteRow("websocket-1", 60, 5, 50, 50 / 60))


def test_the_length_of_a_union_counts_overlaps_once() -> None:
    assert union_length([(5, 7), (0, 3), (1, 2), (6, 9), (20, 10)]) == 7
    assert union_length([]) == 0


DAY = 86_400_000
FIRST = date(2026, 1, 1)
FIRST_MS = 1_767_225_600_000


def access(number: int, until: int, *requests: Accessed) -> TrafficEvent:
    id_ = f"0000000000aa-{number}"
    return TrafficEvent(Type.ACCESS, id_, until, "data", since=until - 60_000, until=until, requests=requests)


def test_usage_is_summed_by_day_key_plan_and_endpoint() -> None:
    found = usage(
        [
            access(1, FIRST_MS + 60_000, Accessed("k", "free", "/b", 1, 1), Accessed("k", "free", "/a", 1, 0)),
            access(2, FIRST_MS + 120_000, Accessed("k", "free", "/a", 4, 0), Accessed("k", "gold", "/a", 2, 0)),
            access(2, FIRST_MS + 120_000, Accessed("k", "free", "/a", 4, 0), Accessed("k", "gold", "/a", 2, 0)),
            TrafficEvent(Type.CONNECT, "0000000000aa-9", FIRST_MS, "e", "a" * 16, "b" * 16),
        ],
        FIRST,
        FIRST,
    )
    assert found == [
        UsageRow(FIRST, "k", "free", "/a", 5, 0),
        UsageRow(FIRST, "k", "free", "/b", 1, 1),
        UsageRow(FIRST, "k", "gold", "/a", 2, 0),
    ]


def test_the_last_minute_of_a_day_belongs_to_that_day() -> None:
    request = Accessed("", "anonymous", "", 1, 0)
    events = [access(n, FIRST_MS + n * DAY, request) for n in range(4)]
    days = [row.day.day for row in usage(events, FIRST, date(2026, 1, 2))]
    assert days == [1, 2]
