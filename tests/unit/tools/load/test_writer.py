"""Updates of endpoints that belong to the load test."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from deploy.clients.data_service import DataService, ServiceRefused
from diem.process.auth import SharedKey
from tests.support.patience import PATIENCE_S
from tools.load.writer import BATCH, DELETE_TRIES, MAX_PAUSE_S, PREFIX, LoadWriter, _pause_s, write_all

KEY = SharedKey("0123456789abcdef")


class Store:
    """A Data Service that accepts writes, except for the next ``failures``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: list[tuple[str, float]] = []
        self.deleted: list[str] = []
        self.failures = 0
        self.refusals: list[httpx.Response] = []
        """Answers to the next requests to delete."""
        self.states_versions = True
        self.batches = 1000
        """Bulk requests that are accepted."""
        self.stopping = asyncio.Event()
        self.until = 1000
        """Datasets after which the test ends."""
        real = httpx.AsyncClient
        transport = httpx.MockTransport(self._answer)
        monkeypatch.setattr("httpx.AsyncClient", lambda **options: real(transport=transport, **options))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == KEY.header
        if request.method == "DELETE" and self.refusals:
            return self.refusals.pop(0)
        if request.method == "DELETE":
            self.deleted.append(request.url.path)
            return httpx.Response(200)
        assert (request.method, request.url.path) == ("PUT", "/v1/data")
        self.batches -= 1
        if self.failures or self.batches < 0:
            self.failures -= 1
            return httpx.Response(503, json={"detail": "not now"})
        datasets: list[dict[str, Any]] = json.loads(request.content)["datasets"]
        self.values += [(each["endpoint"], each["points"][0]["value"]) for each in datasets]
        if len(self.values) >= self.until:
            self.stopping.set()
        accepted = [{"endpoint": each["endpoint"], "version": len(self.values)} for each in datasets]
        return httpx.Response(200, json={"accepted": accepted} if self.states_versions else {})


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(monkeypatch)


async def test_endpoints_are_created_written_in_turn_and_deleted(store: Store) -> None:
    store.until = 3 + 6
    async with LoadWriter(DataService("http://h:1"), KEY, 3, 50.0) as writer:
        assert [name for name, _ in store.values] == writer.names == [f"{PREFIX}/{number}" for number in (1, 2, 3)]
        await writer.run(store.stopping)
        assert writer.accepted == len(store.values) - 3 >= 6
    assert {name for name, _ in store.values} == {*writer.names}
    values = [value for _, value in store.values]
    assert len({*values}) == len(values), "an equal dataset would be no update"
    assert sorted(store.deleted) == [f"/v1/data{name}" for name in writer.names]


async def test_a_high_rate_is_written_in_batches_of_different_endpoints(store: Store) -> None:
    store.until = 20 + 40
    async with LoadWriter(DataService("http://h:1"), KEY, 20, 1000.0) as writer:
        await writer.run(store.stopping)
    written = [name for name, _ in store.values[20:]]
    assert len(written) % 10 == 0
    assert all(len({*written[first : first + 10]}) == 10 for first in range(0, len(written), 10))


async def test_writes_that_fail_are_counted_with_their_reason(store: Store) -> None:
    async with LoadWriter(DataService("http://h:1"), KEY, 1, 100.0) as writer:
        store.failures, store.until = 2, 3
        await writer.run(store.stopping)
    assert writer.failed == {"HTTP 503: not now": 2}
    assert writer.accepted >= 2


async def test_without_the_right_to_write_there_is_no_test(store: Store) -> None:
    store.failures = 1
    with pytest.raises(ServiceRefused, match="not now"):
        async with LoadWriter(DataService("http://h:1"), KEY, 1, 1.0):
            pytest.fail("the endpoints do not exist")
    assert store.deleted == []


async def test_a_batch_that_is_refused_leaves_no_endpoints_of_those_before(store: Store) -> None:
    store.batches = 1
    with pytest.raises(ServiceRefused, match="not now"):
        async with LoadWriter(DataService("http://h:1"), KEY, BATCH + 1, 1.0):
            pytest.fail("not all of the endpoints exist")
    assert sorted(store.deleted) == sorted(f"/v1/data{PREFIX}/{number}" for number in range(1, BATCH + 1))


async def test_deletions_are_tried_again_when_the_service_says_so(store: Store) -> None:
    store.refusals = [httpx.Response(status, headers={"Retry-After": "0"}) for status in (429, 503)]
    async with LoadWriter(DataService("http://h:1"), KEY, 1, 1.0) as writer:
        pass
    assert (len(store.deleted), store.refusals, writer.left) == (1, [], "")


async def test_endpoints_that_cannot_be_deleted_are_reported(store: Store) -> None:
    refusal = httpx.Response(503, headers={"Retry-After": "0"}, json={"detail": "no space left"})
    store.refusals = [refusal] * DELETE_TRIES
    async with LoadWriter(DataService("http://h:1"), KEY, 1, 1.0) as writer:
        pass
    assert writer.left == f"1 of 1 endpoints of {PREFIX} were not deleted: HTTP 503: no space left"


async def test_endpoints_of_a_canary_are_written_in_batches_with_the_time_and_their_versions_returned(
    store: Store,
) -> None:
    names = [f"/canary/p{number}" for number in range(BATCH + 1)]
    assert await write_all(DataService("http://h:1"), KEY, names) == {
        **dict.fromkeys(names[:BATCH], BATCH),
        names[BATCH]: BATCH + 1,
    }
    assert [name for name, _ in store.values] == names
    assert all(abs(value / 1000 - time.time()) < PATIENCE_S for _, value in store.values)
    for states_versions, failures, detail in ((False, 0, "its answer has no versions"), (True, 1, "not now")):
        store.states_versions, store.failures = states_versions, failures
        with pytest.raises(ServiceRefused, match=detail):
            await write_all(DataService("http://h:1"), KEY, names)


@pytest.mark.parametrize(("text", "pause_s"), [("3", 3.0), ("86400", MAX_PAUSE_S), ("", 1.0), ("Wed, 21 Oct", 1.0)])
def test_retry_after_is_bounded(text: str, pause_s: float) -> None:
    assert _pause_s(httpx.Response(429, headers={"Retry-After": text})) == pause_s
