"""A condensed history has the same statistics as all events (docs/traffic.md section 3.5)."""

import random

import pytest

from diem.protocol.traffic import Accessed, Counted, TrafficEvent, Type
from learning.statistics import reference
from learning.statistics.constants import ENDED_MS
from learning.statistics.reference import Arrival, Sign, condense, statistics
from learning.statistics.window import Window
from tests.support.traffic import BEGIN, MINUTE, Life, generated

MINUTES = 90


def distinct(arrivals: list[Arrival]) -> list[TrafficEvent]:
    return list({arrival.event.id: arrival.event for arrival in arrivals}.values())


def since(arrivals: list[Arrival], at: int) -> list[Arrival]:
    return [arrival for arrival in arrivals if arrival.event.time >= at]


def after(history: tuple[list[TrafficEvent], list[Sign]], arrivals: list[Arrival], at: int) -> list[Arrival]:
    """What a window reads: a history of ``at`` with signs as counts of no time, and what came since."""
    kept, signs = history
    zero = [
        TrafficEvent(
            Type.COUNTS,
            f"{sign.boot}--{number}",
            sign.time,
            sign.edge,
            since=sign.time,
            until=sign.time,
            updates=dict.fromkeys(sign.endpoints, Counted(0, 0)),
        )
        for number, sign in enumerate(signs)
    ]
    return [*(Arrival(event, event.time) for event in (*kept, *zero)), *since(arrivals, at)]


def condensed(arrivals: list[Arrival], *times: int) -> tuple[list[TrafficEvent], list[Sign]]:
    """Condense again and again, each time from the history before."""
    known = arrivals
    for at in times:
        history = condense(distinct(known), at)
        known = after(history, arrivals, at)
    return history


@pytest.mark.parametrize("history_minutes", [25, 7 * 24 * 60])
def test_windows_after_a_history_have_the_statistics_of_all_events(
    history_minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "HISTORY_MS", history_minutes * MINUTE)
    for seed in range(12):
        chance = random.Random(seed)
        asked = (Accessed("abcd1234", "free", f"/e{chance.randrange(60)}", 3, 1),)
        read = Life("data", 0xD1, BEGIN, BEGIN).event(Type.COUNTS, BEGIN + 20 * MINUTE)
        access = read._replace(type=Type.ACCESS, requests=asked)
        arrivals = [*generated(seed, minutes=MINUTES, clients=40), Arrival(access, access.time)]
        # A process is started again at minute 45: before, between and after these times.
        first, second, start = sorted(BEGIN + chance.randrange(20 * MINUTE, 80 * MINUTE) for _ in range(3))
        window = Window(start, start + chance.randrange(MINUTE, 30 * MINUTE))
        history = condensed(arrivals, first, second)
        assert len(history[0]) + len(history[1]) < sum(event.time < second for event in distinct(arrivals))
        assert statistics(after(history, arrivals, second), window) == statistics(arrivals, window), seed


def few(chance: random.Random, at: int) -> list[TrafficEvent]:
    """Some events of two lives of an edge around a time, in any order."""
    events = []
    lives = [Life("websocket-1", boot, BEGIN, BEGIN) for boot in (1, 2)]
    for _ in range(chance.randint(1, 12)):
        life, kind = chance.choice(lives), chance.choice(list(Type)[:5])
        time = at + 1000 * chance.choice((-200, -40, -20, -1, 0, 20, 50))
        if kind is Type.COUNTS:
            since, until = time - chance.choice((0, MINUTE)), time + chance.choice((0, MINUTE))
            events.append(life.counts(since, until, a=(1, 1))._replace(time=time))
            continue
        names = chance.choice((("/a",), ("/a", "/b"))) if kind in {Type.SUBSCRIBE, Type.UNSUBSCRIBE} else ()
        client = int(life.boot, 16) * 10 + chance.randint(1, 2)
        event = life.event(kind, time, client, client, *names)
        events.append(event._replace(unknown=names[:1] if kind is Type.SUBSCRIBE else ()))
    return events


def test_every_event_may_be_on_either_side_of_the_time() -> None:
    at = BEGIN + 10 * MINUTE
    for seed in range(2000):
        chance = random.Random(seed)
        events = few(chance, at)
        arrivals = [Arrival(event, event.time) for event in events for _ in range(2)]
        # In a short window, processes are alive by signs from before it.
        window = Window(at, at + chance.choice((1, 4)) * MINUTE)
        assert statistics(after(condense(events, at), arrivals, at), window) == statistics(arrivals, window), seed


def test_events_of_ended_sessions_remain_as_signs_of_life_and_confirmations_only() -> None:
    life = Life("websocket-1", 1, BEGIN, BEGIN)
    ended = [
        life.event(Type.CONNECT, BEGIN, 1, 1),
        life.event(Type.SUBSCRIBE, BEGIN + 1, 1, 1, "/a", "/b"),
        life.event(Type.DISCONNECT, BEGIN + 2, 1, 1),
    ]
    named = Sign("websocket-1", life.boot, BEGIN + 1, ("/a", "/b"))
    signs = [Sign("websocket-1", life.boot, BEGIN + 2), named]
    assert condense(ended, BEGIN + 3 + ENDED_MS) == ([], signs)
    assert condense(ended, BEGIN + 2 + ENDED_MS) == ([ended[2]], signs)
    open_ = life.event(Type.CONNECT, BEGIN + 3, 2, 2)
    later = [Sign("websocket-1", life.boot, BEGIN + 3), named]
    assert condense([*ended, open_], BEGIN + 3 + ENDED_MS) == ([open_], later)
