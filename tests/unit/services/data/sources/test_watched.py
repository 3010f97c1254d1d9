"""The HTTP source of watched endpoints, in virtual time: who watches decides what is requested, once an interval."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.data.errors import StoreUnavailable, UnknownEndpoint
from services.data.kinds import Representation
from services.data.sources.pacing import HostPacer
from services.data.sources.poll_queue import PollQueue, next_slot
from services.data.sources.source import Health, InterestSource, StoredState
from services.data.sources.tables import HttpConfig
from services.data.sources.watched import WatchedSource
from tests.support.file_threads import FILES
from tests.support.virtual_time import run_virtual

EVERY_S = 10.0
TABLE = {
    "type": "http",
    "name": "orders",
    "url": "https://api.example/v2/orders/{rest}?full=1",
    "prefix": "/orders",
    "kind": "document",
    "every": EVERY_S,
}


class LoopClock:
    """The time of the event loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round((self.monotonic() + self.ahead_s) * 1000)


class World:
    """The server of the API, and a store with the endpoints below the prefix."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.requests: list[tuple[float, httpx.Request]] = []
        self.answers: dict[str, httpx.Response] = {}
        """By the part after the prefix; others are a document with an ETag."""
        self.delay_s = 0.0
        self.running = self.most = 0
        self.stored: dict[str, bytes] = {}
        self.unavailable = False
        self._task: asyncio.Task[None] | None = None

    def source(self, **fields: Any) -> WatchedSource:
        config = HttpConfig.model_validate({**TABLE, **fields})
        made = WatchedSource(
            config,
            self.clock,
            convert=FILES.convert,
            pacer=HostPacer(self.clock),
            uniform=lambda _low, high: high,
            transport=httpx.MockTransport(self._answer),
        )
        below = [name for name in self.stored if name.startswith("/orders/")]
        made.attach(StoredState("id", Path(), self._current, lambda _prefix: below, self._delete))
        return made

    async def started(self, **fields: Any) -> WatchedSource:
        """Run a source instead of the one before, as a new process does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        source = self.source(**fields)
        self._task = asyncio.create_task(source.run(self._sink))
        await asyncio.sleep(0)
        return source

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((self.clock.monotonic(), request))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        rest = request.url.path.removeprefix("/v2/orders/")
        answer = self.answers.get(rest) or httpx.Response(200, json={"id": rest}, headers={"ETag": f'"{rest}"'})
        if request.headers.get("If-None-Match") == answer.headers.get("ETag", "none"):
            return httpx.Response(304)
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    async def _sink(self, made: Sequence[Representation], *, source: str) -> None:
        assert source == "orders"
        self.stored |= {each.endpoint: each.content for each in made}

    async def _delete(self, name: str) -> None:
        if self.unavailable:
            raise StoreUnavailable("the disk is full")
        if self.stored.pop(name, None) is None:
            raise UnknownEndpoint(name)

    async def _current(self, name: str) -> Any:
        raise UnknownEndpoint(name)

    def since(self, start: float) -> Counter[str]:
        """Return the number of requests by the part after the prefix, from a time on."""
        paths = (request.url.path for at, request in self.requests if at >= start)
        return Counter(path.removeprefix("/v2/orders/") for path in paths)

    @property
    def now(self) -> float:
        return self.clock.monotonic()


