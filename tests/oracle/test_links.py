from tests.oracle import Accepted, Bounds, Event, Fault, History, Kind, Report, judge
from tests.oracle.history import LEFT
from tests.oracle.notice import check_told

V = 1_700_000_000_000
OLD, NEW = 1, 2


def on(link: int, time: float, kind: Kind, endpoint: str = "/a", *, version: int = 0, code: int = 0) -> Event:
    return Event(time, kind, endpoint, version, code, link)


def joined(link: int, time: float, endpoint: str = "/a") -> list[Event]:
    return [
        on(link, time, Kind.OPEN, ""),
        on(link, time, Kind.SUBSCRIBE, endpoint),
        on(link, time + 0.1, Kind.SUBSCRIBED, endpoint),
    ]


def told(link: int, time: float, version: int = V + 1) -> Event:
    return on(link, time, Kind.UPDATE, version=version)


def report(*events: Event, at: float = 30, faults: list[Fault] | None = None) -> Report:
    """Check a run of 100 s with one change, accepted at ``at``."""
    ordered = sorted(events, key=lambda event: event.time)
    return judge(History([Accepted("/a", V + 1, at)], {"1": ordered}, 100, faults or []), Bounds(5, 15))


def broken(*events: Event, at: float = 30) -> set[str]:
    return {type(violation).__name__ for violation in report(*events, at=at).violations}


def test_endpoint_that_moves_to_another_connection_is_one_interest() -> None:
    moved = [*joined(NEW, 20), on(OLD, 20.2, Kind.MOVED), on(OLD, 26, Kind.CLOSE, "", code=1000)]
    assert not broken(*joined(OLD, 1), *moved, told(NEW, 30.5))
    assert report(*joined(OLD, 1), *moved, told(NEW, 30.5)).lags.steady == [0.5]


def test_client_that_is_told_to_move_is_owed_everything_all_the_same() -> None:
    moved = on(OLD, 20, Kind.MOVED, code=1)
    assert broken(*joined(OLD, 1), moved, *joined(NEW, 60), told(NEW, 60.2)) == {"Behind"}
    assert not broken(*joined(OLD, 1), moved, *joined(NEW, 33), told(NEW, 33.2))


def test_end_of_the_connection_that_it_was_moved_from_is_no_excuse() -> None:
    moved = [on(OLD, 20, Kind.MOVED, code=1), on(OLD, 25, Kind.CLOSE, "", code=1012)]
    assert broken(*joined(OLD, 1), *moved, *joined(NEW, 39), told(NEW, 39.2)) == {"Behind"}


def test_client_that_is_moved_and_never_subscribes_again_has_not_converged() -> None:
    assert broken(*joined(OLD, 1), on(OLD, 20, Kind.MOVED, code=1)) == {"Behind", "NotConverged"}


def test_lost_connection_excuses_only_what_was_subscribed_on_it() -> None:
    other = joined(NEW, 1, "/b")
    lost = [on(NEW, 29, Kind.CLOSE, "", code=1006), *joined(NEW, 33, "/b")]
    assert broken(*joined(OLD, 1), *other, *lost, told(OLD, 36)) == {"Behind"}
    back = [on(OLD, 29, Kind.CLOSE, "", code=1006), *joined(3, 36)]
    assert not broken(*joined(OLD, 1), *other, *back, told(3, 36.2))


def test_client_that_has_an_endpoint_on_two_connections_is_owed_it_until_both_are_silent_or_gone() -> None:
    both = [*joined(OLD, 1), *joined(NEW, 2)]
    silent = on(OLD, 29, Kind.STATUS, "")
    assert broken(*both, silent, told(NEW, 36)) == {"Behind"}
    assert broken(*both, on(OLD, 29, Kind.CLOSE, "", code=1006), told(NEW, 36)) == {"Behind"}
    lost = on(NEW, 29.5, Kind.CLOSE, "", code=1006)
    assert not broken(*both, silent, lost, on(OLD, 35, Kind.STATUS, "", code=1), told(OLD, 36))


def test_silence_ends_with_its_connection() -> None:
    silent = [on(OLD, 29, Kind.STATUS, ""), on(OLD, 31, Kind.CLOSE, "", code=1006)]
    assert not broken(*joined(OLD, 1), *silent, *joined(OLD, 35), told(OLD, 35.2))
    assert broken(*joined(OLD, 1), *silent, *joined(OLD, 35), told(OLD, 61)) == {"Behind", "BarrierBroken"}


def test_reply_of_the_connection_that_was_left_ends_no_interest() -> None:
    moved = [*joined(NEW, 20), on(OLD, 20.2, Kind.MOVED), on(NEW, 20.3, Kind.CLOSE, "", code=1006)]
    assert broken(*joined(OLD, 1), *moved, on(OLD, 20.4, Kind.UNSUBSCRIBED)) == {"Away"}


def test_unsubscribed_endpoint_is_owed_on_no_connection() -> None:
    both = [*joined(OLD, 1), *joined(NEW, 2)]
    assert not broken(*both, on(OLD, 20, Kind.UNSUBSCRIBE), on(OLD, 20.1, Kind.UNSUBSCRIBED))
    assert not broken(*both, on(NEW, 20, Kind.CLOSE, "", code=LEFT))


def test_update_must_be_subscribed_on_its_own_connection() -> None:
    other = joined(NEW, 1, "/b")
    assert "NotSubscribed" in broken(*joined(OLD, 1), *other, told(NEW, 30.5))
    left = [on(OLD, 20.2, Kind.MOVED), on(OLD, 20.3, Kind.UNSUBSCRIBED)]
    assert broken(*joined(OLD, 1), *joined(NEW, 20), *left, told(OLD, 30.5)) == {"AfterUnsubscribed"}


def test_server_may_go_on_delivering_what_it_said_has_moved() -> None:
    assert not broken(*joined(OLD, 1), on(OLD, 29, Kind.MOVED, code=1), told(OLD, 30.5))


def test_versions_increase_over_all_connections() -> None:
    events = [*joined(OLD, 1), *joined(NEW, 2), told(OLD, 30.1), told(NEW, 30.2)]
    assert broken(*events) == {"OutOfOrder"}


def test_fault_that_nobody_may_notice_excuses_nothing_but_shows_the_time_behind() -> None:
    fault = Fault("metadata-down", "metadata", 28, 58, excuses=False)
    late = report(*joined(OLD, 1), told(OLD, 36), faults=[fault])
    assert [type(violation).__name__ for violation in late.violations] == ["Behind"]
    kept = report(*joined(OLD, 1), told(OLD, 34), faults=[fault])
    assert kept.clean
    assert (kept.lags.faults, kept.lags.steady) == ({fault: 4}, [])
    assert report(*joined(OLD, 1), told(OLD, 36), faults=[fault._replace(excuses=True)]).clean


def test_every_connection_must_be_told_of_a_fault_that_says_so() -> None:
    fault = Fault("all-brokers-down", "kafka", 100, 160, told=15)
    opened = [on(OLD, 1, Kind.OPEN, ""), on(NEW, 1, Kind.OPEN, "")]
    silent = [on(OLD, 110, Kind.STATUS, ""), on(NEW, 111, Kind.STATUS, "")]
    assert not list(check_told("1", [*opened, *silent], [fault]))
    assert len(list(check_told("1", [*opened, silent[0]], [fault]))) == 1
