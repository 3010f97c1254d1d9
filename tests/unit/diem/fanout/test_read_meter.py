"""Meters of accounts, and their leases."""

from typing import Any

from diem.fanout.fanout import Fanout, Variant
from diem.fanout.read_meter import UNLIMITED, UNMETERED, LeaseReport, ReadMeter, ReadMeters
from diem.fanout.session import DeliveryStats, Session


def session(meter: ReadMeter, *, data: bool = False, fanout: Fanout | None = None) -> Session:
    made, fanout = Session(lambda _: None, lambda _: None, DeliveryStats()), fanout or Fanout()
    fanout.set_meter(made, meter)
    if data:
        fanout.registry.add(b"/a", made, Variant.WITH_DATA)
    return made


def drained(meters: ReadMeters, size: int = 100) -> list[dict[str, int]]:
    return [report.reads for report in meters.reports(size)]


def granted(*keys: str, lease: int | None = None, **more: Any) -> dict[str, Any]:
    return {"exhausted": [], "leases": dict.fromkeys(keys, lease), **more}


def test_data_counts_to_the_user_and_the_key_and_is_returned_once() -> None:
    meters = ReadMeters()
    meters.apply((), granted())
    alice, bob = meters.of("k", "k/alice"), meters.of("k", "k/bob")
    meters.apply(["k"], granted("k"))
    assert all(alice.spend(1) for _ in range(3))
    assert bob.spend(2)
    assert drained(meters) == [{"k": 5, "k/alice": 3, "k/bob": 2}]
    assert drained(meters) == []


def test_reports_of_many_accounts_are_in_parts() -> None:
    meters = ReadMeters()
    for number, key in enumerate("abcd"):
        meters.of(key).reads += number
    assert drained(meters, 2) == [{"b": 1, "c": 2}, {"d": 3}]


def test_a_lease_bounds_what_is_spent_until_the_next_answer() -> None:
    wakes: list[None] = []
    meters = ReadMeters(lambda: wakes.append(None))
    meter = meters.of("k")
    session(meter, data=True)
    assert not meter.spend(1)
    assert meter.exhausted
    assert list(meters.reports(9)) == [LeaseReport({}, {"k": 1}, ["k"])]
    assert meters.apply(["k"], granted("k", lease=10)) == [meter]
    wakes.clear()
    assert [meter.spend(1) for _ in range(5)] == [True] * 5
    assert not wakes
    assert meter.spend(1)
    assert meter.spend(1)
    assert len(wakes) == 1, "half of the lease is used up: the next is requested once"
    # What is left may be spent until the answer comes.
    assert [report.reads for report in meters.reports(9)] == [{"k": 7}]
    assert [meter.spend(1) for _ in range(4)] == [True] * 3 + [False]
    assert len(wakes) == 2
    assert meters.apply(["k"], granted("k", lease=3)) == []
    assert meter.exhausted, "three were spent before the answer"


def test_an_update_for_more_receivers_than_the_lease_asks_for_so_many() -> None:
    meters = ReadMeters()
    meter = meters.of("k")
    session(meter, data=True)
    meters.apply(["k"], granted("k", lease=10))
    assert meter.spend(6)
    assert not meter.spend(30)
    (report,) = meters.reports(9)
    assert (report.reads, report.wanted) == ({"k": 6}, {"k": 30})
    meters.apply(["k"], granted("k", lease=40))
    assert meter.spend(10)
    (report,) = meters.reports(9)
    assert report.wanted == {"k": 40}, "four times what was sent"


def test_a_lease_is_returned_when_no_client_is_sent_data() -> None:
    meters = ReadMeters()
    meter = meters.of("k")
    client = session(meter)
    waits: list[None] = []
    assert meter.wait_for_lease(lambda: waits.append(None))
    assert [report.wanted for report in meters.reports(9)] == [{"k": 1}]
    meters.apply(["k"], granted("k", lease=10))
    meters.resume_waiting(["k"])
    assert len(waits) == 1
    assert not meter.wait_for_lease(lambda: waits.append(None))
    meter.subscriptions = 1
    assert [report.wanted for report in meters.reports(9)] == [{"k": 1}]
    meter.subscriptions = 0
    assert [report.wanted for report in meters.reports(9)] == [{"k": 0}]
    assert not meter.exhausted
    assert [report.wanted for report in meters.reports(9)] == []
    assert client.meter is meter


def test_a_user_has_what_the_key_allows_users_and_then_what_is_left() -> None:
    meters = ReadMeters()
    alice = meters.of("k", "k/alice")
    session(alice, data=True)
    meters.apply(["k"], granted("k", lease=100, per_user={"k": 5}))
    bob = meters.of("k", "k/bob")
    session(bob)
    assert [alice.spend(1) for _ in range(6)] == [True] * 5 + [False]
    assert (alice.used_up, bob.used_up, meters.of("k").exhausted) == (True, False, False)
    assert bob.spend(5)
    (report,) = meters.reports(9)
    assert report.reads == {"k": 10, "k/alice": 5, "k/bob": 5}
    left = {"k": 90, "k/alice": 2, "k/bob": 0}
    assert meters.apply(report.accounts, {"exhausted": [], "leases": left}) == [alice, bob]
    assert alice.spend(2)
    assert not bob.spend(1)
    (report,) = meters.reports(9)
    assert report.exhausted == ["k/bob"], "until it has as much as a new user"


def test_keys_are_sent_data_while_no_report_is_answered_and_their_users_no_more_than_they_may() -> None:
    meters = ReadMeters()
    alice = meters.of("k", "k/alice")
    session(alice)
    meters.apply(["k"], granted("k", lease=1, per_user={"k": 5}))
    assert alice.spend(1)
    assert not alice.spend(1)
    assert meters.suspend() == [meters.of("k")]
    assert [alice.spend(1) for _ in range(5)] == [True] * 4 + [False]
    assert meters.of("new").spend(1000)
    meters.apply(["k"], granted("k", lease=1))
    assert meters.of("k").exhausted
    assert not meters.of("another").spend(1)


def test_the_answer_of_an_earlier_release_says_only_who_has_nothing_left() -> None:
    meters = ReadMeters()
    first, second = meters.of("a"), meters.of("b")
    assert meters.apply(["a", "b"], {"exhausted": ["a"]}) == [first]
    assert (first.exhausted, second.lease) == (True, UNLIMITED)


def test_meter_is_kept_while_a_session_uses_it_or_it_has_something_to_report() -> None:
    meters, fanout = ReadMeters(), Fanout()
    used, reported = meters.of("used", "used/alice"), meters.of("reported")
    client = session(used, fanout=fanout)
    meters.of("neither")
    reported.reads = 1
    assert drained(meters) == [{"reported": 1}]
    assert len(meters) == 3
    assert drained(meters) == []
    assert len(meters) == 2
    assert meters.of("used", "used/alice") is used
    fanout.leave(client)
    assert drained(meters) == []
    assert len(meters) == 0


def test_nothing_is_counted_without_a_key() -> None:
    assert UNMETERED.spend(10**9)
    assert (UNMETERED.reads, UNMETERED.used_up) == (0, False)