def in_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        world = World()
        try:
            await test(world)
        finally:
            await world.stop()

    def run() -> None:
        run_virtual(lambda _loop: main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_world
async def test_an_endpoint_is_polled_at_once_and_then_once_an_interval_while_it_is_watched(world: World) -> None:
    source = await world.started()
    await asyncio.sleep(5 * EVERY_S)
    assert not world.requests
    source.watch("/orders/7")
    await asyncio.sleep(0.1)
    assert world.stored == {"/orders/7": b'{"id":"7"}'}
    assert isinstance(source, InterestSource)
    await asyncio.sleep(2 * EVERY_S)
    began = world.now
    await asyncio.sleep(10 * EVERY_S)
    assert world.since(began) == {"7": 10}
    assert world.requests[-1][1].headers["If-None-Match"] == '"7"'
    source.unwatch("/orders/7")
    began = world.now
    await asyncio.sleep(10 * EVERY_S)
    assert not world.since(began)
    assert (source.health.successes, source.health.error) == (len(world.requests), None)
    assert source.health.progress == "0 watched"


@in_world
async def test_watchers_at_several_servers_and_those_who_return_cause_no_more_polls(world: World) -> None:
    source = await world.started()
    for _ in range(4):
        source.watch("/orders/7")
    await asyncio.sleep(EVERY_S)
    began = world.now
    for _ in range(20):  # a server is killed, and its clients come back
        source.unwatch("/orders/7")
        await asyncio.sleep(EVERY_S / 10)
        source.watch("/orders/7")
        await asyncio.sleep(EVERY_S / 10 * 3)
        for _ in range(3):
            source.unwatch("/orders/7")
        source.unwatch("/orders/7")
        await asyncio.sleep(EVERY_S / 10)
        for _ in range(4):
            source.watch("/orders/7")
        await asyncio.sleep(EVERY_S / 2)
    assert 19 <= world.since(began)["7"] <= 21


@in_world
async def test_an_endpoint_watched_again_after_long_is_polled_at_once(world: World) -> None:
    source = await world.started()
    source.watch("/orders/7")
    await asyncio.sleep(1)
    source.unwatch("/orders/7")
    await asyncio.sleep(5 * EVERY_S)
    source.watch("/orders/7")
    await asyncio.sleep(0.1)
    assert world.since(world.now - 1) == {"7": 1}


@in_world
async def test_polls_of_many_endpoints_are_spread_and_a_restart_repeats_none(world: World) -> None:
    names = [f"/orders/{number}" for number in range(60)]
    source = await world.started()
    for name in names:
        source.watch(name)
    await asyncio.sleep(2 * EVERY_S)
    began = world.now
    for _ in range(4):
        await asyncio.sleep(1.6 * EVERY_S)
        source = await world.started()
        for name in names:
            source.watch(name)
    await asyncio.sleep(1.6 * EVERY_S)
    counts = world.since(began)
    assert len(counts) == 60
    assert {*counts.values()} <= {7, 8, 9}
    assert 474 <= counts.total() <= 486
    for second in range(round(8 * EVERY_S)):
        within = sum(began + second <= at < began + second + 1 for at, _ in world.requests)
        assert within <= 24


@in_world
async def test_after_a_restart_rarely_polled_endpoints_wait_for_a_minute_at_most(world: World) -> None:
    world.stored = {f"/orders/{number}": b"{}" for number in range(100)}
    source = await world.started(every=3600.0)
    for name in world.stored:
        source.watch(name)
    await asyncio.sleep(1)
    assert len(world.requests) < 10
    await asyncio.sleep(60)
    assert len(world.requests) == 100
    source.watch("/orders/new")
    await asyncio.sleep(0.6)
    assert world.since(61) == {"new": 1}


@in_world
async def test_a_step_of_the_wall_clock_puts_no_poll_off_for_long(world: World) -> None:
    source = await world.started()
    for name in ("/orders/7", "/orders/8"):
        source.watch(name)
    await asyncio.sleep(3 * EVERY_S)
    for step_s in (-3600.0, 1803.0, 7200.5):
        began = world.now
        world.clock.ahead_s += step_s
        await asyncio.sleep(3 * EVERY_S)
        assert all(2 <= count <= 4 for count in world.since(began).values())
        assert len(world.since(began)) == 2


@in_world
async def test_names_are_encoded_into_the_path(world: World) -> None:
    source = await world.started()
    source.watch("/orders/a/b;c=1:~$&".removesuffix("&"))
    await asyncio.sleep(0.1)
    assert world.requests[0][1].url.raw_path == b"/v2/orders/a/b%3Bc%3D1%3A~%24?full=1"


@in_world
async def test_an_endpoint_that_is_gone_is_deleted_and_returns(world: World) -> None:
    source = await world.started()
    source.watch("/orders/7")
    await asyncio.sleep(EVERY_S)
    before = world.stored["/orders/7"]
    world.answers["7"] = httpx.Response(404)
    await asyncio.sleep(EVERY_S)
    assert "/orders/7" in world.stored  # a single 404 may be a mistake
    await asyncio.sleep(EVERY_S)
    assert "/orders/7" not in world.stored
    began = world.now
    await asyncio.sleep(600)
    assert 9 <= world.since(began)["7"] <= 14
    del world.answers["7"]
    await asyncio.sleep(60)
    assert world.stored["/orders/7"] == before  # with the same ETag
    world.answers["7"] = httpx.Response(410)
    await asyncio.sleep(EVERY_S)
    assert "/orders/7" not in world.stored
    assert source.health.error is None


@in_world
async def test_a_failing_endpoint_is_put_off_and_named_and_no_other_is_affected(world: World) -> None:
    source = await world.started()
    world.answers["7"] = httpx.Response(500)
    source.watch("/orders/7")
    source.watch("/orders/8")
    await asyncio.sleep(600)
    counts = world.since(0)
    assert counts["7"] < 20
    assert counts["8"] >= 58
    assert source.health.error == "/orders/7: status 500 (Internal Server Error)"
    assert source.health.failures == counts["7"]
    source.unwatch("/orders/7")
    assert source.health.error is None
    source.watch("/orders/7")
    await asyncio.sleep(60)
    assert source.health.error
    del world.answers["7"]
    await asyncio.sleep(60)
    assert source.health.error is None
    assert "/orders/7" in world.stored


@in_world
async def test_retry_after_puts_off_all_polls(world: World) -> None:
    source = await world.started()
    source.watch("/orders/7")
    await asyncio.sleep(1)
    world.answers["8"] = httpx.Response(429, headers={"Retry-After": "100"})
    source.watch("/orders/8")
    await asyncio.sleep(1)
    began = world.now
    source.watch("/orders/9")
    await asyncio.sleep(97)
    assert not world.since(began)
    del world.answers["8"]
    await asyncio.sleep(20)
    assert {*world.since(began)} == {"7", "8", "9"}


@in_world
async def test_beyond_the_bound_watched_endpoints_are_refused_until_there_is_room(world: World) -> None:
    source = await world.started(max_endpoints=2)
    assert [source.watch(f"/orders/{number}") for number in range(4)] == [True, True, False, False]
    assert source.watch("/orders/0")
    assert source.health.error == "2 endpoints are watched, 2 more are not polled: max_endpoints"
    assert not source.readmit()
    await asyncio.sleep(1)
    source.unwatch("/orders/1")
    assert source.readmit()
    assert source.health.error is None
    assert source.watch("/orders/3")
    await asyncio.sleep(1)
    assert {*world.stored} == {"/orders/0", "/orders/3"}


@in_world
async def test_the_endpoint_watched_least_recently_is_deleted_to_make_room(world: World) -> None:
    world.stored = {"/orders/old": b"{}"}
    source = await world.started(max_endpoints=3)
    for name in ("/orders/a", "/orders/b"):
        source.watch(name)
        await asyncio.sleep(1)
        source.unwatch(name)
    world.unavailable = True
    source.watch("/orders/c")
    await asyncio.sleep(1)
    assert "/orders/old" in world.stored
    world.unavailable = False
    source.watch("/orders/d")
    await asyncio.sleep(1)
    assert {*world.stored} == {"/orders/b", "/orders/c", "/orders/d"}
    assert source.watch("/orders/b")
    assert not source.watch("/orders/e")


@in_world
async def test_invented_names_do_not_displace_data(world: World) -> None:
    source = await world.started(max_endpoints=3)
    source.watch("/orders/a")
    await asyncio.sleep(1)
    source.unwatch("/orders/a")
    for number in range(10):
        world.answers[f"x{number}"] = httpx.Response(404)
        source.watch(f"/orders/x{number}")
        await asyncio.sleep(1)
        source.unwatch(f"/orders/x{number}")
    assert {*world.stored} == {"/orders/a"}


@in_world
async def test_beyond_the_rate_of_the_host_all_are_polled_less_often_and_new_ones_soon(world: World) -> None:
    source = await world.started(per_minute=600)
    for number in range(300):
        source.watch(f"/orders/{number}")
    await asyncio.sleep(100)
    counts = world.since(0)
    assert 990 <= counts.total() <= 1010
    assert {*counts.values()} <= {2, 3, 4, 5}
    source.watch("/orders/new")
    await asyncio.sleep(2)
    assert "/orders/new" in world.stored


@in_world
async def test_requests_at_a_time_are_bounded(world: World) -> None:
    world.delay_s = 1.0
    source = await world.started(concurrent=3, every=60.0, per_minute=6000)
    for number in range(30):
        source.watch(f"/orders/{number}")
    await asyncio.sleep(11)
    assert world.most == 3
    assert len(world.stored) == 30


@in_world
async def test_a_trial_reads_what_is_watched_once(world: World) -> None:
    source = world.source()
    await source.try_once(world._sink)
    assert (source.health.error, world.requests) == (None, [])
    source.watch("/orders/7")
    await source.try_once(world._sink)
    assert {*world.stored} == {"/orders/7"}


def test_new_names_and_a_backlog_take_turns() -> None:
    queue = PollQueue()
    for name in "abcd":
        queue.add(name, 1.0)
    for name in "xy":
        queue.add_new(name)
    queue.add("c", 5.0)
    assert [queue.pop(2.0) for _ in range(6)] == ["x", "a", "y", "b", "d", None]
    assert queue.next_at == 5.0
    queue.discard("c")
    assert queue.next_at == float("inf")


def test_a_queue_whose_times_change_stays_small() -> None:
    queue = PollQueue()
    for number in range(10_000):
        queue.add("a", float(number))
    assert len(queue._heap) < 100


@pytest.mark.parametrize("after", [0.0, 3.3, 1_700_000_000.0])
def test_slots_are_one_interval_apart(after: float) -> None:
    first = next_slot("/a", after, 10.0)
    assert after <= first < after + 10
    assert next_slot("/a", first + 5, 10.0) == pytest.approx(first + 10)


def test_a_health_that_recovers_counts_no_poll() -> None:
    health = Health("x", LoopClock())
    health.failed("no")
    health.recovered()
    assert (health.error, health.successes, health.failures) == (None, 0, 1)
