from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import Accepted, Bounds, Event, Fault, History, Kind, Report, Snapshot, Uncertain, judge
from tests.oracle.history import LEFT, WIPE, read_history, write_history
from tests.oracle.judge import KEPT
from tests.oracle.mutate import CONTROLS, EXPECTED, NotApplicable
from tests.oracle.simulate import Simulation
from tests.oracle.violations import Violation

V = 1_700_000_000_000
SUBSCRIBED = [Event(1, Kind.OPEN), Event(1, Kind.SUBSCRIBE, "/a"), Event(1.1, Kind.SUBSCRIBED, "/a")]


def update(time: float, version: int, endpoint: str = "/a") -> Event:
    return Event(time, Kind.UPDATE, endpoint, V + version)


def accepted(time: float, version: int, endpoint: str = "/a", key: str = "") -> Accepted:
    return Accepted(endpoint, V + version, time, key=key)


def history(changes: list[Accepted], events: list[Event], end: float = 60.0, **more: object) -> History:
    return replace(History(changes, {"7": events}, end), **more)  # type: ignore[arg-type]


def classes(report: Report) -> set[str]:
    return {type(violation).__name__ for violation in report.violations}


def only(report: Report) -> Violation:
    assert len(report.violations) == 1, report.figures()["violations"]
    return report.violations[0]


def test_prompt_update_is_clean_and_its_lag_counts_from_acceptance() -> None:
    report = judge(history([accepted(2, 1), accepted(3, 2)], [*SUBSCRIBED, update(2.25, 1), update(3.5, 2)]))
    assert report.clean
    assert report.lags.steady == [0.25, 0.5]


def test_update_that_overtakes_its_2xx_has_lag_zero() -> None:
    report = judge(history([accepted(2, 1)], [*SUBSCRIBED, update(1.9, 1)]))
    assert report.clean
    assert report.lags.steady == [0]


def test_conflated_version_is_covered_by_the_later_one() -> None:
    report = judge(history([accepted(2, 1), accepted(3, 2)], [*SUBSCRIBED, update(4, 2)]))
    assert report.clean
    assert report.lags.steady == [2, 1]


def test_late_update_is_behind_with_its_evidence() -> None:
    broken = only(judge(history([accepted(2, 1)], [*SUBSCRIBED, update(7.5, 1)])))
    assert (type(broken).__name__, broken.client, broken.endpoint) == ("Behind", "7", "/a")
    assert broken.versions == (V + 1,)
    assert broken.times == (2, 7, 7.5)
    assert "I2" in str(broken)
    assert "/a" in str(broken)


def test_update_that_never_comes_is_behind_and_not_converged() -> None:
    assert classes(judge(history([accepted(2, 1)], SUBSCRIBED))) == {"Behind", "NotConverged"}


def test_observation_that_ends_before_the_deadline_still_demands_convergence() -> None:
    assert classes(judge(history([accepted(59, 1)], SUBSCRIBED))) == {"NotConverged"}


def test_subscriber_is_owed_nothing_from_before_its_subscribed_but_the_latest() -> None:
    changes = [accepted(0.1, 1), accepted(0.2, 2)]
    report = judge(history(changes, [*SUBSCRIBED, update(1.2, 2)]))
    assert report.clean
    assert report.lags.steady == []
    assert report.lags.arrival == [pytest.approx(0.1)]


def test_known_version_in_the_subscribe_is_not_owed_again() -> None:
    events = [Event(1, Kind.OPEN), Event(1, Kind.SUBSCRIBE, "/a", V + 1), Event(1.1, Kind.SUBSCRIBED, "/a", V + 1)]
    assert judge(history([accepted(0.5, 1)], events)).clean


def test_fetched_version_is_not_owed_again() -> None:
    assert judge(history([accepted(2, 1)], [*SUBSCRIBED, Event(3, Kind.HELD, "/a", V + 1)])).clean


def test_fault_suspends_the_promise_until_t_heal_after_its_end() -> None:
    fault = Fault("kill", "broadcast", 1.5, 20)
    kept = judge(history([accepted(2, 1)], [*SUBSCRIBED, update(34.9, 1)], faults=[fault]))
    assert kept.clean
    assert kept.lags.faults == {fault: pytest.approx(32.9)}
    assert kept.lags.steady == []
    late = only(judge(history([accepted(2, 1)], [*SUBSCRIBED, update(35.1, 1)], faults=[fault])))
    assert late.times == (2, 35, 35.1)


def test_fault_that_begins_after_the_deadline_is_no_excuse() -> None:
    fault = Fault("kill", "data", 7.1, 9)
    assert classes(judge(history([accepted(2, 1)], [*SUBSCRIBED, update(8, 1)], faults=[fault]))) == {"Behind"}


