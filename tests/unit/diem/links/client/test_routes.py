"""Where endpoints are subscribed: hops, back-off, what is joined before what is left, and where hot ones go."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pytest

from diem.links.client.base import Timing
from diem.links.client.routes import Located, Routes, RouteStep

A, B, C = "ws://a", "ws://b", "ws://c"


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Routes:
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    return Routes(Timing())


def said(steps: Iterable[RouteStep]) -> list[str]:
    return [f"{'+' if step.kind == 'join' else '-'}{step.name} {step.url[-1]}" for step in steps]


def located(
    routes: Routes,
    now: float,
    owners: Mapping[str, str | None],
    *,
    servers: Sequence[str] = (),
    live: Mapping[str, bool] | None = None,
) -> list[str]:
    """Locate what is due; ``hot`` is an owner like any other here."""
    hot = frozenset(name for name, owner in owners.items() if owner == "hot")
    answer = Located({name: None if name in hot else owner for name, owner in owners.items()}, hot, servers)
    return said(routes.located(routes.to_locate(now), answer, live or {}, now))


def arrive(routes: Routes, url: str, name: str = "/a") -> None:
    routes.want(name, 0)
    located(routes, 0, {name: url})
    routes.registered(url, [name], 0)


def test_what_is_wanted_is_located_at_once_and_joined_at_its_owner(routes: Routes) -> None:
    routes.want("/a", 0)
    routes.want("/b", 0)
    assert located(routes, 0, {"/a": A, "/b": B}) == ["+/a a", "+/b b"]
    assert routes.next_due == math.inf
    assert routes.registered(A, ["/a", "/b"], 0) == []
    assert (routes.is_registered("/a"), routes.is_registered("/b")) == (True, False)


def test_a_question_has_at_most_a_thousand_names(routes: Routes) -> None:
    for number in range(1001):
        routes.want(f"/e/{number}", 0)
    assert [len(routes.to_locate(0)) for _ in range(3)] == [1000, 1, 0]


def test_moved_joins_the_owner_first_and_leaves_when_it_has_answered(routes: Routes) -> None:
    arrive(routes, A)
    assert said(routes.moved(A, ["/a", "/stranger"], B, 1)) == ["+/a b"]
    assert routes.moved(A, ["/a"], C, 1) == []
    assert routes.uses(A)
    assert said(routes.registered(B, ["/a"], 1)) == ["-/a a"]
    assert not routes.uses(A)


@pytest.mark.parametrize("owner", [None, A])
def test_moved_without_another_owner_is_located_and_may_be_asked_for_where_it_was(
    routes: Routes, owner: str | None
) -> None:
    arrive(routes, A)
    assert routes.moved(A, ["/a"], owner, 1) == []
    assert located(routes, 1, {"/a": A}) == ["+/a a"]
    assert routes.registered(A, ["/a"], 1) == []


def test_not_owner_leads_on_three_times_then_to_delays_that_double(routes: Routes) -> None:
    routes.want("/a", 0)
    located(routes, 0, {"/a": A})
    hops = [said(routes.not_owner(*hop, 0)) for hop in ((A, "/a", B), (B, "/a", A), (A, "/a", B))]
    assert hops == [["-/a a", "+/a b"], ["-/a b", "+/a a"], ["-/a a", "+/a b"]]
    now, windows = 0.0, []
    for _ in range(8):
        assert said(routes.not_owner(B, "/a", A, now)) == ["-/a b"]
        windows.append(routes.next_due - now)
        now = routes.next_due
        assert located(routes, now, {"/a": B}) == ["+/a b"]
    assert windows == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_servers_that_take_it_and_give_it_away_again_do_not_send_it_round_for_ever(routes: Routes) -> None:
    arrive(routes, A)
    joins, here, there = 0, A, B
    for turn in range(50):
        joins += len([step for step in routes.moved(here, ["/a"], there, turn / 50) if step.kind == "join"])
        routes.registered(there, ["/a"], turn / 50)
        here, there = there, here
    assert joins == 3


def test_hops_are_forgotten_once_it_has_stayed(routes: Routes) -> None:
    arrive(routes, A)
    for now, here, there in ((1, A, B), (1.1, B, C), (1.2, C, A), (2.2, A, B)):
        assert f"+/a {there[-1]}" in said(routes.moved(here, ["/a"], there, now))
        routes.registered(there, ["/a"], now)


def test_refusals_after_it_has_stayed_somewhere_do_not_send_it_round_for_ever(routes: Routes) -> None:
    arrive(routes, A)
    steps = routes.moved(A, ["/a"], B, 50)
    here, there = B, C
    for turn in range(50):
        steps += routes.not_owner(here, "/a", there, 50 + turn / 50)
        here, there = there, here
    assert len([step for step in steps if step.kind == "join"]) == 3


def test_refused_where_it_is_going_it_goes_back_to_where_it_still_is(routes: Routes) -> None:
    arrive(routes, A)
    routes.moved(A, ["/a"], B, 1)
    assert said(routes.not_owner(B, "/a", A, 1)) == ["-/a b", "+/a a"]
    assert routes.registered(A, ["/a"], 1) == []


def test_refused_where_it_still_was_only_that_is_left(routes: Routes) -> None:
    arrive(routes, A)
    routes.moved(A, ["/a"], B, 1)
    assert said(routes.not_owner(A, "/a", C, 1)) == ["-/a a"]
    assert routes.url("/a") == B


def test_what_was_on_a_lost_connection_is_not_settled_and_what_was_leaving_has_left(routes: Routes) -> None:
    arrive(routes, A)
    arrive(routes, B, "/b")
    routes.moved(A, ["/a"], B, 1)
    assert said(routes.lost(A)) == ["-/a a"]
    assert routes.lost(B) == []
    assert (routes.is_registered("/b"), routes.url("/b")) == (False, B)


def test_a_doubt_moves_only_what_has_another_owner(routes: Routes) -> None:
    arrive(routes, A)
    for owner in (A, None):
        routes.suspect(A, 1)
        assert located(routes, 1, {"/a": owner}) == []
        assert routes.is_registered("/a")
    routes.suspect(A, 2)
    assert located(routes, 2, {"/a": B}) == ["+/a b"]
    assert said(routes.registered(B, ["/a"], 2)) == ["-/a a"]


def test_what_nobody_owns_is_located_again_with_delays_that_double(routes: Routes) -> None:
    routes.want("/a", 0)
    assert located(routes, 0, {"/a": None}) == []
    assert routes.next_due == 0.5
    assert located(routes, 0.5, {}) == []
    assert routes.next_due == 1.5


def test_an_answer_that_was_overtaken_says_nothing(routes: Routes) -> None:
    arrive(routes, A)
    routes.suspect(A, 1)
    names = routes.to_locate(1)
    routes.moved(A, ["/a"], B, 1)
    assert routes.located(names, Located({"/a": A}), {}, 1) == []
    routes.suspect(B, 1)
    names = routes.to_locate(1)
    routes.release("/a")
    assert routes.located(names, Located({"/a": A}), {}, 1) == []


def test_a_question_without_an_answer_leaves_all_where_it_is_and_due(routes: Routes) -> None:
    arrive(routes, A)
    routes.suspect(A, 1)
    routes.unanswered(routes.to_locate(1), 2)
    assert (routes.url("/a"), routes.is_registered("/a"), routes.next_due) == (A, True, 2)


def test_releasing_leaves_where_it_is_and_where_it_was(routes: Routes) -> None:
    arrive(routes, A)
    routes.moved(A, ["/a"], B, 1)
    assert sorted(said(routes.release("/a"))) == ["-/a a", "-/a b"]
    assert "/a" not in routes


def test_hot_ones_go_where_the_others_go_else_to_the_first_of_the_servers(routes: Routes) -> None:
    for name in ("/hot", "/a"):
        routes.want(name, 0)
    assert located(routes, 0, {"/hot": "hot", "/a": B}, servers=[A, B]) == ["+/a b", "+/hot b"]
    alone = Routes(Timing())
    for name in ("/hot", "/hotter"):
        alone.want(name, 0)
    assert located(alone, 0, {"/hot": "hot", "/hotter": "hot"}, servers=[C, A]) == ["+/hot c", "+/hotter c"]


@pytest.mark.parametrize(
    ("live", "servers", "goes"),
    [
        ({A: True}, [B], []),
        ({A: False}, [A, B], []),  # all of them may be like that: no reason to roam
        ({A: False, B: True}, [A, B], ["+/hot b"]),
        ({A: False}, [C], ["+/hot c"]),  # no longer listed: it has left its group
        ({}, [A, C], ["+/hot c"]),
        ({}, [], []),
    ],
)
def test_a_hot_one_stays_where_it_is_live_and_leaves_a_server_that_is_not(
    routes: Routes, live: Mapping[str, bool], servers: Sequence[str], goes: Sequence[str]
) -> None:
    arrive(routes, A, "/hot")
    routes.suspect(A, 1)
    assert located(routes, 1, {"/hot": "hot"}, servers=servers, live=live) == goes


def test_an_older_answer_places_what_has_no_place_and_moves_nothing(routes: Routes) -> None:
    arrive(routes, A, "/a")
    arrive(routes, A, "/lost")
    routes.lost(A)
    routes.registered(A, ["/a"], 0)
    routes.suspect(A, 1)
    routes.want("/new", 1)
    answer = Located({"/a": B, "/lost": B, "/new": B}, servers=[A, B], older=True)
    assert said(routes.located(routes.to_locate(1), answer, {A: True}, 1)) == ["+/new b"]
    routes.suspect(A, 2)
    assert located(routes, 2, {"/a": B, "/lost": B}) == ["+/a b", "+/lost b", "-/lost a"]


def test_where_there_is_no_room_it_is_asked_again_with_back_off_and_stays_where_it_was(routes: Routes) -> None:
    arrive(routes, A)
    assert said(routes.moved(A, ["/a"], B, 50)) == ["+/a b"]
    assert said(routes.over_limit(B, "/a", 51)) == ["-/a b"]
    assert (routes.url("/a"), routes.is_registered("/a"), routes.uses(A), routes.next_due) == (None, False, True, 51.5)
    assert located(routes, 51.5, {"/a": B}) == ["+/a b"]
    assert said(routes.over_limit(B, "/a", 52)) == ["-/a b"]
    assert (routes.uses(A), routes.next_due) == (True, 53.0)
    assert said(routes.lost(A)) == ["-/a a"]
    assert located(routes, 53, {"/a": B}) == ["+/a b"]
    assert said(routes.registered(B, ["/a"], 54)) == []
    assert routes.is_registered("/a")


def test_where_there_is_no_room_what_gave_nothing_away_is_settled_as_before(routes: Routes) -> None:
    arrive(routes, A)
    routes.suspect(A, 50)
    assert located(routes, 50, {"/a": B}) == ["+/a b"]
    assert said(routes.over_limit(B, "/a", 51)) == ["-/a b"]
    assert (routes.url("/a"), routes.is_registered("/a"), routes.next_due) == (A, True, 51.5)
    assert located(routes, 51.5, {"/a": B}) == ["+/a b"]
    assert said(routes.moved(A, ["/a"], B, 52)) == []
    assert said(routes.over_limit(B, "/a", 53)) == ["-/a b"]
    assert (routes.url("/a"), routes.uses(A)) == (None, True)
