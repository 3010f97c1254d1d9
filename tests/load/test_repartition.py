from collections import Counter
from random import Random

import pytest

from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase
from tests.load import mix
from tests.load.faults import scenarios
from tests.load.injection import FAULTS
from tests.load.injection.repartition import (
    HOT_FIRST,
    MOVE,
    PHASES,
    ROLLED_BACK,
    lost,
    moved,
    quiet_of,
    repartitions,
    settings_of,
)
from tests.load.plans import draw_plan
from tests.oracle import Event, History, Kind

NAMES = [f"/load-test/{number:03}" for number in range(120)]
OWNERS = dict.fromkeys(range(4), "b001") | dict.fromkeys(range(4, 8), "b002")
MAP = PartitionMap(Head(8, 7), {name.encode(): Entry(HOT) for name in NAMES[:HOT_FIRST]})


def before(name: str) -> int:
    return MAP.home(name.encode())


@pytest.mark.parametrize("seed", range(5))
def test_plan_moves_a_third_to_and_from_hot_and_between_partitions_of_one_server(seed: int) -> None:
    plan = draw_plan(NAMES, MAP, OWNERS, Random(seed))
    assert (plan.epoch, plan.partitions, len(plan.homes)) == (7, 8, 40)
    assert all(home != before(name) and HOT <= home < 8 for name, home in plan.homes.items())
    assert sum(before(name) == HOT for name in plan.homes) == 6
    assert 1 <= sum(home == HOT for home in plan.homes.values()) <= 7
    owners = {HOT: "", **OWNERS}
    assert any(owners[home] == owners[before(name)] for name, home in plan.homes.items())


def test_same_seed_draws_the_same_homes() -> None:
    first, second, third = (draw_plan(NAMES, MAP, OWNERS, Random(seed)).homes for seed in (1, 1, 2))
    assert first == second != third


def test_plan_that_needs_more_partitions_uses_them() -> None:
    plan = draw_plan(NAMES, MAP, OWNERS, Random(1), more=2)
    assert plan.partitions == 10
    assert {8, 9} <= set(plan.homes.values())


def test_every_kind_of_process_is_killed_in_every_phase_and_plans_are_taken_back_from_each() -> None:
    for mode, kinds in (("z-client", 4), ("z-proxy", 5)):
        found = repartitions(mode, 1)
        assert len(set(found)) == len(found)
        assert set(found) <= FAULTS.keys()
        kills = Counter(name.split("-")[0] for name in found if "-kill-" in name)
        assert kills == dict.fromkeys(PHASES, kinds)
        assert {MOVE, ROLLED_BACK, *(f"{phase}-rollback" for phase in PHASES)} < set(found)


@pytest.mark.parametrize("seed", range(10))
def test_quick_run_kills_every_kind_of_process_once_and_in_every_phase_one(seed: int) -> None:
    for mode, kinds in (("z-client", 4), ("z-proxy", 5)):
        kills = [name.split("-") for name in repartitions(mode, seed, quick=True) if "-kill-" in name]
        assert len({what for _, _, what in kills}) == len(kills) == kinds
        assert {phase for phase, _, _ in kills} == set(PHASES)


def test_runs_of_repartitioning_are_those_in_which_somebody_follows() -> None:
    runs = [run for run in scenarios("repartition", 1) if run.label == "repartition"]
    assert [run.mode for run in runs] == ["z-client", "z-proxy"]
    assert len({run.name for run in runs}) == 2


def test_only_runs_with_moves_have_quiet_endpoints_and_settings_of_their_own() -> None:
    assert settings_of(("kill-bridge",), NAMES) == []
    assert quiet_of(("kill-bridge",), NAMES) == frozenset()
    assert "--hot" in settings_of(("kill-bridge", MOVE), NAMES)
    assert len(quiet_of((MOVE,), NAMES)) == 84


def test_endpoints_of_every_kind_change_all_the_time_beside_the_quiet_ones() -> None:
    names = mix.names_of(200)
    quiet = quiet_of((MOVE,), names)
    for some in (quiet, set(names) - quiet):
        assert {mix.kind_of(name) for name in some} == {*mix.KINDS} - {mix.COLLECTIONS}


def history(*events: Event) -> History:
    return History([], {"1": list(events)}, 200)


def test_connection_counts_as_lost_when_something_was_subscribed_on_it() -> None:
    had = Event(1, Kind.SUBSCRIBED, "/a", link=1)
    closed = Event(5, Kind.CLOSE, code=1006, link=1)
    assert lost(history(had, closed), 0, 10) == 1
    assert lost(history(had, closed), 6, 10) == 0
    assert lost(history(Event(1, Kind.SUBSCRIBED, "/a", link=2), closed), 0, 10) == 0
    assert lost(history(had, Event(2, Kind.MOVED, "/a", code=0, link=1), closed), 0, 10) == 0
    assert lost(history(had, Event(2, Kind.UNSUBSCRIBE, "/a"), closed), 0, 10) == 0
    assert lost(history(had, Event(2, Kind.UNSUBSCRIBED, "/b", link=1), closed), 0, 10) == 1


def test_moves_that_servers_asked_for_are_counted_and_those_of_the_client_are_not() -> None:
    told = history(Event(1, Kind.MOVED, "/a", code=1), Event(2, Kind.MOVED, "/a", code=0), Event(9, Kind.MOVED, code=1))
    assert moved(told, 0, 5) == 1


def test_phases_of_the_runs_are_those_of_a_move() -> None:
    assert set(PHASES) == set(Phase) - {Phase.STABLE}