def test_disconnected_client_is_owed_everything_within_t_heal_of_its_return() -> None:
    gone = [Event(1.5, Kind.CLOSE, code=1006), Event(10, Kind.OPEN), Event(10, Kind.SUBSCRIBE, "/a")]
    back = Event(10.1, Kind.SUBSCRIBED, "/a", V + 1)
    assert judge(history([accepted(2, 1)], [*SUBSCRIBED, *gone, back, update(10.2, 1)])).clean
    late = judge(history([accepted(2, 1)], [*SUBSCRIBED, *gone, back, update(30, 1)]))
    assert classes(late) == {"Behind", "BarrierBroken"}


def test_client_that_stays_away_is_named() -> None:
    away = [Event(2, Kind.CLOSE, code=1006), Event(20, Kind.OPEN), Event(20, Kind.SUBSCRIBED, "/a")]
    broken = only(judge(history([], [*SUBSCRIBED, *away])))
    assert type(broken).__name__ == "Away"
    assert broken.times == (2, 17, 20)
    assert judge(history([], [*SUBSCRIBED, *away], faults=[Fault("kill", "websocket", 1.9, 6)])).clean


def test_client_that_left_for_good_is_owed_nothing() -> None:
    assert judge(history([accepted(2, 1)], [*SUBSCRIBED, Event(3, Kind.CLOSE, code=LEFT)])).clean


def test_nothing_is_owed_from_the_request_to_unsubscribe_on() -> None:
    events = [*SUBSCRIBED, Event(3, Kind.UNSUBSCRIBE, "/a"), Event(3.1, Kind.CLOSE, code=1006), Event(4, Kind.OPEN)]
    assert judge(history([accepted(2, 1), accepted(3.05, 2)], events)).clean


def test_live_false_suspends_the_promise_and_must_end() -> None:
    silent, live = Event(1.5, Kind.STATUS), Event(12, Kind.STATUS, code=1)
    assert judge(history([accepted(2, 1)], [*SUBSCRIBED, silent, live, update(26, 1)])).clean
    assert classes(judge(history([accepted(2, 1)], [*SUBSCRIBED, silent, update(26, 1)]))) == {"Away"}


def test_live_false_for_another_endpoint_suspends_nothing() -> None:
    silent, live = Event(1.5, Kind.STATUS, "/b"), Event(12, Kind.STATUS, "/b", code=1)
    assert classes(judge(history([accepted(2, 1)], [*SUBSCRIBED, silent, live, update(8, 1)]))) == {"Behind"}


def test_live_true_before_subscribed_does_not_end_the_absence() -> None:
    events = [Event(1.5, Kind.CLOSE, code=1006), Event(2, Kind.OPEN), Event(2, Kind.STATUS, code=1)]
    events = [*SUBSCRIBED, *events, Event(9, Kind.SUBSCRIBED, "/a", V + 1), update(9.1, 1)]
    assert judge(history([accepted(1.6, 1)], events)).clean


def test_resync_counts_as_what_is_accepted_then() -> None:
    assert judge(history([accepted(2, 1)], [*SUBSCRIBED, Event(3, Kind.RESYNC, "/a")])).clean
    late = judge(history([accepted(4, 1)], [*SUBSCRIBED, Event(3, Kind.RESYNC, "/a")]))
    assert classes(late) == {"Behind", "NotConverged"}


def held(time: float, version: int, stamp: int) -> Event:
    return Event(time, Kind.HELD, "/a", V + version, stamp)


def test_data_must_be_that_of_the_version_with_which_it_is_held() -> None:
    changes = [accepted(2, 1)._replace(stamp=5), accepted(3, 2)._replace(stamp=6)]
    other = accepted(2, 1, "/b")._replace(stamp=7)
    events = [*SUBSCRIBED, update(2.1, 1), held(2.1, 1, 5), update(3.1, 2)]
    assert judge(history([*changes, other], [*events, held(3.1, 2, 6)])).clean
    stale = only(judge(history([*changes, other], [*events, held(3.1, 2, 5)])))
    assert (type(stale).__name__, stale.invariant, stale.versions) == ("WrongData", "I15", (V + 2, V + 1))
    foreign = only(judge(history([*changes, other], [*events, held(3.1, 2, 7)])))
    assert (type(foreign).__name__, foreign.versions) == ("WrongData", (V + 2, 0))


def test_data_may_come_for_a_version_that_was_notified_before_but_for_no_older_one() -> None:
    changes = [accepted(2, 1)._replace(stamp=5), accepted(3, 2)._replace(stamp=6)]
    events = [*SUBSCRIBED, update(2.1, 1), update(3.1, 2), held(4, 2, 6)]
    assert judge(history(changes, events)).clean
    assert classes(judge(history(changes, [*events, held(5, 1, 5)]))) == {"OutOfOrder"}


