from tests.oracle import Accepted, Bounds, Event, Fault, History, Kind, judge
from tests.oracle.notice import check_told

FAULT = Fault("all-brokers-down", "kafka", 100, 160, told=15)


def told(*events: Event, fault: Fault = FAULT) -> bool:
    return not list(check_told("1", list(events), [fault]))


def test_connected_client_must_be_told_in_time() -> None:
    assert told(Event(1, Kind.OPEN), Event(114, Kind.STATUS, code=0))
    assert not told(Event(1, Kind.OPEN), Event(116, Kind.STATUS, code=0))
    assert not told(Event(1, Kind.OPEN))


def test_client_that_is_told_live_again_must_have_been_told_otherwise() -> None:
    assert told(Event(1, Kind.OPEN), Event(50, Kind.STATUS, code=0), Event(170, Kind.STATUS, code=1))
    assert not told(Event(1, Kind.OPEN), Event(50, Kind.STATUS, code=0), Event(90, Kind.STATUS, code=1))


def test_client_that_leaves_or_comes_in_between_need_not_be_told() -> None:
    assert told(Event(1, Kind.OPEN), Event(110, Kind.CLOSE, code=1006))
    assert told(Event(105, Kind.OPEN))
    assert told(Event(1, Kind.OPEN), fault=FAULT._replace(told=None))


def late(heal: float | None) -> History:
    fault = Fault("kill-broker", "kafka-1", 10, 12, heal=heal)
    events = [
        Event(1, Kind.OPEN),
        Event(1, Kind.SUBSCRIBE, "/a"),
        Event(1, Kind.SUBSCRIBED, "/a"),
        Event(30, Kind.UPDATE, "/a", 1_700_000_000_001),
    ]
    return History([Accepted("/a", 1_700_000_000_001, 11)], {"1": events}, 40, [fault])


def test_fault_may_have_more_or_less_time_to_heal_than_the_run_gives() -> None:
    bounds = Bounds(t_conv=5, t_heal=15)
    assert not judge(late(None), bounds).clean
    assert judge(late(20), bounds).clean
    assert not judge(late(1), bounds).clean


def test_lag_belongs_to_the_last_fault_that_it_met() -> None:
    history = late(20)
    last = Fault("kill-bridge", "bridge-1", 25, 26)
    report = judge(History(history.accepted, history.clients, 40, [*history.faults, last]), Bounds(5, 15))
    assert [(fault.kind, lag) for fault, lag in report.lags.faults.items()] == [("kill-broker", 0), ("kill-bridge", 19)]
