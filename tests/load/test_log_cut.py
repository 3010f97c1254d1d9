"""The count of clients that are live with an old version, and the oracle's judgement of the same histories."""

from tests.load.injection.log_cut import CURRENT_SECONDS, HEAL_SECONDS, OBSERVED_SECONDS, old_and_live
from tests.oracle import Accepted, Bounds, Event, Fault, History, Kind, judge

V = 1_700_000_000_000
CUT = 30.0
"""The bridges continue; the change was accepted a second before."""


def history(*events: Event) -> History:
    joined = [
        Event(1, Kind.OPEN),
        Event(1.1, Kind.STATUS, code=1),
        Event(1.2, Kind.SUBSCRIBE, "/a"),
        Event(1.3, Kind.SUBSCRIBED, "/a", V),
        Event(1.3, Kind.UPDATE, "/a", V),
    ]
    accepted = [Accepted("/a", V, 0.5), Accepted("/a", V + 1, CUT - 1)]
    fault = Fault("cut-log-records", "all partitions", CUT - 2, CUT, heal=HEAL_SECONDS)
    return History(accepted, {"1": [*joined, *events]}, 100, [fault])


def old(*events: Event) -> int:
    return old_and_live(history(*events), CUT, CUT + CURRENT_SECONDS)


def broken(*events: Event) -> set[str]:
    return {type(violation).__name__ for violation in judge(history(*events), Bounds(15, 15)).violations}


def test_a_bridge_that_goes_live_again_with_what_it_had_is_found_by_both() -> None:
    # As with a bridge that starts at the end of what is left of its log: the client hears nothing at all.
    assert old() == 1
    assert broken() == {"Behind", "NotConverged"}
    # A later write hides it from the end of the run, and not from the time before.
    late = Event(CUT + OBSERVED_SECONDS, Kind.UPDATE, "/a", V + 1)
    assert old(late) == 1
    assert broken(late) == {"Behind"}


def test_a_client_that_is_current_or_not_live_or_fetches_is_not_old_and_live() -> None:
    assert old(Event(CUT + 4, Kind.UPDATE, "/a", V + 1)) == 0
    assert not broken(Event(CUT + 4, Kind.UPDATE, "/a", V + 1))
    assert old(Event(CUT + 4, Kind.HELD, "/a", V + 1)) == 0
    assert old(Event(CUT + 4, Kind.STATUS, code=0)) == 0
    assert old(Event(CUT + 4, Kind.STATUS, code=0), Event(CUT + 6, Kind.STATUS, code=1)) == 1
    assert old(Event(CUT + 4, Kind.STATUS, "/a", code=0)) == 0
    assert old(Event(CUT + 4, Kind.RESYNC, "/a")) == 0
    assert old(Event(CUT + 4, Kind.CLOSE, code=1012)) == 0
    assert old(Event(CUT + 4, Kind.UNSUBSCRIBE, "/a")) == 0
    elsewhere = Event(2, Kind.SUBSCRIBED, "/a", V, link=1)
    live = Event(2, Kind.STATUS, code=1, link=1)
    assert old(live, elsewhere) == 2
    assert old(live, elsewhere, Event(CUT + 4, Kind.UNSUBSCRIBE, "/a")) == 0
    # Before the request was confirmed.
    crossing = (Kind.UNSUBSCRIBE, Kind.SUBSCRIBED, Kind.UNSUBSCRIBED)
    assert old(*(Event(2, kind, "/a", V) for kind in crossing)) == 0
    assert old(*(Event(2, kind, "/a", V) for kind in crossing[:2])) == 1