def test_deleted_endpoint_has_no_data() -> None:
    changes = [accepted(2, 1)._replace(stamp=5), accepted(3, 2)._replace(gone=True)]
    events = [*SUBSCRIBED, update(2.1, 1), update(3.1, 2)]
    assert judge(history(changes, [*events, held(3.2, 2, 0)])).clean
    assert classes(judge(history(changes, [*events, held(3.2, 2, 5)]))) == {"WrongData"}


def test_data_of_a_version_with_a_lost_answer_is_that_of_such_a_write() -> None:
    events = [*SUBSCRIBED, update(2.1, 1), held(2.1, 1, 5)]
    assert judge(history([], events, uncertain=[Uncertain("/a", 1.9, 2, 5)])).clean
    assert classes(judge(history([], events, uncertain=[Uncertain("/a", 1.9, 2, 4)]))) == {"WrongData"}


@pytest.mark.parametrize("version", [1, 2])
def test_version_that_is_not_greater_is_out_of_order(version: int) -> None:
    events = [*SUBSCRIBED, update(2.1, 2), update(2.2, version)]
    broken = only(judge(history([accepted(2, 1), accepted(2, 2)], events)))
    assert type(broken).__name__ == "OutOfOrder"
    assert broken.versions == (V + 2, V + version)


def test_order_holds_over_reconnects() -> None:
    again = [Event(3, Kind.CLOSE, code=1012), Event(4, Kind.OPEN), Event(4, Kind.SUBSCRIBED, "/a"), update(4.1, 1)]
    events = [*SUBSCRIBED, update(2.1, 1), *again]
    assert classes(judge(history([accepted(2, 1)], events))) == {"OutOfOrder"}


def test_retained_update_that_does_not_follow_subscribed_breaks_the_barrier() -> None:
    events = [Event(1, Kind.OPEN), Event(1, Kind.SUBSCRIBE, "/a"), Event(1.1, Kind.SUBSCRIBED, "/a", V + 1)]
    report = judge(history([accepted(0.5, 1)], [*events, update(20, 1)]))
    assert "BarrierBroken" in classes(report)
    broken = next(found for found in report.violations if type(found).__name__ == "BarrierBroken")
    assert broken.versions == (V + 1, V + 1)
    assert list(broken.times) == pytest.approx([1.1, 6.1])


def test_update_between_request_and_reply_is_owed_though_the_reply_does_not_state_it() -> None:
    assert "BarrierBroken" in classes(judge(history([accepted(1.05, 1)], SUBSCRIBED)))


def test_version_that_nobody_accepted_is_a_phantom() -> None:
    assert classes(judge(history([], [*SUBSCRIBED, update(2, 1)]))) == {"NotAccepted"}


def test_stated_version_that_nobody_accepted_is_a_phantom() -> None:
    events = [Event(1, Kind.OPEN), Event(1.1, Kind.SUBSCRIBED, "/a", V + 1), Event(2, Kind.CLOSE)]
    assert classes(judge(history([], events))) == {"NotAccepted"}


def test_lost_answer_explains_one_version_and_no_second() -> None:
    lost = [Uncertain("/a", 1.5, 3)]
    assert judge(history([], [*SUBSCRIBED, update(2, 1)], uncertain=lost)).clean
    twice = judge(history([], [*SUBSCRIBED, update(2, 1), update(3, 2)], uncertain=lost))
    assert classes(twice) == {"NotAccepted"}
    early = judge(history([], [*SUBSCRIBED, update(1.2, 1)], uncertain=lost))
    assert classes(early) == {"NotAccepted"}


def test_endpoint_that_was_not_subscribed_is_a_phantom() -> None:
    events = [*SUBSCRIBED, update(2, 1, "/b")]
    assert classes(judge(history([accepted(2, 1, "/b")], events))) == {"NotSubscribed"}


def test_subscription_of_the_connection_before_does_not_count() -> None:
    events = [*SUBSCRIBED, Event(2, Kind.CLOSE, code=1012), Event(2.1, Kind.OPEN), update(2.2, 1)]
    events += [Event(2.3, Kind.SUBSCRIBED, "/a", V + 1)]
    assert classes(judge(history([accepted(1.9, 1)], events))) == {"NotSubscribed"}


def test_update_after_unsubscribed_is_named_as_that() -> None:
    events = [*SUBSCRIBED, Event(2, Kind.UNSUBSCRIBED, "/a"), update(2.1, 1)]
    assert classes(judge(history([accepted(2, 1)], events))) == {"AfterUnsubscribed"}


def test_update_before_the_subscribed_of_a_second_request_is_wanted() -> None:
    events = [*SUBSCRIBED, Event(2, Kind.SUBSCRIBE, "/a"), Event(2.1, Kind.UNSUBSCRIBED, "/a"), update(2.2, 1)]
    events += [Event(2.3, Kind.SUBSCRIBED, "/a", V + 1)]
    assert judge(history([accepted(2.15, 1)], events)).clean


