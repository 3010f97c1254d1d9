import asyncio
from collections.abc import Callable
from random import Random

import httpx
import orjson
import pytest

from tests.load import writes
from tests.load.trace import Write
from tests.load.writes import Writer, WriteRefused
from tests.support.patience import PATIENCE_S

NAMES = [f"/e/{number}" for number in range(60)]


class Service:
    """A minimal Data Service: assigns versions, remembers keys, and fails on demand."""

    def __init__(self, *faults: Callable[[httpx.Request], httpx.Response]) -> None:
        self.keys: list[str] = []
        self._faults = list(faults)
        self._answers: dict[str, httpx.Response] = {}
        self._version = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.headers["Idempotency-Key"]
        self.keys.append(key)
        if self._faults:
            return self._faults.pop(0)(request)
        if key not in self._answers:
            self._version += 1
            names = [dataset["endpoint"] for dataset in orjson.loads(request.content)["datasets"]]
            accepted = [{"endpoint": name, "version": self._version, "changed": True} for name in names]
            self._answers[key] = httpx.Response(200, json={"accepted": accepted})
        return self._answers[key]


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("gone", request=request)


def status(code: int) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(code, headers={"Retry-After": "0"}, text="no")


def writer(service: Service) -> Writer:
    return Writer("http://x", "key", NAMES, Random(1), rate=1e6, transport=httpx.MockTransport(service))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "RETRY_SECONDS", 0.0)


async def test_every_endpoint_is_written_in_batches_within_the_limit() -> None:
    service = Service()
    one = writer(service)
    await one.put_all()
    assert [change.endpoint for change in one.accepted] == NAMES
    assert len(service.keys) == 2


async def test_lost_answer_is_asked_for_again_with_the_same_key_and_remembered_as_uncertain() -> None:
    service = Service(lost, status(503))
    one = writer(service)
    await one.put_all()
    assert len(set(service.keys[:3])) == 1
    assert [write.endpoint for write in one.uncertain] == NAMES[:50]
    assert len(one.accepted) == len(NAMES)
    assert one.statuses == {"ReadError": 1, "503": 1, "200": 2}


async def test_every_accepted_change_has_a_stamp_of_its_own_which_repeats_keep() -> None:
    one = writer(Service(lost))
    await one.run(writes.BATCH * writes.REPEAT_EVERY / 1e6)
    changes = {(change.endpoint, change.version): change.stamp for change in one.accepted}
    assert len(set(changes.values())) == len(changes)
    assert set(changes.items()) == {((change.endpoint, change.version), change.stamp) for change in one.accepted}
    assert {write.stamp for write in one.uncertain} < set(changes.values())


async def test_refusal_of_a_valid_write_ends_the_run() -> None:
    with pytest.raises(WriteRefused, match="422"):
        await writer(Service(status(422))).put_all()


async def test_service_that_never_takes_a_write_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "GIVE_UP_SECONDS", 0.0)
    with pytest.raises(WriteRefused, match="no 2xx"):
        await writer(Service(status(503))).put_all()


async def test_held_writer_begins_nothing() -> None:
    service = Service()
    one = writer(service)
    with one.held():
        task = asyncio.create_task(one.put_all())
        await asyncio.sleep(0)
        assert service.keys == []
    await task
    assert len(one.accepted) == len(NAMES)


async def test_writes_at_a_rate_repeat_some_requests_and_count_changes_once() -> None:
    service = Service()
    one = writer(service)
    # Without deletions, which this service does not know.
    await one.run(writes.BATCH * (writes.DELETE_EVERY - 1) / 1e6)
    assert len(one.latencies) == writes.DELETE_EVERY - 1
    assert len(service.keys) == writes.DELETE_EVERY
    assert len(set(service.keys)) == writes.DELETE_EVERY - 1
    assert one.changed_since(0) == writes.BATCH * (writes.DELETE_EVERY - 1)


async def test_writes_go_on_until_they_are_told_that_it_is_over() -> None:
    service = Service()
    one = writer(service)
    over = asyncio.Event()
    writing = asyncio.create_task(one.run_until(over))
    async with asyncio.timeout(PATIENCE_S):
        while one.requests < 3:
            await asyncio.sleep(0)
    over.set()
    await writing
    assert one.newest()[NAMES[0]] == max(change.version for change in one.accepted if change.endpoint == NAMES[0])


async def test_trace_is_written_as_it_is_without_repeats_or_deletions() -> None:
    service = Service()
    one = writer(service)
    planned = [Write(0.0, tuple(NAMES[start : start + 3])) for start in range(0, 60, 3)] * 3
    await one.replay(planned)
    assert len(service.keys) == len(set(service.keys)) == len(planned) > writes.DELETE_EVERY
    assert sorted(change.endpoint for change in one.accepted) == sorted(NAMES * 3)
