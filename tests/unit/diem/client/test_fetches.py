"""Data that does not come with updates: when it is fetched, and by which version."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from diem.client import CompletedEvents, EndpointSnapshot, Event, FetchDelayed
from diem.errors import DiemError
from diem.protocol.media_types import DOCUMENT

WINDOW_S = 8.0


class Service:
    """A Data Service with one endpoint, whose answers and delays the test releases."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.kept: set[int] = {version}
        self.requests: list[int | None] = []
        self.slept: list[float] = []
        self.awake = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()
        self.fault: DiemError | None = None
        self.corrected: list[int] = []

    def correct(self, name: str, version: int) -> None:
        assert name == "/a"
        self.corrected.append(version)

    async def fetch(self, name: str, version: int | None) -> EndpointSnapshot | None:
        assert name == "/a"
        self.requests.append(version)
        answer = self.version if version is None else version if version in self.kept else None
        await self.answering.wait()
        if self.fault is not None:
            raise self.fault
        return None if answer is None else EndpointSnapshot(answer, "", DOCUMENT, {"of": answer})

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.awake.wait()

    def sleep_once(self) -> None:
        """End all sleeps that have begun."""
        self.awake.set()
        self.awake = asyncio.Event()


class Source:
    """Events as the test sends them."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self.queue.get()) is not None:
            yield event

    async def send(self, *events: Event | None) -> None:
        for event in events:
            self.queue.put_nowait(event)
        for _ in range(10):
            await asyncio.sleep(0)


def update(version: int, *, gone: bool = False) -> Event:
    return Event("update", "/a", version, gone=gone, fetch_window_s=WINDOW_S)


def complete(version: int) -> Event:
    """Return an update with its value."""
    return Event("update", "/a", version, media_type=DOCUMENT, value={"of": version})


async def rest_of(events: CompletedEvents) -> list[Event]:
    return [event async for event in events]


def versions(events: Sequence[Event]) -> list[tuple[int | None, int | None]]:
    """Return version and version of the value of the updates."""
    updates = [event for event in events if event.kind == "update"]
    return [(event.version, event.value["of"] if event.has_value else None) for event in updates]


async def test_the_first_data_is_fetched_at_once_and_later_data_within_the_window() -> None:
    service, source = Service(1), Source()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(1))
        assert versions([await anext(events)]) == [(1, 1)]
        assert service.slept == []
        service.version, service.kept = 2, {2}
        await source.send(update(2))
        (delay_s,) = service.slept
        assert 0 <= delay_s <= WINDOW_S
        assert service.requests == [1]
        service.awake.set()
        assert versions([await anext(events)]) == [(2, 2)]
        assert service.requests == [1, 2]


async def test_updates_that_arrive_meanwhile_change_the_version_and_not_the_time() -> None:
    service, source = Service(9), Source()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(complete(1), update(7), update(8), update(9))
        assert len(service.slept) == 1
        service.awake.set()
        await source.send(None)
        assert versions(await rest_of(events)) == [(9, 9)]  # version 1 was not read meanwhile
    assert service.requests == [9]


async def test_a_version_that_is_not_kept_is_followed_by_the_current_one() -> None:
    service, source = Service(5), Source()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(4), None)
        assert versions(await rest_of(events)) == [(5, 5)]
    assert service.requests == [4, None]


@pytest.mark.parametrize(("later", "requests"), [(6, [5, 6]), (5, [5])])
async def test_what_was_announced_during_a_request_is_fetched_after_it_if_it_is_newer(
    later: int, requests: list[int]
) -> None:
    service, source = Service(5), Source()
    service.answering.clear()
    service.awake.set()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(5))
        await source.send(update(later))
        service.kept = {5, later}
        service.answering.set()
        await source.send(None)
        assert versions(await rest_of(events))[-1] == (later, later)
    assert service.requests == requests


async def test_after_a_resync_the_current_version_is_fetched_even_during_a_request() -> None:
    service, source = Service(5), Source()
    service.answering.clear()
    service.awake.set()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(5))
        await source.send(Event("resync", "/a", fetch_window_s=WINDOW_S))
        service.answering.set()
        await source.send(None)
        found = await rest_of(events)
    assert service.requests == [5, None]
    assert {event.kind for event in found} == {"resync", "update"}


@pytest.mark.parametrize(
    "end", [complete(6), update(6, gone=True), Event("rejected", "/a"), Event("unsubscribed", "/a")]
)
async def test_data_that_arrives_or_is_no_longer_wanted_ends_the_fetch(end: Event) -> None:
    service, source = Service(5), Source()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(complete(1), update(5), end, None)
        assert (await rest_of(events))[-1] == end
    assert service.requests == []


async def test_a_fetch_that_fails_leaves_the_update_without_data() -> None:
    service, source = Service(5), Source()
    service.fault = DiemError("forbidden")
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(5))
        assert await anext(events) == Event("error", "/a", message="forbidden")
        assert versions([await anext(events)]) == [(5, None)]
        assert service.slept == []
        service.fault, service.version, service.kept = None, 6, {6}
        await source.send(update(6), None)
        assert versions(await rest_of(events)) == [(6, 6)]


async def test_a_fetch_that_may_succeed_later_is_repeated_until_the_announced_version_is_there() -> None:
    service, source = Service(5), Source()
    service.fault = FetchDelayed("gone for lunch", retry_after_s=7.0)
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(5))
        assert await anext(events) == Event("error", "/a", message="gone for lunch")
        assert versions([await anext(events)]) == [(5, None)]
        (delay_s,) = service.slept
        assert 7.0 <= delay_s <= 7.5
        # A service that does not have the version: what it has is better than nothing.
        service.fault, service.version, service.kept = None, 4, {4}
        service.sleep_once()
        await source.send()
        assert versions([await anext(events)]) == [(4, 4)]
        assert (await anext(events)).message == "version 5 is not there; the current one is 4"
        assert service.corrected == [4], "or the client would not report what the service has next"
        service.version, service.kept = 5, {5}
        service.sleep_once()
        assert versions([await anext(events)]) == [(5, 5)]
    assert service.requests == [5, 5, None, 5]


async def test_no_attempt_is_repeated_after_the_clients_events_have_ended() -> None:
    service, source = Service(5), Source()
    service.fault = FetchDelayed("gone for lunch")
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(5), None)
        assert versions(await rest_of(events)) == [(5, None)]


async def test_leaving_ends_all_fetches() -> None:
    service, source = Service(5), Source()
    service.answering.clear()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep):
        await source.send(update(5))
        assert service.requests == [5]
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("late", [complete(11), update(11), update(11, gone=True), update(12)])
async def test_what_is_shown_never_goes_back(late: Event) -> None:
    """The service is ahead of the feed."""
    service, source = Service(12), Source()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(update(10))
        assert versions([await anext(events)]) == [(12, 12)]
        await source.send(late, complete(13), None)
        assert versions(await rest_of(events)) == [(13, 13)]
    assert (service.requests, service.slept, service.corrected) == ([10, None], [], [])


@pytest.mark.parametrize("stated", [11, None])
async def test_version_that_a_server_does_not_have_is_verified_once(stated: int | None) -> None:
    service, source = Service(12), Source()
    service.awake.set()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(complete(12), Event("subscribed", "/a", stated))
        await source.send(Event("subscribed", "/a", 12), None)
        assert versions(await rest_of(events)) == [(12, 12)]
    assert (service.requests, service.corrected) == ([None], []), "the server lags"


async def test_version_that_the_service_has_lost_is_replaced_by_the_one_that_it_has() -> None:
    service, source = Service(11), Source()
    service.awake.set()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        await source.send(complete(20))
        assert versions([await anext(events)]) == [(20, 20)]
        await source.send(Event("subscribed", "/a", 11))
        assert [event.kind for event in (await anext(events), await anext(events))] == ["subscribed", "update"]
        await source.send(complete(12), None)
        assert versions(await rest_of(events)) == [(12, 12)], "and what follows is less than what was lost"
    assert (service.requests, service.corrected) == ([None], [11])


async def test_announced_version_that_the_service_has_lost_is_requested_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "diem.process.backoff.full_jitter", lambda attempt, base_s, cap_s, _rng: min(cap_s, base_s * 2**attempt)
    )
    service, source = Service(11), Source()
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep):
        await source.send(update(20))
        for _ in range(10):
            service.sleep_once()
            await source.send()
    assert service.slept == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