def test_store_that_ends_below_the_latest_acceptance_has_lost_it() -> None:
    broken = only(judge(history([accepted(2, 1)], [], final={"/a": V})))
    assert type(broken).__name__ == "StoreLost"
    assert broken.versions == (V, V + 1)


def test_subscriber_below_what_rest_says_did_not_converge() -> None:
    report = judge(history([accepted(2, 1)], [*SUBSCRIBED, update(2.1, 1)], final={"/a": V + 2}))
    assert classes(report) == {"NotConverged"}


def test_key_that_is_accepted_twice_is_named_unless_the_store_was_wiped_between() -> None:
    changes = [accepted(2, 1, key="k"), accepted(2.5, 1, key="k"), accepted(9, 2, key="k")]
    assert classes(judge(history(changes, []))) == {"KeyTwice"}
    assert judge(history(changes, [], faults=[Fault(WIPE, "data", 3, 5)])).clean


def test_update_that_a_process_cannot_account_for_is_named() -> None:
    broken = only(judge(history([], [], snapshots=[Snapshot("websocket-1", 10, 5, 2, 1, 1)])))
    assert type(broken).__name__ == "Unaccounted"
    assert broken.versions == (10, 9)


def test_report_keeps_a_bounded_number_of_violations_and_counts_them_all() -> None:
    events = [*SUBSCRIBED, *(update(2, 1, "/b") for _ in range(KEPT + 5))]
    report = judge(history([accepted(2, 1, "/b")], events))
    assert len(report.violations) == KEPT
    assert report.counts["I6 NotSubscribed"] == KEPT + 5


def test_history_survives_its_files(tmp_path: Path) -> None:
    original = Simulation(Random(3), endpoints=4, clients=3, subscriptions=2).run(20)
    original = replace(original, faults=[Fault("kill", "data", 1, 2)], uncertain=[Uncertain("/e/1", 1, 2)])
    write_history(tmp_path, original)
    again = read_history(tmp_path)
    assert replace(again, clients=dict(again.clients)) == original


@pytest.fixture(scope="module")
def clean() -> History:
    made = Simulation(Random(5), endpoints=12, clients=8, subscriptions=6, churn=0.2).run(60)
    assert judge(made).clean
    return made


@pytest.mark.parametrize("control", CONTROLS)
def test_oracle_names_every_negative_control(control: str, clean: History) -> None:
    for seed in range(2):
        report = judge(CONTROLS[control](clean, Random(seed)))
        assert classes(report) >= EXPECTED[control]


def test_control_that_finds_no_place_says_so() -> None:
    empty = History([], {}, 0)
    for control in CONTROLS.values():
        with pytest.raises(NotApplicable):
            control(empty, Random(0))


@given(
    seed=st.integers(0, 2**32),
    endpoints=st.integers(2, 6),
    clients=st.integers(1, 4),
    faulty=st.booleans(),
    churn=st.sampled_from([0, 0.3, 1]),
    control=st.sampled_from(sorted(CONTROLS)),
)
@settings(max_examples=60, deadline=None)
def test_random_correct_systems_pass_and_any_single_mutation_is_caught(
    *, seed: int, endpoints: int, clients: int, faulty: bool, churn: float, control: str
) -> None:
    random = Random(seed)
    system = Simulation(random, endpoints=endpoints, clients=clients, subscriptions=endpoints - 1, churn=churn)
    start = random.uniform(1, 20)
    fault = Fault("kill", "data", start, start + random.uniform(0.1, 12)) if faulty else None
    clean = system.run(30, fault=fault, quiet=30 if faulty else 8)
    assert judge(clean).violations == []
    try:
        broken = CONTROLS[control](clean, random)
    except NotApplicable:
        return
    assert classes(judge(broken)) >= EXPECTED[control]


def test_tighter_bounds_find_what_the_default_allows() -> None:
    slow = history([accepted(2, 1)], [*SUBSCRIBED, update(4, 1)])
    assert judge(slow).clean
    assert classes(judge(slow, Bounds(t_conv=1))) == {"Behind"}


@pytest.mark.parametrize(("final", "found"), [(2, set()), (1, {"AheadOfStore", "StoreLost"}), (None, set())])
def test_subscriber_that_ends_above_the_store_is_named(final: int | None, found: set[str]) -> None:
    """Writes have stopped, so that nothing later can be on its way."""
    versions = None if final is None else {"/a": V + final}
    changes = [accepted(2, 1), accepted(3, 2)]
    assert classes(judge(history(changes, [*SUBSCRIBED, update(4, 2)], final=versions))) == found
