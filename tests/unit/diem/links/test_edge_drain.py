"""Drain of a stopping server: clients are sent away no faster than others can take them, and it ends when they left."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from websockets.datastructures import Headers

from diem.fanout.feed_hub import FeedHub
from diem.links.edge import Admission, AdmissionRules, DrainPace, Edge, EdgeRules, HubService, drain_pace
from diem.process.limits import MessageAllowance
from tests.support.virtual_time import VirtualLoop, run_virtual


@pytest.mark.parametrize(
    ("clients", "seconds", "pace"),
    [
        (0, 30, DrainPace(0, 500)),
        (1, 30, DrainPace(0.002, 500)),
        (10_000, 30, DrainPace(20, 500)),
        # Another server admits 2,000 a second.
        (5000, 3, DrainPace(2.4, 500)),
        (10_000, 3, DrainPace(2.4, 2600)),
        (10_000, 0, DrainPace(0, 5000)),
    ],
)
def test_clients_have_no_window_but_that_of_one_reconnect_where_the_drain_has_time(
    clients: int, seconds: float, pace: DrainPace
) -> None:
    found = drain_pace(clients, seconds)
    assert found.retry_ms == pace.retry_ms
    assert found.spread_s == pytest.approx(pace.spread_s)


class Leaving:
    """A client that leaves some time after it was closed; with None, never."""

    def __init__(self, leave: Callable[[], None], after_s: float | None = 0.01) -> None:
        self.closed: list[tuple[float, int, str]] = []
        self._leave, self._after_s = leave, after_s

    def close(self, code: int, reason: str) -> None:
        loop = asyncio.get_running_loop()
        self.closed.append((loop.time(), code, reason))
        if self._after_s is not None:
            loop.call_later(self._after_s, self._leave)


def drained(clients: int, seconds: float, mode: str = "x", after_s: float | None = 0.01) -> tuple[list[Leaving], float]:
    """Drain a server with so many clients, at 500 a second; return them and the time that it took."""

    async def drain(loop: VirtualLoop) -> tuple[list[Leaving], float]:
        hub = FeedHub()
        admission = Admission(AdmissionRules(limit_loopback=False))
        edge = Edge(hub.fanout, admission, EdgeRules("test", mode), HubService(hub))

        def release(allowance: MessageAllowance) -> None:
            admission.release("127.0.0.1", allowance, loop.time())

        leaving = []
        for _ in range(clients):
            _, admitted = admission.admit("127.0.0.1", cast("Any", Headers()), 0)
            allowance = cast("Any", admitted).allowance
            leaving.append(Leaving(partial(release, allowance), after_s))

        edge.connections = cast("Any", dict.fromkeys(leaving))
        await edge.drain(seconds)
        assert edge.draining
        return leaving, loop.time()

    return run_virtual(drain)


def test_clients_are_closed_one_after_the_other_and_the_drain_ends_with_the_last() -> None:
    clients, took_s = drained(1500, 30)
    closes = [client.closed for client in clients]
    assert {(code, reason) for ((_, code, reason),) in closes} == {(1012, "retry=500")}
    times = sorted(at for ((at, _, _),) in closes)
    assert times[0] == 0
    for number, at in enumerate(times):
        # As others take them, in small batches.
        assert at == pytest.approx(number / 500, abs=0.2)
    assert times[-1] < took_s < 3.2


def test_drain_ends_in_time_although_a_client_stays() -> None:
    clients, took_s = drained(1, 10, after_s=None)
    assert clients[0].closed
    assert 9 < took_s < 10


def test_server_without_clients_ends_at_once() -> None:
    assert drained(0, 30) == ([], 0)


def test_clients_of_the_only_server_are_closed_together() -> None:
    clients, took_s = drained(700, 30, "single")
    assert {at for client in clients for at, _, _ in client.closed} == {0}
    assert took_s < 0.2
