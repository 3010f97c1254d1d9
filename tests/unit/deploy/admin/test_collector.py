import asyncio
from typing import Any

import httpx
import orjson
import pytest

from deploy.admin.collector import MAX_ENDPOINTS, Collector, PlanReader
from deploy.admin.counters import SAMPLE_S
from deploy.clients.metadata import MetadataService
from diem.process.clock import ManualClock
from diem.protocol.assignment import Snapshot, encode
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase
from tests.unit.deploy.admin.statuses import LOGS, change, data, server, status, z_client
from tests.unit.deploy.scripted_service import Answer, service
from tests.unit.deploy.scripted_service import status as plan_status


class Source:
    """Statuses on demand; counts how many were requested."""

    def __init__(self, clock: ManualClock, answer: dict[str, Any], seconds: float = 0.0) -> None:
        self.requests = 0
        self.answer = answer
        self.fails = False
        self._clock = clock
        self._seconds = seconds

    async def __call__(self) -> dict[str, Any]:
        self.requests += 1
        await asyncio.sleep(0)
        self._clock.advance(self._seconds)
        if self.fails:
            raise ValueError("broken")
        return self.answer


def none(_urls: object) -> MetadataService:
    raise AssertionError("there is no metadata service")


SINGLE = status("single", data(), server("websocket-1", 3))


def collector(source: Source, clock: ManualClock, answer: Answer | None = None) -> Collector:
    reader = PlanReader(none if answer is None else lambda _urls: service(answer))
    return Collector(source, reader, LOGS, clock)


async def test_all_pages_of_a_second_share_one_poll() -> None:
    clock = ManualClock()
    source = Source(clock, SINGLE)
    collected = collector(source, clock)
    answers = await asyncio.gather(*(collected.latest() for _ in range(20)))
    assert source.requests == 1
    assert len(set(answers)) == 1
    assert await collected.latest() == answers[0]
    clock.advance(0.9)
    assert await collected.latest() == answers[0]
    clock.advance(0.1)
    assert orjson.loads(await collected.latest())["time"] != orjson.loads(answers[0])["time"]
    assert source.requests == 2


async def test_polls_of_a_large_system_take_a_quarter_of_the_time_at_most() -> None:
    clock = ManualClock()
    source = Source(clock, SINGLE, seconds=2.0)
    collected = collector(source, clock)
    await collected.latest()
    clock.advance(5.9)
    await collected.latest()
    assert source.requests == 1
    clock.advance(0.2)
    await collected.latest()
    assert source.requests == 2


async def test_a_page_that_is_closed_does_not_end_the_poll_of_the_others() -> None:
    clock = ManualClock()
    source = Source(clock, SINGLE)
    collected = collector(source, clock)
    leaving, staying = asyncio.create_task(collected.latest()), asyncio.create_task(collected.latest())
    await asyncio.sleep(0)
    leaving.cancel()
    assert orjson.loads(await staying)["headline"] == "All well"
    await collected.close()


async def test_fault_of_a_poll_is_reported_and_the_next_one_tries_again() -> None:
    clock = ManualClock()
    source = Source(clock, SINGLE)
    collected = collector(source, clock)
    source.fails = True
    with pytest.raises(ValueError, match="broken"):
        await collected.latest()
    source.fails = False
    clock.advance(1.0)
    assert orjson.loads(await collected.latest())["headline"] == "All well"


async def test_history_is_kept_without_readers_and_survives_a_fault() -> None:
    clock = ManualClock()
    source = Source(clock, SINGLE)
    collected = collector(source, clock)
    slept = 0

    async def sleep(seconds: float) -> None:
        nonlocal slept
        slept += 1
        source.fails = slept == 2
        if slept == 4:
            raise asyncio.CancelledError
        clock.advance(seconds)

    with pytest.raises(asyncio.CancelledError):
        await collected.run(sleep)
    history = orjson.loads(await collected.latest())["history"]
    first = history["at"][0]
    assert history["at"] == [first, first + 1000 * SAMPLE_S, first + 3000 * SAMPLE_S]
    assert history["clients"] == [3, 3, 3]


async def test_refusals_of_the_last_minute_are_a_finding() -> None:
    clock = ManualClock()
    source = Source(clock, SINGLE)
    collected = collector(source, clock)
    for count in (3, 8):
        source.answer = change(SINGLE, "websocket-1", report={"refused": {"origin": count}})
        document = orjson.loads(await collected.latest())
        clock.advance(1.0)
    assert document["headline"] == "websocket-1 refuses clients"
    assert document["findings"][0]["detail"] == "In the last minute: 5 origin."


async def test_first_refusals_of_a_process_are_a_finding() -> None:
    clock = ManualClock()
    source = Source(clock, z_client())
    collected = collector(source, clock, lambda _request: httpx.Response(404))
    for refused in ({}, {"address_limit": 7}):
        source.answer = change(z_client(), "metadata", report={"refused": refused})
        document = orjson.loads(await collected.latest())
        clock.advance(1.0)
    assert document["findings"][0]["detail"] == "In the last minute: 7 address limit."


class Metadata:
    """A metadata service with one plan that moves three endpoints; counts requests by path."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.plan = plan_status("p-1", state="moving", phase="move", epoch=4, moves=3)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        if request.url.path == "/v1/plans":
            return httpx.Response(200, json={"plans": [self.plan]})
        entries = {b"/a": Entry(1, 2), b"/b": Entry(3, HOT), b"/c": Entry(4), b"/d": Entry(5, 5)}
        return httpx.Response(200, content=encode(Snapshot(PartitionMap(Head(8, 4, Phase.MOVE, "p-1"), entries), {})))


async def test_moves_of_the_plan_in_progress_are_read_once_an_epoch() -> None:
    clock = ManualClock()
    metadata = Metadata()
    collected = collector(Source(clock, z_client()), clock, metadata)
    for _ in range(3):
        document = orjson.loads(await collected.latest())
        clock.advance(1.0)
    assert document["plans"][0]["in_progress"]
    assert document["moves"] == [
        {"endpoint": "/a", "home": "1", "target": "2"},
        {"endpoint": "/b", "home": "3", "target": "hot"},
    ]
    assert metadata.paths.count("/v1/partitions") == 1
    metadata.plan["epoch"] = 5
    await collected.latest()
    assert metadata.paths.count("/v1/partitions") == 2


async def test_map_of_very_many_endpoints_is_not_read() -> None:
    clock = ManualClock()
    metadata = Metadata()
    large = change(z_client(), "data", report={"endpoints": MAX_ENDPOINTS + 1})
    document = orjson.loads(await collector(Source(clock, large), clock, metadata).latest())
    assert (document["moves"], metadata.paths) == (None, ["/v1/plans"])


async def test_without_an_answer_of_the_metadata_service_everything_else_is_shown() -> None:
    def silent(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    clock = ManualClock()
    document = orjson.loads(await collector(Source(clock, z_client()), clock, silent).latest())
    assert (document["plans"], document["headline"]) == ([], "All well")
