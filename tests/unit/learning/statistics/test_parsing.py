import pytest

from diem.protocol.traffic import BadEvent, encode
from learning.statistics.constants import DAY_MS
from learning.statistics.parsing import FUTURE, PAST, parse_event, reason_kind, sequence_number
from tests.support.traffic import BEGIN, Life

EVENT = Life("websocket-1", 1, BEGIN, BEGIN).counts(BEGIN, BEGIN + 1)


def test_an_event_may_be_up_to_a_day_ahead_of_our_clock() -> None:
    assert parse_event(encode(EVENT), EVENT.time - DAY_MS) == EVENT
    with pytest.raises(BadEvent, match=FUTURE):
        parse_event(encode(EVENT), EVENT.time - DAY_MS - 1)


def test_an_event_with_its_time_in_seconds_is_refused() -> None:
    with pytest.raises(BadEvent, match=PAST):
        parse_event(encode(EVENT._replace(time=BEGIN // 1000)), BEGIN)


@pytest.mark.parametrize(
    ("line", "is_of"),
    [
        (b"{", "not JSON"),
        (b'{"type":"dance"}', "no such type"),
        (b'{"type":"connect"}', "connect: missing fields: client, connection, edge, id, time"),
        (encode(EVENT._replace(edge="it's one")), "edge"),
        (encode(EVENT._replace(time=1)), PAST),
    ],
)
def test_the_kind_of_a_reason_omits_the_faulty_value(line: bytes, is_of: str) -> None:
    with pytest.raises(BadEvent) as caught:
        parse_event(line, BEGIN)
    assert reason_kind(str(caught.value)) == is_of


def test_the_sequence_number_is_the_second_part_of_the_id() -> None:
    assert sequence_number("0123456789ab-42") == 42
